"""torch's databases of modules, optimizers and wrong arguments, as entries like those of operations.

A module is called with its state as tensors, and gives its results, its buffers and its gradients. An
optimizer makes three steps. A wrong argument must raise on a mesh what it raises here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

_STEPS = 3


class Sample(NamedTuple):
    """A sample as torch has those of operations; what it calls may be its own."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    call: Callable[..., Any] | None = None


class Entry:
    """An entry of a database, with the part of an operation's interface that is used.

    Args:
        name: For people.
        make: Makes its samples.
        raises: Whether each of them is a mistake.
    """

    variant_test_name = ""

    def __init__(
        self, name: str, make: Callable[[], Iterator[Sample]], raises: bool = False
    ) -> None:
        self.name = name
        self.raises = raises
        self._make = make

    def supported_dtypes(self, device: str) -> tuple[torch.dtype, ...]:
        return (torch.float32,)

    def sample_inputs(self, device: str, dtype: torch.dtype, **_: Any) -> Iterator[Sample]:
        return self._make()


def modules() -> list[Entry]:
    """The modules, in training and in evaluation."""
    from torch.nn.parameter import is_lazy
    from torch.testing._internal.common_modules import module_db

    def samples(info: Any) -> Iterator[Sample]:
        for training in (True, False):
            for given in info.module_inputs_func(info, "cpu", torch.float32, False, training):
                made, forward = given.constructor_input, given.forward_input
                if forward is None:
                    continue
                module = info.module_cls(*made.args, **made.kwargs).train(training)
                state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
                if any(map(is_lazy, state.values())):
                    continue  # which a program is told to make first
                state = {name: value.detach() for name, value in state.items()}
                yield Sample(state, forward.args, forward.kwargs, _called(module))

    return [Entry(info.name, lambda info=info: samples(info)) for info in module_db]  # type: ignore[misc]


def _called(module: torch.nn.Module) -> Callable[..., Any]:
    wanted = {name for name, _ in module.named_parameters()}

    def call(state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        state = {
            name: value.detach().requires_grad_(name in wanted and value.is_floating_point())
            for name, value in state.items()
        }
        result = torch.func.functional_call(module, state, args, kwargs)
        learned = [value for value in state.values() if value.requires_grad]
        outputs = [
            leaf
            for leaf in pytree.tree_leaves(result)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        gradients = (
            torch.autograd.grad([each.sum() for each in outputs], learned, allow_unused=True)
            if learned and outputs
            else ()
        )
        kept = [value for name, value in state.items() if name not in wanted]
        return result, kept, [each for each in gradients if each is not None]

    return call


def optimizers() -> list[Entry]:
    """The optimizers, with each choice of their arguments."""
    from torch.testing._internal.common_optimizers import optim_db

    def samples(info: Any) -> Iterator[Sample]:
        for given in info.optim_inputs_func("cpu"):
            options = {key: value for key, value in given.kwargs.items() if key != "params"}
            shape = (4, 3) if info.optim_cls.__name__ == "Muon" else (4,)
            values = [torch.linspace(-1, 1, 12)[: math.prod(shape)].reshape(shape)]
            yield Sample(values, (), options, _stepped(info.optim_cls))

    return [Entry(info.name, lambda info=info: samples(info)) for info in optim_db]  # type: ignore[misc]


def _stepped(kind: Any) -> Callable[..., Any]:
    def call(values: list[Any], **options: Any) -> Any:
        parameters = [torch.nn.Parameter(value) for value in values]
        optimizer = kind(parameters, **options)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = sum((each * each).sum() for each in parameters)
            loss.backward()  # type: ignore[union-attr]
            return loss

        for _ in range(_STEPS):
            optimizer.step(closure)
        return [each.detach() for each in parameters]

    return call


def name_of(operation: Any) -> str:
    """The name of an entry, which no other entry of its database has."""
    return ".".join(filter(None, (operation.name, operation.variant_test_name)))


def mistakes(operations: list[Any]) -> list[Entry]:
    """Wrong arguments of operations."""

    def samples(operation: Any) -> Iterator[Sample]:
        for each in operation.error_inputs("cpu"):
            given = each.sample_input
            yield Sample(given.input, given.args, given.kwargs, operation.op)

    return [
        Entry(name_of(operation), lambda operation=operation: samples(operation), raises=True)  # type: ignore[misc]
        for operation in operations
        if operation.error_inputs_func is not None
    ]
