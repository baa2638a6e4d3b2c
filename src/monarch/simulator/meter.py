"""Measures a machine by running small programs on real ranks.

They run all at once, so that what ranks share is shared.

Each number is the best of some short rounds with pauses between them: so it is that of a quiet
machine, even if this one is not quiet all the time. What ends each wait: the ranks, or their end.
It takes some ten seconds.
"""

from __future__ import annotations

import functools
import platform
import time
from collections.abc import Callable

import torch

from monarch.actor import ProcMesh
from monarch.tensor_engine import inspect, reduce, remote

from .cost import FUNCTION_WEIGHT
from .machine import MACHINES, Link, Machine

_ROUNDS = 12
_PAUSE = 0.01  # seconds
_OPERATIONS = 300
_SIZE = 512  # rows and columns of matrices
_LARGE = 8 * 1024 * 1024  # elements of four bytes: more than caches hold
_MIDDLE = 1024 * 1024
_BYTES = 4


def measure(
    procs: ProcMesh, device: str = "cpu", name: str = "measured", shared: bool = False
) -> Machine:
    """Measure ranks on one host.

    Links between hosts are not measured: they are taken to be as those between ranks.

    Args:
        procs: The ranks, two or more if collectives are to be measured; as many as shall compute at
            the same time.
        device: ``"cpu"`` or ``"cuda"``.
        name: Of the result.
        shared: Others use the processors meanwhile. What ranks compute is then measured in the
            processor time of their threads. So it does not count if the ranks themselves are in
            each other's way.

    Returns:
        The machine, ready for `Machine.save` or a simulator.
    """
    with procs.activate() as mesh, torch.no_grad():
        meter = _Meter(device, len(mesh), shared)
        base = MACHINES["cpu" if device == "cpu" else "h100"]
        host = meter.link() or base.host
        return base.replace(
            name=name, source=f"measured on {len(mesh)} ranks of {platform.node()}, {device}, torch {torch.__version__}",
            flops=meter.flops(), vector=meter.vector(), bandwidth=meter.bandwidth(), fresh=meter.fresh(),
            overhead=meter.overhead(), kernel=meter.kernel(), issue=meter.issue(), delay=meter.answer / 2, answer=meter.answer,
            fetch_bandwidth=meter.fetch_bandwidth(), host=host, network=host,
        )  # fmt: skip


