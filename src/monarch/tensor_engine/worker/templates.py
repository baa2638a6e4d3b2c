"""Templates: functions with constant arguments, compiled to the text of a call.

That runs fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from .. import devices
from ..instructions import Definition, Input, Layout, Number, leaves

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
        function: The function that is called.
        writes: Positions of inputs that it writes to.
        definition: As the controller has sent it.
        seen: Whether it has run, so that how it lays out its results is known.
        call: The function of the inputs and the numbers.
    """

    call: Callable[[list[Any], tuple[Any, ...]], Any]

    def __init__(self, definition: Definition, function: Any) -> None:
        self.definition = definition
        self.path, self.args, self.kwargs, self.writes, _, self._layouts = definition
        given = (*self.args, *self.kwargs.values())
        if any(isinstance(arg, torch.device) and arg.type != "cpu" for arg in given):
            function = devices.around(function)
        self._operation = function
        self.seen = not any(self._layouts)
        self.function = function if self.seen else self._run_in_line
        self._compile()

    def _run_in_line(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, and lay out its results as the program takes them to be.

        Whether they are so already depends on nothing that differs between its calls.
        """
        result = self._operation(*args, **kwargs)
        found = leaves(result)
        made = [
            # a gradient that is not asked for is None here, and a tensor of fakes
            leaf if layout is None or leaf is None else in_line(leaf, layout, is_first=not index)
            for index, (leaf, layout) in enumerate(zip(found, self._layouts, strict=True))
        ]
        if not self.seen and all(new is old for new, old in zip(made, found, strict=True)):
            self.function = self._operation
            self._compile()
        self.seen = True
        return made if type(result) in (list, tuple) else made[0]

    def _compile(self) -> None:
        constants: list[Any] = []

        def constant(value: Any) -> str:
            constants.append(value)
            return f"c[{len(constants) - 1}]"

        text = call_text(
            "f", self, lambda position: f"v[{position}]", lambda position: f"n[{position}]",
            constant,
        )  # fmt: skip
        self.call = eval(f"lambda v, n: {text}", {"f": self.function, "c": constants})


def in_line(value: torch.Tensor, layout: Layout, is_first: bool) -> torch.Tensor:
    """Return the numbers of a result as the program takes them to be laid out.

    Args:
        value: One of the results of an operation.
        layout: Of that one.
        is_first: Whether it is the first. What comes beside it, statistics and room for the
            backward pass, may be as the kernel likes: it goes nowhere but into the kernel's mate.

    Raises:
        RuntimeError: They are of another shape or type.
    """
    shape, stride, offset, dtype = layout
    if tuple(value.shape) != shape or value.dtype != dtype:
        if not is_first:
            return value
        raise RuntimeError(
            f"the result is {value.dtype} of shape {tuple(value.shape)} on this rank, and {dtype} of"
            f" {shape} for the program, which knows it from fakes: call it in a remote function"
        )
    if value.stride() == stride and value.storage_offset() == offset:
        return value
    memory = torch.empty(layout.reach, dtype=dtype, device=value.device)
    return memory.as_strided(shape, stride, offset).copy_(value)


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
