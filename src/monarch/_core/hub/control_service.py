"""The process as an actor: control records arrive at the id `SYSTEM`, and go to their handlers.

A handler runs on the poller's thread, or on the thread of this process that sent the record, and
must not block. It is called as ``handler(service, request, record)``, where `request` is the way to
answer, now or later. The methods of a service that are marked with ``@handles(Record)`` are its
handlers; a plane has functions, so marked, at the point `control`. They are looked up, and imported,
when the first record of their module comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

from ..._lazy import counted_logger
from ..._namedtuple import check_fields
from ...errors import BackpressureError
from ..calls.remote_error import dump_error
from ..extension import control
from ..supervision.failure import Failure
from ..wire import pickling
from ..wire.address import SYSTEM, ProcAddress
from ..wire.frame import CALL, DEAD, ERROR, REPLY, VALUE, Bytes, Frame
from .contracts import Origin
from .control_records import HostDescription, name_on_wire
from .message_hub import MessageHub

logger = counted_logger("monarch.runtime")

S = TypeVar("S")
R = TypeVar("R")
Handler = Callable[[Any, "ControlRequest", Any], None]
_Entry = tuple[type, Handler]  # a kind of record, and what takes it

_RECORD = "handled_record"
_of_planes: dict[bytes, _Entry] = {}


class ControlRequest:
    """A control record that has arrived, and the way to answer it, from any thread.

    Attributes:
        origin: Where it came from.
        frame: In which it came.
    """

    __slots__ = ("frame", "origin")

    def __init__(self, origin: Origin, frame: Frame) -> None:
        self.origin = origin
        self.frame = frame

    @property
    def peer(self) -> ProcAddress:
        """The process that has sent it."""
        return self.origin.peer

    @property
    def rank(self) -> int:
        """The rank with which it was sent to this process."""
        return self.frame.rank

    def answer(self, value: Any = None, meta: bytes = b"") -> None:
        """Answer with a value. A subscriber is answered any number of times."""
        if self.frame.request:
            self._reply(VALUE, *pickling.dumps(value), meta=meta)

    def fail(self, error: BaseException) -> None:
        """Answer with an error."""
        if self.frame.request:
            self._reply(ERROR, dump_error(error, f"The control record {self.name} failed."))

    def refuse(self, failure: Failure) -> None:
        """Answer with the end of what the record is about."""
        self._reply(DEAD, pickling.dumps(failure)[0])

    def send_back(self, record: tuple[Any, ...]) -> None:
        """Send a record of its own over the connection on which this one came."""
        content = pickling.dumps_call(tuple(record), {})
        self.origin.send(Frame(CALL, 0, 0, SYSTEM, 0, 0, name_on_wire(type(record)), *content))

    @property
    def name(self) -> str:
        """The record's name on the wire."""
        return self.frame.meta.decode(errors="backslashreplace")

    def _reply(self, kind: int, payload: Bytes, buffers: Any = (), meta: bytes = b"") -> None:
        _, _, rank, _, sender, number, _, _, _ = self.frame
        with suppress(BackpressureError):  # it is queued, for when the sender reads
            self.origin.send(
                Frame(REPLY, kind, rank, SYSTEM, sender, number, meta, payload, buffers)
            )


def handles(
    record: type[R],
) -> Callable[[Callable[[S, ControlRequest, R], None]], Callable[[S, ControlRequest, R], None]]:
    """Mark a method of a `ControlService`, or a function of a plane, as a record's handler."""

    def mark(
        handler: Callable[[S, ControlRequest, R], None],
    ) -> Callable[[S, ControlRequest, R], None]:
        setattr(handler, _RECORD, record)
        return handler

    return mark


def _table(handlers: Iterable[Handler]) -> dict[bytes, _Entry]:
    kinds = [(getattr(handler, _RECORD), handler) for handler in handlers]
    return {name_on_wire(kind): (kind, handler) for kind, handler in kinds}


class ControlService:
    """Takes the control records of one process."""

    _handlers: ClassVar[Mapping[bytes, _Entry]] = {}

    def __init_subclass__(cls) -> None:
        marked = _table(value for value in vars(cls).values() if hasattr(value, _RECORD))
        cls._handlers = {**cls._handlers, **marked}

    def __init__(self, hub: MessageHub) -> None:
        self.hub = hub
        hub.register(SYSTEM, self)

    def describe_host(self, ended: bool = False) -> HostDescription:
        """Return what runs on this host; see `DescribeHost`.

        Raises:
            LookupError: This process is not the agent, which knows it.
        """
        raise LookupError(f"{self.hub.address} is no host agent")

    def receive(self, origin: Origin, frame: Frame) -> None:
        request = ControlRequest(origin, frame)
        try:
            name = frame.meta
            entry = self._handlers.get(name) or _of_planes.get(name) or _of_new_plane(request)
            if entry is None:  # the sender's business alone: it may be of a later version
                why = f"{type(self).__name__} takes no control record {request.name!r}"
                return request.fail(LookupError(why))
            kind, handler = entry
            try:
                record = kind(*pickling.loads(frame.payload, frame.buffers)[0])
                check_fields(record)
            except Exception as error:  # the sender's, as well
                logger.warning("a control record %s can't be read: %s", request.name, repr(error))
                return request.fail(error)
            handler(self, request, record)
        except Exception as error:
            logger.exception("internal error in the control record %s", request.name)
            request.fail(error)


def _of_new_plane(request: ControlRequest) -> _Entry | None:
    """Find the handlers of the module that a record is of, if a guest has some.

    Raises:
        TypeError: One of them is not marked.
    """
    handlers = control.get(request.name.rpartition(".")[0], installed=True) or ()
    for handler in handlers:
        if not hasattr(handler, _RECORD):
            raise TypeError(
                f"{handler} does not say which records it takes: mark it with @handles(Record)"
            )
    _of_planes.update(_table(handlers))
    return _of_planes.get(request.frame.meta)
