"""Whole state dicts.

One process shares one; others pull from it or push to it, also where each has other shards.

`share_state` lays tensors side by side in one registered region per device, as a safetensors file
does, or shares them where they are. The handle it gives is a table of names and places, and travels
like any handle. `pull` and `push` compare that table with the shards at hand and move all that is
in common as one submission, each element once. Words beside the state tell readers whether it was
written while they read: see `seqlock`.

What ends their waits: the transfers, which have a deadline.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from ..._core.plane import map_future, subscribe
from ...actor import Future
from ...errors import MonarchError
from ..buffers.buffer import RDMABuffer, checked_timeout
from ..errors import InconsistentStateError, TransferTimeoutError
from ..memory import Memory, memory_of
from ..paths.copy import copy_memory
from ..paths.path import Deadline
from ..plane import Plane
from ..steps import Steps, in_turn, pause, within
from ..transfer import Operation, submit
from .blocks import Block, cover, rows
from .seqlock import Look, Seen, Versions
from .shards import Name, Shard, Shards, Split, rule_of, shown
from .tensors import Entry, LocalTensor, State, nested, new_tensor, sequences_of, tensors_of

_ALIGNMENT = 64  # bytes
# seconds between two looks at a state that is being written
_FIRST_PAUSE, _LAST_PAUSE = 0.0005, 0.02


class SharedState:
    """The handle to a shared state dict; `share_state` makes it.

    It pickles, and holds the memory as `RDMABuffer` does.
    """

    def __init__(
        self,
        buffers: Sequence[RDMABuffer],
        entries: Mapping[Name, Entry],
        sequences: frozenset[Name],
        versions: Versions,
    ) -> None:
        self.buffers = tuple(buffers)
        self.entries = dict(entries)
        self.sequences = sequences
        self.versions = versions

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(entry.nbytes for entry in self.entries.values())

    def update(self, state: State, timeout: float = 60) -> Future[None]:
        """Replace all values by those of `state`: a `push`; a future of its end, as there.

        Args:
            state: The new values, under the same names.
            timeout: Seconds, for all of it.
        """
        shards = {
            name: Shard(entry.block.start, entry.whole) for name, entry in self.entries.items()
        }
        return push(state, self, shards=shards, timeout=timeout)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Guard the owner's code that changes tensors that are shared in place (``copy=False``).

        A pull that runs meanwhile starts again. If the code raises, the state counts as torn until
        the next time.
        """
        token = self.versions.begin().get()
        try:
            yield
        except BaseException:
            self.versions.end(token, failed=True).get()
            raise
        self.versions.end(token, whole=True).get()

    def drop(self) -> None:
        """Let all of the memory go; returns when no process can reach it any more."""
        for dropped in [buffer.drop() for buffer in (*self.buffers, self.versions.buffer)]:
            dropped.get()

    def __repr__(self) -> str:
        return (
            f"<SharedState of {len(self.entries)} tensors, {self.nbytes} bytes, in"
            f" {len(self.buffers)} buffers>"
        )


States = SharedState | Sequence[SharedState]


def share_state(state: State, *, shards: Shards | None = None, copy: bool = True) -> SharedState:
    """Let others read and write the tensors of a state dict.

    Args:
        state: Mappings and sequences, nested as you like, of contiguous tensors or arrays.
        shards: Which part of a whole each tensor is: a `Split` for all of them; a mapping from
            names (a key, or the tuple of keys that lead there) to `Shard` or `Split`, where tensors
            that are not in it are whole; or a function of the tuple of keys. A `DTensor` (FSDP2,
            tensor parallelism) knows its part: this is not asked for it.
        copy: Put a copy of all tensors into one region per device, which `SharedState.update`
            renews; otherwise share the tensors themselves, one buffer for each. Then change them
            within `SharedState.writing`.

    Returns:
        A handle that can be sent to others, who `pull` from it and `push` to it.

    Raises:
        KeyError, TypeError, ValueError: Something in it is no contiguous memory, or does not fit
            its shard. The message names it.
    """
    tensors = tensors_of(state, shards)
    buffers, entries = _copied(tensors) if copy else _in_place(tensors)
    return SharedState(buffers, entries, frozenset(sequences_of(state)), Versions())


