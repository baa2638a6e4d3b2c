"""The root of the supervision tree: the client's own actor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from ...errors import BackpressureError
from ..actors.base_cell import BaseCell
from ..actors.request import StopCall
from ..calls import delivered_failures
from ..calls.message import SETTLE
from ..hub.contracts import Origin
from ..hub.control import send_record
from ..hub.control_records import GetStatistics
from ..hub.message_hub import MessageHub
from ..hub.spawn_requests import CreatorInstance
from ..supervision.failure import Failure, MeshFailure
from ..supervision.ownership import OwnedMesh
from ..supervision.restart import RestartGroup, RestartPlan
from ..wire import pickling
from ..wire.address import ROOT, ProcAddress
from ..wire.frame import URGENT, Frame

SHUT_DOWN = "stopped by client: its context was shut down"
"""Why what a client ends on its way out has ended."""

_START_BOUND = 10.0  # seconds in which processes may still start that were sent such messages


class RootCell(BaseCell):
    """The client's own actor: it owns what the script creates, and its failures end the program."""

    def __init__(
        self, hub: MessageHub, record: CreatorInstance, on_fault: Callable[[MeshFailure], None]
    ) -> None:
        super().__init__(hub, ROOT, record)
        self._on_fault = on_fault
        self._unsettled: dict[int, set[ProcAddress]] = {}
        self.leaving = False

    def proc_failed(self, address: ProcAddress, failure: Failure) -> None:
        if not self.leaving:  # a client that leaves ends its procs and its agent itself
            super().proc_failed(address, failure)

    def restarted(self, group: RestartGroup, plan: RestartPlan, error: str = "") -> None:
        if not self.leaving:
            super().restarted(group, plan, error)

    @property
    def unsettled(self) -> bool:
        """True if a one-way message may not have been handled yet."""
        return bool(self._unsettled)

    def note_unsettled(self, uid: int, procs: Sequence[ProcAddress]) -> None:
        self._unsettled.setdefault(uid, set()).update(procs)

    def note_stopped(self, uid: int) -> None:
        self._unsettled.pop(uid, None)

    def settle(self, timeout: float) -> None:
        """Wait until one-way messages have been handled, so that a failure at the end of a
        script is not lost. The time begins when the processes do: the script may be shorter than
        their start.
        """
        self._await_starts()
        end = time.monotonic() + timeout
        waiting = []
        while self._unsettled:
            uid, unsettled = self._unsettled.popitem()
            request = _Settled(self, procs := list(unsettled))
            # one with a full mailbox does not handle all of it in time
            with suppress(BackpressureError):
                self.hub.full.wait(procs, uid, max(0.0, end - time.monotonic()))
                self.hub.cast(procs, uid, SETTLE, pickling.dumps_call((), {}), request, self.uid)
                waiting.append(request.future)
        with suppress(TimeoutError):
            for future in waiting:
                future.get(timeout=max(0.0, end - time.monotonic()))

    def _await_starts(self) -> None:
        peers = self.hub.peers
        unsettled = [proc for procs in self._unsettled.values() for proc in procs]
        starting = [proc for proc in unsettled if proc in peers and peers[proc].starting]
        if starting:
            started = StopCall("the processes to start", starting)
            send_record(self.hub, starting, GetStatistics(), started, self.uid)
            with suppress(TimeoutError):
                started.future.get(timeout=_START_BOUND)

    def receive(self, origin: Origin, frame: Frame) -> None:
        if frame.flags & URGENT:
            self.heard(origin, frame)

    def judge(self, failure: Failure, mesh: OwnedMesh) -> None:
        if self.leaving and SHUT_DOWN in failure.explain():
            return  # it waited for a mesh that was stopped a moment before it
        if self.ownership.cares_for(mesh):  # still
            self._on_fault(self.public(failure, mesh))

    def end(self, failure: Failure) -> None:
        if failure.is_stop:
            raise RuntimeError(
                "the root client cannot be stopped: end the program, or use shutdown_context()"
            )
        self._on_fault(MeshFailure(failure._replace(mesh="", rank=None)))


class _Settled(StopCall):
    """Answers to `SETTLE`; an actor that ended says why, maybe before its own report arrives."""

    def __init__(self, root: RootCell, procs: Sequence[ProcAddress]) -> None:
        super().__init__("the last messages to be handled", procs)
        self._root = root

    def reply(self, frame: Frame) -> bool:
        failure = delivered_failures.loss(frame)
        if failure is not None and not failure.is_stop:
            self._root.rank_failed(failure)
        return super().reply(frame)
