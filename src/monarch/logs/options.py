"""`ProcMesh.logging_option`: what of the output of some procs is shown at the client, and how."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .._core import plane
from .._rank_selector import RankSelector
from ..actor import Future, Point, ProcMesh
from .shown import HIDDEN, Shown


class SetLevel(NamedTuple):
    """Set the level of the root logger. Anybody ──▶ the procs of a mesh."""

    level: int


@plane.handles(SetLevel)
def _set_level(
    service: plane.ControlService, request: plane.ControlRequest, record: SetLevel
) -> None:
    plane.set_level(record.level)


def set_options(
    procs: ProcMesh,
    stream: bool,
    window: float | None,
    level: int,
    ranks: Any,
    match: str | re.Pattern[str] | None,
) -> Future[None]:
    """See `ProcMesh.logging_option`."""
    if window is not None:
        if not stream:
            raise RuntimeError("cannot set aggregate window without streaming to client")
        if (
            isinstance(window, bool)
            or not isinstance(window, (int, float))
            or not 0 <= window < math.inf
        ):
            raise ValueError(
                f"aggregate_window_sec is a number of seconds, 0 or more, or None; got {window!r}"
            )
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= 255:
        raise ValueError(f"Invalid logging level: {level!r}")
    shown = Shown(bool(stream), level, _compiled(match), float(window or 0))
    addresses = procs._addresses()
    chosen = addresses if ranks is None else _pick(procs, ranks)._addresses()
    views: list[tuple[Sequence[int], Callable[[str, plane.Output], plane.Output | None]]] = [
        (_ranks(chosen), shown.left_of)
    ]
    if len(chosen) < len(addresses):
        views.append((_ranks(set(addresses) - set(chosen)), HIDDEN.left_of))
    hub = plane.current_hub()
    # not waited for: it is there before the next requests of this process, and a proc that stands
    # still holds up no other
    plane.send_record(hub, addresses, SetLevel(level))
    if addresses == [hub.root]:  # what the client itself prints passes no agent
        return plane.completed()
    agents = list(dict.fromkeys(address.agent for address in addresses))
    # an agent that has ended shows nothing
    request = plane.StopCall(f"{procs.name}.logging_option()", agents)
    plane.send_record(hub, agents, plane.ShowOutput(procs._procs.uid, views, level), request)
    return request.future


def _ranks(addresses: Iterable[plane.ProcAddress]) -> list[int]:
    return [address.rank for address in addresses]


def _pick(procs: ProcMesh, ranks: Any) -> ProcMesh:
    """Pick the procs of the given ranks, in any way in which a mesh is sliced."""
    if isinstance(ranks, Mapping):
        return procs.slice(**ranks)
    if isinstance(ranks, slice):
        return procs.select(range(*ranks.indices(len(procs))))
    if isinstance(ranks, str):
        return procs.select(RankSelector(ranks).ranks(procs.extent))
    if isinstance(ranks, Iterable) and not isinstance(ranks, Point):
        return procs.select(ranks)
    return procs.select([ranks])


def _compiled(match: str | re.Pattern[str] | None) -> re.Pattern[str] | None:
    try:
        return match if match is None else re.compile(match)
    except (re.error, TypeError) as error:
        raise ValueError(
            f"match is a regular expression, and {match!r} is none: {error}"
        ) from error


HANDLERS = (_set_level,)
