"""Exceptions as bytes that can always be written and always be read: a stand-in replaces what cannot."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...errors import ActorError, RemoteException
from ..supervision import failure
from ..wire import pickling


def dump_exception(error: BaseException) -> bytes:
    """An exception as bytes; the outer pickle holds builtins only."""
    kind = type(error)
    type_name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = text_of(error)
    try:
        pickled = pickling.dumps_inline(error)
    except Exception as problem:
        pickled = pickling.dumps_inline(
            RemoteException(type_name, text, f"it could not be pickled: {text_of(problem)}")
        )
    parts = b""
    if not isinstance(error, ActorError):  # those are read back whatever they hold
        with suppress(Exception):
            parts = pickling.dumps_inline((kind, error.args, vars(error)))
    return pickling.dumps_inline((pickled, parts, type_name, text))


def load_exception(data: Any) -> BaseException:
    """The exception for bytes written by `dump_exception`; runs the code of its class."""
    pickled, parts, type_name, text = pickling.loads(data)
    try:
        exception = pickling.loads(pickled)
        if not isinstance(exception, BaseException):
            raise TypeError(f"it was rebuilt as {exception!r}")
    except Exception as problem:
        why = f"it could not be rebuilt: {type(problem).__name__}: {text_of(problem)}"
        return _rebuild(parts) or RemoteException(type_name, text, why)
    return exception


failure.load_exception = load_exception


def _rebuild(parts: bytes) -> BaseException | None:
    """The exception from its class, arguments and attributes, for classes whose constructor takes something else."""
    try:
        kind, args, attributes = pickling.loads(parts)
        try:
            exception = kind.__new__(kind, *args)
        except Exception:  # a `__new__` of its own, which takes something else
            exception = BaseException.__new__(kind)
        object.__setattr__(exception, "args", args)  # whatever the class says about being changed
        vars(exception).update(attributes)
    except Exception:
        return None
    return exception if isinstance(exception, BaseException) else None


def text_of(error: BaseException) -> str:
    """``str(error)``, whatever that does."""
    try:
        return str(error)
    except Exception as problem:
        return f"<no text: its __str__ raised {type(problem).__name__}>"
