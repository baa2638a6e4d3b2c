"""The messages of `rdma`: what readers and writers of a buffer and its owner send each other.

They are plain values: they compare and pickle. `plane` and `buffer` handle them; `transfer`,
`leases` and the paths send them. Those that ask for something are control records
(`_core.hub.control_records` says what their docstrings mean). A process that is sent one imports
this package, and so learns to answer it. When the owner has ended, so has the memory.
"""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple

from ..._core.plane import ProcAddress


class BufferInfo(NamedTuple):
    """The content of a handle.

    `key` proves that its holder was given the handle: it is never printed.
    """

    owner: ProcAddress
    id: int
    key: bytes
    nbytes: int
    device: str
    readonly: bool
    owner_name: str

    def __str__(self) -> str:
        access = ", read-only" if self.readonly else ""
        return f"<RDMABuffer {self.id:x} of {self.nbytes} bytes on {self.device}{access}>"

    def __repr__(self) -> str:
        return str(self)


class MemoryPlace(NamedTuple):
    """Which processes can see each other's memory.

    They are those of one kernel, in one space of process ids.
    """

    machine: str
    pid_namespace: int


class Claim(NamedTuple):
    """One handle that its holder shows to the owner."""

    id: int
    key: bytes
    lease: int

    def __repr__(self) -> str:
        return f"Claim({self.id:x})"


class Open(NamedTuple):
    """Asks for grants.

    Holder ──▶ owner. Answer: a list with one `Grant` or `Refusal` for each claim.
    """

    place: MemoryPlace
    claims: tuple[Claim, ...]


class Grant(NamedTuple):
    """The owner's confirmation that a buffer exists, and its place.

    The place is there if the holder may access it directly.
    """

    nbytes: int
    readonly: bool
    device: str
    place: MemoryPlace
    pid: int
    address: int
    probe: tuple[int, bytes]
    """Where some bytes lie in the owner's memory, and their values: a process that has them there
    is the right one.
    """


class Refusal(NamedTuple):
    """The owner's no."""

    dropped: bool
    reason: str


class Drop(NamedTuple):
    """Let a buffer go.

    Holder ──▶ owner. Answer: None, when no transfer uses it any more, or a `Refusal`.
    """

    claim: Claim


class Recall(NamedTuple):
    """A grant is taken back.

    Owner ──▶ holders. Answer: None, when no transfer uses it any more; a holder that has ended uses
    none.
    """

    id: int
    key: bytes
    reason: str

    def __repr__(self) -> str:
        return f"Recall({self.id:x}, {self.reason!r})"


class LeaseNews(NamedTuple):
    """Leases that began, or ended, in order.

    Holder ──▶ owner; the end of the holder is that of its leases.

    With each: None if it began; if it ended, the seconds since it was last pickled, or -1 if it
    never was.
    """

    events: tuple[tuple[Claim, float | None], ...]


class Get(NamedTuple):
    """Asks for bytes in a message. Holder ──▶ owner. Answer: the bytes, or a `Refusal`."""

    claim: Claim
    offset: int
    nbytes: int


class Put(NamedTuple):
    """Brings bytes in a message.

    Holder ──▶ owner. Answer: None, when they are written, or a `Refusal`.
    """

    claim: Claim
    offset: int
    data: Any


class Atomic(NamedTuple):
    """One 64-bit word: add `operand`, or replace it by `operand` if it is `expected`.

    Holder ──▶ owner.

    Answer: the former value, or a `Refusal`.
    """

    claim: Claim
    offset: int
    operand: int
    expected: int | None


class WriteStep(NamedTuple):
    """A write of a shared state begins, if `token` is 0, or has ended.

    Writer ──▶ owner. Answer: its token, or a `Refusal`.
    """

    claim: Claim
    token: int
    whole: bool
    failed: bool


class Seek(NamedTuple):
    """A replica wants a version of a shared state.

    Replica ──▶ owner. Answer: the `Copy` to read, None for the sources themselves, or a `Refusal`;
    once there is room.

    Attributes:
        claim: Of the versions of the first source.
        number: Of the replica, in its process.
        wish: A `Wish`.
    """

    claim: Claim
    number: int
    wish: Any


class SeekOutcome(NamedTuple):
    """Report the outcome of a `Seek`. Replica ──▶ owner. No answer.

    Attributes:
        copy: The `Copy` that the replica has; None if it has none, and wants none.
        failed: It could not read from whom it was told to.
    """

    claim: Claim
    number: int
    copy: Any
    failed: bool


class NixlRequest(NamedTuple):
    """Asks the owner to register a buffer with nixl.

    Holder ──▶ owner. Answer: a `NixlOffer` or a `Refusal`.
    """

    claim: Claim


class CudaRequest(NamedTuple):
    """Asks for a way to memory of a GPU. Holder ──▶ owner on its machine.

    Answer: what CUDA opens, or a `Refusal`.
    """

    claim: Claim


class Explain(NamedTuple):
    """Which path would transfers take from there?

    Anybody ──▶ any process. Answer: a list of `PathReport`, or an `RDMAError`.

    Attributes:
        buffer: An `RDMABuffer`.
    """

    buffer: Any


class NixlOffer(NamedTuple):
    """The access to a buffer by nixl.

    It has the owner's way and keys, the address, the kind of memory and the number of the
    device.
    """

    metadata: bytes
    address: int
    kind: str
    device: int


@functools.cache
def here() -> MemoryPlace:
    """The place of this process."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            machine = file.read().strip()
        return MemoryPlace(machine, os.stat("/proc/self/ns/pid").st_ino)
    except OSError:  # a sandbox without them: then no process is known to be near
        return MemoryPlace(f"process {os.getpid()} of {os.urandom(8).hex()}", 0)
