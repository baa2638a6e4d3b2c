"""Meshes of actors: the handle through which endpoints are called."""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..._lazy import shown_by
from .. import extension
from ..actors.adverbs import Endpoint
from ..actors.endpoint import ADVERBS, EndpointDefinition, describe_class
from ..actors.target import Target
from ..calls.future import Future
from ..calls.promise import completed
from ..shape import Extent, MeshTrait, Shape
from ..wire.address import ProcAddress
from .owned import OwnedActors
from .shaped import ExpendableMesh

T = TypeVar("T")

RESERVED = frozenset({
    "slice", "split", "flatten", "rename", "size", "sizes", "extent", "stop", "initialized", "_name", "_class", "_shape",
    "_inner", "_endpoint", "_proc_mesh", "_mesh_name", "_labels", "_ndslice", "_new_with_shape", "_addresses", "_became",
    "_uid", "_procs", "_owned", "_spawned", "_target", "_reference",
})  # fmt: skip


class _UnlessOfItsClass:
    """A method of every mesh, on an actor mesh of a class without an attribute of that name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, mesh: ActorMesh[Any] | None, owner: type) -> Any:
        if mesh is not None and getattr(mesh._class, self._name, None) is not getattr(
            MeshTrait, self._name, None
        ):
            return mesh.__getattr__(self._name)
        return getattr(super(owner, owner if mesh is None else mesh), self._name)


class _Updatable(ExpendableMesh):
    def update_class(self, cls: type[Any]) -> Future[None]:
        """Have these actors run the code of another class from their next message on.

        They keep their state.

        Each rank takes it between two messages: what it handles now ends with the old code. That is
        so for concurrent endpoints, too, but a method that such a call looks up on ``self`` after
        the update is the new one. ``__init__`` does not run again. Ranks that start again after a
        failure do so with the new class. This handle has the new endpoints; slices and references
        from before have the old ones. Updates that one process begins take effect in that order.

        Args:
            cls: The class as edited, of the script or notebook; or another one of a module that is
                there.

        Returns:
            A future that is done when every rank runs it. It raises ActorError where a rank can't
            take it, as its objects are laid out otherwise (``__slots__``), and SupervisionError
            where one has failed for good; then none does. Only if a rank fails for good between
            being asked and taking it, the others have it.

        Raises:
            TypeError: `cls` is no actor class.
            ValueError: It is the class that they run, edited in place; endpoints were ``def`` and
                are ``async def``, or the reverse; a name is taken by meshes; or it is a new version
                of the module that procs have: that is what `sync_workspace` is for.
        """
        updated: Future[None] = extension.update_class(self, cls)
        return updated


class ActorMesh(_Updatable, Generic[T]):
    """Actors of one class, one on each proc of a mesh.

    Made by ``procs.spawn(...)``; has the class's endpoints.

    The mesh that `spawn` returned owns the actors; slices of it, and meshes received in messages,
    are references.
    """

    _class: type[T]
    _name: str
    _uid: int
    _procs: tuple[ProcAddress, ...]
    _owned: OwnedActors | None
    _spawned: Future[None] | None
    _target: Target
    _proc_mesh: Any
    _repr_html_ = shown_by("actor_mesh")

    def __init__(
        self, cls: type[T], name: str, uid: int, procs: tuple[ProcAddress, ...], shape: Shape, owned: OwnedActors | None = None,
        spawned: Future[None] | None = None, proc_mesh: Any = None,
    ) -> None:  # fmt: skip
        # `procs` are those of the mesh as it was spawned; `shape` picks from them
        if owned is not None:
            owned.handle = weakref.ref(self)
        target = Target(uid, name, [procs[rank] for rank in shape.ranks()], shape.extent)
        # slicing a mesh is on a hot path: not one by one through __setattr__
        self.__dict__.update(
            _class=cls, _name=name, _uid=uid, _procs=procs, _shape=shape, _owned=owned, _spawned=spawned, _target=target,
            _proc_mesh=proc_mesh,  # of `spawn`; programs for 0.7 ask the handle for it
        )  # fmt: skip

    def _new_with_shape(self, shape: Shape) -> ActorMesh[T]:
        return self._reference(self._procs, shape)

    def _new_with_elements(self, positions: Sequence[int], extent: Extent) -> ActorMesh[T]:
        procs = tuple(self._target.procs[position] for position in positions)
        return self._reference(procs, Shape.from_extent(extent))

    def _reference(self, procs: tuple[ProcAddress, ...], shape: Shape) -> ActorMesh[T]:
        of = self._class, self._name, self._uid, procs, shape, None, self._spawned, self._proc_mesh
        return ActorMesh(*of)

    def _addresses(self) -> Sequence[ProcAddress]:
        return self._target.procs

    def _became(self, cls: type[T]) -> None:
        """The actors are of another class now."""
        # first: a thread that looks up a name meanwhile sees the new class, or caches an entry that
        # is dropped below
        self._class = cls
        for name, attribute in list(self.__dict__.items()):
            if isinstance(attribute, (Endpoint, NotAnEndpoint)):
                self.__dict__.pop(name, None)

    if not TYPE_CHECKING:  # 0.7 has no such methods, so programs may have endpoints of these names
        select = _UnlessOfItsClass()
        without = _UnlessOfItsClass()
        kill = _UnlessOfItsClass()
        restart = _UnlessOfItsClass()
        update_class = _UnlessOfItsClass()

    @property
    def __name__(self) -> str:
        return self._class.__name__

    @property
    def initialized(self) -> Future[None]:
        """Done when every rank has been created; ``__init__`` may still be running.

        Raises SupervisionError where a process is gone, or never came up
        (``host_spawn_ready_timeout``).
        """
        return self._spawned if self._spawned is not None else completed()

    def stop(self, reason: str = "stopped by client") -> Future[None]:
        """Stop the actors, now.

        Each finishes its message (async actors: is interrupted at its next await), then runs
        ``__cleanup__``; queued messages are answered with SupervisionError.

        Args:
            reason: Told to actors that still call them.

        Returns:
            A future that is done when all have ended: within ``cleanup_timeout``, or, where a
            process can't answer because something holds its interpreter lock,
            ``stop_actor_timeout`` after that.

        Raises:
            NotImplementedError: The mesh is a slice, or was received in a message; only its owner
                stops it.
        """
        if self._owned is None:
            raise NotImplementedError(
                f"{self._name} is a reference (a slice, or received in a message) and not owned"
                " here; only the mesh that spawn returned can be stopped"
            )
        return self._owned.stop(reason)

    def __getattr__(self, name: str) -> Any:
        cls = self._class
        attribute = getattr(cls, name, _MISSING)
        shown = EndpointDefinition if _LOOKED_UP.fullmatch(name) else _SHOWN
        if name.startswith("__") and not isinstance(attribute, shown):
            raise AttributeError(name)
        if attribute is _MISSING:
            raise AttributeError(_unknown(cls, name))
        found: Any = NotAnEndpoint(self, name)
        if isinstance(attribute, EndpointDefinition):
            found = Endpoint(self._target, name, attribute)
        self.__dict__[name] = found  # so that `mesh.e is mesh.e`, and the next look-up is a dict's
        if self._class is not cls:  # any more
            self.__dict__.pop(name, None)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_"):  # those are a program's own notes on the handle
            raise AttributeError(
                f"{self._name} is a handle: {name} = {value!r} would not reach the actors. Give"
                f" {self._class.__qualname__} an endpoint that sets it"
            )
        object.__setattr__(self, name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *describe_class(self._class).endpoints})

    def __repr__(self) -> str:
        return f"<ActorMesh {self._name!r} of {self._class.__qualname__} {self.extent}>"

    def __reduce__(self) -> Any:
        return _receive, (self._class, self._name, self._uid, self._procs, self._shape)


_MISSING = object()
_DUNDERS = {name for name in dir(ActorMesh) if name.startswith("__")}
# looked for on instances by copy, pickle, numpy, torch and inspect, which would take a handle for
# what its actors are
_SHOWN: Any = (EndpointDefinition, FunctionType)
_LOOKED_UP = re.compile("__(copy|deepcopy|(get|set)(new|init)?(args|state)(_ex)?|array.*|wrapped|signature|torch.*)__")  # fmt: skip


def _receive(
    cls: type[T], name: str, uid: int, procs: tuple[ProcAddress, ...], shape: Shape
) -> ActorMesh[T]:
    return ActorMesh(cls, name, uid, procs, shape)


def _unknown(cls: type, name: str) -> str:
    import difflib  # only where an error is about to be shown

    endpoints = describe_class(cls).endpoints
    near = difflib.get_close_matches(name, endpoints, n=1)
    hint = f"its endpoints are: {', '.join(sorted(endpoints)) or 'none'}"
    if near:
        hint = f"did you mean {near[0]!r}?"
    return f"{cls.__qualname__} has no endpoint {name!r}; {hint}"


class NotAnEndpoint:
    """A class attribute, seen through a mesh, that is no endpoint."""

    __slots__ = ("mesh", "name")

    def __init__(self, mesh: ActorMesh[Any], name: str) -> None:
        self.mesh = mesh
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"Actor {self.mesh._class.__qualname__}.{self.name} is not annotated as an endpoint. To"
            " call it as one, add a @endpoint decorator to it, or use"
            f" as_endpoint(mesh.{self.name})"
        )

    def __getattr__(self, adverb: str) -> Any:
        if adverb in ADVERBS:
            self()
        raise AttributeError(adverb)

    def __repr__(self) -> str:
        return f"<{self.mesh._class.__qualname__}.{self.name}, which is not an endpoint>"


def check_names(cls: type) -> None:
    """Refuse endpoints that a mesh could not have.

    Raises:
        ValueError: A name is an attribute of every mesh.
    """
    taken = sorted((RESERVED | _DUNDERS) & describe_class(cls).endpoints.keys())
    if taken:
        raise ValueError(
            f"ActorMesh has an attribute that collides with an endpoint name: {', '.join(taken)}."
            f" Rename that endpoint of {cls.__qualname__}"
        )
