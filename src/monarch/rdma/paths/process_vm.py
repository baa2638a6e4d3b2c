"""Path ``vm``: the kernel copies between the two processes.

It uses `process_vm_readv` and `process_vm_writev`.

One copy, nothing registered, and nothing of the owner's runs: it may be busy, or stopped. The
kernel allows it to a process that may trace the owner: the same user, unless the owner made itself
undumpable, and under Yama (``kernel.yama.ptrace_scope``) to ancestors of the owner, or anybody whom
the owner admits. See `admit_tracers`.

Bytes are moved in parts, by several threads: one alone does not saturate the memory of most
machines.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import select
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..errors import OwnerLostError, RDMAError, UnavailableError
from ..grants.records import Grant, here
from .chunking import MOST_ROWS, shares
from .path import BufferLink, Deadline, Path, Piece

if TYPE_CHECKING:
    from ..grants.leases import Lease
    from ..memory import HostMemory
    from ..plane import Plane

_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_PR_SET_PTRACER = 0x59616D61
_ANYBODY = ctypes.c_ulong(-1)


class VmPath(Path):
    """The path to another process of this machine."""

    name = "vm"
    way = "the kernel copies from process to process"

    def refusal(self, plane: Plane, lease: Lease, grant: Grant) -> str | None:
        if grant.place != here():
            return "the owner runs on another machine, or in another space of process ids"
        if grant.device == "cpu":
            return None
        return f"the memory is on {grant.device}, which the kernel can't copy"

    def connect(self, plane: Plane, lease: Lease, grant: Grant, deadline: Deadline) -> BufferLink:
        link = VmLink(plane, ProcessWatch(grant.pid), grant.pid)
        # a process id may mean another process here: see `verify`
        link.verify(grant)
        return link


class VmLink(BufferLink):
    """A link to one process."""

    path = "vm"
    inline = True

    def __init__(self, plane: Plane, watch: ProcessWatch, pid: int) -> None:
        self._plane = plane
        self._watch = watch
        self._pid = pid

    def verify(self, grant: Grant) -> None:
        """Find something in the owner's memory that only the owner can have put there."""
        address, wanted = grant.probe
        found = ctypes.create_string_buffer(len(wanted))
        local = _vectors(ctypes.addressof(found), len(wanted))
        remote = _vectors(address, len(wanted))
        self._transfer(local, remote, len(wanted), write=False)
        if found.raw != wanted:
            raise UnavailableError(
                f"process {grant.pid} is not the owner: it has another name there (pid namespace?)"
            )

    def move(
        self, pieces: Sequence[Piece], write: bool, deadline: Deadline, moved: Callable[[int], None]
    ) -> None:
        def transfer(batch: list[Piece]) -> None:
            deadline.check()
            local, remote = array("Q"), array("Q")
            for piece in batch:
                begin = cast("HostMemory", piece.memory).address + piece.start
                local.extend(_vectors(begin, piece.row, piece.rows, piece.start_step))
                remote.extend(
                    _vectors(
                        piece.grant.address + piece.offset, piece.row, piece.rows, piece.offset_step
                    )
                )
            nbytes = sum(piece.nbytes for piece in batch)
            self._transfer(local, remote, nbytes, write)
            moved(nbytes)

        workers = self._plane.workers
        workers.spread(shares(pieces, workers.share, MOST_ROWS), transfer)
        self._watch.check()  # only now it is certain that it was the owner all the time

    def _transfer(self, local: array[int], remote: array[int], left: int, write: bool) -> None:
        """Move `left` bytes between equal ``struct iovec`` of this process and of the other one."""
        call = _system_calls()[write]
        while True:
            count = len(local) // 2
            # the kernel may stop early, at a page that is not there for one
            done = call(self._pid, local.buffer_info()[0], count, remote.buffer_info()[0], count, 0)
            if done == left:
                return
            if done < 0:
                self._watch.check()
                raise _error(ctypes.get_errno(), self._pid)
            left -= done
            local, remote = _after(local, done), _after(remote, done)


