"""Exceptions as bytes that can always be written and always be read.

Attributes of an exception that can't be pickled, such as the open response in an `HTTPError`, are
None over there; a stand-in replaces an exception of which not even that is left.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...errors import ActorError, RemoteException
from ..supervision import failure
from ..wire import pickling
from .rebuild import rebuild


def dump_exception(error: BaseException) -> bytes:
    """An exception as bytes; the outer pickle holds builtins only."""
    kind = type(error)
    is_builtin = kind.__module__ == "builtins"
    type_name = kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"
    text = text_of(error)
    pickled = parts = b""
    why = ""
    try:
        pickled = pickling.dumps_inline(error)
    except Exception as problem:
        why = f"it could not be pickled: {text_of(problem)}"
    if not isinstance(error, ActorError):  # those can be read back with any content
        with suppress(Exception):
            parts = _dump_parts(error, whole=not why)
    return pickling.dumps_inline((pickled, parts, type_name, text, why))


def _dump_parts(error: BaseException, whole: bool) -> bytes:
    """Pickle an exception's class, arguments and attributes.

    Args:
        whole: Whether all of them can be pickled.
    """
    args, attributes = error.args, vars(error)
    if not whole:
        args = tuple(arg if can_be_sent(arg) else None for arg in args)
        attributes = {
            name: value if can_be_sent(value) else None for name, value in attributes.items()
        }
    return pickling.dumps_inline((type(error), args, attributes))


def load_exception(data: Any) -> BaseException:
    """The exception for bytes written by `dump_exception`; runs the code of its class."""
    pickled, parts, type_name, text, why = pickling.loads(data)
    if not why:
        try:
            exception = rebuild(pickling.loads, pickled)
            if isinstance(exception, BaseException):
                return exception
            why = f"it was rebuilt as {exception!r}"
        except Exception as problem:
            why = f"it could not be rebuilt: {type(problem).__name__}: {text_of(problem)}"
    with suppress(Exception):
        return rebuild(_from_parts, parts)
    return RemoteException(type_name, text, why)


failure.load_exception = load_exception


def _from_parts(parts: bytes) -> BaseException:
    """Make an exception from what `_dump_parts` wrote.

    For classes with a constructor that takes something else than their ``args``.

    Raises:
        Exception: It can't be made.
    """
    kind, args, attributes = pickling.loads(parts)
    try:
        exception = kind.__new__(kind, *args)
    except Exception:  # a `__new__` of its own, which takes something else
        exception = BaseException.__new__(kind)
    object.__setattr__(exception, "args", args)  # the class may forbid changes
    vars(exception).update(attributes)
    if not isinstance(exception, BaseException):
        raise TypeError(f"it was made as {exception!r}")
    return exception


def text_of(error: BaseException) -> str:
    """``str(error)``, or words for it if that raises."""
    try:
        return str(error)
    except Exception as problem:
        return f"<no text: its __str__ raised {type(problem).__name__}>"


def can_be_sent(value: Any) -> bool:
    """Return whether a value pickles."""
    try:
        pickling.dumps_inline(value)
    except Exception:
        return False
    return True
