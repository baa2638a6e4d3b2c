"""What programs do with a future that they take for its result: each raises, and names `get`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "matmul": "@", "truediv": "/", "floordiv": "//",
    "mod": "%", "divmod": "divmod()", "pow": "**", "lshift": "<<", "rshift": ">>",
    "and": "&", "xor": "^", "or": "|",
}  # fmt: skip
_OTHERS = {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "neg": "-", "pos": "+", "invert": "~",
    "abs": "abs()", "round": "round()", "int": "int()", "float": "float()",
    "complex": "complex()", "index": "value as a whole number", "len": "len()",
    # no `__iter__`, by which it would count as iterable: to iterate is to ask for item 0, as well
    "getitem": "items, by index or one after the other", "setitem": "items to set", "delitem": "items to delete",
}  # fmt: skip
_ATTRIBUTES = frozenset({
    # no `__getattr__`, with which Python 3.11 reads all attributes of a future 17 ns more slowly
    "append", "count", "copy", "extend", "index", "insert", "pop", "remove", "sort", "keys",
    "update", "values", "items", "item", "sizes", "extent", "flatten", "slice", "points", "shape",
    "dtype", "device", "ndim", "size", "grad", "backward", "detach", "clone", "to", "cpu", "cuda",
    "numpy", "tolist", "sum", "mean", "max", "min", "any", "all", "argmax", "reshape", "view",
    "squeeze", "unsqueeze", "format", "join", "lower", "upper", "replace", "split", "strip",
    "startswith", "endswith", "encode", "decode", "read", "write",
})  # fmt: skip


def _explain(future: object, use: str) -> str:
    return (
        f"a Future has no {use}: it is not its result. Write `future.get()`, or `await future` in"
        f" async code, and use what that gives. This is {future!r}"
    )


def _refusal(use: str, kind: type[Exception] = TypeError) -> Callable[..., NoReturn]:
    def refuse(future: object, *args: object) -> NoReturn:
        raise kind(_explain(future, use))

    return refuse


def _refusals() -> dict[str, Any]:
    found: dict[str, Any] = {"__slots__": ()}
    for name, use in (_OPERATORS | _OTHERS).items():
        found[f"__{name}__"] = refusal = _refusal(use if " " in use else f"`{use}`")
        if name in _OPERATORS:
            found[f"__r{name}__"] = refusal
    for name in _ATTRIBUTES:
        found[name] = property(_refusal(f"attribute {name!r}", AttributeError))
    return found


if TYPE_CHECKING:

    class _Refusing:
        pass
else:
    _Refusing = type("_Refusing", (), _refusals())


class UsedAsResult(_Refusing):
    """Base of `Future`: operators, and attributes that results often have.

    Type checkers are told of none. ``==`` and hashing are those of any object.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        return True  # else `__len__` would be asked

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(_explain(self, f"format {spec!r}"))
        return str(self)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _ATTRIBUTES]
