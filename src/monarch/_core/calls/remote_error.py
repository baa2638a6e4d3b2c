"""Exceptions that cross processes: pickled where the endpoint raised, raised where its caller waits.

The cells of actors dump them; requests, futures and ports load them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..._words import tame
from ...errors import ActorError, InternalError, SupervisionError
from ..supervision.failure import Failure, MeshFailure
from ..wire import pickling
from ..wire.frame import CANCELLED, ERROR, EXCEPTION, Frame
from . import delivered_failures
from .cancelled import cancelled_error
from .exception_pickle import dump_exception, load_exception
from .rebuild import rebuild
from .typed_error import actor_error

if TYPE_CHECKING:
    import traceback

_CORE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# packages with frames that are hidden from users
_ENGINE = tuple(
    os.path.join(os.path.dirname(_CORE), name, "")
    for name in ("_core", "_guards", "actor", "debugger")
)
_HEADER = "Traceback (most recent call last):"
_REMOTE_HEADER = "Traceback of where the remote call failed (most recent call last):"


def dump_error(error: BaseException, message: str) -> bytes:
    """Encode an exception and its description, for `load_error`."""
    return pickling.dumps_inline((dump_exception(error), message, format_remote(error)))


def relay_error(error: BaseException) -> bytes:
    """As `dump_error`, for what another call has raised here: an `ActorError` stays as it is."""
    if isinstance(error, ActorError):
        return pickling.dumps_inline(
            (dump_exception(error.exception), error.message, error.exception_formatted)
        )
    return dump_error(error, "")


def load_error(payload: Any, rank: Any = None) -> ActorError:
    """The error of a call, for bytes written by `dump_error`."""
    exception, message, formatted = pickling.loads(payload)
    return actor_error(load_exception(exception), message, with_lines(formatted), rank)


def said_by(reply: Frame) -> str:
    """Return the text of a raised reply, without running code of the exception's class."""
    if reply.flags == EXCEPTION:
        return tame(reply.meta.decode(), True).rstrip()
    _, message, formatted = pickling.loads(reply.payload)
    return tame(f"{message}\n {formatted}", True).rstrip()


def to_exception(reply: Frame | Failure, endpoint: str, rank: Any = None) -> BaseException:
    """Make the exception that a reply without a value raises at the caller."""
    lost = delivered_failures.loss(reply)
    if lost is not None:
        return supervision_error(lost, endpoint)
    assert isinstance(reply, Frame)
    if reply.flags == ERROR:
        return load_error(reply.payload, rank)
    if reply.flags == EXCEPTION:
        raised = rebuild(pickling.loads, reply.payload, reply.buffers)
        return raised if isinstance(raised, BaseException) else RuntimeError(repr(raised))
    if reply.flags == CANCELLED:
        return cancelled_error(endpoint)
    raise InternalError(f"{endpoint} got a reply of unknown kind {reply.flags}")


def read_answer(reply: Frame | Failure, lost: Callable[[Failure], Exception] | None = None) -> Any:
    """The value of the answer to a control record.

    Args:
        reply: The answer, or why there is none.
        lost: Makes the exception for a process that has ended; by default a `SupervisionError`.

    Raises:
        Exception: The handler's error, or the one that `lost` has made.
    """
    failure = delivered_failures.loss(reply)
    if failure is not None:
        raise lost(failure) if lost is not None else supervision_error(failure, "ask()")
    assert isinstance(reply, Frame)
    if reply.flags == ERROR:
        raise load_error(reply.payload).exception
    return pickling.loads(reply.payload, reply.buffers)


def refusal(reply: Frame) -> str | None:
    """Why the answer to a control record is none, in words; None of one that is."""
    if reply.flags == ERROR:
        return str(load_error(reply.payload).exception)
    failure = delivered_failures.loss(reply)
    return None if failure is None else failure.reason


def supervision_error(failure: Failure, endpoint: str) -> SupervisionError:
    """The error of a caller when the callee is gone."""
    delivered_failures.note(failure)
    text = with_lines(f"Endpoint call {endpoint} failed, {failure.explain()}")
    return SupervisionError(text, endpoint, MeshFailure(failure))


def format_remote(error: BaseException) -> str:
    """The traceback as users should read it: their frames, the chain of causes, none of ours."""
    import traceback  # 2 ms

    shown = traceback.TracebackException.from_exception(error, lookup_lines=False)
    for part in _parts(shown):
        part.stack[:] = [frame for frame in part.stack if not frame.filename.startswith(_ENGINE)]
    lines = list(shown.format())
    shown.__cause__ = shown.__context__ = None
    if shown.stack:
        own = len(lines) - len(list(shown.format()))  # where the last part of the chain begins
        lines[own] = lines[own].replace(_HEADER, _REMOTE_HEADER)
    return "".join(lines)


def _parts(shown: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """The exception, what led to it, and what it groups."""
    pending = [shown]
    while pending:
        part = pending.pop()
        yield part
        pending += filter(
            None, (part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ()))
        )


def with_lines(text: str) -> str:
    """A traceback of another process, with the lines that only this one knows.

    Those of cells, and of a prompt. Left out is what a terminal would obey, but for colours.
    """
    text = tame(text, True)
    if 'File "' not in text:
        return text
    import linecache
    import re

    def line_of(place: re.Match[str]) -> str:
        whole, indent, name, number = place[0], place[1], place[2], int(place[3])
        line = linecache.getline(name, number).strip() if name in linecache.cache else ""
        return f"{whole}{indent}  {line}\n" if line else whole

    frame = r'^([ |]*)File "([^"\n]+)", line (\d+)(?:, in .*)?\n(?!\1  \S)'
    return re.sub(frame, line_of, text, flags=re.MULTILINE)
