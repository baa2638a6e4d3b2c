"""Groups of torch for functions of the user.

They are the default group of a process, and groups along the dimensions of meshes.

They are made with `torch.distributed`'s public functions, so that everything there knows them:
ranks, names, `DTensor`. Their default group, which belongs to the process and not to an engine, is
made when a program first asks for a group, over all ranks of the engine; if the user's code has
made one before, that is used. The engine's own communication (`groups`) has no part in it.

Groups are made on the main stream, which has the same order on all ranks. Whoever needs one before
it is there waits for the instruction, which was issued before; or for the end of the worker.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from .gloo import TIMEOUT
from .groups import Meeting
from .stream_state import StreamState

_INTERFACE = "GLOO_SOCKET_IFNAME"
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class TorchGroups:
    """The groups that one engine has made in this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._groups: dict[int, Any] = {}  # or why there is none
        self._meshes: dict[Any, Any] = {}
        self._owns_default = False
        self._closed = False

    def make(
        self,
        number: int,
        rank: int,
        ranks: int,
        meeting: Meeting,
        groups: Sequence[tuple[int, ...]],
    ) -> None:
        """Make this rank's one of some groups, and keep it under a number."""
        found: Any = None
        try:
            meeting.await_all(f"world/{number}", range(ranks), rank)
            with _on_loopback(bool(meeting.path)):
                self._join(rank, ranks, meeting)
                # all ranks make all of them: torch names groups by how many a process has made
                for members in groups:
                    made = dist.new_group(list(members), timeout=TIMEOUT)
                    if rank in members:
                        found = made
        except Exception as error:  # told to who uses it
            found = error
        with self._changed:
            self._groups[number] = found
            self._changed.notify_all()

    def _join(self, rank: int, ranks: int, meeting: Meeting) -> None:
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            store = dist.PrefixStore("world", meeting.store())
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=ranks, timeout=TIMEOUT
            )
            self._owns_default = True
        elif (dist.get_rank(), dist.get_world_size()) != (rank, ranks):
            raise RuntimeError(
                f"torch's default group of this process, in which it is rank {dist.get_rank()} of"
                f" {dist.get_world_size()}, is not that of the mesh, in which it is rank {rank} of"
                f" {ranks}; end it with destroy_process_group() first"
            )

    def group(self, number: int) -> Any:
        """The group with a number.

        Raises:
            RuntimeError: It could not be made, or the worker has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or number in self._groups)
            if self._closed:
                raise RuntimeError("the tensor engine has ended, and with it its process groups")
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
        """End the groups; whoever waits for one is told."""
        with self._changed:
            self._closed = True
            groups, self._groups = self._groups, {}
            self._changed.notify_all()
        self._meshes.clear()
        if not dist.is_initialized():
            return
        if self._owns_default:
            dist.destroy_process_group()
            return
        for group in groups.values():
            if isinstance(group, dist.ProcessGroup):
                dist.destroy_process_group(group)


_worlds: dict[str, TorchGroups] = {}


def world(uid: str) -> TorchGroups:
    """The default group of an engine."""
    return _worlds.setdefault(uid, TorchGroups())


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
    world(uid).make(number, worker.rank, ranks, meeting, groups)


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
