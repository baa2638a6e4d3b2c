"""`RDMABuffer` and `RDMAAction` as programs use them."""

from __future__ import annotations

import array
import asyncio
import importlib
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import open_channel
from helpers.each import for_each
from helpers.rdma_actors import Owner, User, pattern
from helpers.waiting import wait_until
from monarch.actor import Actor, ActorError, endpoint
from monarch.config import configured
from monarch.rdma import (
    BufferDroppedError,
    NoPathError,
    RDMAAction,
    RDMABuffer,
    RDMAError,
    TransferTimeoutError,
    get_rdma_backend,
    is_ibverbs_available,
    is_rdma_available,
)
from monarch.rdma.memory import DeviceMemory
from monarch.rdma.paths.path import Deadline
from monarch.rdma.transfer import submit

if TYPE_CHECKING:
    from conftest import Spawn

OTHERS = pytest.mark.processes("memory of other processes")


@pytest.fixture(scope="module", autouse=True)
def _libraries_have_their_threads() -> None:
    """They start them when they are first used, which is no leak of the test that happens to do
    it.
    """
    with suppress(ImportError):
        importlib.import_module("numpy")
        importlib.import_module("torch").ones(1 << 20).sum()


@pytest.fixture
def owner(spawn: Spawn) -> Any:
    return spawn(1).spawn("owner", Owner)


# the handle


def test_a_handle_is_small_and_names_its_owner(owner: Any) -> None:
    buffer = owner.make.call_one("a", 1000).get()
    assert len(pickle.dumps(buffer)) < 1000
    assert buffer.size() == 1000
    assert buffer.device == "cpu"
    assert not buffer.readonly
    assert "owner" in buffer.owner
    assert pickle.loads(pickle.dumps(buffer)) == buffer
    assert buffer != owner.make.call_one("a", 1000).get()


def test_a_handle_does_not_show_its_key(owner: Any) -> None:
    buffer = owner.make.call_one("a", 10).get()
    _, (info,) = buffer.__reduce__()
    key = info.key
    told = repr(buffer) + str(info) + repr(info) + repr(buffer.claim)
    assert key.hex() not in told
    assert repr(key) not in told
    assert len(key) >= 16


def test_the_client_can_own_memory_too(spawn: Spawn) -> None:
    memory = pattern(100)
    buffer = RDMABuffer(memory)
    user = spawn(1).spawn("user", User)
    assert user.read.call_one(buffer).get() == memory
    user.write.call_one(buffer, b"from afar", 10).get()
    assert memory[10:19] == b"from afar"
    into = bytearray(100)
    buffer.read_into(into).get()
    assert into == memory


def test_memory_may_have_any_type_and_shape(spawn: Spawn) -> None:
    np = pytest.importorskip("numpy", reason="shares an array; numpy is not installed")
    matrix = np.arange(12, dtype=np.float64).reshape(3, 4)
    buffer = RDMABuffer(matrix)
    into = np.zeros((3, 4))
    buffer.read_into(into).get()
    assert (into == matrix).all()
    row = array.array("d", [9.0] * 4)
    buffer.write_from(row, offset=matrix.itemsize * 4).get()
    assert matrix[1].tolist() == [9.0] * 4


def test_tensors_are_shared_and_filled(spawn: Spawn) -> None:
    torch = pytest.importorskip("torch", reason="shares tensors; torch is not installed")
    weights = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    user = spawn(1).spawn("user", User)
    buffer = RDMABuffer(weights)
    user.write.call_one(buffer, bytes(12)).get()
    assert weights.abs().sum() == 0
    other = torch.ones(2, 3, dtype=torch.bfloat16)
    buffer.read_into(other).get()
    assert torch.equal(weights, other)


# the calls


def test_a_larger_target_keeps_what_is_behind(owner: Any) -> None:
    buffer = owner.make.call_one("a", 100).get()
    into = bytearray(b"\xff" * 120)
    buffer.read_into(into).get()
    assert into == pattern(100) + b"\xff" * 20


