"""Distributed tensors as arguments of actors, and as what their endpoints return."""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, union-attr, no-untyped-call, arg-type"

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
from torch import nn

from monarch import inspect, no_mesh, remote
from monarch.actor import Actor, ActorError, ProcMesh, as_endpoint, concurrent_endpoint, endpoint
from monarch.tensor_engine import RemoteException

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


class Keeper(Actor):
    def __init__(self, start: Any = None) -> None:
        self.kept = start
        self.seen: list[Any] = []

    @endpoint
    def total(self, x: Any, *more: Any) -> float:
        return float(x.sum())

    @endpoint
    def keep(self, x: Any) -> None:
        self.kept = x

    @endpoint
    def add_to_kept(self, value: float) -> None:
        self.kept.add_(value)

    @endpoint
    def note(self, value: Any) -> None:
        self.seen.append(value if isinstance(value, str) else value.item())

    @endpoint
    def noted(self) -> list[Any]:
        return self.seen

    @endpoint
    def kept_value(self) -> list[float]:
        return list(self.kept.tolist())

    @endpoint
    def fail(self, x: Any) -> None:
        raise KeyError("on purpose")

    @endpoint(propagate=lambda x, factor: {"scaled": torch.empty_like(x), "half": x[:1]})
    def scale(self, x: Any, factor: float) -> Any:
        if factor == 13:
            raise ValueError("unlucky")
        return {"scaled": x * factor, "half": x[:1]}

    @endpoint(propagate=lambda: torch.empty(2))
    def make(self) -> Any:
        return torch.full((2,), 7.0)

    @endpoint(propagate="inspect")
    def write(self, x: Any) -> None:
        x.add_(1)

    @endpoint
    def local(self, x: Any) -> Any:
        return {
            "parameter": nn.Parameter(torch.ones(2)),
            "sparse": torch.eye(2).to_sparse(),
            "given": x,
        }

    @endpoint(explicit_response_port=True)
    def answer(self, port: Any, x: Any) -> None:
        port.send(float(x.sum()))

    @endpoint
    def describe(self, tensors: Any, mesh: Any) -> Any:
        return sum(float(each.sum()) for each in tensors["all"]), mesh.ranks, mesh.sizes

    @endpoint(propagate=lambda x: (x.clone(), x.clone()))
    def one_of_two(self, x: Any) -> Any:
        return x

    def plain(self, x: Any) -> Any:
        return -x


class AsyncKeeper(Actor):
    def __init__(self) -> None:
        self.go = asyncio.Event()

    @endpoint
    async def total(self, x: Any) -> float:
        return float(x.sum())

    @concurrent_endpoint
    async def wait_for(self, x: Any) -> float:
        await self.go.wait()
        return float(x.sum())

    @concurrent_endpoint
    async def release(self) -> None:
        self.go.set()


@pytest.fixture
def keepers(pair: ProcMesh, mesh: Any) -> Iterator[Any]:
    keepers = pair.spawn("keepers", Keeper)
    yield keepers
    keepers.stop().get()


@pytest.mark.both
def test_each_actor_gets_the_tensor_of_its_rank(mesh: Any, keepers: Any) -> None:
    x = torch.ones(3) * mesh.rank("gpus")
    assert list(keepers.total.call(x).get().values()) == [0.0, 3.0]
    assert list(keepers.total.call([x, x][1], {"x": x}).get().values()) == [0.0, 3.0]
    assert {answer.get() for answer in keepers.total.stream(x)} == {0.0, 3.0}


def test_tensors_come_in_all_kinds_of_calls(mesh: Any, keepers: Any) -> None:
    x = torch.ones(2) * mesh.rank("gpus")
    assert list(keepers.answer.call(x).get().values()) == [0.0, 2.0]
    nested = {"all": [x, x + 1, x[:1]]}
    answers = keepers.describe.call(nested, mesh=mesh).get()
    assert answers.item(gpus=1) == (7.0, {"gpus": 1}, {"gpus": 2})
    assert keepers.describe.call({"all": []}, mesh).get().item(gpus=0) == (
        0,
        {"gpus": 0},
        {"gpus": 2},
    )


def test_a_result_that_is_not_what_the_rule_says_is_told(mesh: Any, keepers: Any) -> None:
    first, _ = keepers.one_of_two.rref(torch.ones(1))
    with pytest.raises(RemoteException, match="unexpected number of returns"):
        inspect(first)
    assert inspect(keepers.make.rref()).tolist() == [7.0, 7.0]


def test_an_actor_works_on_the_tensor_itself(mesh: Any, keepers: Any) -> None:
    x = torch.zeros(2)
    keepers.keep.broadcast(x)
    keepers.add_to_kept.call(5.0).get()
    assert inspect(x, gpus=1).tolist() == [5.0, 5.0]
    x.add_(1)
    inspect(x)
    assert keepers.kept_value.call().get().item(gpus=0) == [6.0, 6.0]


def test_actors_can_be_made_with_tensors(pair: ProcMesh, mesh: Any) -> None:
    x = torch.ones(2) + mesh.rank("gpus")
    keepers = pair.spawn("keepers", Keeper, x)
    assert keepers.kept_value.call().get().item(gpus=1) == [2.0, 2.0]
    assert inspect(x + 1).tolist() == [2.0, 2.0]
    keepers.stop().get()


