"""Training: gradients, hooks, and gradients one at a time; each as in one process.

Optimizers have a file of their own.
"""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, union-attr, no-untyped-call, arg-type"

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
from torch import nn

from monarch import Stream, get_active_mesh, get_active_stream, inspect, no_mesh, remote, slice_mesh
from monarch.tensor_engine import grad_function, grad_generator, gradient_execution_order

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))


@pytest.mark.both
def test_gradients_of_gradients_and_hooks(mesh: Any) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    seen: list[Any] = []
    y = x * x
    y.register_hook(seen.append)
    (first,) = torch.autograd.grad((y * x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert inspect((first, second))[0].tolist() == [3.0, 12.0]
    assert inspect(second).tolist() == [6.0, 12.0]
    assert inspect(seen[0]).tolist() == [1.0, 2.0]
    with torch.no_grad():
        assert not (x * 2).requires_grad


def test_backward_needs_no_active_mesh(mesh: Any) -> None:
    net = network()
    x = torch.ones(2, 4)
    loss = net(x)[:, 0].sum()
    with no_mesh.activate():
        loss.backward()
    assert all(
        parameter.grad is not None and parameter.grad.mesh is mesh for parameter in net.parameters()
    )


def test_a_state_dict_comes_home_and_goes_out(mesh: Any) -> None:
    net = network()
    state = inspect(net.state_dict())
    with no_mesh.activate():
        local = network()
        local.load_state_dict(state)
    other = network()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(net.state_dict())
    first, same = next(other.parameters()), next(local.parameters())
    assert inspect(first, gpus=1).tolist() == same.tolist()


def gradients_one_by_one(x: Any) -> tuple[list[Any], list[Any]]:
    net = network()
    parameters = list(net.parameters())
    loss = net(x).pow(2).mean()
    expected = torch.autograd.grad(loss, parameters, retain_graph=True)
    order = gradient_execution_order(loss, parameters)
    found: list[Any] = [None] * len(parameters)
    generator = grad_generator(loss, [parameters[index] for index in order])
    for index, gradient in zip(order, generator, strict=True):
        found[index] = gradient
    return found, list(expected)


def test_gradients_one_by_one_are_those_of_backward(mesh: Any) -> None:
    found, expected = gradients_one_by_one(torch.ones(3, 4))
    local = inspect((found, expected))
    with no_mesh.activate():
        for one, other in zip(*local, strict=True):
            torch.testing.assert_close(one, other)
        for one, other in zip(*gradients_one_by_one(torch.ones(3, 4)), strict=True):
            torch.testing.assert_close(one, other)


def test_gradients_come_when_they_are_asked_for() -> None:
    ran: list[str] = []

    def noting(name: str) -> Any:
        def multiply(x: Any) -> tuple[Any, Any]:
            def backward(grad: Any) -> Any:
                ran.append(name)
                return grad * 2

            return x * 2, backward

        return grad_function(multiply)

    a = torch.ones(2, requires_grad=True)
    b = torch.ones(2, requires_grad=True)
    unused = torch.ones(2, requires_grad=True)
    out = noting("last")(noting("first")(a) + b).sum()
    generator = grad_generator(out, [b, unused, a])
    assert next(generator).tolist() == [2.0, 2.0]
    assert ran == ["last"]
    assert next(generator) is None
    assert next(generator).tolist() == [4.0, 4.0]
    assert ran == ["last", "first"]
    with pytest.raises(StopIteration):
        next(generator)


def test_roots_need_a_gradient_unless_they_are_scalars() -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="one element"):
        grad_generator([x * 2], [x])
    (gradient,) = grad_generator([x * 2], [x], [torch.tensor([1.0, 3.0])])
    assert gradient is not None
    assert gradient.tolist() == [2.0, 6.0]


def test_a_graph_over_two_meshes_is_derived_piece_by_piece(mesh: Any) -> None:
    first, second = mesh.slice(gpus=0), mesh.slice(gpus=1)

    @grad_function
    def move(x: Any) -> tuple[Any, Any]:
        return x.to_mesh(second), lambda grad: grad.to_mesh(first)

    with first.activate():
        lower = nn.Linear(3, 3)
        hidden = lower(torch.ones(2, 3))
    with second.activate():
        upper = nn.Linear(3, 1)
        loss = upper(move(hidden)).sum()
    parameters = [upper.weight, lower.weight]
    with no_mesh.activate():
        upper_grad, lower_grad = grad_generator(loss, parameters)
    assert upper_grad is not None
    assert lower_grad is not None
    assert (upper_grad.mesh, lower_grad.mesh) == (second, first)
    weight, value = inspect(upper.weight), inspect(lower_grad)
    with no_mesh.activate():
        torch.testing.assert_close(value, (2 * weight).T.expand(3, 3))


@pytest.mark.both
def test_data_parallel_training_is_that_of_the_whole_batch(mesh: Any) -> None:
    data = [[float(row * 4 + column) / 32 for column in range(4)] for row in range(8)]
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    for _ in range(3):
        mine = torch.tensor(data).reshape(2, 4, 4).index_select(0, mesh.rank("gpus").reshape(1))[0]
        optimizer.zero_grad()
        net(mine).pow(2).mean().backward()
        for parameter in net.parameters():
            parameter.grad.reduce_("gpus", "avg")
        optimizer.step()
    with no_mesh.activate():
        local = network()
        optimizer = torch.optim.AdamW(local.parameters(), lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            local(torch.tensor(data)).pow(2).mean().backward()
            optimizer.step()
    for rank in range(2):
        ours = inspect(list(net.parameters()), gpus=rank)
        with no_mesh.activate():
            for mine, theirs in zip(ours, local.parameters(), strict=True):
                torch.testing.assert_close(mine, theirs.detach())


def test_slices_of_tensors_keep_to_their_ranks(mesh: Any) -> None:
    x = torch.ones(2) * mesh.rank("gpus")
    part = slice_mesh({"x": x}, gpus=1)["x"].to_mesh(mesh.slice(gpus=0))
    assert inspect(part + 1).tolist() == [2.0, 2.0]


def test_a_backward_function_runs_where_the_call_was(mesh: Any) -> None:
    """Its mesh and its stream are active again, also in a backward pass that runs with none; what
    nothing was derived from is 0.
    """
    first, other = mesh.slice(gpus=0), Stream("other")
    seen: list[Any] = []

    @grad_function
    def halves(x: Any) -> Any:
        def backward(low: Any, high: Any) -> Any:
            seen.append((get_active_mesh(), get_active_stream(), high))
            return torch.cat([low, high]) * torch.full((4,), 2.0)

        return list((x * 2).chunk(2)), backward

    with first.activate(), other.activate():
        x = torch.arange(4.0).requires_grad_()
        low = halves(x)[0].sum()
        with no_mesh.activate():
            (by_torch,) = torch.autograd.grad(low, x, retain_graph=True)
    (one_by_one,) = grad_generator(low, [x])
    assert [(at, stream) for at, stream, _ in seen] == [(first, other)] * 2
    assert all(high.mesh is first and high.stream is other for _, _, high in seen)
    assert inspect(by_torch).tolist() == inspect(one_by_one).tolist() == [2, 2, 0, 0]


@pytest.mark.processes("threads of torch")
def test_operations_of_a_rank_take_its_share_of_the_cores(mesh: Any) -> None:
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    expected = int(os.environ.get("OMP_NUM_THREADS", share))
    assert set(remote("torch.get_num_threads").call().get().values()) == {expected}


def test_an_error_of_shapes_ends_where_the_operation_was_issued(mesh: Any) -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.ones(3) @ torch.ones(4)
    assert not any("fake_tensor" in str(entry.path) for entry in caught.traceback)


def test_backward_passes_stay_on_the_thread_that_asks_for_them(mesh: Any) -> None:
    """torch runs those of GPUs on threads of its own, unless it is told not to: there, nothing is
    active.
    """

    def is_off() -> bool:
        return not torch._C._is_multithreading_enabled()

    seen: list[bool] = []

    def leaf() -> Any:
        x = torch.ones(2, requires_grad=True)
        x.register_hook(lambda grad: seen.append(is_off()))
        return x

    elsewhere = threading.Thread(target=lambda: seen.append(is_off()))
    elsewhere.start()
    elsewhere.join()
    assert seen == [False]  # another thread goes on as it was
    x = leaf()
    torch.autograd.backward((x * 2).sum())
    with mesh.slice(gpus=0).activate():
        assert is_off()
    assert is_off()
    loss = (leaf() * 2).sum()
    thread = threading.Thread(target=loss.backward)  # where no mesh is active
    thread.start()
    thread.join()
    assert seen == [False, True, True]


def test_whether_backward_passes_have_threads_is_as_before_when_no_mesh_is_active(
    pair: Any,
) -> None:
    for before in (True, False):
        with torch.autograd.set_multithreading_enabled(before):
            with pair.activate():
                assert not torch._C._is_multithreading_enabled()
            assert torch._C._is_multithreading_enabled() == before
