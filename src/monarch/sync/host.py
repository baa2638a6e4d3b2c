"""The side of the hosts: their agents keep workspaces, and have procs that start import from them.

Files are worked on by a thread of its own: the I/O thread of an agent has messages to pass on. It
takes one thing after the other, in the order in which they came, so a client sends the pieces of a
file as fast as it is told that they are written.

What ends a version that is being made: its client says so, or is lost; it has failed.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from .._answering import answer_with
from .._core import plane
from .._namedtuple import NamedTuple
from .._proc_stat import STARTED, stat_of
from .build import Build
from .manifest import Change, Manifest, decode
from .store import WorkspaceStore, base_folder, changes

_KEPT_CHANGES = 1000  # syncs of which is known what they have changed


class Pieces(NamedTuple):
    """Content for a version. Client ──▶ host agents. Answer: None, when it is written.

    Attributes:
        table: Of each piece: digest of the content, where in it the piece begins, its size.
        data: All pieces.
    """

    build: str
    table: list[tuple[str, int, int]]
    data: Any


class FindWorkspace(NamedTuple):
    """Use the workspace `key` as `id` says.

    Client ──▶ host agents. Answer: `FoundWorkspace`; None if it is not there.

    Attributes:
        dirs: Folder of the client to its path in the workspace.
        change: What makes it of a version that may be there.
        pieces: Contents for that.
    """

    key: str
    id: str
    dirs: dict[str, str]
    change: Change | None
    pieces: Pieces | None


class FoundWorkspace(NamedTuple):
    """Answer of a host that has the version that was asked for.

    Attributes:
        had: Whether it had it before.
        left: As the answer of `SettleVersion`.
    """

    had: bool
    left: list[str]


class Offer(NamedTuple):
    """Begin another version of a workspace.

    Client ──▶ host agents. Answer: which contents it lacks, as a list of digests.

    Attributes:
        build: What the version is called until it is complete. If there is one of that name, it
            becomes this one, with what it has.
        manifest: What it consists of; see `manifest.decode`.
    """

    build: str
    key: str
    dirs: dict[str, str]
    manifest: Any


class SettleVersion(NamedTuple):
    """Use a version, or give it up.

    Client ──▶ host agents. Answer: folders of versions that stayed when old ones were removed last.
    """

    build: str
    use: bool


class FindLagging(NamedTuple):
    """Find procs that may have imported files before these were changed.

    Client ──▶ host agents. Answer: a list of `Lagging`.

    Attributes:
        root: The client that owns the procs; None for those of all.
    """

    key: str
    root: plane.ProcAddress | None


class Lagging(NamedTuple):
    """A proc, and the files changed since it started or reloaded: paths below `folder`.

    Attributes:
        at: When this was so, in seconds since the machine has started.
    """

    address: plane.ProcAddress
    name: str
    folder: str
    changed: list[str]
    at: float


class Reloaded(NamedTuple):
    """Procs have reloaded the changed files of a workspace. Client ──▶ host agents. Answer: None.

    Attributes:
        procs: Each with `Lagging.at`.
    """

    key: str
    procs: list[tuple[plane.ProcAddress, float]]


class _Active(NamedTuple):
    """A workspace that procs import from.

    Attributes:
        path: Its folder here.
        dirs: See `FindWorkspace`.
        manifest: What it consists of.
        modules: Names of the modules and packages in it, without those of the packages that they
            are in.
        changes: Times at which it was changed, in seconds since the machine has started, and which
            paths.
    """

    path: str
    dirs: dict[str, str]
    manifest: Manifest
    modules: frozenset[str]
    changes: tuple[tuple[float, list[str]], ...] = ()

    def place_of(self, folder: str) -> str | None:
        """The place of a folder of the client, if it is here."""
        for own, place in self.dirs.items():
            if folder == own or folder.startswith(f"{own}/"):
                inside = str(PurePosixPath(place, folder[len(own) + 1 :]))
                if inside == ".":
                    return self.path
                if inside in self.manifest.folders:
                    return f"{self.path}/{inside}"
        return None

    def has_module(self, name: str) -> bool:
        """Return whether a module, or the package that it is in, may be part of the workspace."""
        return name.partition(".")[0] in self.modules


class _Host:
    """The workspaces that the agent of this process knows.

    All of it happens on the thread, but for `adapt` and `client_lost`.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._builds: dict[str, tuple[Build, str, dict[str, str], plane.ProcAddress]] = {}
        self._stores: dict[str, WorkspaceStore] = {}
        self._active: dict[str, _Active] = {}  # the last one last
        self._stayed: dict[str, list[str]] = {}  # by workspace
        # of programs: their interpreter, the folder here
        self._environments: dict[plane.ProcAddress, tuple[str, str]] = {}
        # by workspace and proc: how new what it runs is
        self._reloaded: dict[tuple[str, plane.ProcAddress], float] = {}
        self._service: Any = None

    def later(self, service: Any, request: plane.ControlRequest, work: Callable[[], Any]) -> None:
        """Have the thread do something, and answer."""
        if self._service is None:
            self._service = service
            service.adapt_spawn = self.adapt
            service.hub.inbound_lost_hooks.append(self.client_lost)
            threading.Thread(target=self._run, name="monarch-sync", daemon=True).start()
        self._work.put(partial(answer_with, request, work))

    def _run(self) -> None:
        while True:
            self._work.get()()

    def client_lost(self, address: plane.ProcAddress) -> None:
        self._environments.pop(address, None)

        def drop() -> None:
            for name, (build, _, _, client) in list(self._builds.items()):
                if client == address:
                    del self._builds[name]
                    build.drop()

        self._work.put(drop)

    # on the thread

    def look(self, record: FindWorkspace) -> FoundWorkspace | None:
        store = self._store(record.key)
        manifest = store.find(record.id)
        if manifest is not None:
            # another one, where a host that shares the folder was asked before
            before = self._active.get(record.key)
            self._activate(store, record.key, record.dirs, manifest)
            return FoundWorkspace(before is None or before.manifest.id == record.id, [])
        build = self._changed(store, record)
        if build is None:
            return None
        return FoundWorkspace(False, self._use(build, record.key, record.dirs))

    def _changed(self, store: WorkspaceStore, record: FindWorkspace) -> Build | None:
        """Build the version that a change makes of the one in use.

        None where that is another one, or does not have all of the rest.
        """
        change, before = record.change, store.in_use()[1]
        if change is None or before is None or before.id != change.base:
            return None
        manifest = change.applied_to(before)
        if manifest.id != record.id:
            return None
        build = store.begin(manifest)
        try:
            if record.pieces is not None:
                # the rest was here, in another version
                _write(build, record.pieces, {*build.missing})
            if not build.missing:
                return build
        except BaseException:
            build.drop()
            raise
        build.drop()
        return None

    def offer(self, record: Offer, client: plane.ProcAddress) -> list[str]:
        manifest = decode(record.manifest)
        before = self._builds.pop(record.build, None)
        build = self._store(record.key).begin(manifest, before and before[0])
        self._builds[record.build] = (build, record.key, record.dirs, client)
        return list(build.missing)

    def write(self, record: Pieces) -> None:
        try:
            _write(self._build(record.build)[0], record)
        except BaseException:
            self._forget(record.build)
            raise

    def settle(self, record: SettleVersion) -> list[str]:
        if not record.use:
            self._forget(record.build)
            return []
        build, key, dirs, _ = self._build(record.build)
        del self._builds[record.build]
        return self._use(build, key, dirs)

    def _use(self, build: Build, key: str, dirs: dict[str, str]) -> list[str]:
        """Use a version of which all is there; answer of `SettleVersion`."""
        try:
            build.finish()
        except BaseException:
            build.drop()
            raise
        self._activate(build.store, key, dirs, build.manifest)

        def clean_up() -> None:  # when the client has its answer
            with suppress(OSError):
                self._stayed[key] = build.store.clean_up()
                build.store.make_spare()

        self._work.put(clean_up)
        return self._stayed.get(key, [])

    def _build(self, name: str) -> tuple[Build, str, dict[str, str], plane.ProcAddress]:
        if name not in self._builds:
            raise ValueError("this version was given up")
        return self._builds[name]

    def _store(self, key: str) -> WorkspaceStore:
        base = base_folder()  # as it is now: it may have been removed
        if key not in self._stores:
            self._stores[key] = WorkspaceStore(base, key)
        return self._stores[key]

    def _forget(self, name: str) -> None:
        if name in self._builds:
            self._builds.pop(name)[0].drop()

    def _activate(
        self, store: WorkspaceStore, key: str, dirs: dict[str, str], manifest: Manifest
    ) -> None:
        old = self._active.get(key)
        changed = old.changes if old is not None else ()
        if old is not None and (paths := changes(old.manifest, manifest)):
            changed = (*changed, (_now(), paths))[-_KEPT_CHANGES:]
        same_names = old is not None and old.manifest.entries.keys() == manifest.entries.keys()
        modules = old.modules if old is not None and same_names else _modules(manifest.entries)
        new = _Active(str(store.current), dirs, manifest, modules, changed)
        others = {name: active for name, active in self._active.items() if name != key}
        self._active = {**others, key: new}  # as a whole: `adapt` reads it meanwhile

    def find_lagging(
        self, key: str, root: plane.ProcAddress | None, procs: Sequence[plane.HostedProc]
    ) -> list[Lagging]:
        """See `FindLagging`; `procs` are all of this host."""
        running = {each.address for each in procs}
        self._reloaded = {which: at for which, at in self._reloaded.items() if which[1] in running}
        active = self._active.get(key)
        if active is None:
            return []
        found, now = [], _now()
        for each in procs:
            if root in (None, each.root):
                since = max(_started(each.pid), self._reloaded.get((key, each.address), 0.0))
                paths = {
                    path: None for at, changed in active.changes if at >= since for path in changed
                }
                if paths:
                    name = f"{each.mesh}[{each.rank}]"
                    found.append(Lagging(each.address, name, active.path, list(paths), now))
        return found

    def reloaded(self, record: Reloaded) -> None:
        for address, at in record.procs:
            which = record.key, address
            self._reloaded[which] = max(at, self._reloaded.get(which, 0.0))

    # on the I/O thread

    def adapt(self, request: Any) -> Any:
        """Have procs start in the environment of their program, with its workspace on their path.

        That is the workspace that the program's folders are in, or else the last one.
        """
        if request.root in self._environments:
            request = _started_in(request, *self._environments[request.root])
        every = [active for active in self._active.values() if active.dirs]
        if not every:
            return request
        for active in reversed(every):
            paths = [active.place_of(each or request.cwd) or each for each in request.sys_path]
            if paths != request.sys_path:
                break
        else:
            active, paths = every[-1], list(request.sys_path)
        own = [f"{active.path}/{place}" if place else active.path for place in active.dirs.values()]
        paths[1:1] = [path for path in own if path not in paths]  # where those of PYTHONPATH are
        starts = tuple(
            start._replace(env={"WORKSPACE_DIR": active.path, **start.env})
            for start in request.starts
        )
        preload = tuple(name for name in request.preload if not active.has_module(name))
        return request._replace(sys_path=list(dict.fromkeys(paths)), starts=starts, preload=preload)


