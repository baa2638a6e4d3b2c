"""Programs without processes.

They are the same actors, on procs that are objects of this process, with messages through memory.

Read `turns`, which decides who runs, and `waits`, where that is given up; `hub` and `links` carry messages, `host` has
agents and procs, `cells` actors, `surroundings` what a proc has of its process.

Imports `_core.actors`, `_core.calls`, `_core.client`, `_core.hub`, `_core.mesh`, `_core.net`,
`_core.processes`, `_core.shape`, `_core.supervision`, `_core.wire`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from ... import config
from ..._arguments import whole
from ..._core.calls import waiting
from ..._core.calls.callbacks import CallbackThread, callback_thread, called, continuation_thread
from ..._core.client import client
from ..._core.mesh.host_mesh import HostMesh
from ..._core.shape import Shape, Slice
from .hub import Network
from .root import HOME, LocalClient
from .surroundings import surroundings
from .turns import Killed, Turns
from .waits import TurnLock, TurnQueue

_GRACE = 1.0  # seconds, of the clock of the hosts, that actors get to clean up when the block ends


class LocalHosts(HostMesh):
    """The hosts of `local`, with their clock."""

    _network: Network

    @property
    def now(self) -> float:
        """The time that has passed on these hosts, in seconds."""
        return self._network.turns.now

    def advance(self, seconds: float) -> None:
        """Let time pass: all that is due by then is done.

        Timers that are due need no wait: see `docs/testing.md`.

        Args:
            seconds: How long, by the clock of the hosts; at least 0.

        Raises:
            ValueError: `seconds` is negative.
            RuntimeError: The calling thread is neither that of the test, nor that of an actor.
        """
        if seconds < 0:
            raise ValueError(f"time passes forward only; got {seconds} seconds")
        self._network.turns.sleep(seconds)

    def cut(self, host: int) -> None:
        """Cut a host off from all others, the test included, as a broken network does.

        Messages sent there, or from there, wait. After ``channel_reconnect_timeout`` seconds the
        host is lost: its procs have failed, for their owners and callers. On it, what belongs to
        others ends.

        Args:
            host: Which of the hosts, from 0.

        Raises:
            TypeError: `host` is no int.
            ValueError: There is no such host.
            RuntimeError: It is cut off already, or lost.
        """
        self._network.cut(self._name_of(host), config.value("channel_reconnect_timeout"))

    def mend(self, host: int) -> None:
        """Undo `cut`, before the host is lost: all that was sent meanwhile arrives.

        Args:
            host: Which of the hosts, from 0.

        Raises:
            TypeError: `host` is no int.
            ValueError: There is no such host.
            RuntimeError: It is not cut off, or lost already.
        """
        self._network.mend(self._name_of(host))

    def _name_of(self, host: int) -> str:
        names = self._hosts
        if whole(host, "host", 0) >= len(names):
            raise ValueError(f"host={host}: expected 0 to {len(names) - 1}")
        return names[host]


def _hosts(network: Network, names: tuple[str, ...]) -> LocalHosts:
    hosts = LocalHosts(
        lambda: names, Shape(["hosts"], Slice.new_row_major([len(names)])), name="local"
    )
    hosts._network = network
    return hosts


@contextmanager
def local(hosts: int = 1, *, seed: int | None = None) -> Iterator[LocalHosts]:
    """Run programs of actors in this process.

    Procs are objects, messages go through memory, nothing is started.

    Args:
        hosts: Number of hosts, at least 1.
        seed: Decides the order in which messages are delivered and actors run; None takes them in
            the order in which they were sent.

    Returns:
        A mesh of the hosts, with the dimension ``hosts``. `this_host()` of the test is another one.

    Raises:
        ValueError: `hosts` is less than 1.
        RuntimeError: It is used inside of another one.
    """
    if not isinstance(hosts, int) or hosts < 1:
        raise ValueError(f"local() takes the number of hosts, at least 1; got {hosts!r}")
    if waiting.new_lock is not threading.Lock:
        raise RuntimeError("local() is active already: there is one at a time in a process")
    names = tuple(f"host{index}" for index in range(hosts))
    turns = Turns(seed)
    network = Network(turns, {HOME, *names})
    waiting.new_lock = lambda: TurnLock(turns)
    outside, threads = client._client, (callback_thread, continuation_thread)
    queues = [thread._jobs for thread in threads]
    turns.begin()
    try:
        for thread in threads:
            _continue(turns, thread)
        with surroundings(network), config.configured(rdma_paths="messages"):
            running = client._client = LocalClient(network)
            try:
                yield _hosts(network, names)
            finally:
                _end(running, network)
    finally:
        client._client = outside
        turns.end()
        for thread, queue in zip(threads, queues, strict=True):
            thread._jobs = queue
        waiting.new_lock = threading.Lock


def _continue(turns: Turns, thread: CallbackThread) -> None:
    """Have what the engine goes on with take turns, too."""
    queue: Any = TurnQueue(turns)  # in the place of a `SimpleQueue`
    thread._jobs = queue

    def unless_killed(job: Callable[[], object]) -> None:
        with suppress(Killed):
            job()

    def run() -> None:
        while True:
            called(partial(unless_killed, queue.get()))

    turns.thread(queue, run, name=thread.name).start()


def _end(running: LocalClient, network: Network) -> None:
    network.turns.ending = True
    client.settle_faults()
    with suppress(TimeoutError):
        running.stop_own_actors().get(timeout=_GRACE)
    with suppress(TimeoutError):
        running.shut_down(_GRACE).get(timeout=2 * _GRACE)
    for hub in list(network.hubs.values()):
        if hub is not running.hub:
            hub.end_at_once()
    running.close()
    running.printer.close()
