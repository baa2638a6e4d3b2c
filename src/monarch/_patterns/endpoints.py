"""Endpoints of methods that are not decorated, and calls with answers that go to a port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._core.actors.adverbs import Endpoint
from .._core.actors.endpoint import EndpointDefinition, describe_class
from .._core.actors.ports import Port
from .._core.calls.function_kinds import is_async_function
from .._core.mesh.actor_mesh import NotAnEndpoint


def as_endpoint(
    method: Callable[..., Any], *, propagate: Any = None, explicit_response_port: bool = False
) -> Endpoint[..., Any]:
    """The adverbs for a method that is not decorated.

    Args:
        method: ``mesh.method`` of a spawned mesh.
        propagate: As for `endpoint`.
        explicit_response_port: As for `endpoint`.

    Raises:
        ValueError: `method` is not an attribute of a spawned mesh, or it is ``async def`` and the
            actor has no event loop, as its endpoints are sync.
    """
    if isinstance(method, Endpoint):
        return method
    if not isinstance(method, NotAnEndpoint):
        raise ValueError(f"expected a method of a spawned actor (`mesh.method`), got {method!r}")
    cls = method.mesh._class
    function = getattr(cls, method.name)
    if is_async_function(function) and not describe_class(cls).is_async:
        raise ValueError(
            f"{cls.__qualname__}.{method.name} is `async def`, and {cls.__qualname__} has no event"
            f" loop, as its endpoints are `def`. Write `def {method.name}`, with `asyncio.run(...)`"
            " inside where it has something to await, or make all endpoints of the class `async"
            " def`"
        )
    definition = EndpointDefinition[Any, Any](
        function, propagate=propagate, explicit_response_port=explicit_response_port
    )
    return Endpoint(method.mesh._target, method.name, definition)


def send(
    endpoint: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    port: Port[Any] | None = None,
    selection: str = "all",
) -> None:
    """Call an endpoint and let each result, or exception, go to a port.

    Args:
        endpoint: ``mesh.method``, or a remote function, which runs on the active mesh.
        args: Positional arguments, a tuple.
        kwargs: Keyword arguments; None for no such arguments.
        port: Where the answers go; None drops them, and an exception then ends the actor, as with
            `broadcast`.
        selection: ``"all"`` ranks, or ``"choose"`` for a random one.

    Raises:
        ValueError: Another selection.
    """
    if selection not in ("all", "choose"):
        raise ValueError(f"Invalid selection: {selection}; use 'all' or 'choose'")
    endpoint.send(tuple(args), dict(kwargs or {}), port, selection)
