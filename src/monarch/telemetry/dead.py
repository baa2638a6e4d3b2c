"""The rows of failed procs, which their host agent reads from their black boxes, for an hour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .._core.plane import BoxContent, DeadProc, content_of
from .ids import actor_id, event_id, mesh_id, message_id, proc_id
from .registry import AGENT, Asked, produces

Row = tuple[Any, ...]

_EXTENTS = b"\0"
_OVER = "Stopped", "Failed"  # of actors that had ended before their process did


def _boxes(asked: Asked) -> Iterator[tuple[DeadProc, BoxContent]]:
    """The black boxes of the program that is meant, the latest last."""
    agent: Any = asked.service
    for dead in agent.boxes():
        if asked.root in (None, dead.proc.root):
            yield dead, content_of(dead.box)


def actors(asked: Asked) -> Iterator[Row]:
    """The actors of dead processes: what they were handling at the end, and since when."""
    # started again under its name
    living = {proc.address for proc in asked.description.procs if proc.end is None}
    latest = {dead.proc.address: (dead, box) for dead, box in _boxes(asked)}
    for address, (dead, box) in latest.items():
        if address in living:
            continue
        handling = {call.uid: (call.endpoint, call.since) for call in box.calls if not call.until}
        handling.update((each.uid, (_endpoint(each.meta), each.begin)) for each in box.current)
        over = {event.uid for event in box.life if event.status in _OVER}
        for each in {each.uid: each for each in box.actors if each.uid not in over}.values():
            endpoint, since = handling.get(each.uid, (None, None))
            yield (
                actor_id(address, each.uid), each.created_us, mesh_id(each.uid), each.rank, each.path, each.name, each.name,
                each.class_name or None, proc_id(address), dead.proc.pid, "Failed", endpoint, each.queued, each.handled,
                each.incarnation, since // 1000 if since is not None else None,
            )  # fmt: skip


def status_events(asked: Asked) -> Iterator[Row]:
    """The life of their actors; of the end of the process its owner and its agent tell."""
    for dead, box in _boxes(asked):
        for event in box.life:
            who = actor_id(dead.proc.address, event.uid)
            number, reason = event_id(who, event.time), event.reason or None
            yield number, event.time // 1000, who, event.status, reason


@produces("messages", AGENT)
def _messages(asked: Asked) -> Iterator[Row]:
    """Return the messages that ended procs were handling, and those longer than a second.

    The times are good to a second, unless telemetry was on.
    """
    for dead, box in _boxes(asked):
        address = dead.proc.address
        for each in box.current:
            yield (
                message_id(address, each.number), each.begin // 1000, each.sender, actor_id(address, each.uid),
                _endpoint(each.meta), None, each.size, None, 1, None,
            )  # fmt: skip
        exact = {(each.uid, _endpoint(each.meta)) for each in box.current}
        for call in box.calls:
            if (call.uid, call.endpoint) not in exact or call.until:
                who = actor_id(address, call.uid)
                took = (call.until - call.since) // 1000 if call.until else None
                yield (
                    event_id(who, call.since), call.since // 1000, 0, who, call.endpoint, None, 0,
                    took, 1, None,
                )  # fmt: skip


@produces("message_status_events", AGENT)
def _message_status_events(asked: Asked) -> Iterator[Row]:
    for dead, box in _boxes(asked):
        for each in box.current:
            message = message_id(dead.proc.address, each.number)
            yield message ^ 1, each.begin // 1000, message, "active", 1


def _endpoint(meta: bytes) -> str:
    return meta.partition(_EXTENTS)[0].decode(errors="replace")
