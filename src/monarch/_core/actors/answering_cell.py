"""The way of answers from an actor to its callers."""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import Any

from ..._unsendable import explain, explain_result
from ...errors import BackpressureError
from ..calls.exception_pickle import can_be_sent
from ..calls.message import answer_to, decode_meta
from ..calls.remote_error import dump_error
from ..hub import prints
from ..hub.contracts import Origin
from ..wire import pickling
from ..wire.address import ProcAddress
from ..wire.frame import ERROR, REPLY, VALUE, Frame, new_frame
from .base_cell import BaseCell
from .ports import Port, ResponsePort


class AnsweringCell(BaseCell):
    """An actor that is called: results, errors, and ports through which endpoints answer."""

    def _response_port(self, origin: Origin, frame: Frame) -> Port[Any]:
        if not frame.request:  # no caller waits for the answer
            return ResponsePort(origin.peer, frame, _nothing)
        key = origin.peer, frame.request, frame.rank
        self.hub.open_responses[key] = (self.uid, origin, frame._replace(payload=b"", buffers=()))
        return ResponsePort(origin.peer, frame, functools.partial(self._response_dropped, key))

    def _response_dropped(self, key: tuple[ProcAddress, int, int]) -> None:
        """A response port is gone; on any thread, inside of any lock."""
        if key in self.hub.open_responses:
            self.hub.poller.call_soon(functools.partial(self._answer_dropped, key))

    def _answer_dropped(self, key: tuple[ProcAddress, int, int]) -> None:
        if self.ending is not None:
            return  # which is the better reason, and is told to everybody who waits
        unanswered = self.hub.open_responses.pop(key, None)
        if unanswered is None:
            return
        _, origin, frame = unanswered
        name, _ = decode_meta(frame.meta)
        error = RuntimeError(
            f"the response port of {self.record.name}.{name}() was dropped without an answer: send"
            " a value or an exception through it, or keep it until you do"
        )
        self._answer_error(origin, frame, name, error)

    def _answer(self, origin: Origin, frame: Frame, name: str, result: Any) -> None:
        try:
            payload, buffers = pickling.dumps_value(result)
        except Exception as error:
            explain_result(error, f"{self.record.name}.{name}()", result, can_be_sent)
            self._answer_error(origin, frame, name, error)
            return
        try:
            self.hub.check_size(payload, buffers)
        except ValueError as error:
            explain(error, f"the result of {self.record.name}.{name}() cannot be sent")
            self._answer_error(origin, frame, name, error)
            return
        flags = prints.flag(origin.peer, self.hub.root) if prints.unshown else VALUE
        reply = new_frame(
            (REPLY, flags, frame.rank, self.uid, frame.sender, frame.request, b"", payload, buffers)
        )
        try:
            origin.send(reply)
        except BackpressureError:  # the caller does not read; the reply is queued for when it does
            pass

    def _answer_error(self, origin: Origin, frame: Frame, name: str, error: BaseException) -> None:
        message = f"Actor call {self.record.name}.{name.lstrip(chr(0))} failed."
        payload = dump_error(error, message)
        with suppress(BackpressureError):
            flags = ERROR | (prints.flag(origin.peer, self.hub.root) if prints.unshown else 0)
            origin.send(answer_to(frame, flags, payload))


def _nothing() -> None: ...
