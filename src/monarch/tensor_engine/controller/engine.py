"""The controller's end of an engine.

Gathers instructions into batches and has them executed, one way.

By whom, an `Executor` says: workers (`workers`), or a model of them. Instructions go out together:
at once after a pause, else when `_BATCH` of them are there, when something is asked for, or after
`_DELAY` seconds, whichever comes first. The controller does not wait for workers, with two
exceptions: for what it asks (`call`), and, every `_STRETCH` instructions, for them to be at most
`_AHEAD` stretches behind, so that a long loop needs bounded memory. The end of a worker's process
ends both. Ranks that are gone get no more instructions; an instruction for one of them is refused,
and the others go on.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ..._core.plane import Owner, Shape, Slice, block, current_hub, notice, pickling, subscribe
from ...actor import Future, ProcMesh, context
from ...errors import SupervisionError
from .. import instructions
from ..errors import RemoteException, was_told
from ..planning.plans import Plan
from .executor import Executor, Ranks
from .workers import Workers

_BATCH = 128  # instructions
_DELAY = 0.001  # seconds
_STRETCH = 16_384  # instructions, and KiB of what large ones carry
_AHEAD = 4  # stretches
_PLANS = 20_000  # templates on each worker; a program that has more makes them as it runs


class Engine:
    """One controller and what executes its instructions. May be used from any thread.

    Attributes:
        in_process: Whether all ranks are in this process, for a test: see `in_process`.
        now: The clock, in seconds.
    """

    in_process = False
    now = staticmethod(time.monotonic)

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.uid = executor.uid
        self.ids = itertools.count(1)
        self.plans: dict[Any, Plan] = {}
        self.described: dict[int, instructions.Definition] = {}
        self.meshes: dict[Any, Any] = {}
        self.defined: dict[Any, int] = {}  # groups and routes that the workers know
        self.defining = threading.RLock()  # two threads may need the same ones
        self.lending = threading.RLock()  # a loan, and the message that it is for
        self.meeting: Any = None  # where members of groups find each other
        self.end_meeting: Callable[[], object] | None = None
        self._groups: dict[tuple[tuple[int, ...], int], Ranks] = {}
        self._templates = itertools.count()
        self._oldest_template = 0
        self._lock = threading.Lock()
        self._segments: list[tuple[Ranks, list[instructions.Instruction]]] = []
        self._open: list[instructions.Instruction] = []
        self._open_for: Ranks | None = None
        self._waiting = 0  # instructions in `_segments`
        self._flushed = 0.0  # when
        self._flushes = 0
        self._timer_set = False
        self._since_settled = 0
        self._settling: deque[Future[Any]] = deque()
        self._closed: str | None = None
        self.size = executor.size
        self.everyone = self.group(range(self.size))
        self.every_stream = self.group(range(self.size), instructions.ALL)
        _engines_here.add(self)
        if _spreading:
            self.spread()

    def group(self, ranks: Sequence[int], stream: int = instructions.MAIN) -> Ranks:
        """A stream of these ranks; the same object for the same ranks and stream."""
        key = tuple(ranks), stream
        found = self._groups.get(key)
        if found is None:
            address = self.executor.address
            # `setdefault` is atomic: two threads get the same object
            found = self._groups.setdefault(key, Ranks(key[0], tuple(map(address, key[0])), stream))
        return found

    def every_stream_of(self, ranks: Ranks) -> Ranks:
        """Return these ranks with all of their streams."""
        return self.group(ranks.ranks, instructions.ALL)

    def spread(self) -> None:
        """Give each stream a thread of its own on the workers.

        Until then all that they do is done where messages are read.
        """
        with self._lock:
            if not self.executor.spread:
                self._append(self.every_stream, (instructions.SPREAD,))
                self._flush()
                self.executor.spread = True

    def check_open(self) -> None:
        """Raises RuntimeError: the engine has exited."""
        if self._closed is not None:
            raise RuntimeError(self._closed)

    # instructions

    def submit(
        self,
        ranks: Ranks,
        instruction: instructions.Instruction,
        now: bool = False,
        weight: int = 0,
    ) -> None:
        """Have some ranks run an instruction, after all that was submitted before.

        Args:
            ranks: The ranks.
            instruction: What they run.
            now: Send it before this returns: what it refers to may change.
            weight: How large it is, in KiB: for how far ahead of the workers this may run.

        Raises:
            RuntimeError: The engine has exited.
            SupervisionError: One of these ranks is known to be gone.
        """
        self.check_open()
        if holders and ranks.stream != instructions.ALL and (held := holder()) is not None:
            held.take(self, ranks, instruction, now)
            return
        if self.executor.gone:
            self.check(ranks)
        with self._lock:
            if ranks.freed:
                self._free(ranks)
            self._append(ranks, instruction)
            self._waiting += 1 + weight
            if now or self._waiting >= _BATCH or self.now() - self._flushed > _DELAY:
                self._flush()
            elif not self._timer_set:
                self._set_timer()
        if self.executor.gone:  # since this was sent
            self.check(ranks)
        if self._since_settled >= _STRETCH:
            self._keep_up()

    def check(self, ranks: Ranks) -> None:
        """Raise if one of these ranks is known to be gone.

        Where all streams are meant, the others go on.

        Raises:
            SupervisionError: It is.
        """
        if ranks.stream != instructions.ALL:
            self.executor.check(ranks)

    def living(self) -> Ranks:
        """The ranks that are not known to be gone, with all of their streams."""
        gone = self.executor.gone
        if gone:
            return self.group(
                [rank for rank in range(self.size) if rank not in gone], instructions.ALL
            )
        return self.every_stream

    def define(self, plan: Plan, definition: instructions.Definition) -> None:
        """Give a plan its number on all workers.

        Raises:
            Exception: What pickling the arguments raises: here, where it harms no other
                instruction.
        """
        # tried here, for its error; the message is pickled with others, later
        pickling.dumps(definition)
        with self._lock:
            plan.template = next(self._templates)
            self.described[plan.template] = definition
            self._append(self.every_stream, (instructions.DEFINE, plan.template, definition))
            # not while instructions are held back: they may name templates of any age
            if len(self.plans) >= _PLANS and not holders:
                self.plans.clear()
                # a thread may just now use a plan of those; none can still use one of the time
                # before
                self._append(self.every_stream, (instructions.FORGET, self._oldest_template))
                for number in [
                    number for number in self.described if number < self._oldest_template
                ]:
                    del self.described[number]
                self._oldest_template = plan.template

    def _append(self, ranks: Ranks, instruction: instructions.Instruction) -> None:
        # by identity: `group` gives one object for the same ranks and stream
        if self._open_for is not ranks:
            self._open = []
            self._open_for = ranks
            self._segments.append((ranks, self._open))
        self._open.append(instruction)

    def submit_held(self, instructions: Iterable[tuple[Ranks, instructions.Instruction]]) -> None:
        """Have instructions run that were held; all of them go out together."""
        instructions = list(instructions)
        for ranks, _ in instructions:
            self.check(ranks)
        with self._lock:
            for ranks, instruction in instructions:
                self._append(ranks, instruction)
                self._waiting += 1
            self._flush()
        if self._since_settled >= _STRETCH:
            self._keep_up()

    def pass_on(self, ranks: Ranks, instruction: instructions.Instruction) -> None:
        """Have an instruction run with the next ones sent, even if this thread holds its own."""
        with self._lock:
            self._append(ranks, instruction)

    def _free(self, ranks: Ranks) -> None:
        for where, instruction in freeing(ranks):
            self._append(where, instruction)

    def _free_all(self) -> None:
        """Free unreferenced values on all streams, and the streams that are no longer used."""
        groups = list(self._groups.values())
        over = {
            group.stream
            for group in groups
            if group.stream > instructions.MAIN and group.stream not in living_streams
        }
        for group in groups:
            if group.freed:
                self._free(group)
        for stream in over:
            self._append(self.every_stream, (instructions.END, stream))
        for group in groups:
            if group.stream in over:
                del self._groups[group.ranks, group.stream]

    def flush(self) -> None:
        """Send all issued instructions."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        self._flushed = self.now()
        self._flushes += 1
        if not self._segments:
            return
        segments, self._segments = self._segments, []
        self._since_settled += self._waiting
        self._open_for, self._waiting = None, 0
        self.executor.run(segments)

    def _set_timer(self) -> None:
        self._timer_set = True
        flushes = self._flushes
        self.executor.call_later(_DELAY, lambda: self._late(flushes))

    def _late(self, flushes: int) -> None:
        """Send late instructions, on the poller's thread, which must not wait for the lock."""
        # its holder may be in a send that waits for this very thread to read
        if not self._lock.acquire(blocking=False):
            self.executor.call_later(_DELAY, lambda: self._late(flushes))
            return
        try:
            self._timer_set = False
            if self._flushes != flushes and self._segments:
                self._set_timer()
            elif self._segments:
                self._flush()
        except Exception:  # there is no caller to raise it to
            pass
        finally:
            self._lock.release()

    def _keep_up(self) -> None:
        self._since_settled = 0
        # of a rank that is gone: the next operation for it will raise
        with suppress(SupervisionError):
            settling = self.call(self.living(), "settle", ())
            subscribe(settling, functools.partial(notice, settling))
            self._settling.append(settling)
            if len(self._settling) > _AHEAD:
                future = self._settling.popleft()
                if not future.done():
                    # not `get`: whether the caller runs an event loop does not matter here
                    block(future, None)
                future.get()

    # questions

    def call(self, ranks: Ranks, method: str, args: tuple[Any, ...], what: str = "") -> Future[Any]:
        """Ask some workers, after all that was submitted before.

        It returns a future of a `ValueMesh` in the order of the ranks.

        Args:
            ranks: The ranks that are asked.
            method: A method of `runner.Runner`.
            args: Its arguments.
            what: Description of the question, for error texts.
        """
        return self._ask(
            self.executor.call, ranks, method, args, what or f"{method} of the tensor engine"
        )

    def stream(
        self, ranks: Ranks, method: str, args: tuple[Any, ...], what: str
    ) -> list[Future[Any]]:
        """As `call`; a future for each answer, in the order in which they will arrive."""
        return self._ask(self.executor.stream, ranks, method, args, what)

    def _ask(
        self, ask: Callable[..., Any], ranks: Ranks, method: str, args: tuple[Any, ...], what: str
    ) -> Any:
        self.check_open()
        if holder() is not None:
            raise NotImplementedError(
                "nothing can be fetched or asked of the ranks within `coalescing()` or a recorded"
                " function: what comes before has not been sent. Do it afterwards"
            )
        with self._lock:
            # a program that only fetches from now on would never send the rest
            self._free_all()
            self._flush()
            self.executor.check(ranks)
            return ask(ranks, method, args, what)

    def close(self, timeout: float) -> None:
        """Wait until all is done, then stop what executes. See `DeviceMesh.exit`."""
        if self._closed is not None:
            return
        self.flush()
        living = self.living()
        poisons: Iterable[instructions.Poison | None] = ()
        if living.ranks:
            asked = self.call(living, "finish", (), "exit of the tensor engine")
            poisons = asked.get(timeout=timeout).values()
        unreported = [poison for poison in poisons if poison is not None and not was_told(poison)]
        # a failure that moved to other ranks may have been reported there; its own rank does not
        # know
        if unreported:
            raise RemoteException(unreported[0])
        self._closed = "this tensor engine has exited; activate the proc mesh again for a new one"
        self._settling.clear()
        self.executor.stop(timeout)
        self.plans.clear()
        if self.end_meeting is not None:
            self.end_meeting()

    def let_go(self) -> bool:
        """End it, if no rank has anything of it any more, or if it has exited; whether that is so.

        It does not wait.
        """
        return self._closed is not None or self.executor.let_go()

    @property
    def is_usable(self) -> bool:
        """True if the engine has not exited, and its workers can still be used."""
        return self._closed is None and self.executor.is_usable


