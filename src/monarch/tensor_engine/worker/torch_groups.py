"""Groups of torch for functions of the user.

They are the default group of a process, and groups along the dimensions of meshes.

They are made with `torch.distributed`'s public functions, so that everything there knows them:
ranks, names, `DTensor`. Their default group, which belongs to the process and not to an engine, is
made when a program first asks for a group, over all ranks of the engine; if the user's code has
made one before, that is used. The engine's own communication (`groups`) has no part in it.

Groups are made on the main stream, which has the same order on all ranks. A thread that needs one
before it is there waits for the instruction, which was issued before; or for the end of the worker.
How ranks meet for that is in `rendezvous`; what they agree on first, and why, in
`TorchGroups._join`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from ..._connections import Connections
from ..groups.gloo import TIMEOUT
from ..groups.groups import Meeting
from ..groups.rendezvous import Rendezvous
from .stream_state import StreamState

_INTERFACE = "GLOO_SOCKET_IFNAME"
_ENDED = "the tensor engine has ended, and with it its process groups"
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class _Default(NamedTuple):
    """The default group of a process, as its rank tells others.

    Attributes:
        maker: The engine and the number of the groups with which it was made; empty where there is
            none, `_USERS` where it is of the user's code.
        rank: In that group; -1 where there is none.
        size: Of that group.
        names: How many groups torch has named in this process.
    """

    maker: str
    rank: int
    size: int
    names: int


_USERS = "user"
_made: tuple[str, Any] = "", None  # the default group that an engine has made, and its maker
_stores: list[Any] = []  # what torch's C++ refers to is not kept by it, if it is written in Python


def _default() -> _Default:
    world: Any = c10d._world
    if not dist.is_initialized():
        return _Default("", -1, 0, world.group_count)
    maker, group = _made
    ours = group is not None and group is dist.group.WORLD
    return _Default(
        maker if ours else _USERS, dist.get_rank(), dist.get_world_size(), world.group_count
    )


class TorchGroups:
    """The groups that one engine has made in this process.

    Args:
        uid: The engine's id.
    """

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._changed = threading.Condition()
        self._groups: dict[int, Any] = {}  # or why there is none
        self._meshes: dict[Any, Any] = {}
        self._connections: list[tuple[frozenset[int], Connections]] = []  # with whom
        self._rendezvous: Rendezvous | None = None
        self._closed = False

    def make(
        self,
        number: int,
        worker: StreamState,
        ranks: int,
        meeting: Meeting,
        groups: Sequence[tuple[int, ...]],
    ) -> None:
        """Make this rank's one of some groups, and keep it under a number."""
        found: Any = None
        rendezvous = None
        try:
            rendezvous = Rendezvous(
                meeting, f"world/{number}", worker.rank, ranks, worker.shared.is_ending
            )
            with rendezvous.held(), _on_loopback(meeting.one_host):
                self._rendezvous = rendezvous
                with self._noted(range(ranks)):
                    self._join(number, rendezvous)
                # all ranks make all of them: torch names groups by how many a process has made
                for members in groups:
                    with self._noted(members if worker.rank in members else ()):
                        made = dist.new_group(list(members), timeout=TIMEOUT)
                    if worker.rank in members:
                        found = made
        except Exception as error:  # told to its users
            found = error
            if rendezvous is not None:
                found = rendezvous.give_up(error)
        with self._changed:
            self._groups[number] = found
            self._changed.notify_all()

    def _join(self, number: int, rendezvous: Rendezvous) -> None:
        """Have one default group on all ranks.

        They tell each other what they have, so that all come to the same decision. One that started
        again has none, where the others still have that of an earlier engine: all of them make a
        new one then. And it has named fewer groups than the others, which would meet under names
        that it does not know.

        Raises:
            RuntimeError: The user's code has made default groups that are not that of the mesh.
        """
        global _made
        found = [_Default(*each) for each in rendezvous.exchange(list(_default()))]
        makers = {each.maker for each in found}
        if _USERS in makers:
            _check_users(found)
        anew = _USERS not in makers and (len(makers) > 1 or "" in makers)
        if anew and dist.is_initialized():
            dist.destroy_process_group()
        c10d._world.group_count = max(each.names for each in found)
        if anew:
            _stores.append(rendezvous.store)
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(
                backend, store=dist.PrefixStore("world", rendezvous.store), rank=rendezvous.rank,
                world_size=rendezvous.size, timeout=TIMEOUT,
            )  # fmt: skip
            _made = f"{self._uid}/{number}", dist.group.WORLD

    @contextmanager
    def _noted(self, members: Sequence[int]) -> Iterator[None]:
        """Note the connections to these ranks that are made in this block."""
        connections = Connections()
        with connections.made() if members else nullcontext():
            yield
        self._connections.append((frozenset(members), connections))

    def note_end(self, rank: int) -> None:
        """Break off what this process has with the others of a group that has lost a rank.

        Those who wait for the rank itself in a collective hear of its end. Those who wait for one
        of them do not, and gloo has no other way to end that wait. A kernel of NCCL would wait for
        the lost rank, and whatever follows on its stream for the kernel: communicators are aborted.
        """
        for members, connections in self._connections:
            if rank in members:
                connections.shut_down()
        world: Any = c10d._world
        for group in (*self._groups.values(), dist.group.WORLD):
            if rank in world.pg_group_ranks.get(group, ()):
                with suppress(RuntimeError):  # it is gloo's alone
                    group._get_backend(torch.device("cuda")).abort()

    def look_for_ends(self) -> None:
        """As `note_end`, for each rank that has ended."""
        for rank in self._rendezvous.ended() if self._rendezvous is not None else ():
            self.note_end(rank)

    def group(self, number: int) -> Any:
        """The group with a number.

        Raises:
            RuntimeError: It could not be made, or the worker has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or number in self._groups)
            if self._closed:
                raise RuntimeError(_ENDED)
            found = self._groups[number]
        if isinstance(found, Exception):
            raise RuntimeError(f"the process group could not be made: {found}") from found
        return found

    def mesh(
        self, device: str, labels: tuple[str, ...], ranks: Any, numbers: tuple[int, ...]
    ) -> Any:
        """A ``torch.distributed`` mesh of groups, one for each dimension; the same each time."""
        groups = [self.group(number) for number in numbers]
        key = device, numbers
        if key not in self._meshes:
            make = dist.device_mesh.DeviceMesh.from_group
            self._meshes[key] = make(
                groups, device, mesh=torch.tensor(ranks), mesh_dim_names=labels
            )
        return self._meshes[key]

    def close(self) -> None:
        """End the groups, and the waits for them with an error."""
        with self._changed:
            self._closed = True
            groups, self._groups = self._groups, {}
            self._changed.notify_all()
        self._meshes.clear()
        if not dist.is_initialized():
            return
        if _default().maker.startswith(f"{self._uid}/"):
            dist.destroy_process_group()
            return
        for group in groups.values():
            # of an earlier default group there may be none any more
            if isinstance(group, dist.ProcessGroup) and group in c10d._world.pg_map:
                dist.destroy_process_group(group)


def _check_users(found: Sequence[_Default]) -> None:
    for rank, each in enumerate(found):
        if (each.maker, each.rank, each.size) != (_USERS, rank, len(found)):
            theirs = (
                f"rank {each.rank} of {each.size}" if each.maker == _USERS else "none of the user's"
            )
            raise RuntimeError(
                f"torch's default group of the process, in which it is {theirs}, is not that of the"
                f" mesh, in which it is rank {rank} of {len(found)}; end it with"
                " destroy_process_group() first"
            )


_worlds: dict[str, TorchGroups] = {}


def start(uid: str) -> None:
    """An engine has a worker in this process."""
    _worlds[uid] = TorchGroups(uid)


def world(uid: str) -> TorchGroups:
    """The groups of an engine.

    Raises:
        RuntimeError: It has no worker in this process, so that none will be made.
    """
    if uid not in _worlds:
        raise RuntimeError(_ENDED)
    return _worlds[uid]


def look_for_ends(uid: str) -> None:
    """See `TorchGroups.look_for_ends`."""
    with suppress(RuntimeError):  # the engine has ended
        world(uid).look_for_ends()


def close(uid: str) -> None:
    """The engine ends."""
    if uid in _worlds:
        _worlds.pop(uid).close()


def make_groups(
    worker: StreamState,
    site: int,
    uid: str,
    number: int,
    ranks: int,
    meeting: Meeting,
    groups: list[tuple[int, ...]],
) -> None:
    """See `TorchGroups.make`."""
    world(uid).make(number, worker, ranks, meeting, groups)


def note_end(worker: StreamState, site: int, rank: int) -> None:
    """See `TorchGroups.note_end`."""
    world(worker.uid).note_end(rank)


@contextmanager
def _on_loopback(one_host: bool) -> Iterator[None]:
    """Let gloo use the loopback interface where all ranks are on one host.

    What the host's name resolves to does not matter then.
    """
    if not one_host or _INTERFACE in os.environ:
        yield
        return
    os.environ[_INTERFACE] = _LOOPBACK
    try:
        yield
    finally:
        os.environ.pop(_INTERFACE, None)
