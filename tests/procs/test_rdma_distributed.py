"""States of FSDP2, tensor parallelism and plain modules, each into the layout of another."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from monarch.actor import Actor, ProcMesh, endpoint, this_host
from monarch.config import configured
from monarch.rdma import Replica, SharedState, Split, pull, push, share_state
from monarch.spmd import setup_torch_elastic_env

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]

RANKS = 2


class Model(torch.nn.Module):
    """The second layer has one row, which one of the ranks of FSDP has: the others have nothing of
    it.
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.up = torch.nn.Linear(6, 8)
        self.down = torch.nn.Linear(8, 1)
        self.register_buffer("scale", torch.tensor(2.0))
        with torch.no_grad():
            for number, parameter in enumerate(self.parameters()):
                values = torch.arange(parameter.numel(), dtype=torch.float32).view(parameter.shape)
                parameter.copy_(values * factor + 100 * number)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        done: torch.Tensor = self.down(self.up(x).relu()) * self.scale
        return done


def in_layout(model: Model, layout: str) -> Model:
    """Shard a model over the ranks of this process's group."""
    if layout == "fsdp":
        fully_shard(model.up)
        fully_shard(model.down)
        fully_shard(model)
    elif layout == "tp":
        parallelize_module(
            model,
            init_device_mesh("cpu", (RANKS,)),
            {"up": ColwiseParallel(), "down": RowwiseParallel()},
        )
    elif layout == "tp, other dimensions":
        parallelize_module(model, init_device_mesh("cpu", (RANKS,)), {"up": RowwiseParallel()})
    return model


class Rank(Actor):
    def __init__(self) -> None:
        self.models: dict[str, Model] = {}

    @endpoint
    def join(self) -> None:
        dist.init_process_group("gloo")

    @endpoint
    def share(self, layout: str) -> SharedState:
        model = self.models[layout] = in_layout(Model(1), layout)
        self.shared = share_state(model.state_dict(), copy=False)
        return self.shared

    @endpoint
    def receive(self, sources: list[SharedState], layout: str) -> bool:
        """Whether all of a model in another layout is that of the sources."""
        model = in_layout(Model(-1), layout)
        pull(sources, model.state_dict()).get()
        return same(model, Model(1))

    @endpoint
    def send(self, targets: list[SharedState]) -> None:
        push(in_layout(Model(3), "fsdp").state_dict(), targets).get()

    @endpoint
    def has(self, layout: str, factor: float) -> bool:
        return same(self.models[layout], Model(factor))

    @endpoint
    def train(self, layout: str, steps: int) -> None:
        model = self.models[layout]
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 6)).sum().backward()
            with self.shared.writing():
                optimizer.step()

    @endpoint
    def whole(self, layout: str) -> dict[str, torch.Tensor]:
        return whole(self.models[layout])

    @endpoint
    def follow_one_row(self, source: SharedState) -> tuple[Any, Any, list[float]]:
        """Of which one rank has all, and the others nothing."""
        row = distribute_tensor(torch.zeros(1, 3), init_device_mesh("cpu", (RANKS,)), [Shard(0)])
        replica = Replica(source, {"row": row})
        return (
            pull(source, {"row": row}).get(),
            replica.pull().get(),
            row.to_local().flatten().tolist(),
        )

    @endpoint
    def refusals(self) -> list[str]:
        mesh = init_device_mesh("cpu", (RANKS,))
        return [
            refusal({"w": DTensor.from_local(torch.ones(2), mesh, [Partial()])}),
            refusal({"w": distribute_tensor(torch.ones(2, 2), mesh, [Replicate()])}),
            refusal(
                {
                    "w": DTensor.from_local(
                        torch.ones(2), mesh, [Shard(0)], shape=torch.Size((7,)), stride=(1,)
                    )
                }
            ),
        ]


def refusal(state: Any) -> str:
    try:
        share_state(state)
    except ValueError as error:
        return str(error)
    return ""


def whole(model: Model) -> dict[str, torch.Tensor]:
    values = model.state_dict().items()
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in values
    }


def same(model: Model, expected: Model) -> bool:
    ours, theirs = whole(model), whole(expected)
    return all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.fixture(scope="module")
def procs(_booted: None) -> Iterator[ProcMesh]:
    with suppress(ImportError):
        torch.ones(1 << 20).sum()  # its threads
    with configured(
        preload=["torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel"]
    ):
        procs = this_host().spawn_procs({"gpus": RANKS})
    setup_torch_elastic_env(procs)
    yield procs
    procs.stop().get()


@pytest.fixture(scope="module")
def joined(procs: ProcMesh) -> Any:
    ranks = procs.spawn("ranks", Rank)
    ranks.join.call().get()
    return ranks


@pytest.fixture
def ranks(joined: Any, _process_test: None) -> Any:
    return joined


LAYOUTS = ["plain", "fsdp", "tp", "tp, other dimensions"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_state_in_one_layout_is_pulled_into_any_other(ranks: Any, layout: str) -> None:
    sources = list(ranks.share.call(layout).get().values())
    for other in LAYOUTS:
        assert all(ranks.receive.call(sources, other).get().values()), other
    for rank in range(4):  # plain tensors, divided over four
        expected = Model(1).up.weight.detach()[2 * rank : 2 * rank + 2]
        part = {"up.weight": torch.zeros(2, 6)}
        pull(sources, part, shards=Split(0, rank, 4)).get()
        assert torch.equal(part["up.weight"], expected)
    ranks.send.call(sources).get()
    assert all(ranks.has.call(layout, 3).get().values())


def test_a_replica_never_has_half_a_step_of_a_rank_that_trains(ranks: Any) -> None:
    sources = list(ranks.share.call("fsdp").get().values())
    here = Model(-1)
    replica = Replica(sources, here.state_dict())
    training = ranks.train.call("fsdp", 20)
    seen: list[Any] = []
    while not seen or seen[-1] != (20,) * RANKS:
        seen.append(replica.pull(newer=True).get())
    training.get()
    expected = ranks.whole.call("fsdp").get().item(gpus=0)
    assert all(torch.equal(value, expected[name]) for name, value in here.state_dict().items())


def test_a_rank_that_has_nothing_of_any_tensor_pulls_like_the_others(ranks: Any) -> None:
    source = share_state({"row": torch.ones(1, 3)})
    found = list(ranks.follow_one_row.call(source).get().values())
    assert found == [((0,), (0,), [1.0] * 3), ((0,), (0,), [])]


def test_distributed_tensors_that_are_no_block_of_a_whole_are_refused(ranks: Any) -> None:
    for partial, complete, uneven in ranks.refusals.call().get().values():
        assert "not complete" in partial
        assert complete == ""
        assert "its placements" in uneven
