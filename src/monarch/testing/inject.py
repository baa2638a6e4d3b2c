"""Faults on purpose: what a program does when its actors fail.

Actors of a class that are spawned while an `Injection` is active meet its faults when they are
called, on real meshes as in `monarch.testing.local`:

    with Injection({Trainer: Crash(ranks=[1], after=5.0), Loader: Slow(2.0, probability=0.1)}, seed=7):
        run_training()

Chance is that of the seed: a rank draws from numbers of its own, so the same calls meet the same
faults. The failure of an injected fault has `MeshFailure.is_injected`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .. import config
from .._core.actors.context import context, current_hub
from .._core.actors.endpoint import EndpointDefinition, describe_class
from .._core.mesh import mock
from .._core.supervision.failure import INJECTED
from .._proc_stat import PARENT, stat_of

logger = logging.getLogger("monarch.testing")


@dataclass(frozen=True, kw_only=True)
class _Fault:
    """When a fault is met.

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
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability is from 0 to 1, got {self.probability!r}")
        if self.after < 0 or (self.every is not None and self.every <= 0):
            raise ValueError(f"after and every are seconds that pass, got {self!r}")

    def strike(self) -> float | None:
        """Happen now; return the seconds for which the call goes no further, None for ever."""
        raise NotImplementedError


class Fail(_Fault):
    """The actor ends with a failure; its process stays."""

    def strike(self) -> float | None:
        raise SystemExit(INJECTED)  # ends an actor; who calls it has a SupervisionError


class Crash(_Fault):
    """The process is ended by SIGKILL."""

    def strike(self) -> float | None:
        if _network() is None:
            print(INJECTED, file=sys.stderr, flush=True)
        else:
            current_hub().suspicion = INJECTED  # type: ignore[attr-defined]
        os.kill(os.getpid(), signal.SIGKILL)
        return None


class Hang(_Fault):
    """The call never ends."""

    def strike(self) -> float | None:
        return None


@dataclass(frozen=True)
class Slow(_Fault):
    """The call begins later.

    Attributes:
        seconds: By so much.
    """

    seconds: float
    times: int | None = field(default=None, kw_only=True)

    def strike(self) -> float | None:
        return self.seconds


class LostHost(_Fault):
    """The agent of the rank's host is ended, and all of the host with it."""

    def strike(self) -> float | None:
        network = _network()
        if network is None:
            os.kill(_agent(), signal.SIGKILL)
        else:
            network.cut(_host(), 0.0)
        return None


@dataclass(frozen=True)
class DroppedLink(_Fault):
    """Nothing is heard of the rank's host for some time, in which the call waits.

    Attributes:
        seconds: How long; from ``channel_reconnect_timeout`` on the host is lost.
    """

    seconds: float

    def strike(self) -> float | None:
        network = _network()
        if network is None:
            with hold(_agent()):
                time.sleep(self.seconds)
        else:
            network.cut(_host(), config.value("channel_reconnect_timeout"))
            time.sleep(self.seconds)
            network.mend(_host())
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


def _host() -> str:
    return current_hub().address.host


def _now() -> float:
    network = _network()
    return time.monotonic() if network is None else float(network.turns.now)


def _agent() -> int:
    """The process of this host's agent: the parent of the spawner, which is ours."""
    return int(stat_of(os.getppid())[PARENT])


class Injection:
    """Faults for the actors of some classes that are spawned from now on, here and in new procs.

    It is active from when it is made until `stop`, or the end of a ``with`` block.

    Args:
        faults: A fault, or several, by class.
        seed: Of chance; None for any, which the attribute then has.
        supervisors: Classes of owners whose actors are meant; None for those of all.

    Raises:
        TypeError: There is something else than faults.
    """

    def __init__(
        self,
        faults: Mapping[type, _Fault | Sequence[_Fault]],
        *,
        seed: int | None = None,
        supervisors: Collection[type] | None = None,
    ) -> None:
        self.seed = random.randrange(1 << 32) if seed is None else seed
        owners = None if supervisors is None else frozenset(map(_name, supervisors))
        self._classes = []
        for cls, given in faults.items():
            met = (given,) if isinstance(given, _Fault) else tuple(given)
            if not all(isinstance(each, _Fault) for each in met):
                raise TypeError(f"faults are Crash(...), Hang(...) and the like; got {given!r}")
            self._classes.append((cls, _afflicted(cls, _Plan(met, self.seed, owners))))
        mock.install(self._classes)
        logger.info("faults are injected with seed=%d", self.seed)

    def stop(self) -> None:
        """Spawn actors as they are again. Those that are there keep their faults."""
        classes, self._classes = self._classes, []
        for original, afflicted in classes:
            mock.patches()[original].remove(afflicted)

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
    policies: Mapping[type, ActorFailurePolicy],
    supervisors: Collection[type] | None = None,
    seed: int | None = None,
) -> Injection:
    """Have actors fail by chance, those that are spawned from now on.

    Args:
        policies: How, by class.
        supervisors: As of `Injection`.
        seed: As of `Injection`.

    Returns:
        What ends it: `stop`, or a ``with`` block.
    """
    faults = {
        cls: Fail(probability=policy.probability, every=policy.interval, again=True)
        for cls, policy in policies.items()
    }
    return Injection(faults, seed=seed, supervisors=supervisors)


