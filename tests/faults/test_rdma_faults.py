"""What transfers say when an owner dies, stands still, or does not let anybody in."""

from __future__ import annotations

import errno
import os
import pickle
import platform
import signal
import weakref
from array import array
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pytest

from helpers.actors import open_channel
from helpers.faults import Faults
from helpers.processes import stopped
from helpers.rdma_actors import NIXL, Owner, User, pattern
from helpers.scripts import run_script
from helpers.waiting import wait_until
from monarch.actor import Actor, SupervisionError, endpoint
from monarch.config import configured
from monarch.rdma import (
    BufferDroppedError,
    InconsistentStateError,
    NoPathError,
    OwnerLostError,
    RDMAAction,
    RDMAError,
    SharedState,
    TransferTimeoutError,
    plane,
    pull,
    push,
    share_state,
)
from monarch.rdma.paths import cuda_ipc
from monarch.rdma.paths.cuda_ipc import CudaPath
from monarch.rdma.paths.path import Deadline

if TYPE_CHECKING:
    from conftest import Spawn

OTHERS = pytest.mark.processes("memory of other processes")

SIZE = 1_000_000
PATHS = pytest.mark.parametrize("path", ["vm", NIXL, "messages"])


class Actors(NamedTuple):
    owner: Any
    user: Any
    pid: int


def actors(spawn: Spawn, path: str = "") -> Actors:
    # it takes seconds to import
    with configured(rdma_paths=path, preload=["nixl._api"] if path == "nixl" else []):
        owners, users = spawn(1), spawn(1)
    owner = owners.spawn("owner", Owner)
    return Actors(owner, users.spawn("user", User), owner.pid.call_one().get())


@PATHS
@pytest.mark.parametrize("used", [True, False], ids=["used before", "never used"])
@OTHERS
def test_a_dead_owner_is_told_of_and_not_waited_for(
    spawn: Spawn, faults: Faults, path: str, used: bool
) -> None:
    owner, user, pid = actors(spawn, path)
    buffer = owner.make.call_one("a", SIZE).get()
    if used:
        user.read.call_one(buffer).get()
    os.kill(pid, signal.SIGKILL)
    faults.wait_for(1)
    error = user.failure.call_one(buffer, 600).get()
    assert type(error) is OwnerLostError
    assert isinstance(error, SupervisionError)
    assert error.buffer == repr(buffer)
    assert error.owner == buffer.owner
    assert error.failure is not None
    assert error.failure.signal == signal.SIGKILL
    assert "SIGKILL" in str(error)


def test_of_several_owners_the_dead_one_is_told_of_and_the_others_are_read(
    spawn: Spawn, faults: Faults
) -> None:
    dead, _, pid = actors(spawn)
    living = spawn(1).spawn("living", Owner)
    buffers = [dead.make.call_one(name, SIZE).get() for name in "abc"]
    good = living.make.call_one("a", SIZE).get()
    os.kill(pid, signal.SIGKILL)
    faults.wait_for(1)
    into = [bytearray(SIZE) for _ in range(4)]
    action = RDMAAction()
    for target, buffer in zip(into, [*buffers, good], strict=True):
        action.read_remote(target, buffer)
    with pytest.raises(OwnerLostError, match="SIGKILL") as caught:
        action.submit(timeout=600).get()
    assert caught.value.owner == buffers[0].owner
    assert caught.value.transferred == SIZE
    assert into[3] == pattern(SIZE)


@PATHS
@OTHERS
def test_an_owner_that_dies_in_the_middle_ends_the_transfer(
    spawn: Spawn, faults: Faults, path: str
) -> None:
    owner, user, pid = actors(spawn, path)
    size = 400_000_000
    buffer = owner.make.call_one("a", size).get()
    user.read.call_one(buffer, 0, 10).get()
    answer = user.failure.call_one(buffer, 600)
    os.kill(pid, signal.SIGKILL)
    error = answer.get()
    if error is not None:  # it may have been done by then
        assert type(error) is OwnerLostError
        assert error.transferred < size
    faults.wait_for(1)


