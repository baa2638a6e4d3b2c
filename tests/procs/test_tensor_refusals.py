"""An operation that is refused on distributed tensors says what to do instead, and harms nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from helpers.each import for_each

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

from monarch import inspect, no_mesh

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # torch's, of what is about to change
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


def flex(each: torch.Tensor) -> Any:
    return flex_attention(each, each, each)


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "cond": (
        lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
        r"torch.where\(condition, a, b\) can.*remote function",
    ),
    "flex_attention": (
        lambda x: flex(torch.ones(1, 1, 4, 8)),
        "scaled_dot_product_attention.*remote function",
    ),
    "compressed rows": (lambda x: torch.eye(3).to_sparse_csr(), "torch.sparse_csr. Use dense ones"),
    "sparse": (lambda x: torch.eye(3).to_sparse(), "torch.sparse_coo. Use dense ones"),
    "nested": (lambda x: torch.nested.nested_tensor([x, x]), "Call it in a remote function"),
}


@for_each("name", list(REFUSED))
def test_what_is_refused_says_what_to_do(mesh: Any, name: str) -> None:
    run, told = REFUSED[name]
    x = torch.ones(4)
    with pytest.raises(NotImplementedError, match=told):
        run(x)
    assert inspect(x + 1).tolist() == [2.0] * 4


UNCLEAR: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "a tensor of tensors": (lambda x: torch.tensor([x[0], x[1]]), r"torch.stack\(\[a, b\]\) for"),
    "tensor_split": (lambda x: torch.tensor_split(x, torch.tensor([1, 3])), "a list of numbers"),
    "lazy": (lambda x: nn.LazyLinear(3)(x), r"nn.Linear\(in_features, out_features\)"),
    "sparse": (
        lambda x: torch.sparse_coo_tensor(torch.tensor([[0]]), x[:1]),
        "values of a distributed tensor.*remote function",
    ),
    "compressed rows": (
        lambda x: torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), x[:1]),
        # of torch before 2.15, and since
        "values of a distributed tensor.*remote function|depends on values.*remote function",
    ),
}


@for_each("name", list(UNCLEAR))
def test_errors_from_the_inside_of_torch_say_what_to_do(mesh: Any, name: str) -> None:
    run, told = UNCLEAR[name]
    x = torch.ones(4)
    with pytest.raises(RuntimeError, match=told), mesh.activate():
        run(x)
    assert inspect(x + 1).tolist() == [2.0] * 4


def test_an_error_of_the_program_keeps_its_words(mesh: Any) -> None:
    with pytest.raises(RuntimeError, match="^of mine$"), mesh.activate():
        raise RuntimeError("of mine")


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch here is built with CUDA")
def test_a_build_of_torch_without_cuda_says_that_it_cannot_plan_for_gpus(mesh: Any) -> None:
    with pytest.raises(RuntimeError, match="install the build that the ranks have"):
        torch.ones(2, device="cuda")
    with pytest.raises(AssertionError, match="not compiled"), no_mesh.activate():
        torch.ones(2, device="cuda")


def test_a_module_is_exported_under_an_active_mesh(mesh: Any) -> None:
    exported = torch.export.export(nn.ReLU(), (torch.ones(1, 2),))
    names = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert names == [torch.ops.aten.relu.default]


def test_fakes_of_the_program_pass_under_an_active_mesh(mesh: Any) -> None:
    with no_mesh.activate():
        fake = torch._subclasses.FakeTensorMode().from_tensor(torch.ones(2, 3))
    made = (fake + 1).t() @ fake
    assert type(made) is type(fake)
    assert made.shape == (3, 3)
