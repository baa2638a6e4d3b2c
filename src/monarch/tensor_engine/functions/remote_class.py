"""Pairs of classes: a proxy in the program, and its remote class on every rank.

Calls of the proxy reach an object of the remote class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from .opaque_object import OpaqueObject

C = TypeVar("C", bound="ControllerRemoteClass")
P = ParamSpec("P")


class WorkerRemoteClass:
    """Base of what lives on the ranks: an ordinary class.

    An object goes when its proxy does, so that ``__del__`` runs there.
    """


class ControllerRemoteClass:
    """Base of a proxy.

    Methods with `remote_method` are called on the object of each rank, one way; nothing comes back.

    Args:
        worker: A `WorkerRemoteClass`, or its dotted name.
        *args: Arguments of its constructor.
        **kwargs: As `args`.

    Raises:
        ValueError: There is no tensor among the arguments, and no active mesh.
    """

    def __init__(self, worker: Any, *args: Any, **kwargs: Any) -> None:
        self._there = OpaqueObject(worker, *args, **kwargs)


def remote_method(method: Callable[Concatenate[C, P], None]) -> Callable[Concatenate[C, P], None]:
    """A method of a `ControllerRemoteClass`; its body is not executed.

    The method of the same name runs on the ranks.

    Args:
        method: A method without a body.
    """

    @functools.wraps(method)
    def call(self: C, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._there.call_method(method.__name__, "inspect", *args, **kwargs)

    return call
