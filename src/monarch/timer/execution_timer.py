"""Named stopwatches of one process.

They use the clock of the GPU's work where there is a GPU, else the wall clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch

logger = logging.getLogger("monarch.timer")

_DEFAULT = "default"


class _WallClock:
    """Measures from start to stop, as the CPU sees it."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._ms = 0.0

    def stop(self) -> None:
        self._ms = (time.perf_counter() - self._started) * 1e3

    def read(self) -> float:
        return self._ms


class _GpuClock:
    """The time between two points of the current CUDA stream, at start and at stop.

    Reading it waits for the second.
    """

    def __init__(self) -> None:
        event: Any = torch.cuda.Event  # torch has no types for it
        self._start, self._end = event(enable_timing=True), event(enable_timing=True)
        self._start.record()

    def stop(self) -> None:
        self._end.record()

    def read(self) -> float:
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end))


class ExecutionTimer:
    """The stopwatches of this process, by name.

    Each measures any number of times; one measurement at a time.
    """

    _running: ClassVar[dict[str, _WallClock | _GpuClock]] = {}
    _measured: ClassVar[dict[str, list[_WallClock | _GpuClock]]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    @contextmanager
    def time(cls, name: str = _DEFAULT, use_cpu: bool = False) -> Iterator[None]:
        """Return a context manager that measures a block.

        Args:
            name: Of the stopwatch.
            use_cpu: The wall clock, even where there is a GPU.

        Raises:
            RuntimeError: It is running.
        """
        cls.start(name, use_cpu)
        try:
            yield
        finally:
            cls.stop(name)

    @classmethod
    def start(cls, name: str = _DEFAULT, use_cpu: bool = False) -> None:
        """Begin to measure.

        Args:
            name: Of the stopwatch.
            use_cpu: The wall clock, even where there is a GPU.

        Raises:
            RuntimeError: It is running.
        """
        clock = _WallClock() if use_cpu or not torch.cuda.is_available() else _GpuClock()
        with cls._lock:
            if name in cls._running:
                raise RuntimeError(f"the timer {name!r} is running; stop it first")
            cls._running[name] = clock

    @classmethod
    def stop(cls, name: str = _DEFAULT) -> None:
        """End the measurement.

        Args:
            name: Of the stopwatch.

        Raises:
            RuntimeError: It is not running.
        """
        with cls._lock:
            clock = cls._running.pop(name, None)
            if clock is None:
                raise RuntimeError(f"the timer {name!r} is not running; start it first")
            clock.stop()
            cls._measured.setdefault(name, []).append(clock)

    @classmethod
    def reset(cls, name: str | None = None) -> None:
        """Forget what one stopwatch has measured, or all have.

        Args:
            name: Of the stopwatch; None for all.
        """
        with cls._lock:
            for kept in (cls._running, cls._measured):
                if name is None:
                    kept.clear()
                else:
                    kept.pop(name, None)

    @classmethod
    def get_latest_measurement(cls, name: str = _DEFAULT) -> float:
        """Return the last measurement, in milliseconds; 0.0, with a warning, if there is none.

        Args:
            name: Of the stopwatch.
        """
        if clocks := cls._measured.get(name):
            return clocks[-1].read()
        logger.warning("the timer %r has measured nothing; it is 0.0", name)
        return 0.0

    @classmethod
    def summary(cls) -> dict[str, dict[str, float]]:
        """Figures by name: ``count``, ``mean_ms``, ``total_ms``, ``min_ms``, ``max_ms``."""
        return {
            name: _summary([clock.read() for clock in cls._of(name)])
            for name in list(cls._measured)
        }

    @classmethod
    def _of(cls, name: str) -> list[_WallClock | _GpuClock]:
        measured = cls._measured.get(name)
        if not measured:
            raise KeyError(
                f"the timer {name!r} has measured nothing; there are {sorted(cls._measured)}"
            )
        return measured


def _summary(values: list[float]) -> dict[str, float]:
    total = sum(values)
    return {
        "count": len(values), "mean_ms": total / len(values), "total_ms": total, "min_ms": min(values), "max_ms": max(values),
    }  # fmt: skip


def execution_timer_start(name: str = _DEFAULT, use_cpu: bool = False) -> None:
    """`ExecutionTimer.start`, as a function.

    Args:
        name: Of the stopwatch.
        use_cpu: The wall clock, even where there is a GPU.
    """
    ExecutionTimer.start(name, use_cpu)


def execution_timer_stop(name: str = _DEFAULT) -> None:
    """`ExecutionTimer.stop`, as a function.

    Args:
        name: Of the stopwatch.
    """
    ExecutionTimer.stop(name)


def get_latest_timer_measurement(name: str = _DEFAULT) -> torch.Tensor:
    """`ExecutionTimer.get_latest_measurement`, as a scalar float64 tensor.

    Args:
        name: Of the stopwatch.
    """
    return torch.tensor(ExecutionTimer.get_latest_measurement(name), dtype=torch.float64)


def get_execution_timer_average_ms(name: str = _DEFAULT) -> torch.Tensor:
    """The mean of what a stopwatch has measured, in milliseconds, as a scalar float64 tensor.

    Args:
        name: Of the stopwatch.
    """
    return torch.tensor(
        _summary([clock.read() for clock in ExecutionTimer._of(name)])["mean_ms"],
        dtype=torch.float64,
    )