@pytest.mark.usefixtures("spawn")
@for_each(
    "call, error",
    [
        (lambda b: b.read_into(bytearray(99)), ValueError),
        (lambda b: b.read_into(b"x" * 100), ValueError),
        (lambda b: b.read_into(memoryview(bytearray(200))[::2]), ValueError),
        (lambda b: b.read_into([0] * 100), TypeError),
        (lambda b: b.read_into(bytearray(100), offset=-1), ValueError),
        (lambda b: b.read_into(bytearray(100), offset=100), ValueError),
        (lambda b: b.read_into(bytearray(100), offset=1, nbytes=100), ValueError),
        (lambda b: b.read_into(bytearray(100), nbytes=0), ValueError),
        (lambda b: b.read_into(bytearray(100), nbytes=1.5), TypeError),
        (lambda b: b.read_into(bytearray(100), timeout=-1), ValueError),
        (lambda b: b.read_into(bytearray(100), timeout=float("inf")), ValueError),
        (lambda b: b.read_into(bytearray(100), timeout="1s"), TypeError),
        (lambda b: b.write_from(bytes(101)), ValueError),
        (lambda b: b.write_from(bytes(2), offset=99), ValueError),
        (lambda b: b.write_from(b""), ValueError),
        (lambda b: b.fetch_add(1, offset=96), ValueError),
        (lambda b: b.fetch_add("1"), TypeError),
        (lambda b: RDMAAction().read_remote(bytearray(99), b), ValueError),
        (lambda b: RDMAAction().write_remote(b, bytes(101)), ValueError),
        (lambda b: RDMAAction().submit(timeout=-1), ValueError),
    ],
)
def test_what_can_not_be_meant_is_refused_at_the_call(call: Any, error: type[Exception]) -> None:
    buffer = RDMABuffer(pattern(100))
    with pytest.raises(error):
        call(buffer)


def test_a_transfer_starts_when_it_is_called(owner: Any) -> None:
    buffer = owner.make.call_one("a", 100).get()
    buffer.write_from(b"eager").exception()
    first = buffer.write_from(b"still")
    into = bytearray(5)
    wait_until(first.done, what="the transfer")
    buffer.read_into(into, nbytes=5).get()
    assert into == b"still"


def test_transfers_can_be_awaited(owner: Any) -> None:
    buffer = owner.make.call_one("a", 3_000_000).get()
    targets = [bytearray(3_000_000) for _ in range(4)]

    async def read_all() -> None:
        await asyncio.gather(*(buffer.read_into(target) for target in targets))

    asyncio.run(read_all())
    assert all(target == pattern(3_000_000) for target in targets)


def test_many_threads_share_a_handle(owner: Any) -> None:
    buffer = owner.make.call_one("a", 2_000_000).get()
    wrong: list[int] = []

    def read(number: int) -> None:
        into = bytearray(2_000_000)
        buffer.read_into(into).get()
        if into != pattern(2_000_000):
            wrong.append(number)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_busy_owner_does_not_matter(spawn: Spawn, tmp_path: Path) -> None:
    procs = spawn(2)
    owner = procs.slice(gpus=0).spawn("owner", Owner)
    user = procs.slice(gpus=1).spawn("user", User)
    buffer = owner.make.call_one("a", 5_000_000).get()
    started, receiver = open_channel()
    busy = owner.be_busy.call_one(str(tmp_path / "done"), started)
    receiver.recv().get()
    assert user.read.call_one(buffer).get() == pattern(5_000_000)
    assert not busy.done()
    (tmp_path / "done").touch()
    busy.get()


# actions


def test_an_action_can_be_repeated(owner: Any) -> None:
    buffer = owner.make.call_one("a", 100).get()
    into = bytearray(100)
    action = RDMAAction().read_remote(into, buffer)
    action.submit().get()
    assert into == pattern(100)
    buffer.write_from(bytes(100)).get()
    action.submit().get()
    assert into == bytes(100)


def test_an_empty_action_does_nothing() -> None:
    RDMAAction().submit().get()


def test_submissions_take_turns_and_the_action_can_not_be_changed_meanwhile(owner: Any) -> None:
    buffer = owner.make.call_one("a", 20_000_000).get()
    into = bytearray(20_000_000)
    action = RDMAAction().read_remote(into, buffer)
    futures = [action.submit() for _ in range(3)]
    if not futures[-1].done():
        with pytest.raises(RuntimeError, match="being carried out"):
            action.read_remote(bytearray(20_000_000), buffer)
    for future in futures:
        future.get()
    assert into == pattern(20_000_000)
    action.write_remote(RDMABuffer(bytearray(10)), bytes(10)).submit().get()