@OTHERS
def test_nothing_of_a_stopped_owner_is_needed_once_it_has_let_a_reader_in(spawn: Spawn) -> None:
    owner, user, pid = actors(spawn)
    user.keep.call_one("it", owner.make.call_one("a", SIZE).get()).get()
    user.read_kept.call_one("it").get()
    with stopped(pid):
        assert user.read_kept.call_one("it").get() == pattern(SIZE)


def test_an_owner_that_stands_still_is_waited_for_as_long_as_was_said(spawn: Spawn) -> None:
    owner, user, pid = actors(spawn)
    buffer = owner.make.call_one("a", SIZE).get()
    with stopped(pid):
        error = user.failure.call_one(buffer, 0.2).get()
    assert type(error) is TransferTimeoutError
    assert "0.2s" in str(error)
    assert user.read.call_one(buffer).get() == pattern(SIZE)


@PATHS
@OTHERS
def test_no_transfer_sees_what_memory_is_used_for_after_a_drop(spawn: Spawn, path: str) -> None:
    owner, _, _ = actors(spawn, path)
    with configured(rdma_paths=path):
        users = spawn(2).spawn("users", User)
    buffer = owner.make.call_one("a", 60_000_000).get()
    started, receiver = open_channel()
    reading = users.read_until_dropped.call(buffer, started)
    for _ in range(2):
        receiver.recv().get()
    owner.drop_and_overwrite.call_one("a").get()
    assert all(right for _, right in reading.get().values())


def test_a_holder_that_stands_still_is_waited_for_until_it_has_ended(
    spawn: Spawn, faults: Faults
) -> None:
    owner, _, _ = actors(spawn)
    procs = spawn(1)
    user = procs.spawn("user", User)
    holder = procs.spawn("holder", Owner).pid.call_one().get()
    buffer = owner.make.call_one("a", SIZE).get()
    user.keep.call_one("mine", buffer).get()
    user.read_kept.call_one("mine").get()
    with stopped(holder):
        dropped = buffer.drop()
        with pytest.raises(BufferDroppedError):
            buffer.read_into(bytearray(SIZE)).get()  # nobody new is let in
        assert not dropped.done()
        os.kill(holder, signal.SIGKILL)
        dropped.get()
    faults.wait_for(2)


@OTHERS
def test_who_may_not_look_into_the_owner_gets_the_bytes_in_messages_and_one_warning(
    spawn: Spawn,
) -> None:
    owner, user, _ = actors(spawn)
    buffer = owner.make.call_one("a", SIZE).get()
    owner.become_undumpable.call_one().get()
    user.drop_privileges.call_one().get()
    told = user.warnings_of_reading.call_one(buffer, 3).get()
    assert [category for category, _ in told] == ["RDMATcpFallbackWarning"]
    assert "kernel" in told[0][1]
    assert "vm" in told[0][1]
    assert user.read.call_one(buffer).get() == pattern(SIZE)
    assert user.path_to.call_one(buffer).get() == "messages"
    user.write.call_one(buffer, b"in messages").get()
    assert owner.content.call_one("a").get().startswith(b"in messages")


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="filters system calls by their numbers on x86-64"
)
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
@OTHERS
def test_a_sandbox_makes_bytes_go_in_messages_and_is_named(spawn: Spawn, error: int) -> None:
    owner, user, _ = actors(spawn)
    buffer = owner.make.call_one("a", SIZE).get()
    user.enter_sandbox.call_one(error).get()
    ((category, text),) = user.warnings_of_reading.call_one(buffer, 3).get()
    assert category == "RDMATcpFallbackWarning"
    assert "seccomp" in text
    assert user.read.call_one(buffer).get() == pattern(SIZE)
    user.write.call_one(buffer, b"in messages").get()
    assert owner.content.call_one("a").get().startswith(b"in messages")


