"""`RDMABuffer`, the handle to memory somewhere, and `explain`, which path leads there."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from ..._core import plane as core
from ...actor import ActorMesh, Future, ProcMesh, context
from ..availability import get_rdma_backend
from ..errors import OwnerLostError, RDMAError
from ..grants.control_rpc import ask, refused
from ..grants.leases import Lease
from ..grants.records import Atomic, BufferInfo, Claim, Drop, Explain, Refusal
from ..memory import Memory, memory_of
from ..paths.choice import PathReport, allowed, report
from ..paths.path import Deadline
from ..paths.process_vm import admit_tracers
from ..plane import HANDLERS as OF_PLANE
from ..plane import Plane, answer_with, plane_of
from ..transfer import Operation, obtain_grants, submit

_EXPLAINED_WITHIN = 10.0  # seconds


class RDMABuffer:
    """A handle on memory that stays where it is.

    Its holders read and write that memory without the owner's help.

    It pickles to some hundred bytes and may be sent anywhere, any number of times. The memory stays
    until `drop`, until the actor that made the buffer ends, or until no process has a handle any
    more. Keep one wherever the memory is still needed: a handle that is only in a message on its
    way keeps the memory for `rdma_lease_grace`.

    Args:
        data: A contiguous torch tensor, on the CPU or a GPU, or anything with a contiguous buffer:
            bytearray, memoryview, array, numpy array; any shape, any type of numbers. It is not
            copied. Of read-only memory (bytes), the buffer can only be read.

    Raises:
        TypeError, ValueError: Not memory; not contiguous; empty. The message says what to do.
        RuntimeError: `rdma_allow_tcp_fallback` is False, and there is no RDMA device.
    """

    __slots__ = ("_info", "_lease", "plane")

    plane: Plane  # for the package: what carries out the transfers of this process

    def __init__(self, data: Any) -> None:
        self._register(memory_of(data, "RDMABuffer(data)"))

    @classmethod
    def of_memory(cls, memory: Memory) -> RDMABuffer:
        """Return a buffer of memory that was checked before.

        Args:
            memory: The memory.
        """
        self = object.__new__(cls)
        self._register(memory)
        return self

    def _register(self, memory: Memory) -> None:
        if get_rdma_backend() == "none":
            raise RuntimeError(
                "no RDMA device is usable on this machine, and rdma_allow_tcp_fallback is False, so"
                " buffers can't be made; set configure(rdma_allow_tcp_fallback=True) to have the"
                " other paths"
            )
        allowed()  # a knob that can't be read is told here
        # before a handle can reach another process, which reads by `process_vm_readv`
        admit_tracers()
        cell = context()._cell
        self.plane = plane_of(cell.hub)
        serial = self.plane.leases.next_serial()
        self._info = self.plane.registry.register(memory, cell, serial)
        self._lease: Lease = self.plane.leases.of(self._info, serial)

    # what it is

    def size(self) -> int:
        """Size of the memory in bytes."""
        return self._info.nbytes

    @property
    def owner(self) -> str:
        """Id of the actor that made the buffer."""
        return self._info.owner_name

    @property
    def device(self) -> str:
        """The device of the memory: ``"cpu"``, ``"cuda:0"``."""
        return self._info.device

    @property
    def readonly(self) -> bool:
        """True if the memory can only be read."""
        return self._info.readonly

    @property
    def backend(self) -> str:
        """The backend by which other hosts reach the memory: see `get_rdma_backend`.

        For its own host see `explain`.
        """
        return get_rdma_backend()

    def explain(self, peer: Any = None) -> Explanation:
        """Explain which path transfers take, and why not the others: ``print(buffer.explain())``.

        Args:
            peer: The process that starts the transfer: an actor mesh or proc mesh of one rank; by
                default this process.

        Returns:
            The chosen path, and for each other one the reason against it.

        Raises:
            RDMAError: The buffer is gone.
            TimeoutError: The peer, or the owner, did not answer within 10 seconds.
        """
        address = self.plane.hub.address if peer is None else _address_of(peer)
        reports = ask(self.plane.hub, address, Explain(self), "a report").get(
            timeout=_EXPLAINED_WITHIN
        )
        if isinstance(reports, Exception):
            raise reports
        return Explanation(str(self._info), str(address), tuple(reports))

    # transfers

    def read_into(
        self, dst: Any, *, offset: int = 0, nbytes: int | None = None, timeout: float = 60
    ) -> Future[None]:
        """Start a copy from the buffer into the first bytes of `dst`.

        Args:
            dst: Writable memory, as for the constructor. It may be larger; the bytes after the copy
                stay untouched.
            offset: Where to begin in the buffer, in bytes.
            nbytes: Length in bytes; by default up to the end of the buffer.
            timeout: Seconds; after it, `dst` may be written in part.

        Returns:
            A future that is done when the bytes have arrived.

        Raises:
            TypeError, ValueError: `dst` is not memory, read-only or too small; the range is not in
                the buffer.
            RDMAError: From the future: the transfer failed.
        """
        return submit(
            self.plane, [self.reading(dst, offset, nbytes)], Deadline(checked_timeout(timeout))
        )

    def write_from(
        self, src: Any, *, offset: int = 0, nbytes: int | None = None, timeout: float = 60
    ) -> Future[None]:
        """Start a copy from the first bytes of `src` into the buffer.

        Leave `src` unchanged until the future is done.

        Args:
            src: Memory, as for the constructor.
            offset: Where to begin in the buffer, in bytes.
            nbytes: Length in bytes; by default all of `src`.
            timeout: Seconds; after it, the buffer may be written in part, or still be.

        Returns:
            A future that is done when the bytes have arrived.

        Raises:
            TypeError, ValueError: `src` is not memory, or larger than what it shall go into; the
                buffer is read-only.
            RDMAError: From the future: the transfer failed.
        """
        return submit(
            self.plane, [self.writing(src, offset, nbytes)], Deadline(checked_timeout(timeout))
        )

    def fetch_add(self, value: int, *, offset: int = 0) -> Future[int]:
        """Add to an unsigned 64-bit word atomically; a future of its old value.

        The sum wraps around.

        The owner's process executes it, even while its actors are busy, one `fetch_add` or
        `compare_and_swap` after the other; reads and writes may come in between. CPU memory only.

        Args:
            value: Summand; the sum is taken modulo 2**64.
            offset: Position of the word in the buffer, in bytes. Its address must be a multiple of
                8.

        Raises:
            TypeError, ValueError: An argument is no int, or the buffer is read-only or has no such
                word.
            RDMAError: From the future: the word is not aligned, or the owner is gone.
        """
        return self._atomic(
            Atomic(self._lease.claim, self._word(offset), _integer(value, "value"), None)
        )

    def compare_and_swap(self, expected: int, desired: int, *, offset: int = 0) -> Future[int]:
        """Replace a 64-bit word if it equals `expected`; a future of its old value.

        Args:
            expected: The value to replace; another value stays.
            desired: The new value.
            offset: As for `fetch_add`.

        Raises:
            TypeError, ValueError, RDMAError: As for `fetch_add`.
        """
        wanted = _integer(desired, "desired"), _integer(expected, "expected")
        return self._atomic(Atomic(self._lease.claim, self._word(offset), *wanted))

    def drop(self) -> Future[None]:
        """Withdraw the buffer: once the future is done, no handle reaches the memory.

        Every holder may, any number of times.
        """
        answer = ask(
            self.plane.hub, self._info.owner, Drop(self._lease.claim), f"the end of {self._info}"
        )

        def finish() -> None:
            with suppress(OwnerLostError):  # then it is gone, too
                self._accepted(answer.get())

        return core.map_future(answer, lambda _: finish())

    # for actions

    def reading(self, dst: Any, offset: int, nbytes: int | None) -> Operation:
        """A checked read.

        Args:
            dst: As for `read_into`.
            offset: As for `read_into`.
            nbytes: As for `read_into`.

        Raises:
            TypeError, ValueError: As for `read_into`.
        """
        memory = memory_of(dst, "read_into(dst)")
        if memory.readonly:
            raise ValueError(
                f"read_into(dst): {type(dst).__name__} is read-only; use a bytearray or a writable"
                " array"
            )
        size = self._range(offset, self._info.nbytes - offset if nbytes is None else nbytes)
        if size > memory.nbytes:
            raise ValueError(
                f"read_into(dst): dst has {memory.nbytes} bytes, less than the {size} bytes to be"
                " read"
            )
        return self.operation(memory, 0, offset, size, False)

    def writing(self, src: Any, offset: int, nbytes: int | None) -> Operation:
        """A checked write.

        Args:
            src: As for `write_from`.
            offset: As for `write_from`.
            nbytes: As for `write_from`.

        Raises:
            TypeError, ValueError: As for `write_from`.
        """
        memory = memory_of(src, "write_from(src)")
        if self._info.readonly:
            raise ValueError(f"{self._info} names read-only memory, and can't be written")
        size = self._range(offset, memory.nbytes if nbytes is None else nbytes)
        if size > memory.nbytes:
            raise ValueError(
                f"write_from(src): src has {memory.nbytes} bytes, less than the {size} bytes to be"
                " written"
            )
        return self.operation(memory, 0, offset, size, True)

    def operation(
        self, memory: Memory, start: int, offset: int, nbytes: int, write: bool
    ) -> Operation:
        """Return an operation without checking its ranges: the caller has done so.

        Args:
            memory: Local memory.
            start: Where to begin in it, in bytes.
            offset: Where to begin in the buffer, in bytes.
            nbytes: Length in bytes.
            write: To the buffer; otherwise from it.
        """
        return Operation(self._lease, offset, memory, start, nbytes, write)

    def _range(self, offset: int, nbytes: int) -> int:
        offset, nbytes = _integer(offset, "offset"), _integer(nbytes, "nbytes")
        if offset < 0 or nbytes <= 0 or offset + nbytes > self._info.nbytes:
            raise ValueError(
                f"{nbytes} bytes at offset {offset} are not a part of the buffer, which has"
                f" {self._info.nbytes} bytes"
            )
        return nbytes

    def _word(self, offset: int) -> int:
        self._range(offset, 8)
        if self._info.readonly:
            raise ValueError(f"{self._info} names read-only memory, and can't be written")
        return offset

    def _atomic(self, wanted: Atomic) -> Future[int]:
        return self.ask_owner(wanted, lambda: self.plane.atomic(wanted), "a word")

    @property
    def claim(self) -> Claim:
        """The claim that this process shows to the owner."""
        return self._lease.claim

    @property
    def process(self) -> core.ProcAddress:
        """The owner's process."""
        return self._info.owner

    def ask_owner(
        self, record: tuple[Any, ...], here: Callable[[], Any] | None, what: str
    ) -> Future[Any]:
        """Have the owner's process run something.

        If it is this process, `here` does it, if given.

        Args:
            record: What it is asked.
            here: Called in place of that, if this process is the owner.
            what: Description of the wait, for time-out errors.

        Returns:
            A future of the answer.
        """
        if here is not None and self._info.owner == self.plane.hub.address:
            answer: Future[Any] = core.completed(here())
        else:
            answer = ask(self.plane.hub, self._info.owner, record, f"{what} of {self._info}")
        return core.map_future(answer, self._accepted)

    def _accepted(self, answer: Any) -> Any:
        """Return the owner's answer, or raise its refusal."""
        if isinstance(answer, Refusal):
            error = refused(answer)
            error.locate(str(self._info), self._info.owner_name, "")
            raise error
        return answer

    # travelling

    @classmethod
    def _of(cls, plane: Plane, info: BufferInfo) -> RDMABuffer:
        self = object.__new__(cls)
        self.plane = plane
        self._info = info
        self._lease = plane.leases.of(info)
        return self

    def __reduce__(self) -> Any:
        # a message on its way holds no lease: the owner waits for `rdma_lease_grace` from here on
        self._lease.note_pickled()
        return _received, (self._info,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RDMABuffer) and self._info == other._info

    def __hash__(self) -> int:
        return hash(self._info)

    def __repr__(self) -> str:
        return str(self._info)