class _Meter:
    """Measures on the active mesh.

    Attributes:
        answer: Seconds for a question and its answer.
    """

    def __init__(self, device: str, ranks: int, shared: bool) -> None:
        self._device = device
        self._ranks = ranks
        self._shared = shared
        self._one = torch.ones(4, 4, device=device)
        for _ in range(3):  # threads start, operations are seen for the first time
            inspect(self._one @ self._one)
        self.answer = min(self._until_done(lambda: self._one, 1) for _ in range(3 * _ROUNDS))
        self._idle = 0.0
        if shared:
            self._idle = min(self._processor_time(lambda: self._one, 1) for _ in range(_ROUNDS))

    def flops(self) -> dict[str, float]:
        rates = {}
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            a = torch.ones(_SIZE, _SIZE, device=self._device, dtype=dtype)
            rates[str(dtype).partition(".")[2]] = (
                2 * _SIZE**3 / self._computing(functools.partial(torch.mm, a, a), 1)
            )
        return rates

    def vector(self) -> float:
        a = torch.ones(_MIDDLE, device=self._device)
        return FUNCTION_WEIGHT * _MIDDLE / self._computing(lambda: torch.tanh(a), 2)

    def bandwidth(self) -> float:
        """Measure the bandwidth, with memory that exists already."""
        a, b = torch.ones(_LARGE, device=self._device), torch.ones(_LARGE, device=self._device)
        return 3 * _BYTES * _LARGE / self._computing(lambda: torch.add(a, a, out=b), 1)

    def fresh(self) -> float:
        """Return the extra cost of new memory for results that are kept."""
        if self._device != "cpu":
            return 0.0
        a, kept = torch.ones(_MIDDLE), 16

        def keep() -> torch.Tensor:
            return [a + a for _ in range(kept)][-1]

        reused = self._computing(lambda: a + a, 1)
        return max(self._computing(keep, 1) / kept - reused, 0.0) / (_BYTES * _MIDDLE)

    def overhead(self) -> float:
        """Measure the overhead of the workers: while they sleep, operations pile up."""
        if self._shared:
            return self._computing(self._small_operations, 1) / _OPERATIONS
        nap = 0.05

        def pile() -> torch.Tensor:
            remote("time.sleep", propagate="inspect")(nap)
            return self._small_operations()

        return (self._passing(pile, 1) - nap) / _OPERATIONS

    def issue(self) -> float:
        """Measure issuing with the workers at work: on few cores they are in the way."""
        return self._passing(self._small_operations, 1) / _OPERATIONS

    def kernel(self) -> float:
        """One more tensor in an operation on many."""
        if self._device != "cpu":
            return MACHINES["h100"].kernel
        many = [torch.ones(4, 4) for _ in range(200)]

        def add() -> torch.Tensor:
            torch._foreach_add_(many, 1.0)
            return many[0]

        return self._computing(add, 2) / len(many)

    def link(self) -> Link | None:
        """Fit the formula for a ring to a small and a large reduction."""
        if self._ranks == 1:
            return None
        large = torch.ones(_LARGE, device=self._device)
        small, steps = self._passing(lambda: reduce(self._one), 5), 2 * (self._ranks - 1)
        copy = self._passing(lambda: large.clone(), 1)  # a reduction makes one, too
        moved = max(self._passing(lambda: reduce(large), 1) - small - copy, 1e-9)
        return Link(small / steps, steps / self._ranks * _BYTES * _LARGE / moved)

    def fetch_bandwidth(self) -> float:
        a = torch.ones(_LARGE, device=self._device)
        inspect(a)
        return _BYTES * _LARGE / min(self._fetch(a) for _ in range(_ROUNDS))

    def _fetch(self, tensor: torch.Tensor) -> float:
        start = time.perf_counter()
        inspect(tensor)
        return max(time.perf_counter() - start - self.answer, 1e-9)

    def _small_operations(self) -> torch.Tensor:
        """Run various operations, as a program does.

        Alone, each would find all that it needs in the caches.
        """
        x, one = self._one, self._one
        for _ in range(_OPERATIONS // 10):
            y = torch.relu(torch.addmm(one[0], x, one.t()))
            z = (y * 0.5).sum(0, keepdim=True).expand(4, 4)
            x = torch.where(y > 0, z, y).add_(one)
        return x

    def _computing(self, work: Callable[[], torch.Tensor], count: int) -> float:
        """Seconds for one, all ranks at once; of those that `shared` means."""
        if not self._shared:
            return self._passing(work, count)
        best = min(self._processor_time(work, count) for _ in range(_ROUNDS))
        return max(best - self._idle, 1e-9) / count

    def _passing(self, work: Callable[[], torch.Tensor], count: int) -> float:
        """Seconds for one that pass, all ranks at once."""
        best = min(self._until_done(work, count) for _ in range(_ROUNDS))
        return max(best - self.answer, 1e-9) / count

    def _until_done(self, work: Callable[[], torch.Tensor], count: int) -> float:
        inspect(self._one)
        time.sleep(_PAUSE)
        start = time.perf_counter()
        for _ in range(count):
            result = work()
        inspect(result.view(-1)[0])
        return time.perf_counter() - start

    def _processor_time(self, work: Callable[[], torch.Tensor], count: int) -> float:
        before = processor_times()
        for _ in range(count):
            work()
        return max(after - start for start, after in zip(before, processor_times(), strict=True))


def processor_times() -> list[float]:
    """Seconds that the thread of each worker of the active mesh has computed so far."""
    return list(remote(time.thread_time).call().get().values())