def empty_like(sources: States, *, shards: Shards | None = None) -> Any:
    """A state with all tensors that are shared, to `pull` into: on the CPU, not filled.

    They are tensors of torch where those are, otherwise arrays of numpy.

    Args:
        sources: The shared states.
        shards: Which part of each is wanted, as for `share_state`; by default all of it. A `Shard`
            does not say how large a part is, so it takes a `Split`.

    Raises:
        ImportError, KeyError, TypeError, ValueError: That library is not installed here; or as
            `share_state`.
    """
    given = checked_sources(sources, "empty_like(sources)")
    entries = {name: entry for source in reversed(given) for name, entry in source.entries.items()}
    rule = rule_of(shards, list(entries))
    leaves = {
        name: new_tensor(entry, _wanted_shape(name, entry, rule(name)))
        for name, entry in entries.items()
    }
    return nested(leaves, frozenset().union(*(source.sequences for source in given)))


def _wanted_shape(name: Name, entry: Entry, shard: Shard | Split | None) -> tuple[int, ...]:
    if isinstance(shard, Shard):
        raise TypeError(
            f"empty_like: {shown(name)} has a Shard, which does not say how large its part is; give"
            " a Split"
        )
    return entry.whole if shard is None else shard.part_of(entry.whole).shape


def pull(
    sources: States,
    into: State,
    *,
    shards: Shards | None = None,
    consistent: bool = True,
    timeout: float = 60,
) -> Future[tuple[int | None, ...]]:
    """Fill the tensors of a state dict, in place, from what others share.

    Args:
        sources: The shared states to read. Where several have the same elements, the first is read.
        into: Mappings and sequences of tensors or arrays, by the names of the sources; a part of
            those will do.
        shards: As for `share_state`, of the tensors of `into`.
        consistent: Read again while the state is written (`push`, `SharedState.update`,
            `SharedState.writing`), so that all that is read of one source is of one version of it.
            Otherwise there may be some old and some new values.
        timeout: Seconds, for all of it.

    Returns:
        The version of each source, which is how often it has been written; None for a source that
        nothing was read from.

    Raises:
        KeyError, TypeError, ValueError: No source has a tensor, or all of it; or it has another
            type there.
        InconsistentStateError: From the future: it was written all the time, or a write failed and
            left a source torn.
        RDMAError: From the future: the transfer failed.
    """
    given = checked_sources(sources, "pull(sources)")
    plan = plan_reads(given, tensors_of(into, shards))
    steps = _pull(plan, consistent, Deadline(checked_timeout(timeout)))
    seen = in_turn(given[0].versions.buffer.plane, steps, "a state to be pulled")
    return map_future(seen, lambda seen: plan.by_source(seen.began))


class ReadPlan(NamedTuple):
    """The reads that fill the tensors of a state.

    Attributes:
        given: How many sources there are.
        read: The numbers of those that are read, ascending, and
        sources: these sources.
        operations: The reads.
    """

    given: int
    read: tuple[int, ...]
    sources: tuple[SharedState, ...]
    operations: tuple[Operation, ...]

    def by_source(self, versions: Sequence[int]) -> tuple[int | None, ...]:
        """The versions of those that are read, with None for each of the others."""
        found = dict(zip(self.read, versions, strict=True))
        return tuple(found.get(index) for index in range(self.given))


def plan_reads(given: Sequence[SharedState], tensors: Mapping[Name, LocalTensor]) -> ReadPlan:
    """Find a source for each element.

    Raises:
        KeyError, ValueError: As `pull`.
    """
    operations: list[Operation] = []
    used: set[int] = set()
    for name, tensor, offers in _matches(given, tensors, "source"):
        if tensor.memory.readonly:
            raise ValueError(f"{shown(name)} is read-only, and can't be filled")
        taken, missing = cover(tensor.block, [entry.block for _, entry in offers])
        if missing:
            raise ValueError(
                f"no source has the elements {', '.join(map(str, missing))} of {shown(name)}"
            )
        for index, part in taken:
            source, entry = offers[index]
            used.add(source)
            operations += _operations(tensor, given[source], entry, part, write=False)
    # a rank that has nothing of any tensor learns of versions all the same
    read = tuple(sorted(used)) or (0,)
    return ReadPlan(len(given), read, tuple(given[index] for index in read), tuple(operations))


class BeingWrittenError(Exception):
    """Reason to read again."""


