"""The rendezvous of all ranks of an engine, for groups of torch.

An engine is one generation of a mesh: a rank that starts again has lost what it had, and has no
part in it any more. So the store of an engine's meeting belongs to that generation, a rank that has
started again leaves word that it has ended, and the controller does so of every other that ends.

Torch waits in C++: for keys of a store, and for connections. Here both waits end with a member. The
store that torch gets looks for the ends of members while it waits for a key; and a thread does
while torch connects, and breaks the connections off.

Engines of several actors may be over the same processes, where torch has one default group. Rank 0
says which groups are next: else two ranks could begin with those of different engines, and wait for
each other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..._connections import Connections
from ..._polled_store import PolledStore
from .groups import Meeting

_GLANCE = 0.01  # seconds between looks at whether a member has ended, while torch connects
_making = threading.Lock()  # held while groups of torch are made in this process


class MemberEndedError(RuntimeError):
    """A member of the rendezvous has ended, or has given up."""


class Rendezvous:
    """One rendezvous, as one of its ranks sees it.

    Args:
        meeting: That of the engine.
        name: What they come for; the same for all, and nothing else.
        rank: This one.
        size: How many there are.
        is_ending: Whether this rank has been asked to end.

    Attributes:
        store: For torch: a wait in it ends with a member.

    Raises:
        RuntimeError: The engine has ended.
    """

    def __init__(
        self,
        meeting: Meeting,
        name: str,
        rank: int,
        size: int,
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_ending = is_ending
        self.rank = rank
        self.size = size
        self._meeting = meeting
        self._refused = f"refused/{name}"
        self._name = name
        self._base = meeting.store()
        self.store = PolledStore(self._base, self.check)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait until all are here, and make groups of torch in this block.

        Raises:
            MemberEndedError: A member has ended.
        """
        self._base.set(f"here/{self._name}/{self.rank}", "")
        if self.rank:
            # `_making` is taken only when all are here: a rank that held it while it waits would
            # keep its process's other groups from being made
            self.store.wait([f"go/{self._name}"])
        else:
            self.store.wait([f"here/{self._name}/{rank}" for rank in range(self.size)])
        with _making:
            if not self.rank:
                self._base.set(f"go/{self._name}", "")
            with self._broken_off():
                yield

    def exchange(self, told: Any) -> list[Any]:
        """Tell all others something; returns what each of them says, by rank."""
        keys = [f"told/{self._name}/{rank}" for rank in range(self.size)]
        self._base.set(keys[self.rank], json.dumps(told))
        self.store.wait(keys)
        return [json.loads(self._base.get(key)) for key in keys]

    def give_up(self, error: Exception) -> Exception:
        """Tell the others that this rank has failed, so that none waits for it.

        Returns:
            The reason: a death, where there is one, and not what came of it.
        """
        if isinstance(error, MemberEndedError):
            return error
        with suppress(RuntimeError):  # the engine has ended
            try:
                self.check()
            except MemberEndedError as ended:
                ended.__cause__ = error
                return ended
            self._base.set(self._refused, f"rank {self.rank} has failed: {error}")
        return error

    def ended(self) -> list[int]:
        """The ranks that have ended."""
        if not self._base.check(["ended"]):
            return []
        return [rank for rank in range(self.size) if self._base.check([f"ended/{rank}"])]

    def check(self) -> None:
        """Look for an end.

        Raises:
            MemberEndedError: A member has ended, or failed.
            RuntimeError: The engine has ended.
        """
        self._meeting.check()
        if self._is_ending():
            raise MemberEndedError(f"rank {self.rank} was asked to end")
        for key in ("ended", self._refused):
            if self._base.check([key]):
                raise MemberEndedError(self._base.get(key).decode())

    @contextmanager
    def _broken_off(self) -> Iterator[None]:
        """Break the connections that are made in this block off, if a member ends meanwhile."""
        connections, over = Connections(), threading.Event()

        def watch() -> None:
            while not over.wait(_GLANCE):
                try:
                    self.check()
                except RuntimeError:
                    connections.break_off(self.size)

        watcher = threading.Thread(target=watch, name="monarch-rendezvous", daemon=True)
        with connections.made():
            watcher.start()
            try:
                yield
            finally:
                over.set()
                watcher.join()
        self.check()  # a meeting that was broken off may have been completed all the same
