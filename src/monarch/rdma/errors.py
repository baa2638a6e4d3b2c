"""Errors of transfers. One tree, so that ``except RDMAError`` is enough.

RDMAError(MonarchError)
├── BufferDroppedError    dropped, or released with its owner or its last handle
├── BufferAccessError     a handle that the owner does not know, or a range that it does not have
├── OwnerLostError        the owner's process is gone or out of reach; also a `SupervisionError`
├── TransferTimeoutError  not done within `timeout`; also a `TimeoutError`
├── InconsistentStateError  a shared state was written whenever it was read, or is torn
└── NoPathError           no way to the buffer is open from here

RDMAWarning               a slower way is taken than could be
├── RDMATcpFallbackWarning
├── RDMAReadTransferWarning, RDMAWriteTransferWarning   names of Monarch 0.7, never issued
"""

from __future__ import annotations

from typing import Any

from ..errors import MonarchError, SupervisionError


class RDMAError(MonarchError, RuntimeError):
    """A transfer failed.

    Attributes:
        buffer: Which buffer, as its ``repr`` says.
        owner: Id of the actor that made it.
        path: Which path was taken: ``"copy"``, ``"vm"``, ``"cuda"``, ``"nixl"``, ``"messages"``;
            empty before one was chosen.
        transferred: Bytes that had been transferred before, of the whole submission.
        others: What else went wrong in the same submission, one error for each further owner or
            buffer.
    """

    buffer = ""
    owner = ""
    path = ""
    transferred = 0
    others: tuple[Exception, ...] = ()

    def locate(self, buffer: str, owner: str, path: str) -> None:
        """Say where it happened, unless that is known already.

        Args:
            buffer: The buffer, in words.
            owner: Its owner, in words.
            path: Name of the path.
        """
        self.buffer = self.buffer or buffer
        self.owner = self.owner or owner
        self.path = self.path or path

    def __str__(self) -> str:
        text = super().__str__()
        if self.buffer:
            way = f" by path {self.path!r}" if self.path else ""
            text += (
                f" [{self.buffer} of {self.owner}{way}; {self.transferred} bytes were transferred"
                " before]"
            )
        return text + "".join(f"\nAlso: {error}" for error in self.others)

    def __reduce__(self) -> Any:
        return type(self), self.args, vars(self)


class BufferDroppedError(RDMAError):
    """The buffer was dropped, or its memory was released with its owner or with the last handle."""


class BufferAccessError(RDMAError):
    """The owner does not know this handle, or does not allow the access.

    Examples are a forged key and a range that is not there.
    """


class OwnerLostError(RDMAError, SupervisionError):
    """The process that owns the memory has ended, or can't be reached.

    Attributes:
        failure: The `MeshFailure` that explains it, if one is known.
    """

    def __init__(self, message: str, endpoint: str | None = None, failure: Any = None) -> None:
        SupervisionError.__init__(self, message, endpoint, failure)

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.endpoint, self.failure), vars(self)


class TransferTimeoutError(RDMAError, TimeoutError):
    """The transfer was not done in time.

    Part of it may have been; the destination holds old and new bytes.
    """


class InconsistentStateError(RDMAError):
    """A whole state could not be read at one version of it.

    The destination holds old and new values.
    """


class NoPathError(RDMAError):
    """None of the paths leads from this process to the buffer; the message says why for each."""


class NotMemoryError(TypeError, ValueError):
    """An argument is not memory that bytes can be moved to or from.

    (Monarch 0.7 raises ValueError.)
    """


class RDMAWarning(RuntimeWarning):
    """A transfer takes a slower way than it could. Each reason is told once per process."""


class RDMATcpFallbackWarning(RDMAWarning):
    """Bytes travel in messages, as no faster path is open."""


class RDMAReadTransferWarning(RDMAWarning):
    """Never issued; programs for Monarch 0.7 name it in filters."""


class RDMAWriteTransferWarning(RDMAWarning):
    """Never issued; programs for Monarch 0.7 name it in filters."""


class UnavailableError(Exception):
    """A path does not lead to the buffer; the text says why. Internal: the next path is tried."""


class NotMeantError(UnavailableError):
    """A path was never meant for this buffer, from here: no reason for a warning."""