def _pull(plan: ReadPlan, consistent: bool, deadline: Deadline) -> Steps[Seen]:
    """Read until no write came in between, and return the versions."""
    plane = plan.sources[0].versions.buffer.plane
    look = Look([source.versions for source in plan.sources])
    pauses = Pauses(plane, deadline)
    while True:
        try:
            return (yield from pull_once(plane, look, plan.operations, deadline, consistent))
        except BeingWrittenError as error:
            pauses.reason = str(error)
        except TransferTimeoutError:
            pauses.explain()
            raise
        yield pauses.next()


class Pauses:
    """Pauses between two tries, each longer than the one before, until the deadline.

    Args:
        longest: In seconds.

    Attributes:
        reason: For the last try; empty if there is none.
    """

    def __init__(self, plane: Plane, deadline: Deadline, longest: float = _LAST_PAUSE) -> None:
        self.reason = ""
        self._longest = longest
        self._plane = plane
        self._deadline = deadline
        self._seconds = _FIRST_PAUSE

    def next(self) -> Future[None]:
        seconds, self._seconds = self._seconds, min(2 * self._seconds, self._longest)
        return pause(self._plane, min(seconds, self._deadline.left()))

    def explain(self) -> None:
        """The time is over: raises InconsistentStateError if the reason is known."""
        if self.reason:
            raise InconsistentStateError(self.reason) from None


def pull_once(
    plane: Plane,
    look: Look,
    operations: Sequence[Operation],
    deadline: Deadline,
    consistent: bool = True,
    version: int | None = None,
) -> Steps[Seen]:
    """Read once; what the versions were.

    Args:
        plane: The plane of this process.
        look: Where the sources' words are, by which they tell of writes.
        operations: The reads.
        deadline: When to give up.
        consistent: Whether a read that a write has overlapped is an error.
        version: That of the only source, if no other one is wanted.

    Raises:
        BeingWrittenError: It was written meanwhile, or has another version.
        InconsistentStateError, RDMAError: As `pull`.
    """
    before = yield from look_at(plane, look, deadline, consistent)
    if version is not None and before.began != (version,):
        raise BeingWrittenError("the state has another version by now")
    yield submit(plane, operations, deadline)
    yield submit(plane, look.operations, deadline)
    if consistent and look.seen().began != before.began:
        raise BeingWrittenError(
            f"the state was written whenever it was read, for {deadline.timeout:g}s"
        )
    return before


def look_at(plane: Plane, look: Look, deadline: Deadline, consistent: bool = True) -> Steps[Seen]:
    """The versions of some states. Raises as `pull_once` where they can't be read now."""
    yield submit(plane, look.operations, deadline)
    seen = look.seen()
    if consistent and not seen.settled:
        raise BeingWrittenError(
            f"a write of the state has begun and not ended, for {deadline.timeout:g}s"
        )
    if consistent and seen.torn:
        raise InconsistentStateError(
            "a write of the state failed and left it torn; write all of it anew"
        )
    return seen


def push(
    state: State, targets: States, *, shards: Shards | None = None, timeout: float = 60
) -> Future[None]:
    """Write the tensors of a state dict to wherever they are shared.

    Every element that a target has must be among them.

    Several may push different elements at one time. Writers of the same elements must take turns:
    otherwise some values of each remain, and no reader is told.

    Args:
        state: As for `share_state`; leave it unchanged until the future is done.
        targets: The shared states to write.
        shards: As for `share_state`, of the tensors of `state`.
        timeout: Seconds, for all of it.

    Returns:
        A future that is done when all targets have the values.

    Raises:
        KeyError, TypeError, ValueError: No target has a tensor, or it has another type there.
        RDMAError: From the future: the transfer failed.
    """
    given = checked_sources(targets, "push(targets)")
    operations: dict[int, list[Operation]] = {}
    for _, tensor, takers in _matches(given, tensors_of(state, shards), "target"):
        for target, entry in takers:
            part = tensor.block.common(entry.block)
            if part is not None:
                operations.setdefault(target, []).extend(
                    _operations(tensor, given[target], entry, part, write=True)
                )
    deadline = Deadline(checked_timeout(timeout))
    steps = _push([(given[target], writes) for target, writes in operations.items()], deadline)
    return in_turn(given[0].versions.buffer.plane, steps, "a state to be pushed")


