"""Objects and modules that live on the ranks, and functions of autograd that run there."""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, union-attr, no-untyped-call, arg-type"

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
from torch import nn

from helpers.modules import PlusSum
from monarch import inspect, remote
from monarch.tensor_engine import (
    ControllerRemoteClass,
    OpaqueModule,
    OpaqueObject,
    RemoteException,
    WorkerRemoteClass,
    opaque_method,
    remote_autograd_function,
    remote_method,
)

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


def at(tensor: Any, rank: int) -> Any:
    return inspect(tensor, gpus=rank).tolist()


class Counter:
    def __init__(self, start: Any) -> None:
        self.total = start.clone()

    def add(self, x: Any) -> Any:
        self.total += x
        return self.total.clone()

    def scaled(self, factor: float) -> Any:
        return {"total": self.total * factor}

    def sum(self) -> float:
        return float(self.total.sum())


class Counters(OpaqueObject):
    def __init__(self, start: Any) -> None:
        super().__init__(Counter, start)

    @opaque_method
    def add(self, x: Any) -> Any:
        return x.clone()


def test_an_object_lives_on_each_rank(mesh: Any) -> None:
    counters = Counters(torch.ones(2) * mesh.rank("gpus"))
    assert at(counters.add(torch.ones(2)), 1) == [2.0, 2.0]
    assert at(counters.add(torch.ones(2)), 0) == [2.0, 2.0]
    for _ in range(2):
        assert at(counters.call_method("scaled", None, 2.0)["total"], 1) == [6.0, 6.0]
    rule = lambda self, factor: {"total": torch.empty(2)}  # noqa: E731
    assert at(counters.call_method("scaled", rule, 0.5)["total"], 1) == [1.5, 1.5]
    assert counters.call_method("add", "inspect", torch.ones(2)) is None
    assert counters.call_method_on_shard_and_fetch("sum", shard={"gpus": 1}).get() == 8.0


def test_an_object_by_name_and_one_that_can_not_be_made(mesh: Any) -> None:
    words = OpaqueObject("collections.Counter", "abba")
    assert words.call_method_on_shard_and_fetch("total").get() == 4
    broken = OpaqueObject("collections.no_such_class")
    with pytest.raises(RemoteException, match="failed to resolve function"):
        broken.call_method_on_shard_and_fetch("total").get()
    with pytest.raises(TypeError, match="dotted name"):
        OpaqueObject("nothing")


def test_a_module_on_the_ranks_is_trained_like_one_here(mesh: Any) -> None:
    torch.manual_seed(3)
    there = OpaqueModule("torch.nn.Linear", 3, 2)
    torch.manual_seed(3)
    here = nn.Linear(3, 2)
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    y = torch.arange(6.0).reshape(2, 3).requires_grad_()
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.01) for module in (there, here)]
    for propagator in (lambda self, x: torch.empty(2, 2), None, None):
        out, expected = there(x, propagator=propagator), here(y)
        assert out.requires_grad
        assert at(out, 1) == at(expected, 1)
        out.pow(2).sum().backward()
        expected.pow(2).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    assert at(x.grad, 1) == at(y.grad, 1)
    for mine, theirs in zip(there.parameters(), here.parameters(), strict=True):
        assert at(mine, 0) == at(theirs, 0)
        assert at(mine.grad, 0) == at(theirs.grad, 0)
    weights = there.call_method_on_shard_and_fetch("state_dict").get()
    assert weights["weight"].tolist() == at(here.weight, 0)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Parameter(torch.full((2,), 3.0))
        self.frozen = nn.Parameter(torch.full((2,), 5.0), requires_grad=False)
        self.unused = nn.Parameter(torch.zeros(4))

    def forward(self, x: Any, *, other: Any, text: str) -> Any:
        return {
            "product": x * self.used,
            "count": torch.tensor(len(text)),
            "rest": x.detach() * self.frozen,
        }


def test_a_module_with_unused_inputs_and_several_outputs(mesh: Any) -> None:
    module = OpaqueModule(TwoHeads)
    assert [name for name, _ in module.named_parameters()] == ["used", "frozen", "unused"]
    assert [each.requires_grad for each in module.parameters()] == [True, False, True]
    x, other = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    out = module(x, other=other, text="four")
    assert sorted(out) == ["count", "product", "rest"]
    assert not out["count"].requires_grad
    assert at(out["count"], 0) == 4
    assert at(out["rest"], 1) == [5.0, 5.0]
    out["product"].sum().backward()
    assert at(x.grad, 1) == [3.0, 3.0]
    assert at(other.grad, 1) == [0.0, 0.0, 0.0]
    used, frozen, unused = module.parameters()
    assert at(used.grad, 1) == [1.0, 1.0]
    assert frozen.grad is None
    assert at(unused.grad, 0) == [0.0] * 4
    with pytest.raises(RuntimeError, match="second time"):
        out["product"].sum().backward()
    with torch.no_grad():
        assert not module(x, other=other, text="four")["product"].requires_grad


