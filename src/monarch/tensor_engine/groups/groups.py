"""Groups of ranks that communicate, over `torch.distributed`.

Tensors on CPUs use Gloo, those on GPUs NCCL.

A group is made by its own members when they first need it, at the same point of their instructions;
no other rank takes part, and torch's default group, which belongs to the user's code, is left
alone; `torch_groups` is for that. Members find each other through a store: a file where all are on
the controller's host, else one that the controller keeps. No port is opened for it.

What ends the wait for a peer: the peer, its end, or `TIMEOUT`. Of the end of one that has yet to
come to the meeting, the controller leaves word in the store, or the worker itself if it can. In a
collective only some ranks wait for the dead one itself; each that hears of it breaks off its own
connections, and so those hear of it who wait for this one. A kernel of NCCL hears of nothing, and
is aborted by who waits for its GPU: `Communication.await_gpu`.
"""

from __future__ import annotations

import datetime
import json
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ..._connections import Connections
from ..._kept_store import KeptStore
from ..._polled_store import LONGEST, SHORTEST, PolledStore
from ..instructions import Poison
from . import in_process
from .gloo import LOOPBACK, TIMEOUT, gloo

_DOES_WITHOUT = 5.0  # seconds in which a GPU may do what needs no rank that has ended
_OPENS = datetime.timedelta(seconds=5)  # to open a file, which is at once or never


class Meeting(NamedTuple):
    """The rendezvous of the members of a group.

    Attributes:
        path: A file, where all are on the controller's host; else empty.
        kept: The store of the controller, where they are on other hosts.
        engine: The id of the engine, where all ranks are in this process; else empty.
        one_host: Whether all are on one host.
    """

    path: str
    kept: KeptStore | None = None
    engine: str = ""
    one_host: bool = True

    def store(self) -> Any:
        """Connect to the store.

        Raises:
            RuntimeError: The engine has ended, and the file with it: torch would try for minutes to
                open it, and let no other thread of Python run.
        """
        if self.path:
            self.check()
            store = dist.FileStore(self.path, -1)
            # torch's default is minutes
            store.set_timeout(_OPENS)
            return store
        return PolledStore(self.kept, self.check, TIMEOUT)

    def check(self) -> None:
        """Raises RuntimeError: the engine has ended, and its file with it."""
        if self.path and not os.path.exists(self.path):
            raise RuntimeError("the tensor engine has ended")

    def await_all(self, what: str, members: Sequence[int], rank: int) -> None:
        """Wait until all members are here.

        The rendezvous does not end while one is missing.

        Args:
            what: What they come for; the same for all, and nothing else.
            members: Their ranks in the engine.
            rank: This one.

        Raises:
            RuntimeError: One of them has ended.
        """
        store = self.store()
        store.set(f"here/{what}/{rank}", "")
        wanted = [f"here/{what}/{member}" for member in members]
        pause = SHORTEST
        while not store.check(wanted):
            ended = _ended(store, members)
            if ended is not None:
                raise RuntimeError(f"rank {ended} has ended")
            self.check()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)

    def note_end(self, rank: int) -> None:
        """Note the end of a rank, for which no member needs to wait."""
        if self.engine:
            in_process.note_end(self.engine, rank)
            return
        with suppress(RuntimeError):  # the engine has ended, and with it the store
            store = self.store()
            store.set(f"ended/{rank}", "")
            store.set("ended", f"rank {rank} has ended")


def _ended(store: Any, members: Sequence[int]) -> int | None:
    return next((each for each in members if store.check([f"ended/{each}"])), None)


