"""`Replica`: a copy of a shared state that is updated repeatedly, and that replicas read.

The process of the first source keeps a `Directory` of replicas, and tells each one from whom to
read. What ends the waits: the deadline of the pull; the end of that process, which is told to the
requester; the end of a replica, upon which its readers ask again, and its place is free.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b

from ..._core.plane import map_future, random_uid, send_record
from ...actor import Future
from ...errors import BackpressureError
from ..buffers.buffer import checked_timeout
from ..errors import RDMAError, TransferTimeoutError
from ..grants.records import Seek, SeekOutcome
from ..paths.path import Deadline
from ..plane import Plane
from ..steps import Steps, in_turn, within
from . import state
from .directory import Copy, Wish
from .seqlock import Look
from .shards import Name, Shards, shown
from .tensors import LocalTensor, State, tensors_of

_LONGEST_PAUSE = 0.2  # seconds between two looks for something newer


class Replica:
    """A copy of what others share, in tensors of this process: `pull` brings it up to date.

    Replicas that want the same parts read from each other: one per host fetches them from another
    host, and at any time the sources serve two replicas of other hosts at most, however many there
    are. A replica serves what it pulled last, without the help of its actor, until it pulls again,
    is dropped, or its process ends; its readers then ask for another one.

    Only `pull` may change the tensors, or others would read something else.

    Args:
        sources: The shared states, as for `pull`; in the same order in all replicas.
        into: Mappings and sequences of tensors or arrays, by the names of the sources; a part of
            those will do.
        shards: As for `share_state`, of the tensors of `into`.

    Raises:
        KeyError, TypeError, ValueError: As `pull`.
    """

    def __init__(self, sources: state.States, into: State, *, shards: Shards | None = None) -> None:
        given = state.checked_sources(sources, "Replica(sources)")
        self._tensors = tensors_of(into, shards)
        self._plan = state.plan_reads(given, self._tensors)
        self._shared = state.share_state(into, shards=shards, copy=False)
        self._handle = pickle.dumps(self._shared)  # once: it may be long
        self._words = self._plan.sources[0].versions.buffer
        self._layout = _layout_of(self._plan, self._tensors)
        self._number = random_uid()
        self._versions: tuple[int, ...] | None = None
        self._pulls = threading.Lock()

    @property
    def versions(self) -> tuple[int | None, ...] | None:
        """The versions of the last `pull`; None before the first one, and after one that failed."""
        return None if self._versions is None else self._plan.by_source(self._versions)

    def pull(self, *, newer: bool = False, timeout: float = 60) -> Future[tuple[int | None, ...]]:
        """Get the newest version, if it is not there already.

        Args:
            newer: Wait for a version newer than the one already pulled.
            timeout: Seconds, for all of it.

        Returns:
            The version of each source, as `monarch.rdma.pull`.

        Raises:
            RuntimeError: Another pull of this replica is not done.
            InconsistentStateError: From the future: it was written all the time, or a write failed
                and left a source torn.
            RDMAError: From the future: a source is gone, or nothing newer came in time.
        """
        deadline = Deadline(checked_timeout(timeout))
        if not self._pulls.acquire(blocking=False):
            raise RuntimeError("this replica is being pulled; wait for that first")
        plane = self._plan.sources[0].versions.buffer.plane
        found = in_turn(plane, self._pull(plane, newer, deadline), "a replica to be up to date")
        return map_future(found, self._plan.by_source)

    def drop(self) -> None:
        """Serve no more readers; returns when none of them reaches the tensors.

        They keep their values.
        """
        self._settle(None)
        self._versions = None
        self._shared.drop()

    def __repr__(self) -> str:
        return f"<Replica of {self._shared.nbytes} bytes, versions {self.versions}>"

    def _pull(self, plane: Plane, newer: bool, deadline: Deadline) -> Steps[tuple[int, ...]]:
        look = Look([source.versions for source in self._plan.sources])
        pauses = state.Pauses(plane, deadline, _LONGEST_PAUSE)
        try:
            while True:
                try:
                    wanted = (yield from state.look_at(plane, look, deadline)).began
                    if wanted != self._versions:
                        self._versions = yield from self._fetch(plane, look, wanted, deadline)
                        return self._versions
                    if not newer:
                        return wanted
                except state.BeingWrittenError as error:
                    pauses.reason = str(error)
                except TransferTimeoutError:
                    pauses.explain()
                    raise
                yield pauses.next()
        finally:
            self._pulls.release()

    def _fetch(
        self, plane: Plane, look: Look, wanted: tuple[int, ...], deadline: Deadline
    ) -> Steps[tuple[int, ...]]:
        """Read from whom the directory says; what the versions are."""
        copy: Copy | None = None
        token = 0
        try:
            copy = yield within(plane, self._seek(plane, wanted), deadline)
            # from here on the tensors are neither the old version nor the new one
            self._versions = None
            # its readers see that a write has begun, and read elsewhere or again
            token = self._shared.versions.begin().get()
            if copy is None:
                versions = (
                    yield from state.pull_once(plane, look, self._plan.operations, deadline)
                ).began
            else:
                yield from self._read(plane, copy, deadline)
                versions = copy.versions
        except BaseException as error:
            if token:
                self._shared.versions.end(token, failed=True).get()
            failed = copy is not None and isinstance(error, (RDMAError, state.BeingWrittenError))
            # also if it was too slow: it may stand still, and be given out again and again
            self._settle(None, failed)
            if failed and not isinstance(error, TransferTimeoutError):
                raise state.BeingWrittenError(
                    f"the replica that was to be read is not there any more: {error}"
                ) from None
            raise
        self._shared.versions.end(token, whole=True).get()
        # only now: the directory may give this copy to others
        self._settle(Copy(self._handle, token, versions))
        return versions

    def _read(self, plane: Plane, copy: Copy, deadline: Deadline) -> Steps[None]:
        # safe to unpickle: made by a replica in a process that has proved its identity
        shared: state.SharedState = pickle.loads(copy.handle)
        operations = state.plan_reads([shared], self._tensors).operations
        yield from state.pull_once(
            plane, Look([shared.versions]), operations, deadline, version=copy.version
        )

    def _seek(self, plane: Plane, versions: tuple[int, ...]) -> Future[Copy | None]:
        host = plane.hub.address.host
        is_near = all(source.versions.buffer.process.host == host for source in self._plan.sources)
        record = Seek(self._words.claim, self._number, Wish(self._layout, versions, is_near))
        return self._words.ask_owner(record, None, "a way to read a state")

    def _settle(self, copy: Copy | None, failed: bool = False) -> None:
        """Tell the directory what became of it. If that is gone, the next pull finds out."""
        record = SeekOutcome(self._words.claim, self._number, copy, failed)
        with suppress(BackpressureError):
            send_record(self._words.plane.hub, self._words.process, record)


def _layout_of(plan: state.ReadPlan, tensors: Mapping[Name, LocalTensor]) -> bytes:
    """Return the layout that replicas have in common if they can read from each other."""
    parts = sorted(
        (shown(name), tensor.dtype, tensor.block, tensor.whole) for name, tensor in tensors.items()
    )
    sources = [source.versions.buffer.claim.id for source in plan.sources]
    return blake2b(repr((sources, parts)).encode(), digest_size=16).digest()
