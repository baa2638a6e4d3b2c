"""The client: the user's own process, root of the supervision tree.

Booted by the first use of the API, once.
"""

from __future__ import annotations

import atexit
import functools
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ... import _stack_dump, config
from ..._guards.main_guard import refuse_imports
from ..._guards.surroundings import explained, refuse_gevent
from ..._interrupts import LOOK, HeldInterrupts, look
from ...errors import SupervisionError
from .. import extension
from ..actors import log, sampling
from ..actors.context import Context, forget, set_fallback
from ..actors.proc_service import ProcService
from ..calls import future as futures
from ..calls.failed_call import tell_all
from ..calls.future import Future
from ..calls.pending import subscribe
from ..calls.promise import Promise, completed
from ..hub.control import ask_one, send_record
from ..hub.control_records import RouteVia, ShutDownHost, Subscribe
from ..hub.message_hub import MessageHub
from ..hub.spawn_requests import CreatorInstance
from ..net import unix
from ..processes.agent_process import start_agent
from ..processes.heartbeat import Heartbeat
from ..processes.output import Printer
from ..shape import Extent, Point
from ..supervision.failure import STOPPED, Failure, host_lost
from ..wire import pickling
from ..wire.address import CLIENT, ROOT, ProcAddress, random_name
from ..wire.frame import Frame
from . import faults, session
from .attached import AttachedHosts
from .greeting import Greeting
from .pending_output import OutputStream, PendingOutput
from .root_cell import SHUT_DOWN, RootCell

if TYPE_CHECKING:
    import subprocess

    from ..net.trust import Trust

SHUTDOWN_GRACE = 10.0
"""Seconds that procs get to clean up when they are shut down, unless others are asked for."""

_EXIT_GRACE = 1.0  # seconds that procs get to clean up when the program ends
_SETTLE_BOUND = 0.5  # seconds in which one-way messages may still be handled when the program ends
_ATTACH_BOUND = 2.0  # seconds more, if they are for hosts that are about to be attached
_EXIT_BOUND = 2.0  # seconds after which the program ends without having heard from its procs
# seconds after the grace time in which the agent ends, or is killed; it has bounds of its own
_AGENT_BOUND = 4.0
# priorities among the exit functions of a `multiprocessing` child: after its queues are flushed,
# and after all of `multiprocessing` itself
_AFTER_OTHERS, _LAST = -10, -1000


