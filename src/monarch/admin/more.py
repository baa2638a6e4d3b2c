"""Routes that Monarch 0.7 does not have.

They are about why, stacks, waits, meshes, events, snapshots and the end of meshes.
"""

from __future__ import annotations

import logging
import queue
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from .._words import rank_name
from ..actor import Future
from ..control import KillProcs, OwnedMesh
from ..programs import PATIENCE, Connection, HostedProc, ProcAddress, procs_of
from ..stacks.gather import of_program as stacks
from ..telemetry import Collected
from ..telemetry.ids import mesh_id
from ..telemetry.profile import Profile
from ..telemetry.prometheus import CONTENT_TYPE, exposition
from ..telemetry.rows import actor_name
from ..telemetry.run_file import snapshot_source, write_run
from ..why.gather import of_program as why
from ..why.model import Verdict
from ..why.run import judged
from . import child, picture
from .feeds import Event, Feed, FeedSource
from .keys import ACT
from .logs import moment
from .past import as_of
from .program import WatchedProgram, rows_by
from .routes import EVENTS, ApiCall, ApiError, Events, Field, Page, route
from .tree import rfc3339, with_texts

logger = logging.getLogger("monarch.admin")

K = TypeVar("K")

_LONG = 90.0  # seconds
_GLANCE = 2.0  # seconds between pictures of the front page; to make one takes about another

_MESH = Field("string", "Name of a mesh of procs")
_RANK = Field("string", "Ranks of it: 0,3-5 or ::2 or hosts=1,gpus=0:4")


@route("GET", "/v1/access", seconds=0)  # the job is waited for shortly: in no queue
def _access(call: ApiCall) -> Any:
    """The rights of the requester, and the program or file that is served.

    They follow from the `role`, and from whether the target is the file of a run, which is
    read-only (`saved`).
    """
    return {"role": call.role, "saved": call.program.saved, "program": call.program.about}


@route(
    "GET",
    "/v1/why",
    seconds=40.0,
    fields={
        "seconds_apart": Field("number", "Between two looks, from 0.1 to 10; 1 if nothing is said")
    },
)
def _why(call: ApiCall) -> Any:
    """The verdict in one sentence: fine, slow or stuck.

    With it: what each rank does, who waits for whom, failures, silent hosts.
    """
    if "seconds_apart" in call.query:
        return why(call.program.connection, call.number("seconds_apart", 1, 0.1, 10)).to_json()
    return call.program.verdict.get().to_json()


@route(
    "GET",
    "/v1/stacks",
    role=ACT,
    seconds=_LONG,
    fields={
        "mesh": _MESH,
        "rank": _RANK,
        "native": Field("boolean", "With C functions, by py-spy"),
    },
)
def _stacks(call: ApiCall) -> Any:
    """The stacks of all processes, equal ones together, the odd ones last in their mesh."""
    mesh, rank = call.query.get("mesh"), call.query.get("rank")
    return stacks(call.program.connection, mesh, rank, call.flag("native")).get().to_json()


@route("GET", "/v1/waits")
def _waits(call: ApiCall) -> Any:
    """The waits of now: the waiting rank and the awaited one, by name."""
    found = call.program.collect("waits", "actors", "procs")
    actors, procs = (rows_by(found.rows(table), "id") for table in ("actors", "procs"))
    rows = [
        {
            "actor": _name(actors.get(row["actor_id"])),
            "rank": _rank(procs.get(row["proc_id"])),
            "endpoint": row["endpoint"],
            "since": rfc3339(row["since_us"]),
            "waits_for": row["waits_for"],
            "for_actor": _name(actors.get(row["for_actor_id"])),
            "for_rank": _rank(procs.get(row["for_proc_id"])),
        }
        for row in found.rows("waits")
    ]
    return {"waits": rows, "silent": found.silent}


@route("GET", "/v1/meshes")
def _meshes(call: ApiCall) -> Any:
    """The meshes of hosts, procs and actors."""
    found = call.program.collect("meshes")
    return {"meshes": [with_texts(row) for row in found.rows("meshes")], "silent": found.silent}


@route(
    "GET",
    "/v1/now",
    seconds=65.0,
    fields={"at": Field("string", "As of then, from retained rows; see `since` of logs")},
)
def _now(call: ApiCall) -> Any:
    """The content of the front page: the verdict, each rank of each mesh as columns, failures."""
    given = call.text("at", "")
    if not given:
        verdict, rows = _looked(call.program)
        return picture.picture(rows, verdict)
    at = moment(given, 0.0)
    if not 0 < at <= call.program.time()["now"]:
        raise ApiError("bad_request", f"at is a time after 1970 that is over, not {given[:80]!r}")
    return child.handle(partial(_then, at), call)


