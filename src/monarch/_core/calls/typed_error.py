"""Errors of calls that are also of the type that the endpoint raised.

``except ValueError`` works around a call.

The classes are made when the first error of a type arrives, and forgotten with the last.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable
from contextlib import suppress
from types import BuiltinFunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, cast
from weakref import WeakValueDictionary

from ...errors import ActorError, RemoteException
from .exception_pickle import dump_exception, load_exception

_MISLEADING = (StopIteration, StopAsyncIteration, TimeoutError, RemoteException)
"""Of these types an error of a call must not be: the interpreter or the caller would take it for
its own.
"""
_classes: WeakValueDictionary[type, type[ActorError]] = WeakValueDictionary()


def actor_error(
    exception: BaseException, message: str, formatted: str = "", rank: Any = None
) -> ActorError:
    """An `ActorError`, of the type of `exception` as well where a class can be both."""
    # layouts may conflict, and constructors and attributes may raise
    with suppress(Exception):
        return _class_for(type(exception))(exception, message, formatted, rank)
    return ActorError(exception, message, formatted, rank)


class _Typed(ActorError):
    """Base of the classes made here."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Call no hook of the original, such as one that keeps a registry.

        It must not hear of our classes.
        """

    def __new__(cls, exception: BaseException, *args: Any) -> _Typed:
        error: _Typed = _native_new(cls)(cls, *exception.args)
        return error

    def __init__(self, exception: BaseException, message: str, formatted: str, rank: Any) -> None:
        _copy_attributes(exception, self)
        ActorError.__init__(self, exception, message, formatted, rank)
        if isinstance(self, SyntaxError):  # is shown without its text
            self.__notes__ = [str(self)]

    # an original that refuses to be changed does not refuse for us
    __setattr__ = BaseException.__setattr__
    __delattr__ = BaseException.__delattr__

    def __reduce__(self) -> tuple[Any, ...]:
        _, args, state = super().__reduce__()
        return _restore, (dump_exception(self.exception), *args[1:]), state


def _restore(exception: bytes, *args: Any) -> ActorError:
    return actor_error(load_exception(exception), *args)


def _class_for(kind: type[BaseException]) -> type[ActorError]:
    if issubclass(kind, _Typed):  # a call within a call: it is what the innermost endpoint raised
        return kind
    if (
        not issubclass(kind, Exception)
        or issubclass(kind, _MISLEADING)
        or type(kind) not in (type, ABCMeta)
    ):
        return ActorError
    if issubclass(ActorError, kind):
        return ActorError
    found = _classes.get(kind)
    if found is None:
        name = f"ActorError[{kind.__name__}]"
        attributes = {
            "__module__": ActorError.__module__,
            "__qualname__": name,
            "__doc__": ActorError.__doc__,
        }
        found = _classes[kind] = cast("Any", type(kind))(name, (_Typed, kind), attributes)
    return found


def _native_new(cls: type) -> Callable[..., Any]:
    """Return the interpreter's own ``__new__`` for objects of this layout.

    A program's may take something else, and do anything.
    """
    base: Any = cls
    while not isinstance(vars(base).get("__new__"), BuiltinFunctionType):
        base = base.__base__
    new: Callable[..., Any] = base.__new__
    return new


def _copy_attributes(source: BaseException, target: BaseException) -> None:
    """Copy attributes in slots, those that the interpreter keeps in C, and the rest.

    Notes are in the remote traceback already.
    """
    for base in type(source).__mro__:
        if base in (BaseException, object):
            continue
        for name, descriptor in vars(base).items():
            if (
                isinstance(descriptor, (MemberDescriptorType, GetSetDescriptorType))
                and name not in _NO_ATTRIBUTES
            ):
                # not set, or set by `__new__` and read-only
                with suppress(AttributeError, TypeError):
                    descriptor.__set__(target, descriptor.__get__(source))
    vars(target).update(
        {name: value for name, value in vars(source).items() if name != "__notes__"}
    )


_NO_ATTRIBUTES = ("__dict__", "__weakref__")