def test_what_is_issued_before_and_after_keeps_its_place(mesh: Any, keepers: Any) -> None:
    x = torch.zeros(())
    for step in range(10):
        x.add_(1)
        keepers.note.broadcast(x)
        keepers.note.broadcast(str(step))
        x.mul_(2)
    seen = keepers.noted.call().get().item(gpus=1)
    expected, value = [], 0
    for step in range(10):
        value += 1
        expected += [value, str(step)]
        value *= 2
    assert seen == expected


def test_a_slice_of_the_actors_does_not_hold_up_the_other_ranks(mesh: Any, keepers: Any) -> None:
    x = torch.ones(2) * mesh.rank("gpus")
    assert keepers.slice(gpus=1).total.call_one(x).get() == 2.0
    assert keepers.total.choose(x).get() in (0.0, 2.0)
    assert inspect(x + 1).tolist() == [1.0, 1.0]


def test_a_tensor_must_live_where_the_actor_does(
    pair: ProcMesh, mesh: Any, keepers: Any, spawn: Spawn
) -> None:
    elsewhere = spawn(1).spawn("keeper", Keeper)
    x = torch.ones(1)
    with pytest.raises(ValueError, match="located on the same process"):
        elsewhere.total.call(x)
    with mesh.slice(gpus=0).activate():
        y = torch.ones(1)
    with pytest.raises(ValueError, match="located on the same process"):
        keepers.total.call(y)
    assert keepers.slice(gpus=0).total.call_one(y).get() == 1.0


def test_a_failing_endpoint_harms_nothing(mesh: Any, keepers: Any) -> None:
    x = torch.ones(1)
    with pytest.raises(ActorError, match="on purpose"):
        keepers.fail.call(x).get()
    assert keepers.total.call(x).get().item(gpus=0) == 1.0
    assert inspect(x).item() == 1.0


def test_a_failed_tensor_fails_the_call_and_not_the_actor(mesh: Any, keepers: Any) -> None:
    bad = torch.zeros(2).index_select(0, mesh.rank("gpus").reshape(1) * 9)
    with pytest.raises(ActorError, match="index_select"):
        keepers.slice(gpus=1).total.call_one(bad).get()
    assert keepers.total.call(torch.ones(1)).get().item(gpus=1) == 1.0
    mesh.exit()  # it was told


def test_results_stay_on_the_ranks(mesh: Any, keepers: Any) -> None:
    x = torch.ones(2) * (1 + mesh.rank("gpus"))
    result = keepers.scale.rref(x, 3.0)
    assert inspect(result["scaled"] + 1, gpus=1).tolist() == [7.0, 7.0]
    result["half"].zero_()
    assert inspect(x, gpus=1).tolist() == [0.0, 2.0]
    assert inspect(keepers.make.rref() * 2).tolist() == [14.0, 14.0]
    assert keepers.write.rref(x) is None
    assert inspect(x).tolist() == [1.0, 2.0]
    negated = as_endpoint(keepers.plain, propagate=torch.empty_like).rref(x)
    assert inspect(negated).tolist() == [-1.0, -2.0]
    with pytest.raises(NotImplementedError, match="propagate"):
        keepers.total.rref(x)


def test_a_failed_result_is_told_when_it_is_fetched(mesh: Any, keepers: Any) -> None:
    x = torch.ones(2)
    bad = keepers.scale.rref(x, 13)["scaled"]
    with pytest.raises(RemoteException, match="unlucky"):
        inspect(bad)
    assert inspect(keepers.scale.rref(x, 2)["scaled"]).tolist() == [2.0, 2.0]
    spoilt = remote(lambda bad: bad, propagate=torch.empty_like)(bad)
    with pytest.raises(RemoteException, match="unlucky"):
        inspect(keepers.scale.rref(spoilt, 2)["scaled"])


def test_local_tensors_come_and_go_while_a_mesh_is_active(mesh: Any, keepers: Any) -> None:
    with no_mesh.activate():
        x = torch.ones(100_000)
        sparse = torch.eye(3).to_sparse()
    answer = keepers.local.call([x, sparse]).get().item(gpus=1)
    with no_mesh.activate():
        assert answer["parameter"].sum().item() == 2
        assert answer["sparse"].to_dense().tolist() == [[1.0, 0.0], [0.0, 1.0]]
        assert torch.equal(answer["given"][0], x)
        assert torch.equal(answer["given"][1].to_dense(), sparse.to_dense())


@pytest.mark.both
def test_async_actors_borrow_as_well(pair: ProcMesh, mesh: Any) -> None:
    keepers = pair.spawn("async", AsyncKeeper)
    x = torch.ones(4)
    assert keepers.total.call(x).get().item(gpus=1) == 4.0
    first = keepers.wait_for.call(x)
    second = keepers.wait_for.call(x)  # its tensor is lent when the first has come back
    keepers.release.call().get()
    assert first.get().item(gpus=0) == second.get().item(gpus=0) == 4.0
    keepers.stop().get()


def test_an_actor_that_ends_gives_the_tensor_back(pair: ProcMesh, mesh: Any, faults: Any) -> None:
    keepers = pair.spawn("keepers", Keeper)
    x = torch.ones(1)
    keepers.fail.broadcast(x)
    assert inspect(x + 1, gpus=1).item() == 2.0
    faults.wait_for(1)
