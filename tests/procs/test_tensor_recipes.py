"""What torch builds on its operators, recipe by recipe: the same program on a mesh and in one
process gives the same numbers.
"""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, no-untyped-call, arg-type, operator"
# mypy: disable-error-code="union-attr, assignment, index"

from __future__ import annotations

import copy
import functools
import shutil
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from helpers.each import for_each
from monarch import inspect, no_mesh, remote
from monarch.builtins.random import set_manual_seed_remote
from monarch.tensor_engine import Tensor, distribute
from monarch.tensor_engine.planning.fakes import ValueNotHereError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
    pytest.mark.filterwarnings("ignore:`torch.jit"),  # of torch's own functions, in some versions
]


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 2)
    )


def batch() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4) / 10


def labels() -> torch.Tensor:
    return torch.tensor([0, 1, 1])


def derived(module: nn.Module, output: torch.Tensor) -> list[Any]:
    output.float().pow(2).mean().backward()
    return [output, *[parameter.grad for parameter in module.parameters()]]


def dropout() -> Any:
    net = network()
    torch.manual_seed(5)
    return derived(net, net(batch()))


def checkpointing(reentrant: bool) -> Callable[[], Any]:
    def recipe() -> Any:
        net = network()
        x = batch().requires_grad_()
        torch.manual_seed(5)
        result = derived(net, checkpoint(net, x, use_reentrant=reentrant))
        return [*result, torch.rand(3)]  # what was drawn again does not count

    return recipe


def checkpointing_in_pieces() -> Any:
    net = network()
    torch.manual_seed(5)
    return derived(net, checkpoint_sequential(net, 2, batch(), use_reentrant=False))


def generators_of_random_numbers() -> Any:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = torch.rand(2)
    with torch.random.fork_rng():
        torch.manual_seed(9)
        inside = torch.rand(2)
    second = torch.rand(2)
    torch.set_rng_state(state)
    return [
        first,
        inside,
        second,
        torch.rand(4),
        torch.randperm(5),
        torch.bernoulli(torch.full((4,), 0.5)),
    ]


def autocast() -> Any:
    net = network()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(5)
        output = net(batch())
        loss = F.cross_entropy(output, labels())
    return [output.dtype == torch.bfloat16, loss, *derived(net, output)]


def scaled_gradients(fused: bool = True) -> Any:
    net = network().eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(net(batch()).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return list(net.parameters())


def per_sample_gradients() -> Any:
    net = network().eval()
    parameters = {name: parameter.detach() for name, parameter in net.named_parameters()}

    def loss(parameters: Any, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(net, parameters, (x[None],)), label[None])

    return list(vmap(grad(loss), in_dims=(None, 0, 0))(parameters, batch(), labels()).values())


def function_transforms() -> Any:
    def f(w: torch.Tensor) -> torch.Tensor:
        return (w.sin() * w.flip(0)).cumsum(0)

    w = batch()[1]
    output, pull = vjp(f, w)[:2]
    with forward_ad.dual_level():
        forward = list(forward_ad.unpack_dual(f(forward_ad.make_dual(w, w * 2))))
    second = hessian(lambda w: f(w).pow(3).sum())(w)
    return [
        jacrev(f)(w),
        jacfwd(f)(w),
        second,
        jvp(f, (w,), (w * 2,)),
        output,
        pull(output),
        forward,
    ]


def a_function_of_the_users_own() -> Any:
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x.exp())
            return x.exp()

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            return ctx.saved_tensors[0] * grads[0]

    x = batch().requires_grad_()
    (first,) = torch.autograd.grad(Exp.apply(x).sum(), x)
    return first


def packed_activations() -> Any:
    net = network().eval()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: tensor.double(), lambda tensor: tensor.float()
    ):
        output = net(batch())
    return derived(net, output)


def transformer() -> Any:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    return derived(net, net(torch.randn(2, 4, 8), mask=mask, is_causal=True))


def convolutions() -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 3),
    )
    result = derived(net, net(torch.randn(2, 1, 8, 8)))
    return [*result, *net.buffers(), *derived(net.eval(), net(torch.randn(2, 1, 8, 8)))]


def recurrent() -> Any:
    torch.manual_seed(0)
    lstm, cell = nn.LSTM(4, 5, 2, batch_first=True), nn.GRUCell(4, 5)
    hidden = torch.zeros(3, 5)
    for _ in range(2):
        hidden = cell(batch(), hidden)
    return [derived(lstm, lstm(batch()[None])[0]), derived(cell, hidden)]


