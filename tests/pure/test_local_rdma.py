"""Buffers of `monarch.rdma` between procs of `monarch.testing.local`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monarch.actor import Actor, endpoint
from monarch.config import configured
from monarch.rdma import OwnerLostError, RDMABuffer, TransferTimeoutError
from monarch.testing import LocalHosts

if TYPE_CHECKING:
    from helpers.faults import Faults

pytestmark = pytest.mark.timeout(60)

SIZE = 10_000_000  # several chunks


class Owner(Actor):
    def __init__(self) -> None:
        self.memory = bytearray(b"x" * SIZE)

    @endpoint
    def share(self) -> RDMABuffer:
        return RDMABuffer(self.memory)

    @endpoint
    def first(self) -> bytes:
        return bytes(self.memory[:3])


class Reader(Actor):
    @endpoint
    def read(self, buffer: RDMABuffer) -> bytes:
        into = bytearray(buffer.size())
        buffer.read_into(into).get()
        return bytes(into)


def test_memory_of_a_proc_is_read_and_written_on_another_host(monarch_local: LocalHosts) -> None:
    procs = monarch_local.spawn_procs()
    owner = procs.slice(hosts=0).spawn("owner", Owner)
    reader = procs.slice(hosts=1).spawn("reader", Reader)
    buffer = owner.share.call_one().get()
    assert reader.read.call_one(buffer).get() == b"x" * SIZE
    buffer.write_from(b"new").get()
    assert owner.first.call_one().get() == b"new"
    assert monarch_local.now == 0


def test_coroutines_await_transfers(monarch_local: LocalHosts) -> None:
    class Awaits(Actor):
        @endpoint
        async def write(self, buffer: RDMABuffer) -> bytes:
            into = bytearray(3)
            await buffer.read_into(into, nbytes=3)
            await buffer.write_from(b"new")
            return bytes(into)

    procs = monarch_local.spawn_procs().slice(hosts=0)
    owner = procs.spawn("owner", Owner)
    awaits = monarch_local.spawn_procs().slice(hosts=1).spawn("awaits", Awaits)
    assert awaits.write.call_one(owner.share.call_one().get()).get() == b"xxx"
    assert owner.first.call_one().get() == b"new"


def test_the_owner_of_a_buffer_is_lost_with_its_proc(
    monarch_local: LocalHosts, faults: Faults
) -> None:
    procs = monarch_local.spawn_procs().slice(hosts=0)
    buffer = procs.spawn("owner", Owner).share.call_one().get()
    buffer.read_into(bytearray(SIZE)).get()
    procs.kill().get()
    with pytest.raises(OwnerLostError):
        buffer.read_into(bytearray(SIZE)).get()
    faults.wait_for(1)


def test_a_transfer_is_given_up_after_its_timeout(monarch_local: LocalHosts) -> None:
    buffer = monarch_local.spawn_procs().slice(hosts=0).spawn("owner", Owner).share.call_one().get()
    with configured(channel_reconnect_timeout="1000h"):  # the host is not to be lost instead
        monarch_local.cut(0)
    with pytest.raises(TransferTimeoutError, match="0.01s"):
        buffer.read_into(bytearray(SIZE), timeout=0.01).get()