def test_ranges_that_overlap_are_refused() -> None:
    first, second = RDMABuffer(bytearray(100)), RDMABuffer(bytearray(100))
    into = bytearray(100)
    action = RDMAAction().read_remote(into, first, nbytes=50)
    with pytest.raises(ValueError, match="overlap"):
        action.read_remote(memoryview(into)[49:60], second, nbytes=11)
    with pytest.raises(ValueError, match="overlap"):
        action.write_remote(second, memoryview(into)[:10])
    with pytest.raises(ValueError, match="overlap"):
        action.write_remote(first, bytes(10), offset=49)
    action.write_remote(first, bytes(10), offset=50)
    action.read_remote(memoryview(into)[50:], second, nbytes=50)
    action.submit().get()


def test_several_may_read_the_same_bytes() -> None:
    buffer = RDMABuffer(pattern(100))
    first, second = bytearray(100), bytearray(100)
    RDMAAction().read_remote(first, buffer).read_remote(second, buffer).submit().get()
    assert first == second == pattern(100)


def test_what_can_be_done_is_done_and_every_error_is_told(owner: Any) -> None:
    good, bad, worse = (owner.make.call_one(name, 100).get() for name in "abc")
    bad.drop().get()
    worse.drop().get()
    targets = [bytearray(100) for _ in range(3)]
    action = RDMAAction()
    for target, buffer in zip(targets, (bad, good, worse), strict=True):
        action.read_remote(target, buffer)
    with pytest.raises(BufferDroppedError) as caught:
        action.submit().get()
    assert targets[1] == pattern(100)
    assert caught.value.transferred == 100
    assert [type(error) for error in caught.value.others] == [BufferDroppedError]
    assert {
        caught.value.buffer,
        *(e.buffer for e in caught.value.others if isinstance(e, RDMAError)),
    } == {
        repr(bad),
        repr(worse),
    }


# where it goes


@OTHERS
def test_explain_says_which_path_is_taken_and_why_not_the_others(spawn: Spawn) -> None:
    procs = spawn(2)
    owner = procs.slice(gpus=0).spawn("owner", Owner)
    buffer = owner.make.call_one("a", 10).get()
    here, there = buffer.explain(), buffer.explain(procs.slice(gpus=0))
    assert (here.taken, there.taken) == ("vm", "copy")
    assert buffer.explain(owner).taken == "copy"
    assert {report.path for report in here.paths} == {"copy", "vm", "cuda", "nixl", "messages"}
    assert all(report.reason for report in here.paths)
    assert "-> vm" in str(here)
    with pytest.raises(ValueError, match="2 ranks"):
        buffer.explain(procs)


@OTHERS
def test_a_process_that_never_saw_the_package_can_be_asked(spawn: Spawn) -> None:
    buffer = RDMABuffer(bytearray(10))
    assert buffer.explain(spawn(1)).taken == "vm"


def test_paths_can_be_forbidden(owner: Any) -> None:
    buffer = owner.make.call_one("a", 10).get()
    with configured(rdma_paths="messages", rdma_allow_tcp_fallback=False):
        with pytest.raises(NoPathError, match="rdma_allow_tcp_fallback"):
            buffer.read_into(bytearray(10)).get()
    with configured(rdma_paths="vm, pigeons"):
        with pytest.raises(ValueError, match="pigeons"):
            RDMABuffer(bytearray(10))


def test_without_any_device_and_fallback_there_are_no_buffers() -> None:
    with configured(rdma_disable_ibverbs=True):
        assert not is_ibverbs_available()
        assert get_rdma_backend() == "tcp"
        assert RDMABuffer(bytearray(1)).backend == "tcp"
        with configured(rdma_allow_tcp_fallback=False):
            assert get_rdma_backend() == "none"
            with pytest.raises(RuntimeError, match="rdma_allow_tcp_fallback"):
                RDMABuffer(bytearray(1))


def test_the_old_name_is_still_there_and_says_so() -> None:
    with pytest.warns(DeprecationWarning, match="is_ibverbs_available"):
        assert is_rdma_available() == is_ibverbs_available()


def test_old_import_paths_lead_here() -> None:
    from monarch._rust_bindings.rdma import RdmaInitError  # type: ignore[import-not-found]
    from monarch._src.rdma.rdma import RDMABuffer as Old  # type: ignore[import-not-found]

    assert Old is RDMABuffer
    assert RdmaInitError is RDMAError