def _received(info: BufferInfo) -> RDMABuffer:
    return RDMABuffer._of(plane_of(core.current_hub()), info)


class Explanation(NamedTuple):
    """The paths by which transfers may reach a buffer; ``print`` shows a table.

    Attributes:
        buffer: The buffer, as its ``repr`` says.
        peer: The process from which they start.
        paths: One report for each path, in the order in which they are tried.
    """

    buffer: str
    peer: str
    paths: tuple[PathReport, ...]

    @property
    def taken(self) -> str | None:
        """The path that transfers take; None if no path is open."""
        return next((report.path for report in self.paths if report.usable), None)

    def __str__(self) -> str:
        lines = [f"{self.buffer} from {self.peer}"]
        for path, usable, reason in self.paths:
            mark = "->" if path == self.taken else "  "
            lines.append(f"{mark} {path:9} {'yes' if usable else 'no ':3}  {reason}")
        return "\n".join(lines)


def _explain(plane: Plane, buffer: RDMABuffer) -> list[PathReport] | RDMAError:
    lease = buffer._lease
    deadline = Deadline(_EXPLAINED_WITHIN)
    grant = obtain_grants(plane, [lease], deadline)[lease]
    return grant if isinstance(grant, RDMAError) else report(plane, lease, grant, deadline)