@OTHERS
def test_a_warning_names_the_paths_that_the_program_left_out(spawn: Spawn) -> None:
    owner, user, _ = actors(spawn, "cuda,messages")
    buffer = owner.make.call_one("a", SIZE).get()
    ((_, text),) = user.warnings_of_reading.call_one(buffer).get()
    assert "copy, vm, nixl: left out by rdma_paths='cuda,messages'" in text
    with configured(rdma_paths="cuda"):
        with pytest.raises(NoPathError, match="messages: left out by rdma_paths='cuda'"):
            buffer.read_into(bytearray(SIZE)).get()


@OTHERS
def test_a_path_that_closes_is_left_for_the_next_one(spawn: Spawn) -> None:
    owner, user, _ = actors(spawn)
    buffer = owner.make.call_one("a", SIZE).get()
    user.keep.call_one("it", buffer).get()
    assert user.path_to.call_one(buffer).get() == "vm"
    assert user.read_kept.call_one("it").get() == pattern(SIZE)
    owner.become_undumpable.call_one().get()
    user.drop_privileges.call_one().get()
    assert user.read_kept.call_one("it").get() == pattern(SIZE)
    assert user.path_to.call_one(buffer).get() == "messages"


@OTHERS
def test_memory_that_was_unmapped_behind_the_back_is_an_error_and_not_a_crash(spawn: Spawn) -> None:
    owner, user, _ = actors(spawn)
    buffer = owner.make.call_one("a", SIZE).get()
    rebuild, (info,) = buffer.__reduce__()
    user.read.call_one(buffer).get()
    lease = rebuild(info)._lease
    buffer.read_into(bytearray(SIZE)).get()
    lease.grant = lease.grant._replace(address=4096)  # where nothing is
    with pytest.raises(RDMAError, match="no longer mapped") as caught:
        buffer.read_into(bytearray(SIZE)).get()
    assert caught.value.path == "vm"


@OTHERS
def test_an_owner_that_starts_again_does_not_know_the_buffers_of_before(
    spawn: Spawn, faults: Faults
) -> None:
    from monarch.supervision import AllForOne

    owner = spawn(1, restart=AllForOne()).spawn("owner", Owner)
    user = spawn(1).spawn("user", User)
    buffer = owner.make.call_one("a", SIZE).get()
    user.read.call_one(buffer).get()
    first = owner.pid.call_one().get()
    in_flight = owner.pid.call_one()
    os.kill(first, signal.SIGKILL)
    in_flight.exception()
    wait_until(lambda: owner.pid.call_one().exception() is None, what="the next incarnation")
    error = user.failure.call_one(buffer).get()
    assert isinstance(error, RDMAError)
    assert not isinstance(error, TransferTimeoutError)
    again = owner.make.call_one("a", SIZE, 2).get()
    assert user.read.call_one(again).get() == pattern(SIZE, 2)


def test_a_client_that_shuts_down_lets_go_of_everything() -> None:
    done = run_script(
        """
        import gc, weakref
        from monarch.actor import shutdown_context, this_host
        from monarch.rdma import RDMABuffer

        class Memory(bytearray):
            pass

        for _ in range(2):
            memory = Memory(1000)
            gone = weakref.ref(memory)
            buffer = RDMABuffer(memory)
            procs = this_host().spawn_procs({"n": 1})
            assert buffer.explain(procs).taken == "vm"
            del memory
            shutdown_context().get()
            assert gone() is None
            try:
                buffer.read_into(bytearray(1000)).get()
            except Exception as error:
                print(type(error).__name__)
        """,
    )
    assert done.exit_code == 0, str(done)
    assert done.left_behind == []
    assert done.stdout.split() == ["BufferDroppedError", "BufferDroppedError"]


