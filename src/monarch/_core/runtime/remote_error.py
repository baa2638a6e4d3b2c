"""Exceptions that cross processes: pickled where the endpoint raised, raised again where its caller waits."""

from __future__ import annotations

import os
import traceback
from contextlib import suppress
from types import TracebackType
from typing import Any

from ...errors import ActorError, RemoteException, SupervisionError
from ..supervision import failure as failure_module
from ..supervision.failure import Failure, MeshFailure
from ..wire import pickling
from ..wire.frame import DEAD, ERROR, EXCEPTION, Frame

_ENGINE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_HEADER = "Traceback (most recent call last):"
_REMOTE_HEADER = "Traceback of where the remote call failed (most recent call last):"


def dump_error(error: BaseException, message: str) -> bytes:
    """An exception as bytes that can always be read: a stand-in replaces what does not pickle."""
    return _dump(error, message, format_remote(error))


def relay_error(error: BaseException) -> bytes:
    """As `dump_error`, for what another call has raised here: an `ActorError` is passed on as it is."""
    if isinstance(error, ActorError):
        return _dump(error.exception, error.message, error.exception_formatted)
    return dump_error(error, "")


def _dump(error: BaseException, message: str, formatted: str) -> bytes:
    try:
        pickled = pickling.dumps_inline(error)
    except Exception as problem:
        stand_in = RemoteException(_type_name(error), _text(error), f"it could not be pickled: {_text(problem)}")
        pickled = pickling.dumps_inline(stand_in)
    parts = b""
    with suppress(Exception):
        parts = pickling.dumps_inline((type(error), error.args, vars(error)))
    return pickling.dumps_inline((pickled, parts, _type_name(error), _text(error), message, formatted))


def load_error(payload: Any) -> ActorError:
    """The `ActorError` for bytes written by `dump_error`."""
    pickled, parts, type_name, text, message, formatted = pickling.loads(payload)
    try:
        exception = pickling.loads(pickled)
        if not isinstance(exception, BaseException):
            raise TypeError(f"it was rebuilt as {exception!r}")
    except Exception as problem:
        exception = _rebuild(parts)
        if exception is None:
            exception = RemoteException(
                type_name, text, f"it could not be rebuilt: {type(problem).__name__}: {_text(problem)}"
            )
    return ActorError(exception, message, formatted)


failure_module.load_exception = lambda error: load_error(error).exception


def _rebuild(parts: bytes) -> BaseException | None:
    """The exception from its class, arguments and attributes, for classes whose constructor takes something else."""
    try:
        kind, args, attributes = pickling.loads(parts)
        try:
            exception = kind.__new__(kind, *args)
        except Exception:  # a `__new__` of its own, which takes something else
            exception = BaseException.__new__(kind)
        exception.args = args
        vars(exception).update(attributes)
    except Exception:
        return None
    return exception if isinstance(exception, BaseException) else None


def to_exception(frame: Frame, endpoint: str) -> BaseException:
    """What a reply that is not a value raises at the caller."""
    if frame.flags == ERROR:
        return load_error(frame.payload)
    if frame.flags == EXCEPTION:
        raised = pickling.loads(frame.payload, frame.buffers)
        return raised if isinstance(raised, BaseException) else RuntimeError(repr(raised))
    if frame.flags == DEAD:
        return supervision_error(pickling.loads(frame.payload), endpoint)
    raise AssertionError(f"unknown kind of reply {frame.flags}")


def supervision_error(failure: Failure, endpoint: str) -> SupervisionError:
    """The error of a caller whose callee is gone."""
    text = f"Endpoint call {endpoint} failed, {failure.explain()}"
    return SupervisionError(text, endpoint, MeshFailure(failure))


def format_remote(error: BaseException) -> str:
    """The traceback as users should read it: their frames, the chain of causes, none of ours."""
    shown = traceback.TracebackException(type(error), error, _without_engine(error.__traceback__), capture_locals=False)
    lines = list(shown.format())
    shown.__cause__ = shown.__context__ = None
    if shown.stack:
        own = len(lines) - len(list(shown.format()))  # where the last part of the chain begins
        lines[own] = lines[own].replace(_HEADER, _REMOTE_HEADER)
    return "".join(lines)


def _without_engine(tb: TracebackType | None) -> TracebackType | None:
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(_ENGINE):
        tb = tb.tb_next
    return tb


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:
        return f"<no text: its __str__ raised {type(problem).__name__}>"


def explain(error: Exception, what: str) -> None:
    """Make an error say what was being done when it came up; its class stays."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{what}: {error}",)
    elif hasattr(error, "add_note"):
        error.add_note(what)


def explain_arguments(error: Exception, call: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Make the error of arguments that do not pickle name the one that is to blame, and say what to do."""
    named = [(f"argument {index + 1}", arg) for index, arg in enumerate(args)]
    named += [(f"argument {name!r}", arg) for name, arg in kwargs.items()]
    for name, arg in named:
        try:
            pickling.dumps_inline(arg)
        except Exception:
            kind = type(arg)
            what = f"{name} of {call}, a {kind.__module__}.{kind.__qualname__}, cannot be sent"
            explain(error, f"{what} (make it inside the actor, or give its class a __getstate__)")
            return
    explain(error, f"the arguments of {call} cannot be sent")
