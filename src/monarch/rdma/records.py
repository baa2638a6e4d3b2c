"""What owners and holders of buffers tell each other. Plain values: they compare and pickle.

A message that carries one of these makes its receiver import this package, and so learn to answer it.
"""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple

from .._core.wire.address import ProcAddress


class BufferInfo(NamedTuple):
    """What a handle says. `key` proves that whoever shows it was given the handle: it is never printed."""

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


class Place(NamedTuple):
    """Which processes can see each other's memory: those of one kernel, in one space of process ids."""

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
    """Asks for grants; the answer has one `Grant` or `Refusal` for each claim."""

    place: Place
    claims: tuple[Claim, ...]


class Grant(NamedTuple):
    """The owner's word that a buffer is there, and where, if the holder's place lets it go there by itself."""

    nbytes: int
    readonly: bool
    device: str
    place: Place
    pid: int
    address: int
    probe: tuple[int, bytes]
    """Where some bytes lie in the owner's memory, and what they are: whoever finds them there has the right process."""


class Refusal(NamedTuple):
    """The owner's no."""

    dropped: bool
    reason: str


class Recall(NamedTuple):
    """The owner takes a grant back; answered when no transfer uses it any more."""

    id: int
    key: bytes
    reason: str

    def __repr__(self) -> str:
        return f"Recall({self.id:x}, {self.reason!r})"


class LeaseNews(NamedTuple):
    """Leases that began, or ended, in order.

    With each: None if it began; if it ended, the seconds since it was last pickled, or -1 if it never was.
    """

    events: tuple[tuple[Claim, float | None], ...]


class Get(NamedTuple):
    """Asks for bytes in a message."""

    claim: Claim
    offset: int
    nbytes: int


class Put(NamedTuple):
    """Brings bytes in a message."""

    claim: Claim
    offset: int
    data: Any


class Atomic(NamedTuple):
    """One 64-bit word: add `operand`, or replace it by `operand` if it is `expected`. Answered with what was there."""

    claim: Claim
    offset: int
    operand: int
    expected: int | None


class WriteStep(NamedTuple):
    """A write of a shared state begins, if `token` is 0, or has ended; answered with its token."""

    claim: Claim
    token: int
    whole: bool
    failed: bool


class NixlRequest(NamedTuple):
    """Asks the owner to register a buffer with nixl; answered with a `NixlOffer` or a `Refusal`."""

    claim: Claim


class NixlOffer(NamedTuple):
    """What nixl needs to reach a buffer: the owner's way and keys, address, kind of memory and number of the device."""

    metadata: bytes
    address: int
    kind: str
    device: int


@functools.cache
def here() -> Place:
    """Where this process is."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            machine = file.read().strip()
        return Place(machine, os.stat("/proc/self/ns/pid").st_ino)
    except OSError:  # a sandbox without them: then nobody is known to be near
        return Place(f"process {os.getpid()} of {os.urandom(8).hex()}", 0)
