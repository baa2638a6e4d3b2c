"""A message hub without processes behind it: who is asked is a function.

What asks a program works with it as with a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monarch._core.plane import ControlRequest, Failure, Frame, ProcAddress, current_hub, pickling

Answer = Callable[[ProcAddress, str, tuple[Any, ...]], Any]
"""What a process answers to a record: given are its address, the name of the record's class, and
the fields.
"""


class NoAnswer(Exception):
    """Raised by an `Answer` in place of one: nothing ever comes back from there."""


class SimulatedHub:
    """As much of a hub as those use who ask a program from beside. No process of it ends for good.

    Args:
        client: The process of the simulated program.
        answer: Answers for all processes. Called on the I/O thread of this process, one question
            after the other.
    """

    def __init__(self, client: ProcAddress, answer: Answer) -> None:
        self.address = client
        self.root = client
        self.poller = current_hub().poller
        self.peer_lost_hooks: list[Callable[[ProcAddress, Failure], None]] = []
        self._answer = answer

    def cast(
        self,
        procs: Sequence[ProcAddress],
        target: int,
        meta: bytes,
        content: tuple[bytes, Any],
        request: Any,
        *more: Any,
    ) -> int:
        """Have each process answer."""
        fields, _ = pickling.loads(*content)
        self.poller.call_soon(lambda: self._ask(procs, meta, fields, request))
        return 1

    def _ask(
        self, procs: Sequence[ProcAddress], meta: bytes, fields: tuple[Any, ...], request: Any
    ) -> None:
        name = meta.decode().rpartition(".")[2]
        for rank, proc in enumerate(procs):
            asked = ControlRequest(_Way(request), Frame(0, 0, rank, 0, 0, 1, meta, b""))
            try:
                asked.answer(self._answer(proc, name, fields))
            except NoAnswer:
                pass
            except Exception as error:  # as a handler's
                asked.fail(error)

    def process_fate(self, address: ProcAddress) -> Failure | None:
        """None: it lives."""
        return None


class _Way:
    """The way back to who asks.

    Attributes:
        peer: Without a meaning here.
        called: Without a meaning here.
    """

    peer, called = ProcAddress("", ""), None

    def __init__(self, request: Any) -> None:
        self._request = request

    def send(self, frame: Frame) -> bool:
        self._request.reply(frame)
        return True
