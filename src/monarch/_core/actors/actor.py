"""The base class of user actors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..calls.message import SETTLE, UPDATE_CLASS
from ..extension import take_class
from ..shape import MeshTrait

if TYPE_CHECKING:
    import logging

    from ..calls.future import Future


class Actor(MeshTrait):
    """Base class of actors: private state, and endpoints that handle one message at a time.

    Spawn it with ``procs.spawn(name, Class, ...)``. To type checkers a spawned mesh is an instance
    of the class, which is why the methods of meshes are declared here; on an actor object itself
    they raise, unless the actor has set attributes of its own of such names.

    Hooks a class may define: ``__cleanup__(self, exc)``, called when the actor ends, with None or
    an exception that describes the failure; ``__supervise__(self, failure)``, called when something
    it owns has failed, true if that is handled; ``_handle_undeliverable_message(self, message)``,
    called when a one-way message of it found no receiver. They run on the actor's thread, between
    messages.
    """

    @functools.cached_property  # so that a class may set its own
    def logger(self) -> logging.Logger:
        """A logger named after the class, level DEBUG."""
        import logging

        logger = logging.getLogger(type(self).__name__)
        logger.setLevel(logging.DEBUG)
        return logger

    if TYPE_CHECKING:

        @property
        def initialized(self) -> Future[None]:
            """A future, of a mesh, that is done when every rank has been created.

            Its ``__init__`` may still run.
            """

        def stop(self, reason: str = "stopped by client") -> Future[None]:
            """Stop every rank of an owned mesh, now; the future is done when they have ended."""

        def update_class(self, cls: type[Any]) -> Future[None]:
            """Have every rank of a mesh run the code of this class from its next message on.

            It keeps its state.
            """


class _OfMesh:
    """A property of meshes that an actor's own attribute may replace."""

    def __init__(self, of_mesh: property) -> None:
        self._of_mesh = of_mesh

    def __get__(self, actor: Any, cls: type | None = None) -> Any:
        return self._of_mesh.__get__(actor, cls)


for _name, _value in vars(MeshTrait).items():
    if isinstance(_value, property):  # which would refuse `self.sizes = ...`
        setattr(Actor, _name, _OfMesh(_value))


OWN_METHODS: dict[str, Callable[..., Any]] = {
    SETTLE.decode(): lambda actor: None,
    UPDATE_CLASS.decode(): take_class,
}
"""Of every actor, beside its endpoints. They are in no count and no trace."""