@core.handles(Explain)
def _take_explain(
    service: core.ControlService, request: core.ControlRequest, record: Explain
) -> None:
    plane = plane_of(service.hub)
    plane.workers.submit(lambda: answer_with(request, lambda: _explain(plane, record.buffer)))


HANDLERS = (*OF_PLANE, _take_explain)


def _address_of(peer: Any) -> core.ProcAddress:
    if isinstance(peer, ActorMesh):
        addresses = list(peer._target.procs)
    elif isinstance(peer, ProcMesh):
        addresses = peer._addresses()
    else:
        raise TypeError(
            f"explain(peer): got {type(peer).__name__}, expected an actor mesh or a proc mesh, or"
            " None"
        )
    if len(addresses) != 1:
        raise ValueError(
            f"explain(peer): the mesh has {len(addresses)} ranks; slice it to the one you mean"
        )
    return addresses[0]


def checked_timeout(timeout: Any) -> float:
    """Seconds.

    Raises:
        TypeError, ValueError: It is not a finite number, 0 or more.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout={timeout!r}: expected a number of seconds")
    if not 0 <= timeout < math.inf:
        raise ValueError(f"timeout={timeout!r}: expected a finite number of seconds, 0 or more")
    return float(timeout)


def _integer(value: Any, name: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}={value!r}: expected a whole number")
    return operator.index(value)