class PlusSumAndInput(PlusSum):
    """What comes in gets the gradient of the parameters as well."""

    def forward(self, x: Any) -> Any:
        return super().forward(x), x


def test_gradients_add_up_where_parameters_share_one(mesh: Any) -> None:
    there, here = OpaqueModule(PlusSumAndInput), PlusSumAndInput()
    modules: list[Any] = [there, here]
    inputs = [torch.ones(2, requires_grad=True) for _ in range(2)]
    for _ in range(3):
        for module, x in zip(modules, inputs, strict=True):
            made, same = module(x)
            (made.pow(2) + same * 5).sum().backward()
    assert at(inputs[0].grad, 1) == at(inputs[1].grad, 1) == [33.0, 33.0]
    assert [at(each.grad, 1) for each in there.parameters()] == [
        at(each.grad, 1) for each in here.parameters()
    ]


def test_a_module_writes_and_reads_the_parameters_that_are_here(mesh: Any) -> None:
    module = OpaqueModule("torch.nn.Linear", 1, 1)
    weight, bias = module.parameters()
    with torch.no_grad():
        weight.fill_(2.0)
        bias.zero_()
        bias.add_(mesh.rank("gpus"))
    assert at(module(torch.ones(1, 1)), 1) == [[3.0]]
    module.call_method("requires_grad_", "inspect", False)
    bad = module(torch.ones(1, 2), propagator=lambda self, x: torch.empty(1, 1))
    with pytest.raises(RemoteException, match="Linear|mat1"):
        inspect(bad)
    assert at(module(torch.ones(1, 1)), 0) == [[2.0]]


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, factor: float, shift: Any) -> Any:
        ctx.factor = factor
        ctx.save_for_backward(x)
        return x * x * factor + shift.sum(), x.max()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * ctx.factor * grads[0], None, None


class Total(torch.autograd.Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x.sum()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> Any:
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].expand(ctx.shape).clone()


def test_a_function_of_autograd_runs_on_the_ranks(mesh: Any) -> None:
    scale = remote_autograd_function(Scale)
    for size in (2, 3):
        x = (torch.ones(size) * (1 + mesh.rank("gpus"))).requires_grad_()
        scaled, largest = scale.apply(x, 3.0, torch.zeros(1))
        assert at(largest, 1) == 2.0
        scaled.sum().backward()
        assert at(scaled, 1) == [12.0] * size
        assert at(x.grad, 1) == [12.0] * size
    total = remote_autograd_function(Total)
    for size in (2, 5):
        x = torch.ones(size, requires_grad=True)
        (total.apply(x) * 7).backward()
        assert at(x.grad, 0) == [7.0] * size
    with pytest.raises(TypeError, match="subclass"):
        remote_autograd_function(nn.Linear)


class WorkerLog(WorkerRemoteClass):
    def __init__(self, path: str, rank: Any) -> None:
        self.path = Path(f"{path}.{int(rank)}")

    def write(self, text: str, x: Any) -> None:
        with self.path.open("a") as file:
            file.write(f"{text} {x.item()}\n")

    def __del__(self) -> None:
        with self.path.open("a") as file:
            file.write("gone\n")


class Log(ControllerRemoteClass):
    def __init__(self, path: str, rank: Any) -> None:
        super().__init__(WorkerLog, path, rank)

    @remote_method
    def write(self, text: str, x: Any) -> None: ...


def test_a_proxy_makes_calls_and_ends_an_object_on_each_rank(mesh: Any, tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"), mesh.rank("gpus"))
    log.write("value", mesh.rank("gpus") * 2)
    del log
    gc.collect()
    for rank in range(2):
        at(torch.ones(1), rank)
        assert (tmp_path / f"log.{rank}").read_text() == f"value {rank * 2}\ngone\n"


@remote(propagate=lambda x: x.clone())
def doubled(x: Any) -> Any:
    return x * 2


@remote(propagate=lambda x: x.clone())
def quadrupled(x: Any) -> Any:
    return doubled(doubled(x))


def test_remote_functions_call_each_other(mesh: Any) -> None:
    assert at(quadrupled(torch.ones(1)), 1) == [4.0]


def test_what_arguments_share_is_a_part_of_what_is_remembered(mesh: Any) -> None:
    second = remote(lambda a, b: b)
    x, y = torch.zeros(1), torch.ones(1)
    assert second(x, x) is x
    assert second(x, y) is y
    assert second(x, x) is x
