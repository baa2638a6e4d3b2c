"""The hosts that a client has attached: their addresses, and how they are stopped or shut down.

`attach` makes one `Attachment`, and the `HostMesh` of these hosts keeps it.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..calls.future import Future
from ..calls.pending import countdown, subscribe
from ..calls.promise import Promise, completed
from ..client import client
from ..wire.channel import parse_channel
from .owned import OwnedProcs

if TYPE_CHECKING:
    from ..net.trust import Trust


class Attachment:
    """Hosts that this client has attached.

    Their mesh may stop them and shut them down; its slices may not.

    Args:
        workers: Their addresses, or futures of them.
        trust: How to prove who we are.
        name: For people, of all of them; may be empty.
    """

    def __init__(self, workers: Sequence[str | Future[str]], trust: Trust, name: str = "") -> None:
        self._trust = trust
        self._name = name
        self._workers = workers
        self._lock = threading.Lock()
        self._hosts: tuple[str, ...] | None = None
        # the client that owns the hosts; another one may run when they are let go
        self._client: client.Client | None = None
        self._spawned: list[OwnedProcs] = []
        self.ended: str | None = None  # how it was let go
        self._initialized: Promise[bool] = Promise(f"{len(workers)} hosts to be attached")
        self.initialized = self._initialized.future
        late = [worker for worker in workers if isinstance(worker, Future)]
        if not late:
            self.hosts()
        else:
            threading.Thread(target=self._attach_late, name="monarch-attach", daemon=True).start()

    @property
    def inherited(self) -> bool:
        """True if the hosts are those of the process that forked this one."""
        return self._client is not None and self._client.pid != os.getpid()

    def _attach_late(self) -> None:
        """Attach once the futures of the addresses are done, which have no time limit here."""
        try:
            self.hosts()
        except Exception as error:
            self._initialized.reject(error)

    def hosts(self) -> tuple[str, ...]:
        """Their names; waits until the futures of their addresses are done."""
        given = [worker.get() if isinstance(worker, Future) else worker for worker in self._workers]
        with self._lock:
            if self._hosts is None:
                if self.ended is not None:
                    raise RuntimeError(
                        f"HostMesh has already been {self.ended}: attach the hosts again"
                    )
                hosts = check_workers(given, self._trust)
                self._client = client.client()
                attached = self._client.attach(hosts, self._trust, self, self._name)
                self._hosts = hosts
                subscribe(attached, lambda: self._attached(attached))
            return self._hosts

    @property
    def known(self) -> bool:
        """True if `hosts` need not wait."""
        return self._hosts is not None

    def _attached(self, attached: Future[bool]) -> None:
        error = attached.exception()
        if error is None:
            self._initialized.resolve(True)
        else:
            self._initialized.reject(error)

    def note_spawned(self, owned: OwnedProcs) -> None:
        """These procs run there, and are to be stopped before the hosts are let go."""
        self._spawned = [*(other for other in self._spawned if other.stopping is None), owned]

    def let_go(self, how: str) -> Future[None]:
        """Stop the procs spawned on them, then the hosts themselves if they are to be shut down."""
        with self._lock:
            self.ended = how
        if self._hosts is None or self._client is None:  # not even their addresses are known yet
            why = f"attach failed: the hosts were {how} before their addresses were known"
            self._initialized.reject(RuntimeError(why))
            return completed(None)
        if how == "stopped":  # a worker that is to be shut down is waited for
            self._client.hosts.give_up(self._hosts, "it was stopped before it was reached", self)
            # others may wait for the hosts on
            self._initialized.reject(
                RuntimeError(f"attach failed: the hosts were {how} before they were reached")
            )
        stopping = [owned.stop(f"its hosts were {how}") for owned in self._spawned]
        done: Promise[None] = Promise(f"{len(self._hosts)} hosts to be {how}")
        finish = self._shut_down if how == "shut down" else self._detach
        stopped = countdown(
            len(stopping), functools.partial(finish, self._client, self._hosts, done)
        )
        for future in stopping:
            subscribe(future, stopped)
        return done.future

    def _shut_down(self, owner: client.Client, hosts: Sequence[str], done: Promise[None]) -> None:
        subscribe(owner.hosts.shut_down(hosts, client.SHUTDOWN_GRACE), lambda: done.resolve(None))

    def _detach(self, owner: client.Client, hosts: Sequence[str], done: Promise[None]) -> None:
        owner.hosts.detach(hosts, {self})
        done.resolve(None)


def check_workers(workers: Sequence[str], trust: Trust) -> tuple[str, ...]:
    channels = [parse_channel(worker) for worker in workers]
    for worker, channel in zip(workers, channels, strict=True):
        if not channel.dialable:
            raise ValueError(
                f"a worker can't be reached at {worker!r}: it says where to listen, not where to"
                " dial"
            )
        trust.require(channel)
    names = tuple(channel.name for channel in channels)
    twice = [host for host, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"each worker can be attached once; given twice or more: {', '.join(twice)}"
        )
    return names
