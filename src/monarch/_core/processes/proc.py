"""A proc: a process that runs actors.

Its main thread is the I/O loop; each actor has a thread of its own.
"""

from __future__ import annotations

import builtins
import os
import pickle
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, NoReturn

from ... import _generators, _resources, _slow_imports, _stack_dump, config
from ..._guards import main_guard
from ..._title import set_title
from .. import extension
from ..actors import debugging, log, sampling
from ..actors.base_cell import BaseCell
from ..actors.cell import ActorCell
from ..actors.context import Context, forget, set_fallback
from ..actors.proc_service import ProcService
from ..hub import life, prints
from ..hub.black_box import BlackBox
from ..hub.contracts import Origin
from ..hub.control import send_record
from ..hub.control_records import MeshNamed, ProcReady, StopProc
from ..hub.control_service import ControlRequest, handles
from ..hub.message_hub import MessageHub
from ..hub.spawn_requests import CreatorInstance, SpawnSpec
from ..shape import Extent, Point
from ..supervision.failure import STOPPED, Failure
from ..supervision.ownership import OwnedMesh
from ..wire import script
from ..wire.address import ROOT, ProcAddress
from ..wire.frame import Frame
from . import spawner
from .fork_exit import leave
from .specs import UNNAMED, ProcSpec


class BystanderCell(BaseCell):
    """The cell of code that no actor runs in a proc: the main thread, threads of C libraries."""

    def judge(self, failure: Failure, mesh: OwnedMesh) -> None:
        pass

    def end(self, failure: Failure) -> None:
        pass

    def receive(self, origin: Origin, frame: Frame) -> None:
        pass


class Proc(ProcService):
    """The process itself; ends on request of its host agent."""

    def __init__(self, hub: MessageHub, spec: ProcSpec) -> None:
        super().__init__(hub)
        self._spec = spec
        self._offers = bool(config.value("debug_adapter"))
        hub.peer_lost_hooks.append(self._end_with_agent)

    @property
    def mesh_name(self) -> str:
        """The present name of its mesh."""
        return self._spec.name

    def _end_with_agent(self, address: ProcAddress, failure: Failure) -> None:
        """End this proc and all it has started; the spawner does that first, unless it is busy."""
        if address == self.hub.address.agent:
            if config.value("end_process_groups"):
                # first what it has started; the signal ends this process, too
                os.killpg(0, signal.SIGKILL)
            # no exit functions: there is no agent any more that would end this process if one hung
            os._exit(1)

    def spawn(self, spec: SpawnSpec, *args: Any, **kwargs: Any) -> ActorCell:
        if UNNAMED == self._spec.name != spec.name:
            self._spec = self._spec._replace(name=spec.name)
            _show_name(self._spec)
            named = MeshNamed(self._spec.mesh, spec.name)
            send_record(self.hub, self.hub.address.agent, named)  # it reads that first
        if self._offers:
            self._offers = False
            debugging.offer(self.hub)
        return super().spawn(spec, *args, **kwargs)

    @handles(StopProc)
    def _stop_proc(self, request: ControlRequest, record: StopProc) -> None:
        self.stop_all(record.why, self.hub.poller.stop)


def run(spec: ProcSpec) -> None:
    """Serve until told to stop; afterwards the interpreter ends as any does, with atexit functions
    and finalizers.
    """
    _stack_dump.install()
    script.install()
    spawner.prefer_forkserver()
    # a program that this one starts, and leaves behind, must not hold its address
    os.set_inheritable(spec.listener, False)
    hub = MessageHub(spec.address, spec.root, socket.socket(fileno=spec.listener), spec.local_host)
    record = CreatorInstance("bystander", None, Point(0, Extent([], [])), None, None)
    bystander = Context(BystanderCell(hub, ROOT, record))
    set_fallback(lambda: bystander, override=True)
    with suppress(OSError):  # no memory, or no descriptor: it does without
        life.box = BlackBox(str(spec.address))
    proc = Proc(hub, spec)
    sampling.export(hub, lambda: proc.mesh_name, spec.rank)
    os.register_at_fork(after_in_child=lambda: _forked(hub))
    send_record(
        hub, spec.address.agent, ProcReady(os.getpid(), life.box.fd if life.box is not None else -1)
    )
    # the main thread is the I/O thread: signal handlers of the program run between its rounds
    hub.poller.run()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    hub.close(Failure(STOPPED, "its process has ended", proc=spec.address.proc))


