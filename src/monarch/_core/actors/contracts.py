"""Protocols between the parts of an actor: its cell, and the things it owns.

`base_cell` implements `Owner`; contexts, the actor's own `Instance` and the restarter know it as
this protocol only.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..calls.future import Future
from ..supervision.ownership import OwnedMesh

if TYPE_CHECKING:
    from ..hub.message_hub import MessageHub
    from ..hub.spawn_requests import CreatorInstance
    from ..supervision.failure import Failure
    from ..supervision.ownership import Ownership
    from ..supervision.restart import RestartGroup, RestartPlan, Strategy
    from ..wire.address import ActorAddress, ProcAddress
    from .instance import Instance


class Owned(OwnedMesh):
    """An owned mesh, with what its owner can do to it."""

    processes: Sequence[ProcAddress]
    handle: weakref.ref[Any] | None = None
    """The mesh that the program holds."""

    def stop(self, reason: str) -> Future[Any]:
        raise NotImplementedError

    # where a group starts ranks again

    def stop_ranks(self, ranks: Sequence[int], reason: str) -> Future[None]:
        """Stop some ranks, which will start again; done when they have ended."""
        raise NotImplementedError

    def start_ranks(self, ranks: Sequence[int]) -> Sequence[Future[Any]]:
        """Start the next incarnation of ranks that have ended.

        They are there when all the futures are done.
        """
        raise NotImplementedError

    def abandon(self, ranks: Sequence[int]) -> None:
        """Ranks that have failed will not start again: tell whoever waits for that."""
        raise NotImplementedError


class Owner(Protocol):
    """The cell of an actor, or of the client.

    Attributes:
        hub: The hub of this process.
        uid: The actor's id.
        record: Who it is.
        instance: The same, for its own code.
        ownership: The meshes that it has spawned.
        classes: Those that have come to it by value, by their ids; None in the client, where they
            are from.
    """

    hub: MessageHub
    uid: int
    record: CreatorInstance
    instance: Instance
    ownership: Ownership[Owned]
    ports: weakref.WeakSet[Any]
    classes: dict[str, type] | None

    @property
    def address(self) -> ActorAddress: ...

    @property
    def incarnation(self) -> int:
        """How often it has been started again after a failure."""

    @property
    def thread(self) -> int | None:
        """The thread that runs it, as `threading.get_ident` has it; None if it has no own one."""

    @property
    def ending(self) -> Failure | None:
        """Why it is about to end, or has ended."""

    def end(self, failure: Failure) -> None:
        """Let it end, with a failure or because it was stopped; on any thread."""

    def stop_itself(self, reason: str) -> None:
        """Let it end at its own request; on any thread."""

    def own_failure(
        self, cause: str, reason: str, source: Failure | None = None, error: bytes = b""
    ) -> Failure:
        """A failure of this actor, with everything known about where it is."""

    # what it owns

    def own(self, mesh: Owned) -> None:
        """A mesh was created by it. Raises RuntimeError if it is ending."""

    def disown(self, uid: int | str) -> None:
        """A mesh is being stopped on purpose."""

    def rank_failed(self, failure: Failure) -> None:
        """Something that it owns has failed."""

    def note_spawned(self, procs: Sequence[ProcAddress]) -> None:
        """A mesh was spawned, maybe on processes that are gone already."""

    def note_unsettled(self, uid: int, procs: Sequence[ProcAddress]) -> None:
        """These actors were sent something that nobody waits for."""

    def note_stopped(self, uid: int) -> None:
        """A mesh that it owns is being stopped."""

    # restarts

    def restart_group(self, strategy: Strategy) -> RestartGroup:
        """The group of a strategy in what it owns."""

    def startable(self, mesh: Owned, ranks: Sequence[int]) -> list[int]:
        """The startable ones of the ranks that a restarter is about to start."""

    def restarted(self, group: RestartGroup, plan: RestartPlan, error: str = "") -> None:
        """A restarter has carried out its plan, or could not."""
