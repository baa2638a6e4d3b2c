"""Streams: lines of operations that run side by side on each rank.

Operations of one stream run in the order in which they are issued; those of another do not wait for
them. On a rank each stream has a thread, on a GPU a stream of the device. A tensor belongs to the
stream that was active when it was made; `Stream.borrow` (see `borrows`) lets another one use it.

Which stream is active is a context variable, as the active mesh is: it belongs to one thread, or
one task of asyncio.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from ..controller.engine import living_streams, spread_engines
from ..instructions import MAIN

if TYPE_CHECKING:
    import torch

    from .tensor_base import TensorBase

_numbers = itertools.count(MAIN)


class Stream:
    """A line of operations.

    May be used with any mesh. It ends on the ranks, with its thread, after the last of its handles
    and tensors is gone, and all that was issued on it is done.

    Args:
        name: For messages; need not be unique.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = next(_numbers)
        living_streams[self.number] = self
        if self.number != MAIN:
            spread_engines()

    def activate(self) -> Activation:
        """A context manager in which operations belong to this stream.

        It holds for this thread or task only.
        """
        return Activation(self)

    def borrow(self, tensor: torch.Tensor, mutable: bool = False) -> tuple[TensorBase, Borrow]:
        """Let this stream use a tensor of another one, without a copy.

        ================  ==========================  =====================================
        lent              its own stream may          this stream may
        ================  ==========================  =====================================
        to read           read; lend it to read       read
        ``mutable``       do nothing with it          read and write
        ================  ==========================  =====================================

        At its first use of the tensor, this stream waits for operations issued to the other one
        before. From `Borrow.drop` on, the other one waits for operations issued here until the last
        handle was gone: drop handles early, and the borrow late.

        Args:
            tensor: A tensor of another stream.
            mutable: To write as well.

        Returns:
            The tensor as this stream has it, and what ends the borrow: `Borrow.drop`, or
            ``with borrow:``.

        Raises:
            RuntimeError: It is lent already, and one of the two borrows is mutable.
            TensorError: It is no distributed tensor, was dropped, or requires a gradient, which
                borrows do not pass on.
        """
        raise NotImplementedError  # filled by `tensor_methods`, which is built on this

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} can't be pickled: it belongs to the program that issues operations"
        )


class Borrow(ABC):
    """A tensor in the hands of another stream; made by `Stream.borrow`.

    Ends with `drop`, or with a ``with`` block.

    Attributes:
        mutable: Whether that stream may write to it.
    """

    mutable: bool

    @abstractmethod
    def drop(self) -> None:
        """End it: the handles of the borrower can't be used any more, its origin can.

        The second time it does nothing.
        """

    def __enter__(self) -> Borrow:
        return self

    def __exit__(self, *raised: object) -> None:
        self.drop()


class Activation:
    """``with stream.activate():``.

    Takes effect at ``with``; may be entered again after it was left. Activations nest.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._tokens: list[Token[Stream]] = []

    def __enter__(self) -> Stream:
        self._tokens.append(active.set(self._stream))
        return self._stream

    def __exit__(self, *raised: object) -> None:
        active.reset(self._tokens.pop())


main = Stream("main")
active: ContextVar[Stream] = ContextVar("monarch_active_stream", default=main)


def get_active_stream() -> Stream:
    """The stream to which operations belong; ``main`` unless another one was activated."""
    return active.get()


def stream_of(number: int) -> Stream:
    """Return the stream with a number, which must be in use."""
    found: Stream = living_streams[number]
    return found