def _vectors(begin: int, size: int, count: int = 1, step: int = 0) -> array[int]:
    """``struct iovec`` (address and size, in turn) of rows of the same size."""
    return array("Q", (begin, size)) if count == 1 else _rows(begin, size, count, step)


@functools.lru_cache(maxsize=256)
def _rows(begin: int, size: int, count: int, step: int) -> array[int]:
    """Vectors of rows, shared by every version of the same weights: not to be changed."""
    found = array("Q", (size,)) * (2 * count)
    found[::2] = array("Q", range(begin, begin + count * step, step))
    return found


def _after(vectors: array[int], done: int) -> array[int]:
    """Return the vectors that remain after the first `done` bytes."""
    index = 1
    while done >= vectors[index]:
        done -= vectors[index]
        index += 2
    left = vectors[index - 1 :]
    left[0] += done
    left[1] -= done
    return left


def _error(number: int, pid: int) -> Exception:
    if number == errno.EPERM:
        return UnavailableError(
            f"the kernel does not let this process into the memory of process {pid}: {_why_not()}"
        )
    if number == errno.ENOSYS:
        return UnavailableError(
            "the kernel has no process_vm_readv, or a sandbox (seccomp) forbids it"
        )
    if number == errno.ESRCH:
        return OwnerLostError(f"the process that owns the memory, {pid}, is gone")
    if number == errno.EFAULT:
        return RDMAError(
            "the memory is no longer mapped: it was freed, or resized, behind the buffer's back"
        )
    return RDMAError(f"the kernel could not copy: {os.strerror(number)}")


def _why_not() -> str:
    scope = _ptrace_scope()
    if scope >= 2:
        return f"{_YAMA} is {scope}, which reserves that for administrators"
    sandbox = "a sandbox (seccomp) forbids it, or " if _is_in_sandbox() else ""
    return (
        f"{sandbox}it is undumpable, runs as another user, or (kernel.yama.ptrace_scope=1) did not"
        " admit others"
    )


def _is_in_sandbox() -> bool:
    """Return whether system calls of this process are filtered."""
    with open("/proc/self/status", errors="replace") as file:  # a name may be cut within a letter
        return any(line.split() == ["Seccomp:", "2"] for line in file)


def _ptrace_scope() -> int:
    try:
        with open(_YAMA) as file:
            return int(file.read())
    except (OSError, ValueError):  # a kernel without Yama
        return 0


@functools.cache
def admit_tracers() -> None:
    """Let other processes of this user trace this one, where Yama admits only ancestors.

    Nothing is given away: a process of the same user may connect to this one's socket and have any
    code run here.
    """
    if _ptrace_scope() == 1:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)


class ProcessWatch:
    """Knows whether a process has ended, even if another one has got its number.

    Raises:
        OwnerLostError: It is gone already.
        UnavailableError: The system gives no descriptor for it.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._fd = -1  # for `__del__`
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            raise OwnerLostError(f"the process that owns the memory, {pid}, is gone") from None
        except OSError as error:
            raise UnavailableError(f"cannot watch process {pid}: {error.strerror}") from None

    def check(self) -> None:
        """Raises OwnerLostError if it has ended."""
        poll = select.poll()  # a new one: several threads ask at the same time
        poll.register(self._fd, select.POLLIN)
        if poll.poll(0):
            raise OwnerLostError(f"the process that owned the memory, {self._pid}, has ended")

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


@functools.cache
def _system_calls() -> tuple[Any, Any]:
    """Reading, and writing."""
    libc = ctypes.CDLL(None, use_errno=True)
    calls = libc.process_vm_readv, libc.process_vm_writev
    for call in calls:
        call.restype = ctypes.c_ssize_t
        call.argtypes = (
            ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong,
        )  # fmt: skip
    return calls