def _push(
    writes: Sequence[tuple[SharedState, Sequence[Operation]]], deadline: Deadline
) -> Steps[None]:
    if not writes:  # nothing in common
        return
    plane = writes[0][0].versions.buffer.plane
    begins: list[tuple[Versions, Future[int]]] = []
    writing = False
    try:
        for target, _ in writes:
            # all begin before any byte moves: a pull that overlaps notices, whichever targets it
            # reads
            begins.append((target.versions, target.versions.begin()))
        for _, begin in begins:
            yield within(plane, begin, deadline)
        writing = True
        yield submit(plane, [operation for _, some in writes for operation in some], deadline)
    except BaseException:
        for versions, begin in begins:
            _end_once_begun(plane, versions, begin, failed=writing)  # otherwise nothing was written
        raise
    ends = []
    for (target, some), (_, begin) in zip(writes, begins, strict=True):
        whole = sum(operation.nbytes for operation in some) == target.nbytes
        ends.append(target.versions.end(begin.get(), whole=whole))
    for end in ends:  # all are on their way, even if one fails
        yield within(plane, end, deadline)


def _end_once_begun(plane: Plane, versions: Versions, begin: Future[int], failed: bool) -> None:
    """End a write that was given up, without waiting.

    Its owner may count it later, and tell the token then.
    """

    def end() -> None:
        with suppress(MonarchError):  # the owner is gone, or has no such state any more
            versions.end(begin.get(), failed=failed)

    subscribe(begin, lambda: plane.workers.submit(end))


def checked_sources(states: States, use: str) -> list[SharedState]:
    """Return the states as a list of at least one.

    Args:
        states: One shared state, or several.
        use: Of which argument, in errors.
    """
    given = (
        [states]
        if isinstance(states, SharedState)
        else list(states)
        if isinstance(states, Iterable)
        else []
    )
    if not given or not all(isinstance(state, SharedState) for state in given):
        raise TypeError(f"{use}: got {states!r}, expected a SharedState or some of them")
    return given


def _matches(
    given: Sequence[SharedState], tensors: Mapping[Name, LocalTensor], role: str
) -> Iterator[tuple[Name, LocalTensor, list[tuple[int, Entry]]]]:
    """Each tensor, with the shared states (by number) that have it, too."""
    for name, tensor in tensors.items():
        found = [
            (index, shared.entries[name])
            for index, shared in enumerate(given)
            if name in shared.entries
        ]
        if not found:
            raise KeyError(f"no {role} shares {shown(name)}")
        for _, entry in found:
            tensor.check_like(entry, name)
        yield name, tensor, found


def _operations(
    tensor: LocalTensor, remote: SharedState, entry: Entry, part: Block, write: bool
) -> Iterator[Operation]:
    buffer, size = remote.buffers[entry.buffer], tensor.itemsize
    for run in rows(part, entry.block, tensor.block):
        start, offset = run.target * size, entry.offset + run.source * size
        operation = buffer.operation(
            tensor.memory, start, offset, run.length * run.repeats * size, write
        )
        yield operation._replace(
            rows=run.repeats, offset_step=run.source_step * size, start_step=run.target_step * size
        )


def _in_place(tensors: Mapping[Name, LocalTensor]) -> tuple[list[RDMABuffer], dict[Name, Entry]]:
    buffers = [RDMABuffer.of_memory(tensor.memory) for tensor in tensors.values()]
    return buffers, {
        name: tensor.entry(index, 0) for index, (name, tensor) in enumerate(tensors.items())
    }


def _copied(tensors: Mapping[Name, LocalTensor]) -> tuple[list[RDMABuffer], dict[Name, Entry]]:
    sizes: dict[str, int] = {}
    entries: dict[Name, Entry] = {}
    devices = list(dict.fromkeys(tensor.memory.device for tensor in tensors.values()))
    for name, tensor in tensors.items():
        device = tensor.memory.device
        offset = sizes.get(device, 0)
        entries[name] = tensor.entry(devices.index(device), offset)
        sizes[device] = offset + -(-tensor.memory.nbytes // _ALIGNMENT) * _ALIGNMENT
    regions = [_allocate(device, sizes[device]) for device in devices]
    for name, tensor in tensors.items():
        entry = entries[name]
        copy_memory(regions[entry.buffer], entry.offset, tensor.memory, 0, tensor.memory.nbytes)
    return [RDMABuffer.of_memory(region) for region in regions], entries


def _allocate(device: str, nbytes: int) -> Memory:
    if device == "cpu":
        return memory_of(mmap.mmap(-1, nbytes), "the region")
    torch = sys.modules["torch"]  # there is a tensor on that device
    return memory_of(torch.empty(nbytes, dtype=torch.uint8, device=device), "the region")