def embeddings() -> Any:
    torch.manual_seed(0)
    embedding, head = nn.Embedding(5, 4, padding_idx=0), nn.Linear(4, 5, bias=False)
    head.weight = embedding.weight
    bag = nn.EmbeddingBag(5, 4)
    return [derived(head, head(embedding(labels()))), derived(bag, bag(labels()[None]))]


def averaged_models() -> Any:
    net = network()
    mean = torch.optim.swa_utils.AveragedModel(net)
    decaying = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    for _ in range(2):
        mean.update_parameters(net)
        decaying.update_parameters(net)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(2)
    return [*mean.module.parameters(), *decaying.parameters()]


def parametrizations() -> Any:
    torch.manual_seed(0)
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2))
    return [derived(normed, normed(batch())), derived(spectral, spectral(batch()))]


def copies_and_types() -> Any:
    net = copy.deepcopy(network()).to(torch.float64).eval()
    vector = nn.utils.parameters_to_vector(net.parameters())
    nn.utils.vector_to_parameters(vector * 2, net.parameters())
    with torch.inference_mode():
        inferred = net(batch().double())
    return [inferred, *derived(net, net(batch().double()))]


def losses() -> Any:
    x = batch().requires_grad_()
    target = torch.full((3, 4), 0.3)
    found = [
        loss(x, target)
        for loss in (
            F.mse_loss,
            F.l1_loss,
            F.smooth_l1_loss,
            F.huber_loss,
            F.binary_cross_entropy_with_logits,
            functools.partial(F.kl_div, reduction="batchmean"),
        )
    ]
    found += [
        F.nll_loss(x.log_softmax(1), labels()),
        F.cross_entropy(x, labels(), label_smoothing=0.1),
    ]
    found += [
        F.cosine_embedding_loss(x, x + 1, torch.ones(3)),
        F.triplet_margin_loss(x, x + 1, x * 2),
    ]
    torch.stack(found).sum().backward()
    return [*found, x.grad]


def initial_values() -> Any:
    torch.manual_seed(0)
    fillers: list[Any] = [
        nn.init.xavier_uniform_,
        nn.init.kaiming_normal_,
        nn.init.orthogonal_,
        nn.init.eye_,
    ]
    return [fill(torch.empty(4, 4)) for fill in fillers]


def compiled_here() -> Any:
    """What is compiled where a mesh is active runs as it is, operation by operation."""
    net = torch.compile(network().eval(), backend="eager")
    return net(batch())


_ALL = (
    dropout, checkpointing_in_pieces, generators_of_random_numbers, autocast, scaled_gradients, per_sample_gradients,
    function_transforms, a_function_of_the_users_own, packed_activations, transformer, convolutions, recurrent, embeddings,
    averaged_models, parametrizations, copies_and_types, losses, initial_values, compiled_here,
)  # fmt: skip
RECIPES: dict[str, Callable[[], Any]] = {recipe.__name__: recipe for recipe in _ALL}
RECIPES["checkpointing"] = checkpointing(reentrant=False)
RECIPES["reentrant checkpointing"] = checkpointing(reentrant=True)
TOLERANCES = {"autocast": {"rtol": 1e-2, "atol": 1e-3}}
"""Where it is not that of float32: bfloat16 has 8 bits, so another order of sums shows."""


@for_each("name", RECIPES)
def test_a_recipe_gives_on_a_mesh_what_it_gives_in_one_process(mesh: Any, name: str) -> None:
    ours = inspect(RECIPES[name](), gpus=1)
    with no_mesh.activate():
        torch.testing.assert_close(ours, detached(RECIPES[name]()), **TOLERANCES.get(name, {}))


def detached(values: Any) -> Any:
    if isinstance(values, (list, tuple)):
        return type(values)(detached(value) for value in values)
    return values.detach() if isinstance(values, torch.Tensor) else values


# random numbers


