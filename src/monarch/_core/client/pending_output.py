"""Shows what ranks printed before they answered, before the program sees the answer.

The answer comes from the rank itself, the line by way of its host agent, which may be later. So an
answer that was sent after something was printed says so (`prints`). The thread that is about to
hand such an answer to the program asks the agents of those ranks for a mark: they read the pipes,
and put the mark behind the last of it in the stream of output. When the printer gets to the mark,
all that came before it has been written. A program with ranks that print nothing pays one look at a
variable.

What ends the wait for a mark: the mark; the end of each host that owes it; `_STUCK` seconds in
which nothing was written, after which no thread waits until that mark has come; the time limit of
the waiting thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from ..actors.request import StopCall
from ..calls import future as futures
from ..calls.failed_call import Reply
from ..calls.future import Future
from ..calls.promise import Promise, completed
from ..calls.waiting import block, in_a_loop, wait_in_loop
from ..hub.control import send_record
from ..hub.control_records import MarkOutput, OutputShown
from ..hub.message_hub import MessageHub
from ..processes.output import Mark, Output, Printer
from ..supervision.failure import Failure
from ..wire import pickling
from ..wire.address import ROOT, ProcAddress
from ..wire.frame import VALUE, Frame

_STUCK = 2.0  # seconds
_BRIEF = 3.0  # seconds that the end of a cell may take
_MUCH = 1 << 18  # characters


class PendingOutput:
    """The output of procs that the client has not shown yet.

    Args:
        hub: Hub of the client.
        printer: Writes output that has arrived.
    """

    def __init__(self, hub: MessageHub, printer: Printer) -> None:
        self._hub = hub
        self._printer = printer
        self._lock = threading.Lock()
        self._printed: set[ProcAddress] = set()  # processes that have printed something
        # characters of a process that its agent does not know to be shown
        self._unsaid: dict[tuple[ProcAddress, str], int] = {}
        self._asked: dict[int, _Asked] = {}
        self._numbers = 0
        self._latest: _Asked | None = None
        self._stuck = False
        self._flushes = False
        self._closed = False

    def printed(self, peer: ProcAddress) -> None:
        """A process has sent something, and had printed something before."""
        with self._lock:
            self._printed.add(peer)
            futures.pending_output = self

    def ends(self, agents: Sequence[ProcAddress]) -> None:
        """Procs of these hosts are about to end: a reader of that has seen all that they printed."""
        with self._lock:
            self._printed.update(agents)
            self._flushes = True
            futures.pending_output = self

    def flush(self, agents: Sequence[ProcAddress]) -> Future[None]:
        """Flush the output of these hosts to the screen and to files; a future of the end."""
        with self._lock:
            if self._closed or not agents:
                return completed(None)
            asked, number = self._new(tuple(agents), True)
        send_record(self._hub, tuple(agents), MarkOutput(number, None, True), asked, ROOT)
        return asked.shown.future

    def flush_briefly(self, agents: Sequence[ProcAddress]) -> None:
        """As `flush`, and wait for it, within a bound."""
        with suppress(TimeoutError):
            block(self.flush(agents), _BRIEF)

    def take(self, agent: ProcAddress, item: list[Output] | Mark) -> None:
        """Something has come from a host: lines to be printed, or a mark behind those that have."""
        if isinstance(item, list):
            self._printer.put(*item)
            for output in item:
                self._say_shown(agent, output)
        elif item.number in self._asked:
            self._asked[item.number].came(item.agent)

    def _say_shown(self, agent: ProcAddress, output: Output) -> None:
        """Tell the agent once much of a process was shown; it passes on a bounded amount before."""
        proc = agent, output.source.proc
        size = self._unsaid.get(proc, 0) + output.size
        if size >= _MUCH:
            shown, size = OutputShown(proc[1], size), 0
            # by way of the printer: it is sent once the lines before it are written
            self._printer.put(lambda: send_record(self._hub, agent, shown))
        self._unsaid[proc] = size

    def wait(self, timeout: float | None) -> None:
        """Have the current thread wait until all is shown that was printed before what it got."""
        asked = self._ask()
        if asked is None or threading.get_ident() == self._hub.poller.thread_id or in_a_loop():
            return  # a loop has waited before it gave its program a future that is done
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            written = self._printer.written
            left = _STUCK if end is None else min(_STUCK, max(0.0, end - time.monotonic()))
            with suppress(TimeoutError):
                block(asked.shown.future, left)
                return
            if not self._goes_on(written, end):
                return

    async def wait_in_loop(self) -> None:
        """As `wait`, in a task."""
        asked = self._ask()
        if asked is None:
            return
        import asyncio

        while True:
            written = self._printer.written
            try:
                await asyncio.wait_for(wait_in_loop(asked.shown.future), _STUCK)
                return
            except asyncio.TimeoutError:
                if not self._goes_on(written, None):
                    return

    def _goes_on(self, written: int, end: float | None) -> bool:
        if end is not None and time.monotonic() >= end:
            return False
        self._stuck = self._printer.written == written
        if self._stuck:
            self._latest = None  # another is asked for: the first that comes tells that all goes on
        return not self._stuck

    def _ask(self) -> _Asked | None:
        """Ask for a mark if something was printed since the last one; the one to wait for."""
        with self._lock:
            if not self._printed or (self._stuck and self._latest is not None):
                return None if self._stuck else self._latest
            printed, self._printed = self._printed, set()
            agents = tuple({proc.agent for proc in printed})
            flush, self._flushes = self._flushes, False
            asked, number = self._new(agents, flush)
            self._latest = asked
        mark = MarkOutput(number, [proc.proc for proc in printed], flush)
        send_record(self._hub, agents, mark, asked, ROOT)
        return None if self._stuck else asked

    def _new(self, agents: Sequence[ProcAddress], flush: bool) -> tuple[_Asked, int]:
        self._numbers += 1
        number = self._numbers
        asked = self._asked[number] = _Asked(
            agents, lambda: self._printer.put(lambda: self._shown(number, flush))
        )
        return asked, number

    def _shown(self, number: int, flush: bool) -> None:
        """Called on the printer's thread, when it has written all that came before the mark."""
        if flush:
            self._printer.flush()
        with self._lock:
            asked = self._asked.pop(number)
            self._stuck = False
            if self._latest in (asked, None):
                self._latest = None
                if not self._printed and futures.pending_output is self:
                    futures.pending_output = None
        asked.shown.resolve(None)

    def close(self) -> None:
        """Show nothing more: no answer waits for it."""
        with self._lock:
            self._closed = True
            if futures.pending_output is self:
                futures.pending_output = None
        for asked in list(self._asked.values()):
            asked.shown.resolve(None)