holders: dict[int, Any] = {}
"""By thread: what takes the instructions that it issues, in place of the workers.

See `instruction_buffer`.
"""


living_streams: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""By number: the streams of which the program has a handle, or a tensor."""


def holder() -> Any:
    """Return the buffer that takes the instructions of this thread; None for the workers."""
    return holders.get(threading.get_ident()) if holders else None


def freeing(ranks: Ranks) -> list[tuple[Ranks, instructions.Instruction]]:
    """Take the values that await freeing on these ranks, as instructions."""
    freed = ranks.freed
    # so many as there are now: finalizers append on any thread, at any time
    found = [freed.popleft() for _ in range(len(freed))]
    if tuple not in map(type, found):
        return [(ranks, (instructions.FREE, found))]
    ids = [each for each in found if type(each) is int]
    return [(ranks, (instructions.FREE, ids)), *(each for each in found if type(each) is tuple)]


_engines: weakref.WeakKeyDictionary[Owner, dict[str, Engine]] = weakref.WeakKeyDictionary()
_engines_lock = threading.Lock()
_substitutes: weakref.WeakKeyDictionary[Owner, Callable[[ProcMesh], Engine]] = (
    weakref.WeakKeyDictionary()
)
_engines_here: weakref.WeakSet[Engine] = weakref.WeakSet()
_spreading = False


def spread_engines() -> None:
    """Note that this program has more than one stream.

    Present and later engines keep them apart.
    """
    global _spreading
    with _engines_lock:
        _spreading = True
        engines = list(_engines_here)
    for engine in engines:
        if engine.is_usable:
            engine.spread()


def engine_of(procs: ProcMesh) -> Engine:
    """The engine of the current actor over the whole mesh that `procs` is, or is a slice of.

    It is made when there is none.
    """
    cell: Owner = context()._cell
    with _engines_lock:
        mine = _engines.setdefault(cell, {})
        found = mine.get(procs._procs.uid)
        if found is None or not found.is_usable:
            procs._check_not_stopped()
            for uid, engine in list(mine.items()):
                if not engine.is_usable:
                    del mine[uid]
                    if not engine.let_go():  # ranks of it may still wait for each other
                        mine[engine.uid] = engine
            found = mine[procs._procs.uid] = new_engine(procs)
        return found


def new_engine(procs: ProcMesh) -> Engine:
    """Another engine over the same processes."""
    whole = procs._procs
    ranks = Slice.new_row_major([len(whole.hosts) * whole.per_host])
    make = _substitutes.get(context()._cell, _engine_of_workers)
    return make(ProcMesh(whole, Shape(["rank"], ranks)))


def _engine_of_workers(procs: ProcMesh) -> Engine:
    engine, hub = Engine(Workers(procs)), current_hub()
    engine.in_process, engine.now = hub.in_process, hub.poller.now
    return engine


def substitute_engines(make: Callable[[ProcMesh], Engine]) -> None:
    """Have `make` build the engines of the current actor from now on, from a whole proc mesh."""
    _substitutes[context()._cell] = make
