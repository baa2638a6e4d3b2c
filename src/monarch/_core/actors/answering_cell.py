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
from ..hub.open_response import OpenResponse
from ..wire import pickling
from ..wire.address import ProcAddress
from ..wire.frame import ERROR, REPLY, VALUE, Frame, new_frame
from .base_cell import BaseCell
from .ports import Port, ResponsePort


class AnsweringCell(BaseCell):
    """An actor that is called: results, errors, and ports through which endpoints answer."""

    def _response_port(self, origin: Origin, frame: Frame) -> Port[Any]:
        answer, here = answer_to(frame, VALUE), self.hub.address
        if not frame.request:  # no caller waits for it
            return Port(origin.peer, answer)
        key = origin.peer, frame.request, frame.rank
        head = frame._replace(payload=b"", buffers=())
        check = functools.partial(self._check_response, key)
        self.hub.open_responses[key] = OpenResponse(self.uid, origin, head, here, check)
        return ResponsePort(origin.peer, answer, here, self.hub)

    def _check_response(self, key: tuple[ProcAddress, int, int]) -> None:
        """Tell the caller if nobody is left to answer it."""
        unanswered = self.hub.open_responses.get(key)
        # an actor that ends tells the better reason to everybody who waits
        if self.ending is not None or unanswered is None or not unanswered.is_lost():
            return
        self.hub.open_responses.pop(key, None)
        origin, frame = unanswered.origin, unanswered.frame
        if unanswered.death is not None:
            self.hub.refuse(origin, frame, unanswered.death)
            return
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
