"""The owner's side: memory that others may reach, its holders, and when it is released.

Life of a region::

    registered ──▶ released: no transfer may begin ──▶ free: the last one has ended, memory let go

What releases it: `drop`, the end of the actor that made it, or the end of its last handle. Every
process tells the owner when it gets a first handle and when its last one is gone, and a process
that ends has none. A handle may also be on its way in a message; so, once a handle was pickled, the
region stays for `rdma_lease_grace` after that in any case.

Between released and free, those who had been told an address are asked to forget it (`Recall`), and
answer when no transfer of theirs uses it any more; a process that ends has answered. Until then the
memory stays where it is, so no transfer ever reads or writes memory that was given to others.
Nothing here waits: each step is taken when an answer comes, on any thread.
"""

from __future__ import annotations

import ctypes
import hmac
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from ... import config
from ..._core import plane
from ...actor import Future
from ..memory import HostMemory, Memory
from . import records

_REMEMBERED = 10_000  # released regions of which the reason is still known
_WORD = 1 << 64


class RefusedError(Exception):
    """An owner's refusal; `refusal` is the text for the asking side."""

    def __init__(self, refusal: records.Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class Region:
    """One registered memory."""

    __slots__ = ("actor", "granted", "holders", "info", "memory", "pickled_at", "released", "timed")

    def __init__(self, info: records.BufferInfo, memory: Memory, actor: int) -> None:
        self.info = info
        self.memory: Memory | None = memory
        self.actor = actor
        self.holders: set[tuple[plane.ProcAddress, int]] = (
            set()
        )  # process, and its number for the lease
        self.granted: set[plane.ProcAddress] = set()
        self.pickled_at: float | None = None
        self.timed = False  # whether a timer runs that will look at it again
        self.released: plane.Promise[None] = plane.Promise(
            f"{info} to be let go of by all transfers"
        )


class RegistryStatistics(NamedTuple):
    """The number and the total size of the buffers that a process offers."""

    buffers: int
    nbytes: int


class Registry:
    """The regions of one process."""

    def __init__(self, hub: plane.Hub) -> None:
        self._hub = hub
        self._lock = threading.Lock()
        self._regions: dict[int, Region] = {}
        self._past: OrderedDict[int, tuple[Region, str]] = OrderedDict()
        self._ends: dict[int, _End] = {}
        self.when_freed: list[Callable[[int], None]] = []
        """Called with the id of each region that is about to be let go, after its last use; on any
        thread.
        """
        self._probe = ctypes.create_string_buffer(os.urandom(16), 16)

    # registering

    def register(self, memory: Memory, cell: plane.Owner, lease: int) -> records.BufferInfo:
        """Let others reach `memory`, by handles that carry a new key.

        Args:
            memory: The memory.
            cell: Its actor, with which it ends.
            lease: Number of the lease that this process itself has.
        """
        owner_name = str(cell.instance.actor_id)
        info = records.BufferInfo(
            self._hub.address, plane.random_uid(), os.urandom(16), memory.nbytes, memory.device,
            memory.readonly, owner_name,
        )  # fmt: skip
        region = Region(info, memory, cell.uid)
        region.holders.add((self._hub.address, lease))
        with self._lock:
            self._regions[info.id] = region
            end = self._ends.get(cell.uid)
            if end is None:
                end = self._ends[cell.uid] = _End(self, cell)
        cell.ports.add(end)  # what ends with an actor
        return info

    # letting in

    def memory(self, claim: records.Claim, offset: int, nbytes: int, write: bool) -> Memory:
        """The memory behind a claim, which holds it as long as it is referred to.

        Raises:
            RefusedError: Not this claim, or not this range.
        """
        with self._lock:
            region = self._find(claim)
            memory = region.memory
        assert memory is not None  # it is registered
        if offset < 0 or nbytes < 0 or offset + nbytes > memory.nbytes:
            raise _refused(
                f"bytes {offset} to {offset + nbytes} are not within the {memory.nbytes} bytes of"
                " the buffer"
            )
        if write and memory.readonly:
            raise _refused("the memory is read-only")
        return memory

    def open(
        self, peer: plane.ProcAddress, wanted: records.Open
    ) -> list[records.Grant | records.Refusal]:
        """Answer holders that want to access the memory directly.

        The grants will be recalled before the memory is freed.
        """
        return [self._grant(peer, wanted.place, claim) for claim in wanted.claims]

    def admit(self, peer: plane.ProcAddress, claim: records.Claim) -> Memory:
        """The memory for a holder that accesses it in another way than `open` tells.

        That will be recalled, too.

        Raises:
            RefusedError: Not this claim.
        """
        with self._lock:
            region = self._find(claim)
            region.granted.add(peer)
            assert region.memory is not None  # it is registered
            return region.memory

    def atomic(self, wanted: records.Atomic) -> int:
        """Read a word and change it, with no other such operation of this process in between."""
        memory = self.memory(wanted.claim, wanted.offset, 8, write=True)
        if not isinstance(memory, HostMemory):
            raise _refused(f"atomic operations need memory of the CPU, this is on {memory.device}")
        address = memory.address + wanted.offset
        if address % 8:
            raise _refused(
                f"the word at offset {wanted.offset} is not aligned to 8 bytes in memory"
            )
        word = ctypes.c_uint64.from_address(address)
        with self._lock:
            before = word.value
            if wanted.expected is None:
                word.value = (before + wanted.operand) % _WORD
            elif before == wanted.expected % _WORD:
                word.value = wanted.operand % _WORD
        return before

    def _grant(
        self, peer: plane.ProcAddress, place: records.MemoryPlace, claim: records.Claim
    ) -> records.Grant | records.Refusal:
        near = place == records.here()
        try:
            with self._lock:
                region = self._find(claim)
                memory = region.memory
                region.holders.add((peer, claim.lease))
                if near:
                    region.granted.add(peer)
        except RefusedError as refused:
            return refused.refusal
        assert memory is not None
        address = memory.address if near and isinstance(memory, HostMemory) else 0
        probe = ctypes.addressof(self._probe), self._probe.raw
        return records.Grant(
            memory.nbytes, memory.readonly, memory.device, records.here(), os.getpid(), address,
            probe,
        )  # fmt: skip

    def _find(self, claim: records.Claim) -> Region:
        region = self._regions.get(claim.id)
        past = self._past.get(claim.id)
        known = region if region is not None else past[0] if past is not None else None
        # in constant time, and one answer for both: else a guesser would learn of ids and keys
        if known is None or not hmac.compare_digest(known.info.key, claim.key):
            raise _refused("the owner knows no such buffer, or the handle does not carry its key")
        if past is not None:
            raise RefusedError(records.Refusal(True, past[1]))
        return known

    # letting go

    def drop(self, claim: records.Claim, reason: str) -> Future[None]:
        """Release a region; done when its memory is free, at once if it was before.

        Raises:
            RefusedError: No such claim.
        """
        with self._lock:
            past = self._past.get(claim.id)
            if past is not None and hmac.compare_digest(past[0].info.key, claim.key):
                return past[0].released.future
            region = self._find(claim)
        return self._release(region, reason)

    def news(self, peer: plane.ProcAddress, news: records.LeaseNews) -> None:
        """A process has got its first handles to some buffers, or lost its last."""
        for claim, since_pickled in news.events:
            try:
                with self._lock:
                    region = self._find(claim)
                    if since_pickled is None:
                        region.holders.add((peer, claim.lease))
                        continue
                    region.holders.discard((peer, claim.lease))
                    if since_pickled >= 0:
                        region.pickled_at = max(
                            region.pickled_at or 0.0, time.monotonic() - since_pickled
                        )
            except RefusedError:  # released meanwhile
                continue
            self._release_forgotten(region)

    def actor_ended(self, uid: int, reason: str) -> None:
        with self._lock:
            self._ends.pop(uid, None)
            regions = [region for region in self._regions.values() if region.actor == uid]
        for region in regions:
            self._release(region, reason)

    def holder_lost(self, address: plane.ProcAddress) -> None:
        """A process is gone; it may have sent on the handles that it held."""
        with self._lock:
            held = [
                r for r in self._regions.values() if any(peer == address for peer, _ in r.holders)
            ]
            for region in held:
                region.holders = {holder for holder in region.holders if holder[0] != address}
                region.pickled_at = time.monotonic()
        for region in held:
            self._release_forgotten(region)

    def _release_forgotten(self, region: Region) -> None:
        grace = config.value("rdma_lease_grace")
        with self._lock:
            # one timer at a time is enough: it looks at `pickled_at` anew
            if region.holders or region.timed or region.info.id not in self._regions:
                return
            left = (
                0.0 if region.pickled_at is None else region.pickled_at + grace - time.monotonic()
            )
            region.timed = left > 0
        if left > 0:
            self._hub.poller.call_later(left, lambda: self._look_again(region))
            return
        self._release(
            region, f"no process held a handle to it any more (rdma_lease_grace is {grace:g}s)"
        )

    def _look_again(self, region: Region) -> None:
        region.timed = False
        self._release_forgotten(region)

    def _release(self, region: Region, reason: str) -> Future[None]:
        with self._lock:
            if self._regions.pop(region.info.id, None) is None:
                return region.released.future
            self._past[region.info.id] = region, reason
            if len(self._past) > _REMEMBERED:
                self._past.popitem(last=False)
            granted = list(region.granted)
        if granted:
            request = plane.StopCall(f"{region.info} to be let go of", granted)
            plane.send_record(
                self._hub, granted, records.Recall(region.info.id, region.info.key, reason), request
            )
            # the memory is let go only when each process with a grant has answered, or ended: a
            # transfer under way still writes to it
            plane.subscribe(request.future, lambda: self._free(region))
        else:
            self._free(region)
        return region.released.future

    def _free(self, region: Region) -> None:
        for hook in self.when_freed:
            hook(region.info.id)
        # after the hooks: paths may have the memory registered with a device
        region.memory = None
        if region.info.device.startswith("cuda"):
            sys.modules["torch"].cuda.ipc_collect()  # what others have closed is freed at once
        region.released.resolve(None)

    def statistics(self) -> RegistryStatistics:
        with self._lock:
            return RegistryStatistics(
                len(self._regions), sum(r.info.nbytes for r in self._regions.values())
            )


def _refused(reason: str) -> RefusedError:
    return RefusedError(records.Refusal(False, reason))


class _End:
    """Stands among the ports of an actor, which are closed when it ends."""

    def __init__(self, registry: Registry, cell: plane.Owner) -> None:
        self._registry = registry
        self._uid = cell.uid
        self._name = str(cell.record)

    def close(self, reason: str) -> Any:
        self._registry.actor_ended(self._uid, f"its owner {self._name} has ended")