def _then(at: float, call: ApiCall) -> Any:
    return as_of(call.program, at)


@route("GET", "/v1/time", seconds=0)
def _time(call: ApiCall) -> Any:
    """The time here, in seconds since 1970; of the file of a run, when it was made."""
    return call.program.time()


@route("GET", "/v1/now/events", seconds=0, answers=EVENTS)
def _now_events(call: ApiCall) -> Events:
    """The state of now as events: `state` first, then a `delta` for each change."""
    program = call.program
    return Events(program.feed("now", lambda: Feed(lambda: _Now(program), program.ended, _GLANCE)))


@route("GET", "/metrics", answers=CONTENT_TYPE)
def _metrics(call: ApiCall) -> Page:
    """Metrics of all processes in the text format of Prometheus.

    Processes that did not answer are in `monarch_silent`.
    """
    return Page(exposition(call.program.metrics.get()), CONTENT_TYPE)


@route("GET", "/v1/events", seconds=0, answers=EVENTS)
def _events(call: ApiCall) -> Events:
    """The events of actors and procs, as they happen: a `status` for each change."""
    program = call.program
    return Events(program.feed("events", lambda: Feed(lambda: _Life(program), program.ended)))


@route("POST", "/v1/snapshot", role=ACT, seconds=_LONG, answers="application/vnd.duckdb", sql=True)
def _snapshot(call: ApiCall) -> Page:
    """The tables as they are now, as a file for `monarch query --run`, or for duckdb."""
    connection = call.program.connection
    about = {**judged(connection), "reason": "a snapshot by the admin interface"}
    with tempfile.TemporaryDirectory(prefix="monarch-snapshot-") as folder:
        written = write_run(Path(folder, "run.duckdb"), snapshot_source(connection), about, 30.0)
        return Page(written.path.open("rb"), "application/vnd.duckdb")


@route(
    "POST",
    "/v1/profile",
    role=ACT,
    seconds=180.0,
    answers="application/octet-stream",
    fields={
        "seconds": Field("number", "How long, from 0.1 to 120; 10 if nothing is said"),
        "torch": Field("boolean", "Have torch's profiler run in ranks that use torch"),
    },
)
def _profile(call: ApiCall) -> Page:
    """A profile of all processes for some seconds, as a file for ui.perfetto.dev.

    It covers actors that were spawned with telemetry.
    """
    recording = Profile(torch=call.flag("torch"), connection=call.program.connection)
    recording.record(call.number("seconds", 10, 0.1, 120))
    with tempfile.TemporaryDirectory(prefix="monarch-profile-") as folder:
        return Page(
            recording.export_perfetto_trace(Path(folder, "run.pftrace")).read_bytes(),
            "application/octet-stream",
        )


@route(
    "POST",
    "/v1/meshes/{mesh}/stop",
    role=ACT,
    seconds=_LONG,
    fields={"reason": Field("string", "What those are told who still call it")},
)
def _stop(call: ApiCall) -> Any:
    """Stop a mesh of procs, by its name or id, as its owner would.

    The answer comes when its processes are gone.
    """
    uid, owner = _owned(call)
    reason = call.text("reason", "stopped by the admin interface")
    logger.warning("mesh %s is stopped: %s", call.path["mesh"], reason)
    call.program.ask(owner, OwnedMesh(uid, reason or "stopped"), _LONG)
    return {"mesh": call.path["mesh"], "id": uid, "stopped": True}


@route(
    "POST",
    "/v1/meshes/{mesh}/restart",
    role=ACT,
    seconds=_LONG,
    fields={"reason": Field("string", "What callers of its actors are told")},
)
def _restart(call: ApiCall) -> Any:
    """Kill the processes of a mesh that has a restart policy, so that they start again by that."""
    uid, owner = _owned(call)
    if not call.program.ask(owner, OwnedMesh(uid), PATIENCE):
        raise ApiError(
            "conflict",
            f"mesh {call.path['mesh']!r} has no restart policy: its end would be a failure of the"
            " program",
        )
    logger.warning("the processes of mesh %s are killed, to start again", call.path["mesh"])
    connection = call.program.connection
    here: dict[ProcAddress, list[int]] = {}
    procs, silent = _procs(connection)
    for proc in procs:
        if proc.mesh_id == uid:
            here.setdefault(proc.address.agent, []).append(proc.rank)
    reason = call.text("reason", "restarted by the admin interface")
    killed = [connection.ask(agent, KillProcs(uid, ranks, reason)) for agent, ranks in here.items()]
    for each in killed:
        each.get(timeout=_LONG)
    return {
        "mesh": call.path["mesh"],
        "id": uid,
        "killed": sum(map(len, here.values())),
        "silent": silent,
    }