class Client:
    """The hub of the client process, its I/O thread, and the host agent it started.

    Args:
        host: Name of its host; a new one by default.
        local_host: Its name in the paths of sockets; by default the same.
    """

    hub_kind, service_kind = MessageHub, ProcService

    def __init__(self, host: str = "", local_host: str = "") -> None:
        refuse_gevent()
        self.pid = os.getpid()
        uid = f"{CLIENT}{self.pid}-{random_name(40)}"  # its dependents get to see it
        address = ProcAddress(host or random_name(), f"{uid}.0")
        if config.value("file_log_level"):
            extension.engine_log("client", address.proc)
        self.hub = self.hub_kind(address, root=address, local_host=local_host)
        self.hub.ended_hosts = _ended_hosts
        if host:  # it only observes another program, and has its socket among that program's
            self.hub.listen()
        else:
            sampling.export(self.hub, lambda: CLIENT, 0)
        self.service = self.service_kind(self.hub)
        self.faults = faults.Faults(_leave_by_force)
        record = CreatorInstance(
            "root", None, Point(0, Extent([], [])), extension.client_mesh(address), None
        )
        self.root = RootCell(self.hub, record, self.faults.put)
        self.hub.register(ROOT, self.root)
        self.context = Context(self.root)
        log.outside = str(self.root.instance)
        self.printer = Printer()
        self.pending_output = PendingOutput(self.hub, self.printer)
        self.hub.printed = self.pending_output.printed
        self.greeting = Greeting(self.hub)
        self.hosts = AttachedHosts(self.hub, self.pending_output.take, self.greeting.send)
        self.hub.neighbours.abroad = self._abroad
        self._agent: subprocess.Popen[bytes] | None = None
        self._followed: list[ProcAddress] = []
        session.at_end_of_cells(lambda: self.pending_output.flush_briefly(self.agents))
        self._lock = threading.Lock()
        self._shutting_down: Promise[None] | None = None
        self._io_thread = threading.Thread(
            target=self.hub.poller.run, name="monarch-io", daemon=True
        )
        self._io_thread.start()
        self._look_for_signals()

    def ensure_agent(self) -> ProcAddress:
        """The agent of this machine, started on first use; it need not be up yet to be called."""
        with self._lock, HeldInterrupts():  # half a start could not be repeated
            if self._agent is None:
                _stack_dump.install()
                if self._shutting_down is not None:  # procs that start now would never be ended
                    raise SupervisionError(SHUT_DOWN)
                agent, then = self.hub.address.agent, self.hub.listen
                self._agent = start_agent(agent, self.hub.address, then=then)
                send_record(self.hub, agent, Subscribe(), _Events(self, agent))
                self.greeting.send([agent])
                self._watch_agent()
        return self.hub.address.agent

    def _abroad(self, host: str) -> Failure | None:
        """A host is used that this client may not have attached."""
        failure = self.hosts.no_way_in(host)
        if failure is None:
            self.ensure_agent()
        return failure

    def follow(self, agent: ProcAddress) -> None:
        """Show the output of procs that this client starts at an agent that is not its own."""
        if agent.host not in self.hosts.names and agent not in self._followed:
            self._followed.append(agent)
            send_record(self.hub, agent, Subscribe(), OutputStream(self.pending_output, agent))
            self.greeting.send([agent])

    @property
    def agents(self) -> list[ProcAddress]:
        """The host agents that it uses."""
        own = [] if self._agent is None else [self.hub.address.agent]
        return [*own, *self.hosts.agents(self.hosts.names), *self._followed]

    @property
    def used_hosts(self) -> Sequence[str]:
        """The hosts that end with it, or are let go: no handle to what ran there is of use then."""
        return (self.hub.address.host, *self.hosts.names)

    def _look_for_signals(self) -> None:
        look()
        self.hub.poller.call_later(LOOK, self._look_for_signals)

    def _watch_agent(self) -> None:
        timeout = config.value("heartbeat_timeout")
        if timeout:
            heartbeat = Heartbeat(self.hub, self.hub.address.agent, timeout, self._agent_silent)
            # it has yet to start
            heartbeat.ask(max(timeout, config.value("host_spawn_ready_timeout") or math.inf))

    def _agent_silent(self, seconds: float) -> None:
        self._end_agent(f"it did not answer for {seconds:g}s (heartbeat_timeout), so it was ended")

    def _end_agent(self, why: str) -> None:
        """The agent is of no more use: with it, the kernel ends everything below it."""
        assert self._agent is not None
        # before the kill: the broken connection alone would not say why
        self.agent_lost(host_lost(str(self.hub.address.agent), why, self._agent.pid))
        self._agent.kill()

    def agent_lost(self, failure: Failure) -> None:
        """Tell those who wait, before the connection breaks, which says less."""
        self.hub.forget_peers([self.hub.address.agent], failure)

    def attach(self, hosts: Sequence[str], trust: Trust, by: object, name: str) -> Future[bool]:
        """Take other hosts into use. The future raises why one can't be reached."""
        self.ensure_agent()
        return self.hosts.attach(hosts, trust, by, name)

    def route_via(self, host: str, trust: Trust) -> None:
        """Reach all other hosts through one."""
        self.ensure_agent()
        send_record(self.hub, self.hub.address.agent, RouteVia(host, trust))

    def shut_down(self, grace: float) -> Future[None]:
        """Stop every proc, then the agent; the future is done when they are gone.

        Repeated calls give the same future.
        """
        with self._lock:
            if self._shutting_down is None:
                self.root.leaving = True
                self._shutting_down = Promise("the procs of this program to end")
                # the agent last: it is the way to the other hosts
                leaving = self.hosts.leave(self._followed, SHUT_DOWN, grace)
                subscribe(leaving, lambda: self._shut_agent_down(grace))
            return self._shutting_down.future

    def _shut_agent_down(self, grace: float) -> None:
        assert self._shutting_down is not None
        if self._agent is None:
            self._shutting_down.resolve(None)
            return
        shutting_down, agent = self._shutting_down, self.hub.address.agent
        record = ShutDownHost(SHUT_DOWN, grace)
        ask_one(self.hub, agent, record, lambda answer: shutting_down.resolve(None))
        self.hub.poller.call_later(
            grace + _AGENT_BOUND, lambda: self._end_agent("it did not shut down")
        )

    def leave(self) -> None:
        """Let everything clean up and end, as a program does at its end, within bounds."""
        with suppress(TimeoutError):
            self.stop_own_actors().get(timeout=_EXIT_GRACE)
        with suppress(TimeoutError):
            self.shut_down(_EXIT_GRACE).get(timeout=_EXIT_BOUND)

    def stop_own_actors(self) -> Future[None]:
        """Stop the actors that run in this very process, controllers among them."""
        stopped: Promise[None] = Promise("the actors of this process to end")
        why, done = Failure(STOPPED, SHUT_DOWN), functools.partial(stopped.resolve, None)
        self.hub.poller.call_soon(lambda: self.service.stop_all(why, done))
        return stopped.future

    def close(self) -> None:
        """After `shut_down`: reap the agent, stop the I/O thread."""
        if self._agent is not None:
            with self._agent:
                try:
                    # reaped, so that no zombie is left in a program that goes on
                    self._agent.wait(_EXIT_BOUND)
                except Exception:  # subprocess.TimeoutExpired
                    self._agent.kill()
        self.hub.poller.call_soon(self.hub.poller.stop)
        self._io_thread.join()
        self.hub.close(Failure(STOPPED, SHUT_DOWN))
        self.hub.poller.close()
        self._release()
        self.pending_output.close()
        for port in list(self.root.ports):
            port.close(SHUT_DOWN)
        self.faults.close()

    def _release(self) -> None:
        unix.release_all(self.hub.address.host)