def test_errors_travel_with_all_they_say(owner: Any, spawn: Spawn) -> None:
    buffer = owner.make.call_one("a", 10).get()
    user = spawn(1).spawn("user", User)
    error = user.failure.call_one(buffer, 0).get()
    assert isinstance(error, TransferTimeoutError)
    assert (error.buffer, error.owner, error.transferred) == (repr(buffer), buffer.owner, 0)
    assert repr(buffer) in str(error)
    with pytest.raises(ActorError) as caught:
        user.read.call_one(buffer, 0, None, 0).get()
    assert isinstance(caught.value.exception, TransferTimeoutError)


def test_importing_it_brings_in_neither_torch_nor_numpy() -> None:
    program = (
        "import sys, monarch.rdma; print([name for name in ('torch', 'numpy', 'asyncio') if name in"
        " sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


class ParameterServer(Actor):
    """As in Monarch's guide: it hands out its weights, and has no endpoint to read or write
    them.
    """

    def __init__(self) -> None:
        self.weights = bytearray(range(100))

    @endpoint
    def get_handle(self) -> RDMABuffer:
        return RDMABuffer(memoryview(self.weights))


def test_a_handle_that_is_made_for_each_call_works_as_long_as_it_is_kept(spawn: Spawn) -> None:
    server = spawn(1).spawn("server", ParameterServer)
    handles = [server.get_handle.call_one().get() for _ in range(3)]
    for number, handle in enumerate(handles):
        handle.write_from(bytes([number]), offset=number).get()
    into = bytearray(100)
    handles[0].read_into(into).get()
    assert into == bytearray(range(100))


class TestMemoryOfAnotherDevice:
    """Without a GPU: tensors of the CPU stand for those of a device that only torch can reach."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        pytest.importorskip("torch", reason="copies tensors; torch is not installed")

    @staticmethod
    def device_memory(content: bytes) -> DeviceMemory:
        torch = importlib.import_module("torch")
        memory = DeviceMemory(torch.tensor(list(content), dtype=torch.uint8))
        memory.device = "pretended:0"
        return memory

    def test_it_is_read_and_written_from_elsewhere(self, spawn: Spawn) -> None:
        memory = self.device_memory(bytes(pattern(1000)))
        buffer = RDMABuffer.of_memory(memory)
        assert buffer.device == "pretended:0"
        user = spawn(1).spawn("user", User)
        assert user.path_to.call_one(buffer).get() == "messages"
        assert user.read.call_one(buffer, 10, 500).get() == pattern(1000)[10:510]
        user.write.call_one(buffer, b"from afar", 5).get()
        assert bytes(memory.read(0, 20)) == pattern(1000)[:5] + b"from afar" + pattern(1000)[14:20]
        with pytest.raises(RDMAError, match="atomic"):
            buffer.fetch_add(1).get()

    @OTHERS
    @pytest.mark.parametrize("path", ["vm", "messages"])
    def test_what_is_fetched_into_it_goes_through_the_host(self, owner: Any, path: str) -> None:
        buffer = owner.make.call_one("a", 1000).get()
        memory = self.device_memory(bytes(1200))
        with configured(rdma_paths=path):
            submit(
                buffer.plane, [buffer.operation(memory, 100, 0, 1000, False)], Deadline(60)
            ).get()
            assert bytes(memory.read(0, 1200)) == bytes(100) + pattern(1000) + bytes(100)
            submit(buffer.plane, [buffer.operation(memory, 0, 500, 50, True)], Deadline(60)).get()
        assert (
            owner.content.call_one("a").get()
            == pattern(1000)[:500] + bytes(50) + pattern(1000)[550:]
        )

    def test_it_is_copied_within_a_process(self) -> None:
        memory = self.device_memory(bytes(pattern(1000)))
        buffer = RDMABuffer.of_memory(memory)
        into = bytearray(1000)
        buffer.read_into(into).get()
        assert into == pattern(1000)
        other = self.device_memory(bytes(1000))
        submit(buffer.plane, [buffer.operation(other, 0, 0, 1000, False)], Deadline(60)).get()
        assert bytes(other.read(0, 1000)) == pattern(1000)
        buffer.write_from(b"new").get()
        assert bytes(memory.read(0, 3)) == b"new"


def test_an_action_shows_what_is_in_it() -> None:
    buffer = RDMABuffer(pattern(100))
    action = (
        RDMAAction()
        .read_remote(bytearray(10), buffer, nbytes=10)
        .write_remote(buffer, bytes(10), offset=50)
    )
    assert repr(action) == "<RDMAAction of 1 reads and 1 writes>"