def _procs(connection: Connection) -> tuple[list[HostedProc], list[str]]:
    """List the procs of the program on all its hosts, and the hosts that have not answered."""
    silent: list[str] = []
    procs = procs_of(connection.hub, connection.agents, lambda host, why: silent.append(host))
    return [proc for proc in procs if proc.root == connection.root], silent


def _as_they_answer(asked: dict[K, Future[Any]]) -> Iterator[tuple[K, Any]]:
    """Iterate over the answers as they come.

    Agents that are lost, refuse, or are late by then are left out.
    """
    answered: queue.SimpleQueue[K] = queue.SimpleQueue()
    for key, future in asked.items():
        future.add_done_callback(partial(_put, answered, key))
    end = time.monotonic() + PATIENCE
    for _ in range(len(asked)):
        try:
            key = answered.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            return
        if asked[key].exception() is None:
            yield key, asked[key].get()


def _put(answered: queue.SimpleQueue[K], key: K, done: object) -> None:
    answered.put(key)


def _owned(call: ApiCall) -> tuple[str, ProcAddress]:
    """The id of the mesh that a path names, and the process that owns it."""
    connection, wanted = call.program.connection, call.path["mesh"]
    procs, silent = _procs(connection)
    uids = {
        proc.mesh_id
        for proc in procs
        if wanted in (proc.mesh, proc.mesh_id, str(mesh_id(proc.mesh_id)))
    }
    if len(uids) > 1:
        raise ApiError(
            "conflict",
            f"several meshes are called {wanted!r}: name one by its id",
            {"ids": sorted(uids)},
        )
    for uid in uids:
        owners = [connection.root, *(proc.address for proc in procs if proc.mesh_id != uid)]
        for owner, answer in _as_they_answer(
            {owner: connection.ask(owner, OwnedMesh(uid)) for owner in owners}
        ):
            if answer is not None:
                return uid, owner
        raise ApiError(
            "gateway_timeout",
            f"no process answers that owns mesh {wanted[:200]!r}",
            {"silent": silent},
        )
    unheard = f"; {', '.join(silent)} did not answer" if silent else ""
    raise ApiError("not_found", f"there is no mesh of procs {wanted[:200]!r} that runs{unheard}")


def _looked(program: WatchedProgram) -> tuple[Verdict, Collected]:
    with ThreadPoolExecutor(1) as other:  # rows come while the verdict waits between its looks
        rows = other.submit(program.seen)
        return program.verdict.get(), rows.result()


class _Now(FeedSource):
    """The first look is a glance without a verdict, since a verdict takes over a second.

    A page that opens shows all ranks at once. The verdict on the same rows follows.
    """

    def __init__(self, program: WatchedProgram) -> None:
        self._program = program
        self._shown: dict[str, Any] | None = None
        self._verdict = picture.LOOKING
        self._glanced: Collected | None = None

    def look(self) -> Iterator[Event]:
        before = self._shown
        self.hurries = before is None
        if before is None:
            self._glanced = self._program.glance.get()
            self._shown = picture.picture(self._glanced, self._verdict)
            return
        if self._glanced is not None:
            rows, self._glanced = self._glanced, None
            self._verdict = self._program.verdict.get()
        else:
            self._verdict, rows = _looked(self._program)
        self._shown = picture.picture(rows, self._verdict)
        if change := picture.delta(before, self._shown):
            yield Event("delta", change)

    def state(self) -> Event | None:
        return Event("state", self._shown) if self._shown is not None else None

    def last(self) -> Iterator[Event]:
        if self._program.at_fault is not None:
            yield Event("state", picture.last_picture(self._program.at_fault, self._verdict))


class _Life(FeedSource):
    """Events of actors; those from before the first look are not among them."""

    def __init__(self, program: WatchedProgram) -> None:
        self._program = program
        self._since = int(time.time() * 1e6)
        self._seen: set[int] = set()

    def look(self) -> Iterator[Event]:
        found = self._program.collect("actor_status_events", "actors", since_us=self._since)
        actors = rows_by(found.rows("actors"), "id")
        rows = sorted(found.rows("actor_status_events"), key=lambda row: int(row["timestamp_us"]))
        for row in rows:
            if row["id"] not in self._seen:
                yield Event(
                    "status", {**with_texts(row), "actor": _name(actors.get(row["actor_id"]))}
                )
        self._seen = {row["id"] for row in rows}
        if rows:  # clocks of hosts differ
            self._since = max(self._since, rows[-1]["timestamp_us"] - 5_000_000)


def _name(row: dict[str, Any] | None) -> str | None:
    return actor_name(row) if row is not None else None


def _rank(proc: dict[str, Any] | None) -> str | None:
    return rank_name(proc["mesh"], proc["rank"]) if proc is not None else None
