"""Communication groups along dimensions of meshes, and routes from mesh to mesh.

Each is defined on the workers once per engine, under a number, before an instruction names it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from ..._core import plane
from ..._kept_store import keep
from ...errors import SupervisionError
from .. import call_sites
from ..controller.engine import Engine
from ..groups import in_process
from ..groups.groups import Meeting
from ..instructions import MOVE
from .rank_mesh import RankMesh


def groups_along(mesh: RankMesh, names: tuple[str, ...]) -> int:
    """The number of the groups along some dimensions of a mesh."""

    def define(number: int) -> None:
        _define(mesh.engine, "define_groups", number, _members_along(mesh, names))

    return _number(mesh.engine, ("groups", mesh._shape, names), define)


def public_groups_along(mesh: RankMesh, names: tuple[str, ...]) -> int:
    """The number of the groups of `torch.distributed` along some dimensions of a mesh."""
    engine = mesh.engine
    in_process.refuse(
        mesh, "groups of torch.distributed need a process for each rank", instead="reduce()"
    )

    def define(number: int) -> None:
        engine.check(engine.everyone)  # all of them take part
        args = engine.uid, number, engine.size, meeting_of(engine), _members_along(mesh, names)
        # once, even where it is recorded
        engine.pass_on(engine.everyone, (MOVE, call_sites.here(), "make_groups", args))

    return _number(engine, ("public groups", mesh._shape, names), define)


def _members_along(mesh: RankMesh, names: tuple[str, ...]) -> list[tuple[int, ...]]:
    """The ranks of each row, in the order of their coordinates."""
    others = [label for label in mesh._labels if label not in names]
    rows: dict[int, dict[int, int]] = {}
    for rank, row, position in zip(
        mesh.group.ranks, positions(mesh, others), positions(mesh, names), strict=True
    ):
        rows.setdefault(row, {})[position] = rank
    return [tuple(row[position] for position in range(len(row))) for row in rows.values()]


def routes_between(source: RankMesh, destination: RankMesh) -> int:
    """The number of the routes from one mesh to another."""

    def define(number: int) -> None:
        routes: dict[int, tuple[int, ...]] = dict.fromkeys(source.group.ranks, ())
        for sender, receiver in pairs(source, destination):
            routes[sender] += (receiver,)
        _define(source.engine, "define_routes", number, routes)

    return _number(source.engine, ("routes", source._shape, destination._shape), define)


def pairs(source: RankMesh, destination: RankMesh) -> Iterator[tuple[int, int]]:
    """Iterate over senders and receivers.

    For each rank of the destination, the sender is the source rank with the same coordinates.
    """
    for position, rank in zip(
        positions(destination, source._labels), destination.group.ranks, strict=True
    ):
        yield source.group.ranks[position], rank


def _number(engine: Engine, key: Hashable, define: Callable[[int], None]) -> int:
    """Return the number by which the workers of an engine know a key.

    A new one is defined there.
    """
    with engine.defining:
        number = engine.defined.get(key)
        if number is None:
            number = len(engine.defined)
            define(number)
            engine.defined[key] = number
        return number


def _define(engine: Engine, name: str, number: int, who: Any) -> None:
    engine.submit(
        engine.every_stream, (MOVE, call_sites.here(), name, (number, meeting_of(engine), who))
    )


def positions(mesh: RankMesh, names: Sequence[str]) -> list[int]:
    """The position of each rank of a mesh along some of its dimensions.

    Their coordinates are combined in row-major order.
    """
    strides = plane.row_major_strides([mesh.size(name) for name in names])
    along = [
        (mesh._labels.index(name), stride) for name, stride in zip(names, strides, strict=True)
    ]
    points = product(*map(range, mesh.sizes.values()))
    return [sum(point[d] * stride for d, stride in along) for point in points]


def meeting_of(engine: Engine) -> Meeting:
    """The rendezvous of groups, which lives as long as the engine."""
    if engine.meeting is None:
        hub, hosts = plane.current_hub(), set(engine.executor.procs._procs.hosts)
        if engine.in_process:
            in_process.begin(engine.uid)
            engine.meeting = Meeting("", engine=engine.uid)
            engine.end_meeting = weakref.finalize(engine, in_process.end, engine.uid)
        elif len(hosts) == 1 and hosts <= hub.hosts:  # others do not see our files
            # there it goes with all else that a program leaves if it is killed
            path = Path(plane.path_of(hub.local(hub.address)) + engine.uid + plane.MEETING)
            path.touch(0o600)
            engine.meeting = Meeting(str(path))
            engine.end_meeting = weakref.finalize(engine, path.unlink, missing_ok=True)
            # a fork that ends leaves the file alone
            os.register_at_fork(after_in_child=engine.end_meeting.detach)
        else:
            kept, store = keep()
            engine.meeting = Meeting("", kept, one_host=len(hosts) == 1)
            engine.end_meeting = weakref.finalize(engine, id, store)  # keeps it until then
        known = weakref.ref(engine)
        engine.executor.when_gone(lambda rank: _tell_end(known, rank))
        for rank in engine.executor.gone:
            _tell_end(known, rank)
    return engine.meeting


def _tell_end(known: weakref.ref[Engine], rank: int) -> None:
    """Tell the others of the end of a rank: those who wait in the meeting, and in collectives."""
    engine = known()
    if engine is not None:
        engine.meeting.note_end(rank)
        if engine.in_process:
            return  # there are no groups of torch, and that has ended all waits
        with suppress(RuntimeError, SupervisionError):  # it has exited, or more have ended
            engine.submit(engine.living(), (MOVE, call_sites.here(), "note_end", (rank,)), now=True)