@dataclass(frozen=True)
class _Plan:
    faults: tuple[_Fault, ...]
    seed: int
    owners: frozenset[str] | None


class _Fate:
    """What one actor meets, and when."""

    def __init__(self, plan: _Plan) -> None:
        actor = context().actor_instance
        owner = actor.creator
        self._lock = threading.Lock()
        self._began = _now()
        key = f"{plan.seed} {actor.class_name} {actor.rank.rank} {actor.incarnation}"
        meant = plan.owners is None or (owner is not None and owner.class_name in plan.owners)
        # of each fault: its numbers, how often it was drawn, and how often it was met
        self._open = [
            (fault, random.Random(f"{key} {place}"), [0, 0])
            for place, fault in enumerate(plan.faults if meant else ())
            if (fault.ranks is None or actor.rank.rank in fault.ranks)
            and (fault.again or not actor.incarnation)
        ]
        ticks = [fault.every for fault, *_ in self._open if fault.every is not None]
        if ticks and _network() is None:
            tick = threading.Thread(target=self._tick, args=(min(ticks),), daemon=True)
            tick.start()

    def _tick(self, seconds: float) -> None:
        while True:
            time.sleep(seconds)
            try:
                self.meet(called=False)
            except SystemExit:
                context().actor_instance.abort(INJECTED)

    def meet(self, called: bool = True) -> float | None:
        """Strike with what is due; return how long the call goes no further, None for ever."""
        delay = 0.0
        for fault in self._due(called):
            seconds = fault.strike()
            if seconds is None:
                return None
            delay += seconds
        return delay

    def _due(self, called: bool) -> list[_Fault]:
        due = []
        with self._lock:
            passed = _now() - self._began
            for fault, numbers, counts in self._open:
                if fault.every is not None:
                    draws = int(max(0.0, passed - fault.after) / fault.every) - counts[0]
                else:
                    draws = int(called and passed >= fault.after)
                counts[0] += draws
                hit = sum(numbers.random() < fault.probability for _ in range(draws)) > 0
                if hit and (fault.times is None or counts[1] < fault.times):
                    counts[1] += 1
                    due.append(fault)
        return due


def _afflicted(cls: type, plan: _Plan) -> type:
    """Derive a class whose actors meet faults, and are called as those of `cls`."""
    own = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "_fate": None}
    members: dict[str, Any] = {"__init__": _beginning(cls, plan)}
    for name, definition in describe_class(cls).endpoints.items():
        members[name] = EndpointDefinition(
            _meeting(cls, name, definition), definition.propagate, definition.explicit_response_port,
            definition.instrument, definition.concurrent, definition.concurrency,
        )  # fmt: skip
    return type(cls)(cls.__name__, (cls,), {**own, **members})


def _beginning(cls: type, plan: _Plan) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  # is one
        cls.__init__(self, *args, **kwargs)
        self._fate = _Fate(plan)

    return functools.wraps(cls.__init__)(__init__)


def _meeting(cls: type, name: str, definition: EndpointDefinition[Any, Any]) -> Callable[..., Any]:
    def sync(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        delay = self._fate.meet()
        if delay is None:
            threading.Event().wait()
        elif delay:
            time.sleep(delay)
        return getattr(cls, name)(self, *args, **kwargs)

    async def overlapping(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        delay = self._fate.meet()
        if delay is None:
            await asyncio.Event().wait()
        elif delay:
            await asyncio.sleep(delay)
        return await getattr(cls, name)(self, *args, **kwargs)

    return functools.wraps(definition.method)(overlapping if definition.is_async else sync)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


__all__ = [
    "ActorFailurePolicy", "Crash", "DroppedLink", "Fail", "Hang", "Injection", "LostHost", "Slow", "hold",
    "inject_actor_failures",
]  # fmt: skip