class OutputStream:
    """The request behind an agent's stream of output. It ends with the agent."""

    def __init__(self, pending: PendingOutput, agent: ProcAddress) -> None:
        self._pending = pending
        self._agent = agent

    def reply(self, frame: Frame) -> bool:
        if frame.flags == VALUE:  # else why the agent ends, which is told otherwise
            self._pending.take(self._agent, pickling.loads(frame.payload, frame.buffers))
        return frame.flags != VALUE

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        return address == self._agent


class _Asked(StopCall):
    """A mark that some hosts owe."""

    __slots__ = ("_all_came", "_owing", "shown")

    def __init__(self, agents: Sequence[ProcAddress], all_came: Callable[[], None]) -> None:
        super().__init__("the output of the ranks", agents)
        self._owing = set(agents)
        self._all_came = all_came
        self.shown: Promise[None] = Promise("the output of the ranks to be shown")

    def _take(self, rank: int, reply: Reply) -> bool:
        # gone: the mark of a host that is not comes as output
        if not isinstance(reply, Frame) or reply.flags != VALUE:
            self.came(self._procs[rank])
        return super()._take(rank, reply)

    def came(self, agent: ProcAddress) -> None:
        if agent in self._owing:
            self._owing.discard(agent)
            if not self._owing:
                self._all_came()
