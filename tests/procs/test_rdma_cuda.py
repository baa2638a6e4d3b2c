"""Memory of a GPU: shared between processes, read and written from the host, staged where a path
can't take it.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from helpers.waiting import wait_until
from monarch.actor import Actor, endpoint
from monarch.config import configured
from monarch.rdma import RDMABuffer, pull, share_state

torch: Any = pytest.importorskip("torch", reason="shares tensors; torch is not installed")

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="shares memory of a GPU; there is none here"
    ),
    pytest.mark.processes("memory of other processes"),
]

SIZE = 5_000_001


class GpuOwner(Actor):
    def __init__(self, device: str) -> None:
        self.tensor = torch.arange(SIZE, device=device).to(torch.uint8)
        torch.cuda.synchronize()
        self.buffer = RDMABuffer(self.tensor)

    @endpoint
    def share(self) -> RDMABuffer:
        return self.buffer

    @endpoint
    def let_go(self) -> None:
        self.buffer.drop().get()
        del self.buffer, self.tensor

    @endpoint
    def allocated(self) -> int:
        """Bytes of the GPU that this process holds."""
        gc.collect()
        torch.cuda.ipc_collect()
        return int(torch.cuda.memory_allocated())

    @endpoint
    def is_all(self, value: int) -> bool:
        return bool((self.tensor == value).all())


class GpuUser(Actor):
    @endpoint
    def read(self, buffer: RDMABuffer, device: str) -> bool:
        into = torch.zeros(SIZE, dtype=torch.uint8, device=device)
        torch.cuda.synchronize()
        buffer.read_into(into).get()
        return bool((into == torch.arange(SIZE, device=device).to(torch.uint8)).all())

    @endpoint
    def write(self, buffer: RDMABuffer, value: int, device: str) -> None:
        source = torch.full((SIZE,), value, dtype=torch.uint8, device=device)
        torch.cuda.synchronize()
        buffer.write_from(source).get()

    @endpoint
    def path_to(self, buffer: RDMABuffer) -> str | None:
        return buffer.explain().taken


class Pair(NamedTuple):
    owner: Any
    user: Any


def pair(spawn: Spawn, path: str, device: str) -> Pair:
    with configured(rdma_paths=path):
        procs = spawn(2)
    owner = procs.slice(gpus=0).spawn("owner", GpuOwner, device)
    return Pair(owner, procs.slice(gpus=0 if path == "copy" else 1).spawn("user", GpuUser))


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("path", "theirs", "mine"),
    [
        ("copy", "cuda", "cuda"),
        ("copy", "cuda", "cpu"),
        ("copy", "cpu", "cuda"),
        ("vm", "cpu", "cuda"),
        ("cuda", "cuda", "cuda"),
        ("cuda", "cuda", "cpu"),
        ("messages", "cuda", "cuda"),
        ("messages", "cuda", "cpu"),
        ("messages", "cpu", "cuda"),
    ],
)
def test_bytes_arrive_with_either_side_on_any_device(
    spawn: Spawn, path: str, theirs: str, mine: str
) -> None:
    owner, user = pair(spawn, path, theirs)
    buffer = owner.share.call_one().get()
    assert user.path_to.call_one(buffer).get() == path
    assert user.read.call_one(buffer, mine).get()
    user.write.call_one(buffer, 7, mine).get()
    assert owner.is_all.call_one(7).get()


@pytest.mark.timeout(180)
def test_processes_of_one_machine_open_the_memory_of_the_gpu(spawn: Spawn) -> None:
    owner, user = pair(spawn, "", "cuda")
    assert user.path_to.call_one(owner.share.call_one().get()).get() == "cuda"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("path", ["cuda", "messages"])
def test_memory_that_others_had_open_is_freed_when_it_is_let_go(spawn: Spawn, path: str) -> None:
    owner, user = pair(spawn, path, "cuda")
    assert user.read.call_one(owner.share.call_one().get(), "cpu").get()
    owner.let_go.call_one().get()
    wait_until(
        lambda: owner.allocated.call_one().get() == 0, what="the memory of the GPU to be freed"
    )


@pytest.mark.timeout(180)
def test_a_state_with_tensors_on_both_devices_has_a_region_on_each() -> None:
    state = {
        "a": torch.ones(3, device="cuda"),
        "b": torch.ones(4),
        "c": torch.ones(5, device="cuda"),
    }
    shared = share_state(state)
    assert sorted(buffer.device for buffer in shared.buffers) == ["cpu", "cuda:0"]
    into = {
        "a": torch.zeros(3),
        "b": torch.zeros(4, device="cuda"),
        "c": torch.zeros(5, device="cuda"),
    }
    pull(shared, into).get()
    assert all(bool((tensor == 1).all()) for tensor in into.values())
