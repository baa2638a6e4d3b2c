"""Results on ranks are laid out as the program takes them to be, whatever their kernels prefer."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
from torch.nn import functional

from monarch import inspect, no_mesh
from monarch.tensor_engine import RemoteException, record

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


@torch.library.custom_op("tests_layouts::transposed", mutates_args=())
def transposed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two results, of which one is laid out otherwise than `_` says."""
    return x.t().contiguous().t(), x.clone()


@transposed.register_fake
def _(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(x.shape), torch.empty(x.shape)


@torch.library.custom_op("tests_layouts::other", mutates_args=())
def other(x: torch.Tensor) -> torch.Tensor:
    return x.double()


@other.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def unpooled(x: torch.Tensor) -> Any:
    """A result of which the kernel of CPUs has other strides than the fake one."""
    x = x.contiguous(memory_format=torch.channels_last)
    pooled: Any = functional.max_pool2d(x, 2, return_indices=True)
    values, indices = pooled
    made: Any = functional.max_unpool2d(values, indices, [2, 2])
    return made


def test_a_shape_changed_in_place_reads_the_elements_where_they_are(mesh: Any) -> None:
    def change(x: torch.Tensor) -> Any:
        return unpooled(x).unsqueeze_(0)

    there = inspect(change(torch.arange(64.0).reshape(1, 2, 4, 8)))
    with no_mesh.activate():
        assert torch.equal(there, change(torch.arange(64.0).reshape(1, 2, 4, 8)))


def test_every_call_and_every_replay_is_laid_out_as_planned(mesh: Any) -> None:
    def flat(x: torch.Tensor) -> Any:
        first, second = transposed(x)
        return first.as_strided((6,), (1,)), second, first.stride()

    x = torch.arange(6.0).reshape(2, 3)
    for _ in range(3):
        first, second, stride = flat(x)
        assert inspect(first).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        assert inspect(second).tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        assert stride == (3, 1)
    recorded = record(lambda x: flat(x * 2)[0])
    for _ in range(4):
        assert inspect(recorded(x)).tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_a_result_of_another_type_than_planned_is_an_error(mesh: Any) -> None:
    x = torch.ones(2)
    with pytest.raises(RemoteException, match=r"torch.float64 of shape \(2,\) on this rank"):
        inspect(other(x))


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_a_loss_of_one_sample_has_the_shape_that_kernels_give_it(mesh: Any, reduction: str) -> None:
    def loss() -> Any:
        given = torch.tensor([0.1, 0.2, 0.4, 0.8], requires_grad=True)
        label = torch.tensor([3, 0, -1, 1])
        made = functional.multilabel_margin_loss(given, label, reduction=reduction)
        made.backward()  # type: ignore[no-untyped-call]
        return made.detach(), given.grad

    there = inspect(loss())
    with no_mesh.activate():
        for got, wanted in zip(there, loss(), strict=True):
            torch.testing.assert_close(got, wanted)