class _Events(OutputStream):
    """Events of the client's own agent, which at its end says why it ended."""

    def __init__(self, client: Client, agent: ProcAddress) -> None:
        super().__init__(client.pending_output, agent)
        self._client = client

    def reply(self, frame: Frame) -> bool:
        event = pickling.loads(frame.payload, frame.buffers)
        if isinstance(event, Failure):
            self._client.agent_lost(event)
            return True
        return super().reply(frame)


_client: Client | None = None
_over = False  # the program's exit functions run
after_the_end: list[Callable[[], object]] = []
"""Called at the end of the program, the last first, once it has let go of all its hosts: so
ends what they run on, without a fault. Forks are not told.
"""
_last_shutdown: Future[None] = completed()
_boot_lock = threading.Lock()
# what earlier clients of this process were, and used: there may be handles to it
_ended_hosts: dict[str, Failure] = {}


def client(make: Callable[[], Client] = Client) -> Client:
    """The client of this process, booted if need be."""
    global _client
    if _client is None:
        refuse_imports("monarch")
        _note_forks()  # not before: a spawner is no client, and its forks are procs
        with _boot_lock, HeldInterrupts():
            if _client is None:
                if _over and threading.current_thread().daemon:  # nothing would end it
                    raise SupervisionError("the program has ended")
                try:
                    _client = make()
                except RuntimeError as error:
                    raise explained(error, "a thread of the client") from error
                _join_multiprocessing()
    return _client


def is_running() -> bool:
    """Return whether this process is a client already."""
    return _client is not None


def _join_multiprocessing() -> None:
    """A child of `multiprocessing` ends without `atexit`, but with exit functions of its own; and
    its script is a module.
    """
    if _of_multiprocessing():
        from multiprocessing.util import Finalize  # it is there: this process began in it

        Finalize(None, _at_exit, exitpriority=_AFTER_OTHERS)
        Finalize(None, faults.ending.conclude_child, exitpriority=_LAST)
        script = sys.modules.get("__mp_main__")
        if script is not None:
            import cloudpickle  # here: any other program does without it until it sends an object

            cloudpickle.register_pickle_by_value(script)


