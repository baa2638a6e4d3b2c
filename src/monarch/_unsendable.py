"""Errors of values that cannot be sent, with the part that makes a value unpicklable.

Callers that have just failed to pickle something: arguments of a call, results and exceptions of an
endpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any

CanBeSent = Callable[[Any], bool]
"""Tells whether a value pickles."""


def explain(error: Exception, what: str) -> None:
    """Make an error name the action that raised it; its class stays."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{what}: {error}",)
    elif hasattr(error, "add_note"):
        error.add_note(what)


def explain_arguments(
    error: Exception,
    call: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    can_be_sent: CanBeSent,
    cls: type | None = None,
) -> None:
    """Make the error of arguments that do not pickle name the one that is to blame.

    It also says what to do. `cls` is the class that travels with them, if one does.
    """
    named = [(f"argument {index + 1}", arg) for index, arg in enumerate(args)]
    named += [(f"argument {name!r}", arg) for name, arg in kwargs.items()]
    for name, arg in named:
        if not can_be_sent(arg):
            explain(error, f"{name} of {call}, {_describe_unsendable(arg, can_be_sent)}")
            return
    if cls is None or can_be_sent(cls):
        explain(error, f"the arguments of {call} cannot be sent")
        return
    path, part = find_unsendable(cls, can_be_sent)
    way = f"{cls.__qualname__}{path}".replace(_WHICH, " ", 1)
    explain(error, f"the class of {call} cannot be sent: {way}, {_kind(part)} ({_ADVICE})")


_WHICH = ", which "
_ADVICE = "make it inside the actor, or give its class a __getstate__"


def explain_result(error: Exception, call: str, result: Any, can_be_sent: CanBeSent) -> None:
    """Make the error of a result that does not pickle name the part that is to blame."""
    explain(error, f"the result of {call}, {_describe_unsendable(result, can_be_sent)}")


def _describe_unsendable(value: Any, can_be_sent: CanBeSent) -> str:
    path, part = find_unsendable(value, can_be_sent)
    because = (
        f"it {path[len(_WHICH) :]}" if path.startswith(_WHICH) else f"of its {path.lstrip('.')}"
    )
    where = f", cannot be sent because {because}, {_kind(part)}" if path else " cannot be sent"
    return f"{_kind(value)}{where} ({_ADVICE})"


def _kind(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}"


def find_unsendable(value: Any, can_be_sent: CanBeSent) -> tuple[str, Any]:
    """Find the innermost part that cannot be pickled.

    Returns how Python would reach it from `value`, and the part itself.

    Args:
        value: The value that has just failed to pickle.
        can_be_sent: Tries parts of it.
    """
    # another thread changes it, a key has no text: that it can't be sent is a hint as well
    with suppress(Exception):
        return _find(value, set(), can_be_sent) or ("", value)
    return "", value


def _find(value: Any, seen: set[int], can_be_sent: CanBeSent) -> tuple[str, Any] | None:
    """The way to the innermost part; None if all that is wrong with this one was seen before."""
    seen.add(id(value))
    whole = True
    for step, part in _parts(value):
        if can_be_sent(part):
            continue
        whole = False
        found = None if id(part) in seen else _find(part, seen, can_be_sent)
        if found is not None:
            return step + found[0], found[1]
    return ("", value) if whole else None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over the parts of a value that pickle visits, where its type leaves no doubt."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
        yield from ((f".keys() -> {key!r}", key) for key in value)
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from ((f" -> {part!r}", part) for part in value)
    elif isinstance(value, type):
        yield from _parts_of_class(value)
    elif isinstance(value, FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, (partial, MethodType)):
        names = ("func", "args", "keywords", "__func__", "__self__")
        yield from ((f".{name}", getattr(value, name)) for name in names if hasattr(value, name))
    elif isinstance(value, property):
        yield from (("", part) for part in (value.fget, value.fset, value.fdel))
    elif isinstance(found := getattr(value, "__wrapped__", None), FunctionType):
        yield "", found  # an endpoint, a method of the class, what `lru_cache` has made
    elif _is_plain(type(value)):
        yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())
        yield ".__class__", type(value)


def _parts_of_class(cls: type) -> Iterator[tuple[str, Any]]:
    for name, part in vars(cls).items():
        # those are made anew over there
        if name != "_abc_impl" and not isinstance(
            part, (GetSetDescriptorType, MemberDescriptorType)
        ):
            yield f".{name}", part
    for base in cls.__bases__:
        yield f", which inherits {base.__qualname__}", base


def _parts_of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    from cloudpickle import cloudpickle  # it is there: it has just failed

    closure = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, closure, strict=True):
        yield f", which uses {name}", cloudpickle._get_cell_contents(cell)
    for name in cloudpickle._extract_code_globals(function.__code__):
        if name in function.__globals__:
            yield f", which uses the global {name}", function.__globals__[name]
    for name in ("__defaults__", "__kwdefaults__", "__annotations__", "__dict__"):
        yield f".{name}", getattr(function, name)


def _is_plain(kind: type) -> bool:
    """Return whether pickle writes objects of this class by their attributes alone."""
    own = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
    return not any(name in vars(base) for base in kind.__mro__[:-1] for name in own)
