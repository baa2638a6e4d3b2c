"""Objects of the user's own classes on every rank.

Their methods take and return distributed tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from ...actor import Future
from ..worker.functions import find
from .opaque import OpaqueRef
from .remote_functions import Remote, call_on_shard_and_fetch, remote

O = TypeVar("O", bound="OpaqueObject")  # noqa: E741  # an object
P = ParamSpec("P")
R = TypeVar("R")


class OpaqueObject:
    """An object on each rank of a mesh.

    The mesh is that of the tensors among the arguments, else the active one.

    It lives as long as this handle does. Derive from it and give the methods rules with
    `opaque_method`, or use `call_method`.

    Args:
        constructor: A class or function that each rank calls, or the dotted name of one, which need
            not be importable here.
        *args: Its arguments; distributed tensors arrive as the rank's own.
        **kwargs: As `args`.

    Raises:
        TypeError: `constructor` is neither callable nor a dotted name; a tensor is a local one.
        ValueError: There is no tensor among the arguments, and no active mesh.
    """

    def __init__(self, constructor: Any, *args: Any, **kwargs: Any) -> None:
        if not (callable(constructor) or (isinstance(constructor, str) and "." in constructor)):
            raise TypeError(
                f"constructor is something callable or the dotted name of it, got {constructor!r}"
            )
        self._object: OpaqueRef = _constructed(constructor, args, kwargs)
        self._without_rule: dict[tuple[str, Any], Remote[..., Any]] = {}

    def call_method(self, name: str, propagate: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the objects.

        Args:
            name: Of the method.
            propagate: As for `remote`; a rule gets this handle, then the arguments.
            *args: Arguments.
            **kwargs: As `args`.

        Returns:
            What the rule says, with distributed tensors.

        Raises:
            TypeError: The tensors do not belong together.
        """
        if callable(propagate):
            rule = propagate
            call: Remote[..., Any] = Remote(
                _CALL, lambda ref, name, args, kwargs: rule(self, *args, **kwargs)
            )
            return call(self._object, name, args, kwargs)
        if (name, propagate) not in self._without_rule:
            self._without_rule[name, propagate] = Remote(_CALL, propagate)
        return self._without_rule[name, propagate](self._object, name, args, kwargs)

    def call_method_on_shard_and_fetch(
        self, name: str, *args: Any, shard: dict[str, int] | None = None, **kwargs: Any
    ) -> Future[Any]:
        """Call a method of the object of one rank; a future of what it returned.

        Args:
            name: Of the method.
            *args: Arguments.
            shard: Coordinates of the rank: all of them, or none for the first.
            **kwargs: As `args`.
        """
        return call_on_shard_and_fetch(remote(_CALL), self._object, name, args, kwargs, shard=shard)


def opaque_method(rule: Callable[Concatenate[O, P], R]) -> Callable[Concatenate[O, P], R]:
    """Mark a method of an `OpaqueObject`'s subclass as one of the objects on the ranks.

    Its body is its rule: it gets fake tensors, and returns such as the method of the same name on
    the ranks will return.

    Args:
        rule: The method: its name is looked up on the ranks, and its body is the rule.

    Returns:
        The method, which runs on the ranks.
    """

    @functools.wraps(rule)
    def method(self: O, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.call_method(rule.__name__, rule, *args, **kwargs)
        return result

    return method


_CALL = f"{__name__}._call"


def _call(ref: OpaqueRef, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return getattr(ref.value, name)(*args, **kwargs)


@remote(propagate=lambda constructor, args, kwargs: OpaqueRef(None))
def _constructed(constructor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpaqueRef:
    make = find(constructor) if isinstance(constructor, str) else constructor
    with torch.enable_grad():
        return OpaqueRef(make(*args, **kwargs))
