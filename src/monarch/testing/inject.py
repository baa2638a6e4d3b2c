"""Faults on purpose: what a program does when its actors fail.

Actors of a class that are spawned while an `Injection` is active meet its faults when they are
called, on real meshes as in `monarch.testing.local`:

    with Injection({Trainer: Crash(ranks=[1], after=5.0), Loader: Slow(2.0, probability=0.1)}, seed=7):
        run_training()

Chance is that of the seed: a rank draws from numbers of its own, so the same calls meet the same
faults. The failure of an actor or process by an injected fault has `MeshFailure.is_injected`.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from .. import config
from .._core.actors.context import context, current_hub
from .._core.actors.endpoint import EndpointDefinition, describe_class
from .._core.supervision.failure import INJECTED
from .._patterns.mocking import patch_actor
from .._proc_stat import PARENT, stat_of


@dataclass(frozen=True, kw_only=True)
class Fault:
    """When a fault is met, of whichever kind.

    Attributes:
        ranks: Ranks of the mesh as it was spawned; None for all.
        probability: Of each call, or each interval, that is due.
        after: Seconds from when the rank began; calls before that meet nothing.
        every: Seconds between two draws, which need no call then, but where time is not that of the
            machine, as in `local`. None draws for each call.
        times: How often in a rank's life; None for any number.
        again: Whether ranks that have been started again meet it, too.
    """

    ranks: Collection[int] | None = None
    probability: float = 1.0
    after: float = 0.0
    every: float | None = None
    times: int | None = 1
    again: bool = False

    def __post_init__(self) -> None:
        if (
            not 0 <= self.probability <= 1
            or self.after < 0
            or (self.every is not None and self.every <= 0)
        ):
            raise ValueError(f"a probability is from 0 to 1, seconds are positive; got {self!r}")

    def strike(self) -> float | None:
        """Happen now; return the seconds for which the call goes no further, None for ever."""
        return None


class Fail(Fault):
    """The actor ends with a failure; its process stays."""

    def strike(self) -> float | None:
        raise SystemExit(INJECTED)  # ends an actor; its callers get a SupervisionError


class Crash(Fault):
    """The process is ended by SIGKILL."""

    def strike(self) -> float | None:
        current_hub().suspicion = INJECTED  # type: ignore[attr-defined]  # read in `local`
        print(INJECTED, file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        return None


class Hang(Fault):
    """The call never ends."""


@dataclass(frozen=True)
class Slow(Fault):
    """The call begins later, each time.

    Attributes:
        seconds: By so much.
    """

    seconds: float
    times: int | None = field(default=None, kw_only=True)

    def strike(self) -> float | None:
        return self.seconds


class LostHost(Fault):
    """The agent of the rank's host is ended, and all of the host with it."""

    def strike(self) -> float | None:
        if network := _network():
            network.cut(current_hub().address.host, 0.0)
        else:
            os.kill(_agent(), signal.SIGKILL)
        return None


@dataclass(frozen=True)
class DroppedLink(Fault):
    """Nothing is heard of the rank's host for some time, in which the call waits.

    Attributes:
        seconds: How long; from ``channel_reconnect_timeout`` on the host is lost.
    """

    seconds: float

    def strike(self) -> float | None:
        if network := _network():
            host = current_hub().address.host
            network.cut(host, config.value("channel_reconnect_timeout"))
            time.sleep(self.seconds)
            network.mend(host)
        else:
            with hold(_agent()):
                time.sleep(self.seconds)
        return 0.0


@contextmanager
def hold(pid: int) -> Iterator[None]:
    """Stop a process for the length of a block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _network() -> Any:
    """The network of `local`; None on real meshes."""
    return getattr(current_hub(), "network", None)


def _agent() -> int:
    """The process of this host's agent: the parent of the spawner, which is ours."""
    return int(stat_of(os.getppid())[PARENT])


class Injection:
    """Faults for the actors of some classes that are spawned from now on, here and in new procs.

    It is active from when it is made until `stop`, or the end of a ``with`` block.

    Args:
        faults: A fault, or several, by class.
        seed: Of chance; None for any, which the attribute then has.
        supervisors: Only actors of owners of these classes; None for those of all owners.

    Raises:
        TypeError: There is something else than faults.
    """

    def __init__(
        self, faults: Mapping[Any, Fault | Sequence[Fault]], *, seed: int | None = None,
        supervisors: Collection[type] | None = None,
    ) -> None:  # fmt: skip
        self.seed = random.randrange(1 << 32) if seed is None else seed
        owners: Any = supervisors and [
            f"{each.__module__}.{each.__qualname__}" for each in supervisors
        ]
        self._patches, patches = ExitStack(), []
        for cls, given in faults.items():
            met = [given] if isinstance(given, Fault) else [*given]
            if not all(isinstance(each, Fault) for each in met):
                raise TypeError(f"faults are Crash(...), Hang(...) and the like; got {given!r}")
            patches.append(patch_actor(cls, _afflicted(cls, (met, self.seed, owners))))
        for each in patches:
            self._patches.enter_context(each)
        logging.getLogger("monarch.testing").info("faults are injected with seed=%d", self.seed)

    def stop(self) -> None:
        """Spawn actors as they are again. Those that are there keep their faults."""
        self._patches.close()

    def __enter__(self) -> Injection:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()


