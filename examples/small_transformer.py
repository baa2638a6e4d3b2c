"""A small transformer that learns to sort letters: its layers split over two processes, its batches
over two more.

The same model trains on a mesh of four and in this process alone. What differs is `Split`: on the
mesh each rank of "tp" keeps its share of the attention heads and of the hidden units, and what the
shares find is added up, twice per layer. In the end both must have seen the same losses, and the
model must sort words that it has not seen.

    python examples/small_transformer.py

What to look for:

* ``Split.share``                  each rank takes its part of weights that all ranks make alike
* ``Split.add_up``                 the only place where the forward pass crosses ranks; gradients flow back through it
* ``for parameter in ...``         gradients: those of weights that all ranks of "tp" have are summed, all are averaged over "dp"
* ``write``                        the trained model computes on the mesh, and one fetch brings the letters
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everybody calls it

from monarch import DeviceMesh, inspect, reduce, reduce_
from monarch.actor import this_host

LETTERS = "abcdefgh"
LENGTH = 5  # of a word
SEPARATOR = len(LETTERS)
WIDTH, HEADS, LAYERS = 32, 4, 2
BATCH, STEPS, LEARNING_RATE = 64, 100, 0.006


class Split:
    """How layers are split over the ranks of "tp"; without a mesh not at all."""

    def __init__(self, mesh: DeviceMesh | None = None) -> None:
        self.parts = mesh.size("tp") if mesh else 1
        self.rank = mesh.rank("tp") if mesh else None

    def share(self, tensor: torch.Tensor, dim: int) -> nn.Parameter:
        if self.rank is not None:
            tensor = torch.stack(tensor.chunk(self.parts, dim)).index_select(
                0, self.rank.reshape(1)
            )[0]
        return nn.Parameter(tensor)

    def add_up(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.rank is None else reduce(tensor, "tp", "sum")


class Layer(nn.Module):
    """Attention and two linear layers, of which this rank has some heads and some hidden units."""

    def __init__(self, split: Split) -> None:
        super().__init__()
        self.split = split
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        size = WIDTH // HEADS
        self.attend = split.share(torch.randn(3, HEADS, size, WIDTH) / WIDTH**0.5, 1)
        self.collect = split.share(torch.randn(HEADS, size, WIDTH) / WIDTH**0.5, 0)
        self.up = split.share(torch.randn(4 * WIDTH, WIDTH) / WIDTH**0.5, 0)
        self.down = split.share(torch.randn(WIDTH, 4 * WIDTH) / (4 * WIDTH) ** 0.5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries, keys, values = torch.einsum("bld,chsd->cbhls", self.norms[0](x), self.attend)
        seen = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.split.add_up(torch.einsum("bhls,hsd->bld", seen, self.collect))
        return x + self.split.add_up(
            F.linear(F.gelu(F.linear(self.norms[1](x), self.up)), self.down)
        )


class Transformer(nn.Module):
    def __init__(self, split: Split) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS) + 1, WIDTH)
        self.places = nn.Parameter(torch.randn(2 * LENGTH, WIDTH) / 10)
        self.layers = nn.Sequential(*[Layer(split) for _ in range(LAYERS)])
        self.head = nn.Parameter(torch.randn(len(LETTERS), WIDTH) / WIDTH**0.5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """What letter comes after each."""
        found = self.layers(self.letters(words) + self.places[: words.shape[1]])
        return F.linear(found, self.head)

    def shared(self) -> list[nn.Parameter]:
        """The parameters that every rank has as a whole."""
        split = ("attend", "collect", "up", "down")
        return [
            parameter for name, parameter in self.named_parameters() if not name.endswith(split)
        ]


def words(seed: int) -> torch.Tensor:
    """Random words: numbers of letters."""
    torch.manual_seed(seed)
    return torch.randint(len(LETTERS), (BATCH, LENGTH))


def loss_of(model: Transformer, unsorted: torch.Tensor) -> torch.Tensor:
    """How well the model continues ``word|`` with the letters of the word, sorted."""
    sorted_ = unsorted.sort(1).values
    separator = torch.full((len(unsorted), 1), SEPARATOR)
    guessed = model(torch.cat([unsorted, separator, sorted_[:, :-1]], 1))[:, LENGTH:]
    return F.cross_entropy(guessed.flatten(0, 1), sorted_.flatten())


def train_on_mesh(mesh: DeviceMesh) -> tuple[Transformer, list[float]]:
    torch.manual_seed(0)  # on all ranks: they begin with the same weights
    model = Transformer(Split(mesh))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for step in range(STEPS):
        batch = (
            words(step)
            .reshape(mesh.size("dp"), -1, LENGTH)
            .index_select(0, mesh.rank("dp").reshape(1))[0]
        )
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        # all ranks of "tp" compute it: together they count it once
        torch.autograd.backward(loss / mesh.size("tp"))
        for parameter in model.shared():
            reduce_(parameter.grad, "tp", "sum")
        for parameter in model.parameters():
            reduce_(parameter.grad, "dp", "avg")
        optimizer.step()
        losses.append(reduce(loss.detach(), "dp", "avg"))
    return model, [value.item() for value in inspect(losses)]


def train_here() -> list[float]:
    torch.set_num_threads(1)  # operations are small: more would wait for each other
    torch.manual_seed(0)
    model = Transformer(Split())
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, words(step))
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def write(model: Transformer, word: str) -> str:
    """What the model writes after a word."""
    line = torch.tensor([[*map(LETTERS.index, word), SEPARATOR]])
    for _ in word:
        line = torch.cat([line, model(line)[:, -1:].argmax(2)], 1)
    return "".join(LETTERS[letter] for letter in inspect(line[0, LENGTH + 1 :]).tolist())


def run() -> tuple[list[float], list[float]]:
    """The losses on the mesh, and in this process."""
    procs = this_host().spawn_procs(per_host={"dp": 2, "tp": 2})
    with procs.activate() as mesh:
        model, losses = train_on_mesh(mesh)
        for word in ("hgfed", "cabab", "fadeb"):
            print(f"{word} -> {write(model, word)}")
    procs.stop().get()
    return losses, train_here()


def main() -> None:
    losses, expected = run()
    print("\nstep   mesh     one process")
    for step in [*range(0, STEPS, 10), STEPS - 1]:
        print(
            f"{step:4}   {losses[step]:7.5f}  {expected[step]:7.5f} "
            f" {'#' * round(16 * losses[step])}"
        )
    difference = max(abs(one - other) for one, other in zip(losses, expected, strict=True))
    print(f"\nlargest difference: {difference:.1e}")
    assert difference < 1e-2, "training on the mesh went another way than training in one process"
    assert losses[-1] < 0.2, "it has not learned to sort"


if __name__ == "__main__":
    main()
