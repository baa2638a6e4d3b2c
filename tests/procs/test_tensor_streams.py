"""Streams of operations, and borrows between them."""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, no-untyped-call, arg-type"

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from helpers.kept_values import values_kept
from helpers.waiting import wait_until

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from monarch import Stream, fetch_shard, get_active_stream, inspect, no_mesh, remote, slice_mesh
from monarch.tensor_engine import (
    OperatorError,
    RemoteException,
    TensorError,
    grad_generator,
    record,
)

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("descriptors", "threads"),  # torch's
]

_gates: dict[str, threading.Event] = {}


def _gate(name: str) -> threading.Event:
    return _gates.setdefault(name, threading.Event())


@remote(propagate="inspect")
def open_gate(name: str) -> None:
    _gate(name).set()


@remote(propagate="inspect")
def pass_gate(name: str) -> None:
    """Goes on when another stream has opened it."""
    if not _gate(name).wait(30):
        raise TimeoutError(f"nobody opened {name}")


@remote(propagate=lambda tensor: None)
def fail(tensor: torch.Tensor) -> None:
    raise RuntimeError("told to fail")


@remote(propagate=lambda tensor: tensor.add_(1))
def fail_to_write(tensor: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("told to fail")


@pytest.fixture(scope="module")
def other() -> Stream:
    return Stream("other")


# what is active


def test_the_stream_of_programs_that_use_no_other_is_main() -> None:
    assert get_active_stream().name == "main"


def test_an_activation_takes_effect_at_with_and_nests(other: Stream) -> None:
    third = Stream("third")
    activation = other.activate()
    assert get_active_stream().name == "main"
    with activation as active:
        assert get_active_stream() is other is active
        with third.activate():
            assert get_active_stream() is third
        assert get_active_stream() is other
    assert get_active_stream().name == "main"


def test_an_activation_belongs_to_its_thread_and_task(other: Stream) -> None:
    seen: list[str] = []
    with other.activate():
        thread = threading.Thread(target=lambda: seen.append(get_active_stream().name))
        thread.start()
        thread.join()

    async def enter() -> str:
        with other.activate():
            await asyncio.sleep(0)
            return get_active_stream().name

    async def look() -> str:
        await asyncio.sleep(0)
        return get_active_stream().name

    async def both() -> tuple[str, str]:
        first, second = await asyncio.gather(enter(), look())
        return first, second

    assert asyncio.run(both()) == ("other", "main")
    assert seen == ["main"]


# where tensors belong


def test_a_tensor_belongs_to_the_stream_that_was_active_when_it_was_made(
    mesh: Any, other: Stream
) -> None:
    assert torch.ones(1).stream.name == "main"
    with other.activate():
        made = torch.ones(1)
        assert (made + 1).stream is other
        assert made.view(1, 1).stream is other
        assert mesh.rank("gpus").stream is other


def test_tensors_of_another_stream_are_refused(mesh: Any, other: Stream) -> None:
    tensor = torch.ones(2)
    with other.activate():
        for use in (lambda: tensor.add(1), lambda: tensor.reduce("gpus"), lambda: fail(tensor)):
            with pytest.raises(TensorError, match=r"WRONG_STREAM(.|\n)*stream\.borrow"):
                use()
        with pytest.raises(OperatorError, match="ERROR_0: WRONG_STREAM"):
            tensor + torch.ones(2)
    assert inspect(tensor).tolist() == [1, 1]


def test_a_fetch_needs_no_active_stream(mesh: Any, other: Stream) -> None:
    with other.activate():
        tensor = torch.ones(2)
    assert inspect(tensor, gpus=1).tolist() == [1, 1]
    with pytest.raises(TensorError, match="WRONG_STREAM"):
        fetch_shard([tensor, torch.ones(2)])


def test_streams_work_side_by_side(mesh: Any, other: Stream) -> None:
    pass_gate("side by side")  # on main, which stands until the other stream has gone past
    with other.activate():
        open_gate("side by side")
    fetch_shard(None).get()


def test_a_fetch_of_one_stream_does_not_wait_for_another(mesh: Any, other: Stream) -> None:
    pass_gate("not waited for")
    with other.activate():
        assert inspect(torch.ones(1)).tolist() == [1]
        open_gate("not waited for")
    fetch_shard(None).get()


def test_operations_of_one_stream_keep_their_order(mesh: Any, other: Stream) -> None:
    with other.activate():
        total = torch.zeros(())
        for step in range(500):
            total.mul_(2).add_(step).remainder_(1009)
        expected = 0
        for step in range(500):
            expected = (2 * expected + step) % 1009
        assert inspect(total).item() == expected


@pytest.mark.both
def test_an_error_stays_on_its_stream(mesh: Any, other: Stream) -> None:
    with other.activate():
        bad = torch.zeros(2).index_select(0, torch.tensor([5]) * mesh.rank("gpus"))
    assert inspect(torch.ones(1)).tolist() == [1]
    with pytest.raises(RemoteException, match="index_select"):
        inspect(bad)


def test_values_of_any_stream_are_freed_with_their_handles(mesh: Any, other: Stream) -> None:
    count = remote(values_kept)
    with other.activate():
        many = [torch.ones(1) for _ in range(50)]
        assert min(count.call().get().values()) >= 50
        del many
        torch.ones(1)
    fetch_shard(None).get()
    assert max(count.call().get().values()) < 25


# reductions and moves


@pytest.mark.both
def test_reductions_of_two_streams_do_not_meet(mesh: Any, other: Stream) -> None:
    """Were there one line of communication for both, either could get what was meant for the
    other.
    """
    results = []
    for step in range(20):
        here = torch.full((3,), float(step)).reduce("gpus", "sum")
        with other.activate():
            there = torch.full((3,), 100.0 + step).reduce("gpus", "sum")
        results.append((here, there))
    for step, (here, there) in enumerate(results):
        assert inspect(here).tolist() == [2.0 * step] * 3
        assert inspect(there, gpus=1).tolist() == [200.0 + 2 * step] * 3


@pytest.mark.parametrize(("origin", "destination"), [(0, 1), (1, 0), (1, 1)])
def test_a_move_may_arrive_on_another_stream(
    mesh: Any, other: Stream, origin: int, destination: int
) -> None:
    data = torch.arange(3) + 10 * mesh.rank("gpus")
    moved = slice_mesh(data, gpus=origin).to_mesh(mesh.slice(gpus=destination), stream=other)
    data.zero_()
    assert moved.stream is other
    assert inspect(moved).tolist() == [10 * origin, 10 * origin + 1, 10 * origin + 2]


@pytest.mark.both
def test_moves_there_and_back_at_once(mesh: Any, other: Stream) -> None:
    data = torch.zeros(2) + mesh.rank("gpus")
    there = [
        slice_mesh(data + step, gpus=0).to_mesh(mesh.slice(gpus=1), stream=other)
        for step in range(10)
    ]
    back = [
        slice_mesh(data + step, gpus=1).to_mesh(mesh.slice(gpus=0), stream=other)
        for step in range(10)
    ]
    assert [inspect(each).tolist() for each in there] == [[step, step] for step in range(10)]
    assert [inspect(each).tolist() for each in back] == [[step + 1, step + 1] for step in range(10)]


def test_a_failure_moves_to_another_stream(mesh: Any, other: Stream) -> None:
    bad = torch.zeros(2).index_select(0, torch.tensor([5]) * mesh.rank("gpus"))
    for destination in (0, 1):
        moved = slice_mesh(bad, gpus=1).to_mesh(mesh.slice(gpus=destination), stream=other)
        with pytest.raises(RemoteException, match="index_select"):
            inspect(moved)


def test_gradients_go_back_to_the_stream_they_came_from(mesh: Any, other: Stream) -> None:
    weight = torch.ones(2, requires_grad=True)
    moved = (weight * 3).to_mesh(mesh, stream=other)
    with other.activate():
        loss = moved.sum()
    (gradient,) = grad_generator(loss, [weight])
    assert gradient is not None
    assert gradient.stream.name == "main"
    assert inspect(gradient).tolist() == [3, 3]


# borrows


def use(stream: Stream, function: Callable[[], Any]) -> Any:
    with stream.activate():
        return function()


def test_a_borrow_is_no_copy(mesh: Any, other: Stream) -> None:
    tensor = torch.zeros(2)
    lent, borrow = other.borrow(tensor, mutable=True)
    assert lent.stream is other
    use(other, lambda: lent.add_(1))
    borrow.drop()
    assert inspect(tensor).tolist() == [1, 1]


def test_what_is_lent_to_be_read_is_read_by_both_and_written_by_none(
    mesh: Any, other: Stream
) -> None:
    tensor = torch.ones(2)
    lent, borrow = other.borrow(tensor)
    again, second = other.borrow(tensor)
    assert inspect(tensor + 1).tolist() == [2, 2]
    assert inspect(use(other, lambda: lent + again)).tolist() == [2, 2]
    for write in (lambda: tensor.add_(1), lambda: tensor.reduce_("gpus"), tensor.drop):
        with pytest.raises(TensorError, match="MUTATING_BORROW: .*would be mutated"):
            write()
    with pytest.raises(TensorError, match="MUTATING_BORROW"):
        use(other, lambda: lent.add_(1))
    borrow.drop()
    with pytest.raises(
        TensorError, match=r"MUTATING_BORROW(.|\n)*borrowed here(.|\n)*other\.borrow\(tensor\)"
    ):
        tensor.add_(1)  # one is left
    second.drop()
    assert inspect(tensor.add_(1)).tolist() == [2, 2]


def test_what_is_lent_to_be_written_is_the_borrowers_alone(mesh: Any, other: Stream) -> None:
    tensor = torch.ones(2)
    view = tensor[:1]
    lent, borrow = other.borrow(tensor, mutable=True)
    for touch in (
        lambda: tensor.add(1),
        lambda: view.add(1),
        lambda: tensor.add_(1),
        tensor.drop,
        lambda: inspect(tensor),
    ):
        with pytest.raises(TensorError, match=r"BORROWED(.|\n)*borrowed here(.|\n)*mutable=True"):
            touch()
    assert inspect(use(other, lambda: lent.add_(1))).tolist() == [2, 2]
    borrow.drop()
    assert inspect(view).tolist() == [2]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_which_borrows_go_together(mesh: Any, other: Stream, first: bool, second: bool) -> None:
    tensor = torch.ones(2)
    third = Stream("third")
    _, borrow = other.borrow(tensor, mutable=first)
    if first or second:
        with pytest.raises(RuntimeError, match="borrowed here"):
            third.borrow(tensor, mutable=second)
    else:
        third.borrow(tensor, mutable=second)[1].drop()
    borrow.drop()
    third.borrow(tensor, mutable=second)[1].drop()


def test_the_end_of_a_borrow_ends_all_that_was_derived(mesh: Any, other: Stream) -> None:
    tensor = torch.ones(2)
    lent, borrow = other.borrow(tensor)
    with borrow, other.activate():
        view, copy = lent[:1], lent + 1
    with other.activate():
        for handle in (lent, view):
            assert handle.dropped
            with pytest.raises(TensorError, match="DROPPED"):
                handle.add(1)
        assert inspect(copy).tolist() == [2, 2]
    borrow.drop()  # again


def test_a_stream_may_borrow_what_it_has_or_has_lent(mesh: Any, other: Stream) -> None:
    tensor = torch.zeros(2)
    own, first = get_active_stream().borrow(tensor, mutable=True)
    own.add_(1)
    first.drop()
    lent, borrow = other.borrow(tensor, mutable=True)
    use(other, lambda: lent.mul_(5))
    back, second = get_active_stream().borrow(lent, mutable=True)
    back.add_(1)
    second.drop()
    borrow.drop()
    assert inspect(tensor).tolist() == [6, 6]


def test_only_tensors_without_a_gradient_are_borrowed(mesh: Any, other: Stream) -> None:
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(TensorError, match="REQUIRES_GRAD"):
        other.borrow(weight)
    with torch.no_grad():
        other.borrow(weight)[1].drop()
    with pytest.raises(TypeError, match="takes a distributed tensor"):
        other.borrow(3)


def test_what_was_borrowed_can_be_lent_on(mesh: Any, other: Stream) -> None:
    third = Stream("third")
    tensor = torch.zeros(2)
    lent, borrow = other.borrow(tensor, mutable=True)
    use(other, lambda: lent.add_(1))
    further, second = third.borrow(lent, mutable=True)
    use(third, lambda: further.mul_(5))
    with pytest.raises(TensorError, match="BORROWED"):
        use(other, lambda: lent.add_(1))
    second.drop()
    use(other, lambda: lent.add_(1))
    further, second = third.borrow(lent)
    use(third, lambda: further + 1)
    borrow.drop()  # ends the second, too
    assert further.dropped
    assert inspect(tensor).tolist() == [6, 6]


def test_the_borrower_waits_for_what_the_origin_did_before(mesh: Any, other: Stream) -> None:
    tensor = torch.zeros(2)
    pass_gate("origin first")
    tensor.add_(1)
    lent, borrow = other.borrow(tensor)
    with other.activate():
        open_gate("origin first")  # the borrow was made, and not used: this does not wait
        seen = lent.clone()
    borrow.drop()
    assert inspect(seen).tolist() == [1, 1]


def test_the_origin_waits_for_the_borrowers_last_use_and_no_longer(
    mesh: Any, other: Stream
) -> None:
    tensor = torch.zeros(2)
    lent, borrow = other.borrow(tensor, mutable=True)
    with other.activate():
        lent.add_(1)
        del lent  # the last use
        pass_gate("origin goes on")
    borrow.drop()
    tensor.add_(1)
    # on main, which waits for the borrower's addition, not for what the borrower does then
    open_gate("origin goes on")
    assert inspect(tensor).tolist() == [2, 2]
    fetch_shard(None).get()


def test_a_borrow_that_was_never_used_costs_no_wait(mesh: Any, other: Stream) -> None:
    tensor = torch.zeros(2)
    with other.activate():
        pass_gate("never used")
    other.borrow(tensor, mutable=True)[1].drop()
    open_gate("never used")
    assert inspect(tensor).tolist() == [0, 0]
    fetch_shard(None).get()


def test_a_failed_write_comes_back(mesh: Any, other: Stream) -> None:
    tensor = torch.zeros(2)
    view = tensor[:1]
    lent, borrow = other.borrow(tensor, mutable=True)
    with other.activate():
        fail_to_write(lent)
    borrow.drop()
    for spoiled in (tensor, view):
        with pytest.raises(RemoteException, match="told to fail"):
            inspect(spoiled)
    assert inspect(torch.ones(1)).tolist() == [1]


def test_a_failure_is_lent_as_a_failure(mesh: Any, other: Stream) -> None:
    bad = torch.zeros(2).index_select(0, torch.tensor([5]) * mesh.rank("gpus"))
    lent, borrow = other.borrow(bad)
    with other.activate(), pytest.raises(RemoteException, match="index_select"):
        inspect(lent + 1)
    borrow.drop()


def test_the_origin_may_be_let_go_while_it_is_lent(mesh: Any, other: Stream) -> None:
    tensor = torch.ones(1000)
    lent, borrow = other.borrow(tensor)
    del tensor
    for _ in range(10):
        torch.zeros(1000)
    assert inspect(use(other, lambda: lent.sum())).item() == 1000
    borrow.drop()


def test_a_forgotten_borrow_is_dropped_with_a_warning(mesh: Any, other: Stream) -> None:
    tensor = torch.zeros(2)
    lent, borrow = other.borrow(tensor, mutable=True)
    with other.activate():
        lent.add_(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del lent, borrow
        gc.collect()
    assert any(
        "without drop()" in str(each.message) and "other.borrow(tensor" in str(each.message)
        for each in caught
    )
    assert inspect(tensor.add_(1)).tolist() == [2, 2]


def test_overlap_of_gradients_and_their_reduction(mesh: Any, other: Stream) -> None:
    """What a data-parallel program does: each gradient is reduced on another stream, while the
    backward pass goes on.
    """
    weights = [torch.full((4, 4), 0.5, requires_grad=True) for _ in range(4)]
    x = torch.ones(4, 4) * (1 + mesh.rank("gpus"))
    out = x
    for weight in weights:
        out = torch.relu(out @ weight)
    borrows = []
    for gradient in grad_generator(out.sum(), list(reversed(weights))):
        lent, borrow = other.borrow(gradient, mutable=True)
        with other.activate():
            lent.reduce_("gpus", "avg")
        del lent
        borrows.append((borrow, gradient))
    found = []
    for borrow, gradient in borrows:
        borrow.drop()
        found.append(inspect(gradient))
    with no_mesh.activate():
        local = [torch.full((4, 4), 0.5, requires_grad=True) for _ in range(4)]
        total = torch.zeros(())
        for rank in range(2):
            out = torch.ones(4, 4) * (1 + rank)
            for weight in local:
                out = torch.relu(out @ weight)
            total = total + out.sum() / 2
        expected = torch.autograd.grad(total, list(reversed(local)))
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_an_actor_may_use_a_tensor_of_another_stream(mesh: Any, other: Stream) -> None:
    from helpers.actors import Echo

    actors = mesh.procs.spawn("echo", Echo)
    with other.activate():
        tensor = torch.ones(2)
    assert [value.tolist() for value in actors.say.call(tensor).get().values()] == [[1, 1]] * 2
    with pytest.raises(TensorError, match="WRONG_STREAM"):
        actors.say.call([tensor, torch.ones(1)])
    actors.stop().get()


def test_a_gradient_generator_adds_what_comes_back_from_another_stream(
    mesh: Any, other: Stream
) -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 3
    main = get_active_stream()
    there = y.to_mesh(mesh, stream=other)
    with other.activate():
        back = (there * 2).to_mesh(mesh, stream=main)
    loss = (y + back).sum()
    (gradient,) = grad_generator(loss, [x])
    assert inspect(gradient).tolist() == [9, 9]


# the end of a stream


def _threads() -> list[tuple[int | None, str]]:
    """Those of this process for streams: their number in the system, and their name."""
    return [
        (thread.native_id, thread.name)
        for thread in threading.enumerate()
        if thread.name.startswith("monarch-stream-")
    ]


def threads(stream: int | None = None) -> int:
    """How many threads the ranks have for streams, all together; or for one stream."""
    found = {thread for each in remote(_threads).call().get().values() for thread in each}
    return sum(stream is None or name == f"monarch-stream-{stream}" for _, name in found)


def test_a_stream_ends_with_its_last_handle(mesh: Any) -> None:
    before = threads()
    for step in range(5):
        stream = Stream("short")
        with stream.activate():
            total = (torch.ones(2) * (step + mesh.rank("gpus"))).reduce("gpus")
            assert inspect(total).tolist() == [2 * step + 1] * 2
    del stream, total
    wait_until(lambda: threads() <= before, what="the threads of the streams to end")
    assert len([group for group in mesh.engine._groups.values() if group.stream > 0]) <= before


def test_a_tensor_keeps_its_stream(mesh: Any) -> None:
    stream = Stream("kept")
    number = stream.number
    with stream.activate():
        x = torch.ones(2)
    del stream
    assert threads(number) == 2
    assert x.stream.name == "kept"
    with x.stream.activate():
        x = x + 1
    assert threads(number) == 2
    assert inspect(x).tolist() == [2, 2]
    del x
    wait_until(lambda: threads(number) == 0, what="the stream to end")


def test_what_was_issued_on_a_stream_is_done_before_it_ends(mesh: Any, other: Stream) -> None:
    x = torch.zeros(1)
    stream = Stream("late")
    number = stream.number
    lent, borrow = stream.borrow(x, mutable=True)
    with stream.activate():
        pass_gate("end of a stream")
        lent.add_(5)
    borrow.drop()
    del stream, lent, borrow
    with other.activate():
        assert threads(number) == 2  # this asks, and tells of the end
        open_gate("end of a stream")
    assert inspect(x).tolist() == [5]
    wait_until(lambda: threads(number) == 0, what="the stream to end")
    assert fetch_shard(None).get() is None


def test_a_recorded_function_keeps_the_streams_in_it(mesh: Any) -> None:
    made: list[int] = []

    def add_up(x: torch.Tensor) -> torch.Tensor:
        stream = Stream("inside")
        made.append(stream.number)
        with stream.activate():
            total = torch.ones(2).reduce("gpus")
        borrowed, borrow = get_active_stream().borrow(total)
        with borrow:
            x = x + borrowed
            del borrowed
        return x

    recorded = record(add_up, verify=False)
    x = torch.zeros(2)
    for _ in range(4):
        x = recorded(x)
        assert fetch_shard(None).get() is None
    assert inspect(x).tolist() == [8, 8]
    assert len(made) == 1
    assert threads(made[0]) == 2
    del recorded
    wait_until(lambda: threads(made[0]) == 0, what="the stream to end")