@dataclass(frozen=True)
class ActorFailurePolicy:
    """How actors of a class fail: every `interval` seconds, each of them with a `probability`."""

    probability: float
    interval: float = 1.0


def inject_actor_failures(
    policies: Mapping[Any, ActorFailurePolicy], supervisors: Collection[type] | None = None, **seed: int
) -> Injection:  # fmt: skip
    """Have actors fail by chance, those that are spawned from now on.

    Args:
        policies: How, by class.
        supervisors: As of `Injection`.
        seed: As of `Injection`.

    Returns:
        What ends it: `stop`, or a ``with`` block.
    """
    faults = {
        cls: Fail(probability=each.probability, every=each.interval, again=True)
        for cls, each in policies.items()
    }
    return Injection(faults, supervisors=supervisors, **seed)


class _Fate:
    """Faults that one actor meets, and when."""

    def __init__(self, faults: list[Fault], seed: int, owners: list[str] | None) -> None:
        actor, network = context().actor_instance, _network()
        self._now = (lambda: network.turns.now) if network else time.monotonic
        self._lock, self._began, rank = threading.Lock(), self._now(), actor.rank.rank
        key = f"{seed} {actor.class_name} {rank} {actor.incarnation}"
        # of each fault: its numbers, how often it was drawn, and how often it was met
        self._open = [
            (fault, random.Random(f"{key} {place}"), [0, 0])
            for place, fault in enumerate(faults)
            if (fault.ranks is None or rank in fault.ranks)
            and (fault.again or not actor.incarnation)
            and (owners is None or (actor.creator and actor.creator.class_name) in owners)
        ]
        ticks = [fault.every for fault, *_ in self._open if fault.every]
        if ticks and not network:
            threading.Thread(target=self._tick, args=(min(ticks),), daemon=True).start()

    def _tick(self, seconds: float) -> None:
        try:
            while True:
                time.sleep(seconds)
                self.meet(called=False)
        except SystemExit:
            context().actor_instance.abort(INJECTED)

    def meet(self, called: bool = True) -> float | None:
        """Strike with the due faults; return for how long the call is held, None for ever."""
        delays = [fault.strike() for fault in self._due(called)]
        return None if None in delays else sum(delays)  # type: ignore[arg-type]

    def _due(self, called: bool) -> list[Fault]:
        due = []
        with self._lock:
            passed = self._now() - self._began
            for fault, numbers, counts in self._open:
                draws = int(called and passed >= fault.after)
                if fault.every:
                    draws = int(max(0.0, passed - fault.after) / fault.every) - counts[0]
                counts[0] += draws
                hit = sum(numbers.random() < fault.probability for _ in range(draws)) > 0
                if hit and (fault.times is None or counts[1] < fault.times):
                    counts[1] += 1
                    due.append(fault)
        return due


def _afflicted(cls: Any, plan: tuple[Any, ...]) -> type:
    """Derive a class with actors that meet faults, under the name of `cls`."""

    @functools.wraps(cls.__init__)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__(self, *args, **kwargs)
        self._fate = _Fate(*plan)

    members = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__init__": begin}
    for name, its in describe_class(cls).endpoints.items():
        members[name] = met = copy.copy(its)
        met.method = _meeting(cls, name, its)
    made: type = type(cls)(cls.__name__, (cls,), members)
    return made


def _meeting(cls: type, name: str, its: EndpointDefinition[Any, Any]) -> Callable[..., Any]:
    def sync(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        delay = self._fate.meet()
        if delay is None:
            threading.Event().wait()
        time.sleep(delay)
        return getattr(cls, name)(self, *args, **kwargs)

    async def overlapping(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        delay = self._fate.meet()
        await (asyncio.Event().wait() if delay is None else asyncio.sleep(delay))
        return await getattr(cls, name)(self, *args, **kwargs)

    return functools.wraps(its.method)(overlapping if its.is_async else sync)
