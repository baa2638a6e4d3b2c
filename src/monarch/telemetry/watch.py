"""A process's part in a profile.

It looks at each message for a while, and, if asked, runs torch's profiler.

What ends it: the next record, or the time that it names, so that the asker may die.
"""

from __future__ import annotations

import importlib
import sys
import time
from functools import partial

from .._core.plane import ControlRequest, ControlService, handles
from .._lazy import whole
from .._namedtuple import NamedTuple


class Watch(NamedTuple):
    """Look at each message.

    A client, of the program or beside it ──▶ host agents, procs, the client. Answer: `Watching`.

    Attributes:
        profile: Which one begins or ends; all is looked at while any is open.
        seconds: For so long, at most; 0: no longer.
        torch: Have torch's profiler run meanwhile, where torch is used; with 0 seconds the answer
            comes when it has ended.
    """

    profile: str
    seconds: float
    torch: bool = False


class Watching(NamedTuple):
    """The answer of a process to the start of a profile.

    Attributes:
        now: By the clock of the host, in nanoseconds since 1970.
        looks: Whether this process remembers messages at all.
        note: Why torch's profiler does not run, or has lost something; empty if nothing is wrong.
    """

    now: int
    looks: bool
    note: str = ""


_open: set[str] = set()  # profiles


@handles(Watch)
def _watch(service: ControlService, request: ControlRequest, record: Watch) -> None:
    now = time.time_ns()
    if record.seconds > 0:
        _open.add(record.profile)
        service.hub.poller.call_later(record.seconds, partial(_forget, record.profile))
    else:
        _open.discard(record.profile)
    looks = _look()
    if record.torch and "torch" in sys.modules:
        # which only this asks for
        torch_events = importlib.import_module("monarch.telemetry.torch_events")
        torch_events.watch(
            record.profile, record.seconds, lambda note: request.answer(Watching(now, looks, note))
        )
    else:
        request.answer(Watching(now, looks))


def profiled() -> bool:
    """Return whether a profile is open."""
    return bool(_open)


def _look() -> bool:
    """A process that has not imported that module remembers no messages."""
    messages = whole("monarch.telemetry.messages")
    return messages is not None and bool(messages.look_at_all(profiled()))


def _forget(profile: str) -> None:
    _open.discard(profile)
    _look()


HANDLERS = (_watch,)