_host = _Host()


def start_procs_in(root: plane.ProcAddress, python: str, folder: str) -> None:
    """Start procs of a program in another environment from now on, unless it says what to start.

    Args:
        root: Its client.
        python: The interpreter of that.
        folder: That of the environment.
    """
    _host._environments[root] = python, folder


def _started_in(request: Any, python: str, folder: str) -> Any:
    usual = None, plane.python_bootstrap_cmd(python).as_command()
    command = plane.python_bootstrap_cmd(f"{folder}/bin/python").as_command()
    environ = os.environ if request.environ is None else request.environ
    path = environ.get("PATH", os.defpath)
    env = {"CONDA_PREFIX": folder, "PATH": f"{folder}/bin{os.pathsep}{path}"}
    starts = tuple(
        start._replace(command=command, env={**env, **start.env})
        if start.command in usual
        else start
        for start in request.starts
    )
    return request._replace(starts=starts)


def _handler(record: type, work: Callable[[Any, plane.ControlRequest], Any]) -> Any:
    """Return the handler of a record; its answer is what `work` returns for it on the thread."""

    @plane.handles(record)
    def handle(service: Any, request: plane.ControlRequest, record: Any) -> None:
        _host.later(service, request, lambda: work(record, request))

    return handle


@plane.handles(FindLagging)
def _find_lagging(service: Any, request: plane.ControlRequest, record: FindLagging) -> None:
    procs = [each for each in service.describe_host().procs if each.pid]
    _host.later(service, request, lambda: _host.find_lagging(record.key, record.root, procs))


def _write(build: Build, pieces: Pieces, wanted: Container[str] | None = None) -> None:
    """Write pieces of some contents, or of all."""
    data, begin = memoryview(pieces.data), 0
    for digest, offset, size in pieces.table:
        if wanted is None or digest in wanted:
            build.write(digest, offset, data[begin : begin + size])
        begin += size


def _modules(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(
        os.path.basename(path.removesuffix("/__init__.py").removesuffix(".py"))
        for path in paths
        if path.endswith(".py")
    )


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _started(pid: int) -> float:
    """The start of a process, in seconds since the machine's; 0 where it has ended."""
    stat = stat_of(pid)
    return int(stat[STARTED]) / os.sysconf("SC_CLK_TCK") if stat else 0.0


HANDLERS = (
    _handler(FindWorkspace, lambda record, _: _host.look(record)),
    _handler(Offer, lambda record, request: _host.offer(record, request.peer)),
    _handler(Pieces, lambda record, _: _host.write(record)),
    _handler(SettleVersion, lambda record, _: _host.settle(record)),
    _find_lagging,
    _handler(Reloaded, lambda record, _: _host.reloaded(record)),
)
