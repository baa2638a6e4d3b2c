"""The spawner: one thread that forks procs on request and reports how they end or stop.

It was forked from the agent before that had any thread, it has imported what procs need, and it
never runs user code beyond the modules it was asked to preload. A fork of it is therefore ready in
milliseconds and shares its memory.

`serve` returns twice over: in a forked child with the child's `ProcSpec`, so that the child unwinds
to the program's top level and ends as any Python program does; and in the spawner with None, when
the agent is gone.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from ... import _generators, _seeds, config
from ..._child_watch import PR_SET_PDEATHSIG, ChildWatch, changes
from ..._guards import main_guard
from ..._guards.surroundings import explain
from ..._namedtuple import compile_constructors
from ..._new_python import started_elsewhere
from ..._resources import allow_many, of_proc, share_cores, without_share
from ..hub import prints
from ..hub.spawn_requests import Command, SpawnRequest, Start
from ..net import unix
from ..wire.address import ProcAddress
from .control import Bound, Changed, ControlReader, Forked, Kill, Unstarted, send_message
from .fork_exit import disarm_finalizers, libc
from .leftovers import signal_group
from .specs import PROC_MODULE, ProcSpec, needs_exec, write_spec

# what procs leave behind becomes its child: whether a group has ended is known once its last member
# was reaped, for which the first process of a container may take a second, or for ever
_PR_SET_CHILD_SUBREAPER = 36
# seconds after the end of the client that the agent has to end; it has bounds of its own
_AGENT_BOUND = 8
_SETTLED = 200  # milliseconds after which the first proc has answered, if it was in a hurry


class Spawner:
    """The process that forks procs on request.

    Args:
        control: Socket to the agent.
        host: The host's name.
        preload: Modules that every proc needs, imported while nothing has been asked for yet.
        client: Pidfd of the process that the agent ends with.
    """

    def __init__(
        self, control: socket.socket, host: str, preload: tuple[str, ...], client: int
    ) -> None:
        self._client = client
        self._control = control
        self._host = host
        self._preloaded = preload
        self._pid = os.getpid()
        # children, each of which leads a group, and whether that ends with it
        self._groups: dict[int, bool] = {}
        self._warm = False
        # names of the modules that the last forks have found, in their order
        self.inherited: dict[str, None] = {}

    def serve(self) -> ProcSpec | None:
        """Fork on request until the agent is gone; returns in each child with its spec."""
        signal.signal(signal.SIGINT, ignore_interrupt)
        ignore_warnings()
        main_guard.forks_procs = True
        allow_many()  # which its forks inherit
        # before the first fork: an end that comes sooner would not be noticed
        children = ChildWatch()
        prints.install()  # before modules may keep the streams, as handlers of `logging` do
        libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        agent = os.getppid()
        signal.signal(signal.SIGCONT, lambda *_: self._continued(agent))
        die_with_parent(agent, signal.SIGCONT)  # which also reaches a process that is stopped
        _generators.watch()
        for module in self._preloaded:
            importlib.import_module(module)
        gc.freeze()  # as the agent
        gc.enable()
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(children.fd, select.POLLIN)
        poll.register(self._client, select.POLLIN)
        reader = ControlReader(self._control)
        while True:
            ready = {
                fd for fd, _ in poll.poll(None if self._warm or not self._groups else _SETTLED)
            }
            if not ready:
                self._warm_up()
            if self._client in ready:
                poll.unregister(self._client)  # it stays readable: the loop would spin
                signal.signal(signal.SIGALRM, lambda *_: _end_agent(agent))
                signal.alarm(_AGENT_BOUND)
            try:
                if children.fd in ready:
                    children.clear()
                    self._report_changes()
                if self._control.fileno() in ready:
                    request, _ = reader.receive()
                    if isinstance(request, Kill):
                        # not reaped, so the number is still its own
                        if request.pid in self._groups:
                            os.kill(request.pid, signal.SIGKILL)
                        continue
                    spec = self._spawn(request)
                    if spec is not None:
                        return spec
            except (EOFError, ConnectionError):
                # the agent is gone, which the kernel also tells a busy process, by a signal
                self._end_groups()
                return None

    def _report_changes(self) -> None:
        for pid, status in changes():
            send_message(self._control, Changed(pid, status))
            # and the agent sees to what it leaves behind
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                self._groups.pop(pid, None)

    def _continued(self, agent: int) -> None:
        # a child that was just forked has the handler, too
        if os.getppid() != agent and os.getpid() == self._pid:
            self._end_groups()
            os._exit(1)

    def _end_groups(self) -> None:
        """Procs end with this process, but not what they have started, nor their sockets."""
        unix.release_all(self._host)  # the agent may have been killed
        for pid, ends in list(self._groups.items()):
            if ends:
                signal_group(pid, signal.SIGKILL)

    def _spawn(self, request: SpawnRequest) -> ProcSpec | None:
        listeners: dict[int, int] = {}  # descriptors
        ranks = [start.rank for start in request.starts]
        try:
            self._preload(request)
            for start in request.starts:
                listener = unix.listen(ProcAddress(self._host, request.proc_name(start.rank)))
                listeners[start.rank] = listener.detach()
        except BaseException as error:  # a module may well call sys.exit when it is imported
            for fd in listeners.values():
                os.close(fd)
            send_message(
                self._control, Unstarted(request.mesh, ranks, f"{type(error).__name__}: {error}")
            )
            return None
        # before the first fork: from here on callers may connect, and are queued by the kernel
        # until the proc accepts
        send_message(self._control, Bound(request.mesh, ranks))
        if self._groups or len(request.starts) > 1:
            self._warm_up()
        # here, not in each fork, which would get a copy of each page that it touches
        if len(self.inherited) != len(sys.modules):
            self.inherited = dict.fromkeys(sys.modules)
            _generators.find()
        here = dict(os.environ)
        environ = (
            here if request.environ is None else without_share(request.environ, request.config)
        )
        request = request._replace(config=share_cores(request.config, environ, request.per_host))
        disarm_finalizers()
        gc.freeze()  # so that collections in the children do not copy the pages they share
        for start in request.starts:
            try:
                spec = self._start(request, start, listeners.pop(start.rank), environ, here)
            except OSError as error:  # out of descriptors, memory or processes
                send_message(self._control, Unstarted(request.mesh, [start.rank], _reason(error)))
                continue
            if spec is not None:
                return spec
            self._report_changes()  # hundreds of forks take a while
        gc.unfreeze()
        return None

    def _warm_up(self) -> None:
        """Import what many procs will need, once.

        The first, if it comes alone, neither waits for it nor shares a core with it.
        """
        self._warm = True
        for module in ("monarch._core.actors.async_cell", "monarch._core.hub.remote_router"):
            importlib.import_module(module)
        importlib.import_module("faulthandler")
        prefer_forkserver()
        compile_constructors()
        config.read_defaults()

    def _preload(self, request: SpawnRequest) -> None:
        for entry in request.sys_path:
            if entry not in sys.path:
                sys.path.append(entry)
        # nothing that an import makes is garbage, and looking takes a fifth of the time of torch's
        gc.disable()
        try:
            for module in request.preload:
                importlib.import_module(module)
        finally:
            gc.enable()

    def _start(
        self,
        request: SpawnRequest,
        start: Start,
        listener: int,
        environ: dict[str, str],
        here: dict[str, str],
    ) -> ProcSpec | None:
        """Fork one proc; returns in the child with its spec.

        Args:
            listener: Descriptor that listens under its address; owned by this method.
            environ: The environment of the request.
            here: That of this process.
        """
        address = ProcAddress(request.host, request.proc_name(start.rank))
        ours: list[int] = []
        theirs = [listener]
        try:
            for _ in range(2):
                read, write = os.pipe()
                ours.append(read)
                theirs.append(write)
            spec = ProcSpec(
                address, self._host, request.root, request.mesh, request.name, start.rank, listener, request.sys_path, request.cwd,
                _seeds.of_rank(of_proc(request.config, start.env), start.rank, start.incarnation), request.nesting, request.logging,
                tuple(os.fstat(fd).st_ino for fd in theirs[1:]), start.log_level,
            )  # fmt: skip
            pid = self._fork(bool(request.config.get("proc_sessions")), *theirs)
            if pid == 0:
                # the child has closed these numbers, and may have given them to other files: the
                # `finally` below must not close them
                ours.clear()
                theirs.clear()
                return self._child(spec, start, start.environment(environ), here)
            self._groups[pid] = request.ends_groups
            # before it may be known that the child has ended: no peer must reach its old listener
            while theirs:
                os.close(theirs.pop())
            try:
                ours.append(os.pidfd_open(pid))  # here, where the child cannot have been reaped yet
                send_message(self._control, Forked(request.mesh, start.rank, pid), ours)
            except OSError:
                os.kill(pid, signal.SIGKILL)  # its end could not be watched for
                raise
        finally:
            for fd in (*ours, *theirs):
                os.close(fd)
        return None

    def _fork(self, own_session: bool, listener: int, out: int, err: int) -> int:
        """Fork; in the child, keep nothing but the listener and the output pipes."""
        parent = os.getpid()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                # else the child has the same text in its buffer, and writes it once more
                stream.flush()
        pid = os.fork()
        if pid:
            return pid
        try:
            self._become_child(parent, out, err, listener, own_session)
            self._control.detach()  # closed with all other descriptors
        except BaseException as error:
            _die(error)
        return 0

    # in the child

    @staticmethod
    def _become_child(parent: int, out: int, err: int, listener: int, own_session: bool) -> None:
        ChildWatch.forget()
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        main_guard.forks_procs = False
        # at least a group of its own: Ctrl-C in the terminal is for the client
        os.setsid() if own_session else os.setpgid(0, 0)
        # again: the kernel clears the signal of the parent's end on a fork
        die_with_parent(parent)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        if listener != 3:
            # always the same number, so that one `closerange` can close all above it
            os.dup2(listener, 3)
        # all others: of the agent, of modules that were imported here, and of forks before this one
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        os.set_inheritable(3, True)

    @staticmethod
    def _child(
        spec: ProcSpec, start: Start, env: dict[str, str], inherited: dict[str, str]
    ) -> ProcSpec:
        spec = spec._replace(listener=3)
        try:
            cpus, numactl = _binding(start)
            if cpus:
                # before an exec, which keeps it
                os.sched_setaffinity(0, parse_cpus(cpus))
            changed = env != inherited
            if start.command is not None or numactl or (changed and needs_exec(env, inherited)):
                execute(spec, start.command, env, numactl)
            if changed:
                os.environ.clear()
                os.environ.update(env)
        except BaseException as error:
            _die(error)
        return spec


def _reason(error: OSError) -> str:
    return explain() if error.errno == errno.EAGAIN else f"{type(error).__name__}: {error}"


def _binding(start: Start) -> tuple[str, list[str]]:
    """CPUs to bind to, and arguments of ``numactl``, where this machine has that."""
    if not start.nodes:
        return start.cpus, []
    import shutil  # brings the compression libraries; few procs are bound

    if shutil.which("numactl"):
        return start.cpus, [f"--{key}={value}" for key, value in start.nodes]
    return start.cpus or dict(start.nodes).get("physcpubind", ""), []


def execute(
    spec: ProcSpec, command: Command | None, env: dict[str, str], numactl: Sequence[str]
) -> None:
    """Replace this process by a new interpreter, or by the given command that starts one."""
    command = command or Command(sys.executable, None, ("-m", PROC_MODULE))
    fd = write_spec(spec)
    os.set_inheritable(fd, True)
    first = ["numactl", *numactl, command.program] if numactl else [command.arg0 or command.program]
    argv = [*first, *started_elsewhere(command.args)]
    if os.getcwd() != spec.cwd and os.path.isdir(spec.cwd):
        os.chdir(spec.cwd)
    program = first[0] if numactl else command.program
    os.execvpe(program, argv, {**env, main_guard.SPEC_VARIABLE: str(fd)})


def _die(error: BaseException) -> NoReturn:
    """End a child that could not become a proc; the agent keeps its last words for the report."""
    os.write(2, f"{type(error).__name__}: {error}\n".encode())
    os._exit(127)


def ignore_interrupt(number: int, frame: object) -> None:
    """Ctrl-C is for the client.

    A handler, not SIG_IGN, which programs that a proc starts would inherit.
    """


def ignore_warnings() -> None:
    """Go on at SIGTERM, where it is a warning; what a proc starts has the default again."""
    if config.value("sigterm_warns"):
        signal.signal(signal.SIGTERM, ignore_interrupt)


def prefer_forkserver() -> None:
    """Have `multiprocessing` start its processes from a clean one."""
    with suppress(OSError):  # out of descriptors, say: its first use will raise
        importlib.import_module("monarch._core.processes.forkserver").prefer()


def _end_agent(agent: int) -> None:
    """The agent has not ended with its client: it is stopped, or stuck."""
    if os.getppid() == agent:
        os.kill(agent, signal.SIGKILL)  # of which this process is told as of any other end


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends, or the thread of it that has
    started this process; end now if the parent has ended already.
    """
    # first: a parent that ends between the two calls is noticed by the second
    libc().prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def parse_cpus(text: str) -> set[int]:
    """CPUs in the notation of taskset: ``0,2-4``."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus
