"""Rules that return their argument: they say what a result looks like, not that it is the argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from monarch import inspect, remote
from monarch.actor import Actor, endpoint
from monarch.tensor_engine import RemoteException

if TYPE_CHECKING:
    from monarch.actor import ProcMesh

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


class Adds(Actor):
    @endpoint(propagate=lambda x: x)
    def one(self, x: Any) -> Any:
        if x[0] < 0:
            raise ValueError("negative")
        return x + 1

    @endpoint(propagate=lambda x: x.add_(0))
    def in_place(self, x: Any) -> Any:
        return x.add_(1)


@pytest.fixture
def adds(pair: ProcMesh, mesh: Any) -> Iterator[Any]:
    adds = pair.spawn("adds", Adds)
    yield adds
    adds.stop().get()


@pytest.mark.parametrize(
    "rule",
    [
        lambda x: x,
        lambda x: x.float(),  # torch returns what is float already
        lambda x: x.contiguous(),
    ],
)
def test_a_rule_that_returns_its_argument_says_what_the_result_looks_like(
    mesh: Any, rule: Any
) -> None:
    x = torch.zeros(2)
    y = remote(lambda x: x + 1, propagate=rule)(x)
    assert y is not x
    assert inspect(y).tolist() == [1.0, 1.0]
    assert inspect(x).tolist() == [0.0, 0.0]
    y.add_(1)  # it is no view of x, either
    assert (inspect(y).tolist(), inspect(x).tolist()) == ([2.0, 2.0], [0.0, 0.0])


def test_arguments_that_a_rule_returns_among_others_are_results_of_their_own(mesh: Any) -> None:
    x, z = torch.zeros(2), torch.ones(2)
    swapped = remote(
        lambda x, z: {"x": [z + 1], "z": x + 5}, propagate=lambda x, z: {"x": [x], "z": z}
    )
    results = swapped(x, z)
    assert inspect(results["x"][0]).tolist() == [2.0, 2.0]
    assert inspect(results["z"]).tolist() == [5.0, 5.0]


def test_what_the_function_raises_reaches_who_fetches_the_result(mesh: Any) -> None:
    def fail(x: Any) -> Any:
        raise ValueError("no")

    x = torch.zeros(2)
    y = remote(fail, propagate=lambda x: x)(x)
    with pytest.raises(RemoteException, match="ValueError: no"):
        inspect(y)
    assert inspect(x).tolist() == [0.0, 0.0]


def test_an_argument_that_a_rule_writes_to_and_returns_is_the_result(mesh: Any) -> None:
    x = torch.zeros(2)
    assert remote(lambda x: x.add_(1), propagate=lambda x: x.add_(1))(x) is x
    assert inspect(x).tolist() == [1.0, 1.0]


def test_a_function_that_returns_its_argument_may_say_so(mesh: Any) -> None:
    x = torch.zeros(2)
    y = remote(lambda x: x, propagate=lambda x: x)(x)
    y.add_(1)
    assert inspect(x).tolist() == inspect(y).tolist() == [1.0, 1.0]


def test_the_same_holds_for_results_of_endpoints(mesh: Any, adds: Any) -> None:
    x = torch.zeros(2)
    y = adds.one.rref(x)
    assert (inspect(y).tolist(), inspect(x).tolist()) == ([1.0, 1.0], [0.0, 0.0])
    with pytest.raises(RemoteException, match="ValueError: negative"):
        inspect(adds.one.rref(x - 1))
    assert adds.in_place.rref(x) is x
    assert inspect(x).tolist() == [1.0, 1.0]
