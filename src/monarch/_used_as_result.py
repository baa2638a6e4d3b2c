"""Operators and attributes of a future that is taken for its result: each raises and names `get`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "matmul": "@", "truediv": "/", "floordiv": "//", "mod": "%",
    "divmod": "divmod()", "pow": "**", "lshift": "<<", "rshift": ">>", "and": "&", "xor": "^", "or": "|",
}  # fmt: skip
_OTHERS = {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "neg": "-", "pos": "+", "invert": "~", "abs": "abs()",
    "round": "round()", "int": "int()", "float": "float()", "complex": "complex()", "len": "len()",
    # no `__iter__`, by which it would count as iterable: to iterate is to ask for item 0, as well
    "index": "value as a whole number", "getitem": "items, by index or one after the other",
    "setitem": "items to set", "delitem": "items to delete",
}  # fmt: skip
_ATTRIBUTES = """
    append count copy extend index insert pop remove sort keys update values items item sizes extent
    flatten slice points shape dtype device ndim size grad backward detach clone to cpu cuda numpy
    tolist sum mean max min any all argmax reshape view squeeze unsqueeze format join lower upper
    replace split strip startswith endswith encode decode read write
"""
"""No `__getattr__`, with which Python 3.11 reads all attributes of a future 17 ns more slowly."""


class UsedAsResult:
    """Base of `Future`: operators, and attributes that results often have.

    Type checkers are told of none. ``==`` and hashing are those of any object.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        return True  # else `__len__` would be asked

    def __format__(self, spec: str) -> str:
        if spec:
            _refusal(f"format {spec!r}")(self)
        return str(self)

    def __dir__(self) -> list[str]:
        return sorted(set(super().__dir__()) - set(_ATTRIBUTES.split()))


def _refusal(use: str, kind: type[Exception] = TypeError) -> Callable[..., NoReturn]:
    def refuse(future: object, *_: object) -> NoReturn:
        raise kind(
            f"a Future has no {use}: it is not its result. Write `future.get()`, or `await future`"
            f" in async code, and use what that gives. This is {future!r}"
        )

    return refuse


_refusals: dict[str, Any] = {
    f"__{name}__": _refusal(use if " " in use else f"`{use}`")
    for name, use in (_OPERATORS | _OTHERS).items()
}
_refusals |= {f"__r{name}__": _refusals[f"__{name}__"] for name in _OPERATORS}
for _name in _ATTRIBUTES.split():
    _refusals[_name] = property(_refusal(f"attribute {_name!r}", AttributeError))
for _name, _value in _refusals.items():
    setattr(UsedAsResult, _name, _value)
