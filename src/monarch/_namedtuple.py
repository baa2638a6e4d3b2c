"""`typing.NamedTuple` at a tenth of its price, for what every process imports.

That of `typing` compiles the annotation of each field, to check it, and that of `collections` a
constructor: 80 µs for each class, which dozens of them make a tenth of the time to import this
package. Here the constructor is compiled when the first one is made, and the same from then on;
type checkers have looked at the annotations before.
"""

from __future__ import annotations

# what reads a field of `collections.namedtuple`
from collections import _tuplegetter  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple

    def compile_constructors() -> None:
        """Make the constructors of all classes so far.

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