class RankGroup:
    """A group of ranks, as one of them sees it.

    Args:
        meeting: Where they meet.
        members: Their ranks in the engine, in the order of their coordinates.
        rank: This one.
        name: Tells groups of the same members apart, as those of two streams.

    Raises:
        RuntimeError: A member has ended.
    """

    def __init__(self, meeting: Meeting, members: Sequence[int], rank: int, name: str = "") -> None:
        self.members = tuple(members)
        self.index = self.members.index(rank)
        self.size = len(self.members)
        key = f"group/{name}/{'-'.join(map(str, self.members))}"
        self._one_host = meeting.one_host
        self._asks_store = meeting.kept is None  # which costs little then
        self._connections = Connections()
        self._gpu: Any = None
        self._store: Any
        self.cpu: Any
        if meeting.engine:
            place = in_process.place(meeting.engine, key, self.members, self.index)
            self._store, self.cpu = place.store, place
        else:
            # first: gloo's own rendezvous would wait for a dead member until its timeout
            meeting.await_all(key, self.members, rank)
            self._met = meeting.store()  # torch's C++ does not keep one that is written in Python
            self._store = dist.PrefixStore(key, self._met)
            with self._connections.made():
                self.cpu = self._gloo("cpu")
        self._exchanges = 0
        self.sent = 0  # by a pair: how often this member has sent to the other
        self.received = 0

    def _gloo(self, name: str) -> Any:
        store = dist.PrefixStore(name, self._store)
        return gloo(store, self.index, self.size, self._device())

    def _device(self) -> Any:
        """The network that gloo uses.

        Between hosts it is that of the host's name, or ``GLOO_SOCKET_IFNAME``, as
        everywhere in torch.
        """
        interface = os.environ.get("GLOO_SOCKET_IFNAME")
        if interface and not self._one_host:
            return dist.ProcessGroupGloo.create_device(interface=interface)
        return dist.ProcessGroupGloo.create_device(
            hostname=LOOPBACK if self._one_host else socket.gethostname()
        )

    def backend(self, device: torch.device) -> Any:
        """Return the backend that moves tensors of a device."""
        if device.type == "cpu":
            return self.cpu
        if isinstance(self.cpu, in_process.Place):
            raise NotImplementedError(
                f"on procs of monarch.testing.local() a tensor on {device} can't be reduced or moved:"
                " make it on CPUs there"
            )
        if self._gpu is None:
            store = dist.PrefixStore("gpu", self._store)
            options = dist.ProcessGroupNCCL.Options()
            # else ten minutes, after which its watchdog ends the process
            options._timeout = TIMEOUT
            self._gpu = dist.ProcessGroupNCCL(store, self.index, self.size, options)
        return self._gpu

    def break_off(self, error: Exception) -> None:
        """Stop all members from waiting for this one, if `error` is a lost connection.

        The group can't be used again. Other errors of a collective, as for types that a
        backend does not know, are the same on all members.
        """
        if "gloo/transport" in str(error):  # gloo has one type for all errors
            self._connections.shut_down()
            if self._gpu is not None:  # else the GPU waits for the lost one, and we for the GPU
                self.abort()

    @property
    def uses_gpu(self) -> bool:
        return self._gpu is not None

    def ended(self) -> int | None:
        """Return a member that has ended, if any."""
        return _ended(self._met, self.members) if self._met.check(["ended"]) else None

    def abort(self) -> None:
        """Have no GPU wait for the others any more; the group can't be used again."""
        self._gpu.abort()

    def leave(self, key: str, poison: Poison) -> None:
        """Leave word of a failure for the others."""
        self._store.set(key, json.dumps(poison))

    def left(self, key: str) -> Poison:
        """Return the failure that another member has left, or is about to."""
        return Poison(*json.loads(self._store.get(key)))

    def start_exchange(self, poison: Poison | None, data: torch.Tensor) -> Exchange:
        """Begin to tell each other whether what a member brings has failed; every member must.

        Args:
            poison: The failure of what this member brings; None if it has not failed.
            data: What will be exchanged with all members meanwhile.
        """
        self._exchanges += 1
        waits = self._asks_store and data.device.type == "cpu" and bool(data.numel())
        return Exchange(self, f"poison/{self._exchanges}", poison, asks=not waits)

    def has_left(self, key: str) -> bool:
        """Return whether a member has left a failure."""
        return bool(self._store.check([key]))


