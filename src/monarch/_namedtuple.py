"""`typing.NamedTuple` at a tenth of its price, for what every process imports.

That of `typing` compiles the annotation of each field, to check it, and that of `collections` a
constructor: 80 µs for each class, which dozens of them make a tenth of the time to import this
package. Here the constructor is compiled when the first one is made, and the same from then on;
type checkers have looked at the annotations before. `check_fields` looks at the fields of one that
another process has sent.
"""

from __future__ import annotations

import reprlib
import sys

# what reads a field of `collections.namedtuple`
from collections import _tuplegetter  # type: ignore[attr-defined]
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple

    def compile_constructors() -> None:
        """Make the constructors of all classes so far, and take their annotations apart.

        A process that forks calls this; else each fork would make the same ones again.
        """

else:

    class _FieldsFromAnnotations(type):
        def __new__(meta, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            if not bases:  # `NamedTuple` itself
                return super().__new__(meta, name, bases, namespace)
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace[field] for field in fields if field in namespace}
            getters = {
                field: _tuplegetter(index, f"Field {index}") for index, field in enumerate(fields)
            }
            own = {
                "_fields": fields,
                "_field_defaults": defaults,
                "__match_args__": fields,
                "__slots__": (),
            }
            return type(name, (_Fields,), {**namespace, **getters, **own})

    class NamedTuple(metaclass=_FieldsFromAnnotations):
        """Base of a class with its annotated names as fields, in order.

        Those with a value may be left out.
        """

    class _Constructor:
        """Placeholder of a constructor, until an instance is made or the signature is read."""

        def __get__(self, instance: Any, owner: type) -> Any:
            names = ", ".join(owner._fields)
            text = f"lambda cls, {names}: new(cls, ({names},))" if names else "lambda cls: new(cls)"
            # compiled first: to evaluate a text makes Python forget that Ctrl-C ends the program
            # (its status is then 1)
            made = eval(compile(text, f"<constructor of {owner.__name__}>", "eval"), _ONLY_NEW)
            made.__defaults__ = tuple(owner._field_defaults.values())
            made.__name__, made.__qualname__ = "__new__", f"{owner.__qualname__}.__new__"
            owner.__new__ = made
            return made

    _ONLY_NEW = {"new": tuple.__new__, "__builtins__": {}}

    class _Fields(tuple):
        """The common base, with the names that `collections.namedtuple` has for it."""

        __slots__ = ()
        __new__ = _Constructor()

        @classmethod
        def _make(cls, values: Any) -> Any:
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **changes: Any) -> Any:
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"Got unexpected field names: {list(changes)!r}")
            return made

        __replace__ = _replace

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

        def __repr__(self) -> str:
            fields = ", ".join(
                f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)
            )
            return f"{type(self).__name__}({fields})"

    def compile_constructors() -> None:
        for each in _Fields.__subclasses__():
            each.__new__  # noqa: B018  # to look at it makes it
            _annotations(each)


def check_fields(record: tuple[Any, ...]) -> None:
    """Look whether each field of a record is as its annotation says, as type checkers read it.

    It may be any tuple with annotations. Values of ``Any``, and of types that are imported for type
    checkers alone, are not looked at.

    Raises:
        TypeError: One is not; the message has its name, its annotation and its value.
    """
    for value, (name, wanted) in zip(record, _annotations(type(record)).items(), strict=False):
        if type(value) is not wanted and not _fits(value, wanted):
            text = vars(type(record))["__annotations__"][name]
            wish = getattr(text, "__forward_arg__", text)
            raise TypeError(f"{type(record).__name__}.{name} is {wish}, not {reprlib.repr(value)}")


@cache
def _annotations(kind: type) -> dict[str, Any]:
    """The annotations of a record, by field; an annotation with parts as `_Parts`."""
    names, found = vars(sys.modules[kind.__module__]), {}
    for name, text in vars(kind).get("__annotations__", {}).items():
        try:
            found[name] = _parts(eval(getattr(text, "__forward_arg__", text), names))
        except (NameError, TypeError):  # it is imported for type checkers alone
            found[name] = Any
    return found


class _Parts(tuple[Any, str, Sequence[Any]]):
    """An annotation, taken apart once.

    The class of values, or several as `isinstance` takes them; where parts belong: ``"one of"``,
    ``"each"``, ``"items"``, ``"fields"`` or nowhere; and the annotations of a value's parts.
    """


@cache
def _parts(wanted: Any) -> Any:
    """Take an annotation apart, unless only the class of values matters, which stays as it is."""
    kind, args = get_origin(wanted) or wanted, get_args(wanted)
    if kind is float:
        return _Parts(((int, float), "", ()))
    if kind in (Union, UnionType):
        return _Parts((object, "one of", list(map(_parts, args))))
    if not isinstance(kind, type) or kind is Any:
        return Any
    if hasattr(kind, "_fields"):
        # its fields are looked up when a value is: a record may be in its own
        return _Parts((kind, "fields", ()))
    if not args or not issubclass(kind, Collection):
        return kind
    how = "items" if issubclass(kind, Mapping) else "each"
    if issubclass(kind, tuple) and args[-1] is not ...:
        how = "fields"
    return _Parts((kind, how, [_parts(each) for each in args if each is not ...]))


def _fits(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, _Parts):
        return wanted is Any or isinstance(value, wanted)
    kind, how, parts = wanted
    if not isinstance(value, kind):
        return False
    if how == "one of":
        return any(_fits(value, each) for each in parts)
    if how == "items":
        return all(_fits(each, parts[0]) and _fits(value[each], parts[1]) for each in value)
    if how == "each":
        return all(_fits(each, parts[0]) for each in value)
    if not how:
        return True
    parts = parts or list(_annotations(kind).values())
    if len(value) != len(parts):
        return False
    for one, part in zip(value, parts, strict=True):  # noqa: SIM110  # half the calls of `all`
        if type(one) is not part and not _fits(one, part):
            return False
    return True