class DiesWhileWriting(Actor):
    @endpoint
    def write(self, shared: SharedState) -> None:
        with shared.writing():
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_state_whose_writer_died_is_torn_until_written_anew(spawn: Spawn, faults: Faults) -> None:
    shared = share_state({"a": array("d", [0.0] * 10)})
    into = {"a": array("d", [1.0] * 10)}
    with pytest.raises(SupervisionError):
        spawn(1).spawn("dies", DiesWhileWriting).write.call_one(shared).get()
    faults.wait_for(1)
    with pytest.raises(InconsistentStateError, match="write all of it anew"):
        pull(shared, into, timeout=600).get()
    shared.update({"a": array("d", [2.0] * 10)}).get()
    assert pull(shared, into).get() == (2,)
    assert into["a"][0] == 2


class Sharer(Actor):
    def __init__(self) -> None:
        self.shared = share_state({"a": array("d", [0.0] * 10)})

    @endpoint
    def share(self) -> tuple[SharedState, int]:
        return self.shared, os.getpid()


def pulled(sources: list[SharedState]) -> tuple[tuple[int | None, ...], float]:
    """The versions, and one value of the first."""
    into = {"a": array("d", [-1.0] * 10)}
    return pull(sources, into).get(), into["a"][0]


def test_a_push_that_a_dead_owner_ended_leaves_the_others_readable(
    spawn: Spawn, faults: Faults
) -> None:
    (dead, pid), (living, _) = (
        spawn(1).spawn("sharer", Sharer).share.call_one().get() for _ in range(2)
    )
    os.kill(pid, signal.SIGKILL)
    faults.wait_for(1)
    with pytest.raises(OwnerLostError):
        push({"a": array("d", [1.0] * 10)}, [dead, living]).get()
    assert pulled([living]) == ((1,), 0.0)


def test_a_write_that_begins_after_the_push_was_given_up_ends_too(spawn: Spawn) -> None:
    sharer = spawn(1).spawn("sharer", Sharer)
    shared, pid = sharer.share.call_one().get()
    with stopped(pid), pytest.raises(TransferTimeoutError):
        push({"a": array("d", [1.0] * 10)}, shared, timeout=0.2).get()
    sharer.share.call_one().get()  # what was sent before has arrived, too
    assert pulled([shared]) == ((1,), 0.0)


def test_an_owner_that_dies_as_a_push_ends_keeps_no_other_from_hearing_of_the_end(
    spawn: Spawn, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dying, pid), (living, _) = (
        spawn(1).spawn("sharer", Sharer).share.call_one().get() for _ in range(2)
    )
    end = dying.versions.end

    def end_of_a_dead(*args: Any, **options: Any) -> Any:
        os.kill(pid, signal.SIGKILL)
        faults.wait_for(1)
        return end(*args, **options)

    monkeypatch.setattr(dying.versions, "end", end_of_a_dead)
    with pytest.raises(OwnerLostError):
        push({"a": array("d", [1.0] * 10)}, [dying, living]).get()
    assert pulled([living]) == ((1,), 1.0)


class Opened:
    """Stands for a tensor that was opened here."""

    all: ClassVar[list[weakref.ref[Opened]]] = []

    def __init__(self) -> None:
        Opened.all.append(weakref.ref(self))


class GpuOwner(Owner):
    """Hands its memory out as if it were a GPU's."""

    @endpoint
    def pretend(self, handed_out: bytes) -> None:
        # imported there, not exported
        plane.share_with_process = lambda memory: handed_out  # type: ignore[attr-defined]


@OTHERS
def test_memory_of_a_gpu_that_is_handed_out_too_late_is_opened_and_closed(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_ipc, "open_shared", lambda shared: pickle.loads(shared)())
    owner = spawn(1).spawn("owner", GpuOwner)
    owner.pretend.call_one(pickle.dumps(Opened)).get()
    buffer = owner.make.call_one("a", SIZE).get()
    buffer.read_into(bytearray(SIZE)).get()
    lease = buffer._lease
    assert lease.grant is not None
    pid = owner.pid.call_one().get()
    with stopped(pid), pytest.raises(TransferTimeoutError):
        CudaPath().connect(buffer.plane, lease, lease.grant, Deadline(0.1))
    wait_until(
        lambda: [opened() for opened in Opened.all] == [None],
        what="the memory to be opened and closed",
    )
