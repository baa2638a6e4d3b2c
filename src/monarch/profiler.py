"""torch's profiler on every rank of the active mesh, each with a trace file of its own.

A rank records what its own threads do that started the profile: the operations of its main stream.
The controller's part of a step is not in the files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from monarch.tensor_engine import OpaqueObject, OpaqueRef, get_active_mesh, remote
from monarch.tensor_engine.groups.in_process import refuse


class Schedule(NamedTuple):
    """The steps to record, as ``torch.profiler.schedule`` has it.

    Attributes:
        wait: Steps of a cycle in which nothing happens; then
        warmup: those in which it runs and keeps nothing; then
        active: those that are recorded.
        repeat: How many cycles; 0 for as long as it runs.
        skip_first: Steps before the first cycle.
    """

    wait: int
    warmup: int
    active: int
    repeat: int = 0
    skip_first: int = 0


class profile:  # noqa: N801  # as torch calls it
    """``with profile(on_trace_ready="traces") as p:``, and ``p.step()`` after each step.

    Each rank writes ``<on_trace_ready>/trace_<rank>.json``, a path on its own host; where a
    schedule gives several, the last one stays.

    Args:
        on_trace_ready: A folder, made if it is not there; or a function that each rank calls with
            its profiler.
        schedule: When to record; None for all the time.
        **kwargs: As for ``torch.profiler.profile``.

    Raises:
        ValueError: No mesh is active.
        TypeError: `schedule` or `on_trace_ready` is something else.
        NotImplementedError: The ranks are in this process, as in tests with ``local()``.
    """

    def __init__(
        self,
        *,
        on_trace_ready: str | os.PathLike[str] | Callable[[Any], object] | None = None,
        schedule: Schedule | None = None,
        **kwargs: Any,
    ) -> None:
        if schedule is not None and not isinstance(schedule, Schedule):
            raise TypeError(f"schedule is a monarch.profiler.Schedule, got {schedule!r}")
        ready = on_trace_ready
        if ready is not None and not callable(ready):
            ready = os.fspath(ready)
        self._mesh = get_active_mesh()
        refuse(self._mesh, "torch has one profiler for a process")
        self._there = OpaqueObject(_profile, ready, schedule, kwargs, self._mesh.process_idx())

    def start(self) -> None:
        """Begin; so does ``with``."""
        self._there.call_method("start", "inspect")

    def step(self) -> None:
        """The next step of the schedule begins."""
        self._there.call_method("step", "inspect")

    def stop(self) -> None:
        """End, and wait until the ranks have written their files; so does the end of ``with``.

        Raises:
            RemoteException: A rank could not record, or write.
        """
        with self._mesh.activate():
            remote(_stop).call(self._there._object).get()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()


@contextmanager
def record_function(name: str) -> Iterator[None]:
    """A context that names its work on the ranks of the active mesh in their traces.

    Args:
        name: The name.
    """
    block = _begin(name)
    try:
        yield
    finally:
        _end(block)


# on the ranks


def _profile(ready: Any, schedule: Schedule | None, kwargs: dict[str, Any], rank: Any) -> Any:
    def write(profiler: Any) -> None:
        folder = Path(ready)
        folder.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(folder / f"trace_{int(rank)}.json"))

    steps = None if schedule is None else torch.profiler.schedule(**schedule._asdict())
    return torch.profiler.profile(
        on_trace_ready=write if isinstance(ready, str) else ready, schedule=steps, **kwargs
    )


def _stop(ref: OpaqueRef) -> None:
    ref.value.stop()


@remote(propagate=lambda name: OpaqueRef(None))
def _begin(name: str) -> OpaqueRef:
    block: Any = torch.profiler.record_function(name)
    block.__enter__()
    return OpaqueRef(block)


@remote(propagate="inspect")
def _end(ref: OpaqueRef) -> None:
    ref.value.__exit__(None, None, None)


__all__ = ["Schedule", "profile", "record_function"]