def _of_multiprocessing() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def shutdown_context(host_timeout: float | None = None) -> Future[None]:
    """Stop everything this program started, now. The next use of the API starts afresh.

    Args:
        host_timeout: Seconds that procs get to clean up before they are killed; None for 10.

    Returns:
        A future that is done when everything is gone: within `host_timeout` and a few seconds, even
        if processes stand still, or the host agent does. Threads that still call, or wait, get
        SupervisionError at once.

    Raises:
        ValueError: `host_timeout` is negative or not finite.
    """
    global _client, _last_shutdown
    grace = SHUTDOWN_GRACE if host_timeout is None else host_timeout
    if not isinstance(grace, (int, float)) or not 0 <= grace < 2**64:
        raise ValueError(
            f"invalid host_timeout {host_timeout}: expected a non-negative, finite number of"
            " seconds"
        )
    with _boot_lock:
        ending, _client = _client, None
    if ending is None:
        return completed()
    for host in ending.used_hosts:
        _ended_hosts[host] = Failure(STOPPED, SHUT_DOWN)
    own = ending.stop_own_actors()
    stopping = ending.shut_down(grace)
    finished: Promise[None] = Promise("the procs of this program to end")
    _last_shutdown = finished.future

    def finish() -> None:
        ending.close()
        ending.printer.close()
        finished.resolve(None)

    finishing = threading.Thread(target=finish, name="monarch-shutdown", daemon=True)
    subscribe(stopping, lambda: subscribe(own, finishing.start))
    return finished.future


def settle_faults() -> None:
    """Wait, within bounds, until failures on their way have reached the hook, and were reported."""
    running = _client
    if running is not None:
        if running.root.unsettled:
            running.root.settle(_SETTLE_BOUND)
        running.faults.settle(_EXIT_BOUND)


def _at_exit() -> None:
    global _client, _over
    faults.ending.leave()
    faults.ending.over.set()
    faults.quiet_threads()
    with _boot_lock:  # a thread may be about to make one
        leaving, _client, _over = _client, None, True
    if leaving is not None and leaving.pid == os.getpid():
        _leave(leaving)
    with suppress(TimeoutError):
        _last_shutdown.get(timeout=_EXIT_BOUND)  # the program may not have waited for it
    _end_the_rest()
    if faults.ending.status is not None:  # what exit functions would still do may not happen
        tell_all()
    faults.ending.conclude()
    if session.find() is None and getattr(sys, "last_type", None) is KeyboardInterrupt:
        # the interpreter forgets the status of an interrupt when it executes a string, as imports do
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def _end_the_rest() -> None:
    while after_the_end:
        after_the_end.pop()()


def _leave(leaving: Client) -> None:
    # a fault's interrupt, or one Ctrl-C too many, must not cut short what follows: it is bounded
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    # who pressed Ctrl-C does not want to wait
    if getattr(sys, "last_type", None) is not KeyboardInterrupt:
        if leaving.root.unsettled:
            leaving.hosts.settle(_ATTACH_BOUND)
        leaving.root.settle(_SETTLE_BOUND)
    leaving.leave()
    leaving.faults.settle(_EXIT_BOUND)
    leaving.close()
    signal.signal(signal.SIGINT, handler)
    leaving.printer.close()


def _leave_by_force(exit_functions: bool) -> None:
    """As at the end of the program, on another thread: the main one is stuck."""
    leaving = _client
    if leaving is not None:
        leaving.leave()
        leaving.printer.close()
    # otherwise the interpreter runs them, or they do not run
    if exit_functions and threading.main_thread().is_alive() and not _of_multiprocessing():
        _end_the_rest()
        atexit.unregister(_at_exit)
        atexit._run_exitfuncs()


def _after_fork() -> None:
    """A forked child is not this client: it boots one of its own if it uses the API."""
    global _client, _boot_lock, _last_shutdown, _over
    parents, _client, _over = _client, None, False
    _boot_lock = threading.Lock()
    _last_shutdown = completed()
    after_the_end.clear()
    faults.ending = faults.Ending()
    forget()  # an actor in this process may have forked it
    if parents is not None:
        parents.hub.abandon()
        futures.pending_output = None


_note_forks = functools.cache(lambda: os.register_at_fork(after_in_child=_after_fork))


def install() -> None:
    """Make this process, no proc, a client as soon as the API is used outside of actors."""
    set_fallback(client_context)
    atexit.register(_at_exit)


def end_program(status: int) -> None:
    """End this program in order, on any thread, as an unhandled fault does."""
    faults.ending.begin(status, _leave_by_force)


def client_context() -> Context:
    """Return the context of code outside of actors, in a process that is no proc."""
    return (_client or client()).context  # without the call where each message passes