def test_states_of_random_numbers_are_those_of_the_ranks(mesh: Any) -> None:
    set_manual_seed_remote(1, mesh.process_idx())
    state = torch.get_rng_state()
    assert isinstance(state, Tensor)
    drawn = torch.rand(2)
    torch.set_rng_state(state)
    again = torch.rand(2)
    for rank in range(2):
        first, second = inspect((drawn, again), gpus=rank)
        assert first.tolist() == second.tolist()
    assert inspect(drawn, gpus=0).tolist() != inspect(drawn, gpus=1).tolist()
    torch.set_rng_state(inspect(state, gpus=1))  # that of one rank, for all
    assert inspect(torch.rand(2), gpus=0).tolist() == inspect(drawn, gpus=1).tolist()
    with no_mesh.activate():
        assert type(torch.get_rng_state()) is torch.Tensor


# data from here


def test_local_tensors_are_distributed_as_they_are(mesh: Any) -> None:
    with no_mesh.activate():
        base = torch.arange(6.0).reshape(2, 3)
        local = [
            base.t(),
            base.to(torch.bfloat16),
            torch.tensor(3),
            base.clone().requires_grad_(),
            torch.empty(0),
            "text",
        ]
        large = torch.randn(200_000)
        expected = large.clone()
    made = distribute(local)
    placed = distribute(large)
    with no_mesh.activate():
        large.zero_()  # what was distributed does not notice
        base.zero_()
    assert [each.requires_grad for each in made[:5]] == [False, False, False, True, False]
    assert made[3].is_leaf
    assert made[2].item() == 3
    assert made[0].mesh is mesh
    assert distribute(made)[0] is made[0]
    fetched, back = inspect((made, placed), gpus=1)
    assert fetched[5] == "text"
    assert [fetched[0].tolist(), fetched[1].dtype, fetched[4].shape] == [
        [[0, 3], [1, 4], [2, 5]],
        torch.bfloat16,
        torch.Size([0]),
    ]
    with no_mesh.activate():
        assert back.equal(expected)
        with pytest.raises(ValueError, match="no device mesh is active"):
            distribute(base)


def test_a_data_loader_feeds_a_mesh(mesh: Any) -> None:
    with no_mesh.activate():
        data = torch.utils.data.TensorDataset(torch.arange(6.0), torch.arange(6))
        batches = list(torch.utils.data.DataLoader(data, batch_size=3))
    found = [inspect((x * 2).sum() + y.sum()).item() for x, y in map(distribute, batches)]
    assert found == [3 * 3, 3 * 12]


# what needs values


@pytest.mark.parametrize(
    "recipe",
    [
        lambda: nn.init.trunc_normal_(torch.empty(4, 4)),
        lambda: next(iter(torch.utils.data.DataLoader([1, 2]))),
        lambda: scaled_gradients(fused=False),
    ],
    ids=["draws until it fits", "a data loader", "leaves a step out if a gradient is not finite"],
)
def test_a_recipe_that_needs_values_says_what_to_do_instead(
    mesh: Any, recipe: Callable[[], Any]
) -> None:
    with pytest.raises(ValueNotHereError, match="remote function"):
        recipe()


# compiled functions


@pytest.mark.parametrize(
    "backend",
    [
        "eager",
        "aot_eager",
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.processes("inductor compiles in processes of its own"),
                pytest.mark.skipif(
                    shutil.which("g++") is None,
                    reason="inductor compiles with g++; there is none here",
                ),
            ],
        ),
    ],
)
@pytest.mark.slow
def test_workers_compile_functions_and_derive_them(mesh: Any, backend: str) -> None:
    def formula(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w) * 2 + x.sum()

    @remote(propagate=lambda x, w: (torch.empty(3, 4), torch.empty_like(w)))
    def run(x: torch.Tensor, w: torch.Tensor) -> Any:
        compiled = torch.compile(formula, backend=backend, fullgraph=True)
        w = w.detach().requires_grad_()
        output = compiled(x, w)
        output.sum().backward()
        return output.detach(), w.grad

    found = inspect(run(batch(), torch.full((4, 4), 0.1)), gpus=1)
    with no_mesh.activate():
        w = torch.full((4, 4), 0.1, requires_grad=True)
        output = formula(batch(), w)
        torch.testing.assert_close(found[0], output.detach())
        torch.testing.assert_close(found[1], *torch.autograd.grad(output.sum(), w))


def test_a_compiled_function_that_cannot_be_sent_says_where_to_compile(mesh: Any) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    run = remote(lambda x: compiled(x), propagate=torch.empty_like)
    with pytest.raises(TypeError, match="can't be sent(.|\n)*torch.compile are made inside"):
        run(torch.ones(1))