class Exchange:
    """An exchange of inputs between all members of a group, and its outcome.

    A member that brings a failure leaves word of it, and only then takes part. So a member that has
    the data of all knows that all word of failures has been left; on one host a look into the store
    is all that it costs. Between hosts one number is sent beside the data, as many would ask the
    one store; and on a GPU, where the data is on its way for longer than anybody waits.

    Args:
        asks: Send that number.
    """

    def __init__(self, group: RankGroup, key: str, poison: Poison | None, asks: bool) -> None:
        self._group = group
        self._key = key
        self._work: Any = None
        if poison is not None:
            # before this member takes part in anything: see above
            group.leave(key, poison)
        if asks:
            self._failed = torch.tensor([poison is not None], dtype=torch.int64)
            options = dist.AllreduceOptions()
            # torch's types are wrong here
            options.reduceOp = dist.ReduceOp.MAX  # type: ignore[assignment]
            self._work = group.cpu.allreduce([self._failed], options)

    def finish(self) -> Poison | None:
        """The failure of one of the members, if any, after the data has come.

        It is the same for all of them.
        """
        if self._work is None:
            failed = self._group.has_left(self._key)
        else:
            self._work.wait()
            failed = bool(self._failed.item())
        return self._group.left(self._key) if failed else None


class Known:
    """The groups and routes that the controller has numbered. The same for all streams of a worker.

    Attributes:
        groups: This rank's group of those with a number.
        routes: From each rank to those that it sends to.
    """

    def __init__(self) -> None:
        self.groups: dict[int, tuple[Meeting, tuple[int, ...]]] = {}
        self.routes: dict[int, tuple[Meeting, dict[int, tuple[int, ...]]]] = {}

    def note_end(self, rank: int) -> None:
        """Note the end of this worker, wherever others may come to wait for it."""
        meetings = [meeting for meeting, _ in (*self.groups.values(), *self.routes.values())]
        for meeting in dict.fromkeys(meetings):
            meeting.note_end(rank)


class Communication:
    """The groups of one stream of a worker, made as they are needed.

    No two streams share one: each would have its own order.

    Args:
        name: Tells them from those of other streams.
    """

    def __init__(self, rank: int, name: str, known: Known) -> None:
        self._rank = rank
        self._name = name
        self._groups: dict[tuple[tuple[int, ...], str], RankGroup] = {}
        self.known = known

    def numbered(self, number: int) -> RankGroup:
        """This rank's group of those with a number."""
        return self.of(*self.known.groups[number])

    def of(self, meeting: Meeting, members: tuple[int, ...], name: str | None = None) -> RankGroup:
        """The group of these ranks; each name has its own."""
        key = members, self._name if name is None else name
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = RankGroup(meeting, members, self._rank, key[1])
        return group

    def await_gpu(self) -> None:
        """Wait until the GPU has done what this thread has asked of it.

        What ends it: that, or the end of a rank that takes part, and `_DOES_WITHOUT` seconds more.

        Raises:
            RuntimeError: A rank has ended; what the GPU was to make of its data is lost.
        """
        groups = [group for group in self._groups.values() if group.uses_gpu]
        if not groups:
            return
        event = torch.cuda.Event()
        event.record()
        pause, since = SHORTEST, None
        while not event.query():
            ended = [each for group in groups if (each := group.ended()) is not None]
            if ended:
                since = since or time.monotonic()
                if time.monotonic() - since >= _DOES_WITHOUT:
                    for group in groups:
                        group.abort()
                    raise RuntimeError(f"rank {ended[0]} has ended, for which the GPU waits")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)

    def close(self) -> None:
        """Let go of all groups: their threads end with them."""
        self._groups.clear()
