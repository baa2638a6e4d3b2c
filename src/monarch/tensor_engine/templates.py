"""Templates: functions with constant arguments, compiled to the text of a call.

That runs fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .instructions import Input, Number

EXACT = (int, bool, type(None))
"""Types of constants that are written into the text as they are."""


class Arguments(Protocol):
    """The arguments of a template: `Input` and `Number` stand for what differs per call."""

    @property
    def args(self) -> Any: ...
    @property
    def kwargs(self) -> Any: ...


class Template:
    """A function and its constant arguments.

    Attributes:
        path: How the function is called.
        writes: Positions of inputs that it writes to.
        call: The function of the inputs and the numbers.
    """

    def __init__(
        self,
        path: str,
        function: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        writes: tuple[int, ...],
    ) -> None:
        self.path = path
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.writes = writes
        constants: list[Any] = []

        def constant(value: Any) -> str:
            constants.append(value)
            return f"c[{len(constants) - 1}]"

        text = call_text(
            "f",
            self,
            lambda position: f"v[{position}]",
            lambda position: f"n[{position}]",
            constant,
        )
        self.call: Callable[[list[Any], tuple[Any, ...]], Any] = eval(
            f"lambda v, n: {text}", {"f": function, "c": constants}
        )


def call_text(
    function: str,
    template: Arguments,
    value: Callable[[int], str],
    number: Callable[[int], str],
    constant: Callable[[Any], str],
) -> str:
    """The call of a template as text, as that is what runs fastest; the text is all ours."""

    def text(arg: Any) -> str:
        if type(arg) is Input:
            return value(arg.position)
        if type(arg) is Number:
            return number(arg.position)
        if type(arg) is list:
            return f"[{', '.join(map(text, arg))}]"
        if type(arg) is tuple:
            return f"({''.join(text(each) + ', ' for each in arg)})"
        return repr(arg) if type(arg) in EXACT else constant(arg)

    parts = [
        *map(text, template.args),
        *(f"{name}={text(arg)}" for name, arg in template.kwargs.items()),
    ]
    return f"{function}({', '.join(parts)})"
