"""How much memory distributed tensors take, here and on the ranks, and when it is given back."""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="no-untyped-call, attr-defined"

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from helpers.effort import shortened
from helpers.kept_values import values_kept
from helpers.waiting import wait_until

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from monarch import Stream, fetch_shard, inspect, remote
from monarch.actor import Actor, endpoint
from monarch.tensor_engine import TensorError
from monarch.tensor_engine.controller import engine as engine_module

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("descriptors", "threads"),  # torch's
]

MIB = 1 << 20
_gate = threading.Event()


@remote(propagate="inspect")
def pass_gate() -> None:
    if not _gate.wait(60):
        raise TimeoutError("nobody opened the gate")
    _gate.clear()


class Opener(Actor):
    """Lives beside the ranks' own threads, one of which is at the gate."""

    @endpoint
    def open(self) -> None:
        _gate.set()


def _memory() -> int:
    """Bytes that this process has in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def counts() -> list[int]:
    return list(remote(values_kept).call().get().values())


def memory() -> int:
    """Of the rank that has most."""
    return max(remote(_memory).call().get().values())


@pytest.mark.processes("the memory of a process")
def test_memory_is_given_back_before_the_next_operation(mesh: Any) -> None:
    inspect(torch.ones(1))
    before = memory()
    for _ in range(20):
        large = torch.ones(16, MIB // 4)  # 16 MiB
        inspect(large.sum())
        del large
    assert memory() < before + 64 * MIB


def test_an_alias_keeps_memory_and_drop_does_not_care(mesh: Any) -> None:
    inspect(torch.ones(1))
    before = memory()
    large = torch.ones(64, MIB // 4)
    view, other = large[:1], large.view(-1)
    del large
    inspect(view)
    assert memory() > before + 48 * MIB
    view.drop()
    fetch_shard(None).get()
    assert memory() < before + 48 * MIB
    for alias in (view, other):
        with pytest.raises(TensorError, match=r"DROPPED(.|\n)*dropped here(.|\n)*view\.drop\(\)"):
            alias.add(1)


def test_dropping_and_deleting_do_not_wait_for_the_ranks(mesh: Any) -> None:
    many = [torch.ones(1) for _ in range(100)]
    inspect(many[-1])
    pass_gate()
    dropped = many.pop()
    dropped.drop()
    del many
    gc.collect()
    later = torch.ones(1) + 1
    threading.Thread(target=_let_pass, args=(mesh,)).start()
    assert inspect(later).item() == 2
    assert max(counts()) < 50


def _let_pass(mesh: Any) -> None:
    openers = mesh.procs.spawn("openers", Opener)
    openers.open.call().get()
    openers.stop().get()


def test_values_of_cycles_are_freed(mesh: Any) -> None:
    inspect(torch.ones(1))
    cycles: list[Any] = []
    for _ in range(100):
        cycle: list[Any] = [torch.ones(1)]
        cycle.append(cycle)
        cycles.append(cycle)
    assert min(counts()) >= 100
    del cycles, cycle
    gc.collect()
    torch.ones(1)
    assert max(counts()) < 50


@contextmanager
def running_ahead(step: Callable[[], Any]) -> Iterator[int]:
    """`step` is done again and again in another thread; how often when it stopped by itself."""
    done, ended = 0, False

    def run() -> None:
        nonlocal done
        while not ended:
            step()
            done += 1

    thread = threading.Thread(target=run)
    thread.start()
    last = -1

    def stands() -> bool:
        nonlocal last
        before, last = last, done
        return before == done

    try:
        wait_until(stands, what="the controller to stop", interval=0.5)
        yield done
    finally:
        ended = True
        thread.join()


@pytest.mark.processes("ranks that wait, and hold up nothing else")
@pytest.mark.parametrize("spread", [False, True])
def test_the_controller_does_not_run_away(
    mesh: Any, monkeypatch: pytest.MonkeyPatch, spread: bool
) -> None:
    monkeypatch.setattr(engine_module, "_STRETCH", 100)
    stream = Stream("slow")
    fetch_shard(None).get()
    with stream.activate():
        total = torch.zeros(())
        fetch_shard(total).get()
        pass_gate()

    def add() -> None:
        with stream.activate():
            total.add_(1)

    with running_ahead(add) as done:
        assert 0 < done < 5000
        _let_pass(mesh)
        wait_until(lambda: done_more(total, done), what="the controller to go on")
        assert len(mesh.engine._settling) <= 6


def done_more(total: torch.Tensor, done: int) -> bool:
    return bool(inspect(total).item() > done + 1000)


def test_many_live_tensors_take_four_kilobytes_each(mesh: Any) -> None:
    inspect(torch.ones(1))
    count, before = shortened(25_000, 8_000), _memory()
    one = torch.ones(1)
    many = [one + 1 for _ in range(count)]
    inspect(many[-1])
    assert min(counts()) >= count
    assert _memory() - before < count * 4096
    assert inspect(many[5] + many[-1]).item() == 4
    del many
    torch.ones(1)
    assert max(counts()) < 50


@pytest.mark.processes("the memory of a process")
@pytest.mark.timeout(600)
@pytest.mark.slow
def test_many_operations_take_no_more_memory_than_a_tenth_of_them(mesh: Any) -> None:
    one, x, issued = torch.ones(2), torch.zeros(2), 0

    def step() -> None:
        nonlocal x, issued
        x = x + one
        issued += 1

    def run(steps: int) -> tuple[int, int]:
        """Bytes that this process has afterwards, and the rank that has most."""
        for _ in range(steps):
            step()
        assert fetch_shard(None).get() is None
        return _memory(), memory()

    fetch_shard(x).get()
    pass_gate()
    # so that the ranks have once had as much before them as the controller may issue
    with running_ahead(step):
        _let_pass(mesh)
    tenth = shortened(100_000, 30_000)
    here, there = run(tenth)
    here_after, there_after = run(9 * tenth)
    assert inspect(x).tolist() == [issued, issued]
    # bytes: two pointers for each, and what an allocator may keep; an object for each is more
    limit = 9 * tenth * 16 + 14 * MIB
    assert here_after < here + limit
    assert there_after < there + limit
    assert max(counts()) < 10
    print(
        f"{issued:,} operations: {here_after / MIB:.0f} MiB here, {there_after / MIB:.0f} on a rank"
    )
