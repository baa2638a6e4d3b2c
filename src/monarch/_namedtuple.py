"""`typing.NamedTuple` at the price of `collections.namedtuple`, for what every process imports.

That of `typing` compiles the annotation of each field, to check it. Dozens of named tuples make that a tenth of the time to
import this package; type checkers have looked at the annotations before.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _FieldsFromAnnotations(type):
        def __new__(meta, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            if not bases:  # `NamedTuple` itself
                return super().__new__(meta, name, bases, namespace)
            fields = namespace["__annotations__"]
            defaults = [namespace.pop(field) for field in fields if field in namespace]
            made = namedtuple(name, fields, defaults=defaults, module=namespace.pop("__module__"))
            for key, value in namespace.items():
                setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_FieldsFromAnnotations):
        """Base of a class whose annotated names are its fields, in order; those with a value may be left out."""