def _forked(hub: MessageHub) -> None:
    """Become a process and client of its own, in a child that an actor has forked."""
    hub.abandon()
    box, life.box = life.box, None
    if box is not None:
        box.abandon()
    forget()
    debugging.uninstall()
    set_fallback(extension.client_context, override=True)
    for number, default in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is spawner.ignore_interrupt:
            signal.signal(number, default)


def run_forked(spec: ProcSpec, inherited: dict[str, None]) -> NoReturn:
    """As `run`, in a fork of the spawner, which ends without taking down what it shares with it.

    Args:
        inherited: Names of the modules that were there before the fork, in their order.
    """
    if spec.rank == 0:  # one of the mesh says it for all
        _slow_imports.watch()
    _settle(spec)
    run(spec)
    leave(inherited)


def _settle(spec: ProcSpec) -> None:
    # the client's machine may have folders that this one has not
    elsewhere = spec.root.host != spec.local_host
    if os.getcwd() != spec.cwd and (os.path.isdir(spec.cwd) or not elsewhere):
        try:
            os.chdir(spec.cwd)
        except OSError as error:
            print(f"cannot enter the working directory: {error}", file=sys.stderr)
    sys.path[:] = _search_path(spec.sys_path)
    _show_name(spec)
    debugging.install()
    builtins.input = _input
    config.inherit(spec.config, drop_configured=True)
    _generators.reseed(spec.config.get("seed"))
    _resources.limit_threads(spec.config)
    if config.value("file_log_level"):
        extension.engine_log(sys.argv[0], spec.root.proc)
    main_guard.nesting = spec.nesting
    prints.install()
    prints.who = log.who_prints
    prints.read_by_agent(spec.pipes)
    log.take_over(spec.logging)
    if spec.log_level is not None:
        log.set_level(spec.log_level)


def _search_path(clients: list[str]) -> list[str]:
    """Where to import from: as the client does, but from the packages of another interpreter before
    those of the client's.
    """
    own = [entry for entry in sys.path if entry not in clients]
    inside = [entry for entry in own if entry.startswith(f"{sys.prefix}{os.sep}")]
    packages = next(
        (at for at, entry in enumerate(clients) if entry.endswith("-packages")), len(clients)
    )
    others = (entry for entry in own if entry not in inside)
    return [*clients[:packages], *inside, *clients[packages:], *others]


def _show_name(spec: ProcSpec) -> None:
    sys.argv[:] = [f"{spec.name}[{spec.rank}]"]
    set_title(sys.argv[0])


_NO_TERMINAL = (
    "the processes of actors have no terminal. Spawn the actor on this_proc() of the client, which"
    " has one: this_proc().spawn(name, Class, ...)"
)
_builtin_input = builtins.input


def _input(prompt: object = "", /) -> str:
    try:
        return _builtin_input(prompt)
    except EOFError:
        raise EOFError(f"input() found nothing to read: {_NO_TERMINAL}") from None


def main() -> None:
    """Entry of an executed proc, which finds its spec in an inherited file."""
    with os.fdopen(int(os.environ.pop(main_guard.SPEC_VARIABLE)), "rb") as file:
        spec = pickle.load(file)
    _settle(spec)
    spawner.ignore_warnings()  # forks have the handler of the spawner
    run(spec)


if __name__ == "__main__":
    main()
