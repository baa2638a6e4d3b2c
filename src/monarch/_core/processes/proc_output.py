"""In the agent: reads the pipes of procs, keeps their last lines, passes all of it on.

A proc that prints more than its client shows, or than a disk takes, waits in its `print`: its pipes
are not read meanwhile, those of others are. If files keep its lines, they are left out of what the
client is shown instead, and it is told so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from functools import partial

from ..calls.pending import countdown
from ..hub.prints import NO_AUTHOR
from ..net.poller import Poller, Timer, guarded
from ..shape import Point
from ..wire.address import ProcAddress
from .lines import LineSplitter
from .output import Output, OutputSink, Run, Source
from .proc_entry import ProcEntry
from .specs import UNNAMED

_PROMPT = 0.2  # seconds after which text without a newline is shown
_PATIENCE = 10.0  # seconds for which a proc waits for room before it is seen whether there is any
# seconds in which lines of procs that print one after the other gather, to be passed on together
_GATHER = 0.02
_TOGETHER = 16  # reads that are joined into one message, at most
_MUCH = 3 << 14  # bytes: a read that finds more has waited long enough
_MOST_UNSHOWN = 1 << 20
"""Characters of one proc that may be on their way to the client's terminal."""

Publish = Callable[[ProcAddress, list[Output]], bool]


class ProcOutput:
    """The output of the procs of a host.

    Args:
        poller: Reads the pipes.
        publish: Takes lines for the client that a proc belongs to; False if that wants none.
        several: Whether procs of several meshes may print.

    Attributes:
            sinks: What else takes the lines of a client's procs, by client.
    """

    def __init__(self, poller: Poller, publish: Publish, several: Callable[[], bool]) -> None:
        self._poller = poller
        self._publish = publish
        self._several = several
        self._printing: dict[str, _Printing] = {}  # by the names of their processes
        # text without a newline, until it is shown
        self._rests: set[tuple[_Printing, str, LineSplitter]] = set()
        # pipes that are read together, in a while
        self._gathering: dict[tuple[_Printing, int], None] = {}
        self._unsent: dict[ProcAddress, list[tuple[_Printing, Output]]] = {}
        self._collects = False  # while these are read: unsent lines go together
        self.sinks: dict[ProcAddress, OutputSink] = {}

    def keep(self, client: ProcAddress, sink: OutputSink | None) -> None:
        """Have what procs of a client print from now on go somewhere else, too; None: no longer."""
        before = self.sinks.pop(client, None)
        if sink is not None:
            self.sinks[client] = sink
        if before is not None and before is not sink:
            for printing in self._printing.values():
                if printing.entry.mesh.root == client:
                    before.ended(self._source(printing))

    def follow(self, entry: ProcEntry, out: int, err: int) -> None:
        """Read a proc's pipes from now on, until they end; they are closed then."""
        printing = self._printing[entry.address.proc] = _Printing(entry)
        for fd, stream in ((out, "stdout"), (err, "stderr")):
            os.set_blocking(fd, False)
            printing.streams[fd] = (stream, LineSplitter())
        self._listen(printing)

    def finish(self, entry: ProcEntry) -> None:
        """Read the rest in the pipes of a proc that has ended."""
        printing = self._printing.get(entry.address.proc)
        if printing is None or printing.entry is not entry:
            return
        printing.may_be_named = False
        for fd in list(printing.streams):
            self._read(printing, fd)
            self._close(printing, fd)
        self._say_left_out(printing)
        del self._printing[entry.address.proc]
        self._release(printing, *printing.paused)
        sink = self.sinks.get(entry.mesh.root)
        if sink is not None:
            sink.ended(self._source(printing))

    def passed_on(self, then: Callable[[], object], names: Collection[str] | None = ()) -> None:
        """Call `then` when all was passed on that procs have printed by now.

        A round of the poller reads the contents of the pipes; the first that has not begun yet is
        the next.

        Args:
            then: What to call.
            names: Processes that are waited for also if their pipes are not read at present; None
                for all. A process with its name still on its way is always waited for.
        """

        def finish() -> None:
            waited = set(self._printing if names is None else names)
            for name, printing in self._printing.items():
                if printing.paused and (name in waited or "name" in printing.paused):
                    # once: it may print for ever
                    printing.when_read.append(partial(self.passed_on, then, waited - {name}))
                    return
            try:
                for printing, fd in list(self._gathering):
                    if fd in printing.streams:
                        self._read(printing, fd)
                for rest in self._rests.copy():
                    self._show_rest(*rest)
            finally:  # the answer is waited for, also if one pipe could not be read
                then()

        # two rounds: the first call may come in the middle of one that has passed these pipes
        # already
        self._poller.call_soon(lambda: self._poller.call_soon(finish))

    def flush(self, then: Callable[[], None]) -> None:
        """Call `then`, on any thread, when the sinks have written what they have taken."""
        sinks = set(self.sinks.values())
        written = countdown(len(sinks), then)
        for sink in sinks:
            sink.flush(written)

    def shown(self, name: str, size: int) -> None:
        """The client has shown that many characters of a process."""
        printing = self._printing.get(name)
        if printing is not None:
            printing.unshown = max(0, printing.unshown - size)
            # at half, so that it is not paused and released at each message
            if printing.unshown <= _MOST_UNSHOWN // 2:
                self._say_left_out(printing)
                self._release(printing, "client")

    def _listen(self, printing: _Printing) -> None:
        for fd in printing.streams:
            if (printing, fd) not in self._gathering:
                self._listen_to(printing, fd)

    def _listen_to(self, printing: _Printing, fd: int) -> None:
        self._poller.add(fd, lambda events: self._read(printing, fd))

    def _gather(self, printing: _Printing, fd: int) -> None:
        """Read this pipe in a while, not at each line: that would cost all others more than it is
        worth.
        """
        self._poller.remove(fd)
        if not self._gathering:
            self._poller.call_later(_GATHER, self._read_gathered)
        self._gathering[printing, fd] = None

    def _read_gathered(self) -> None:
        waiting, self._gathering, self._collects = self._gathering, {}, True
        for number, (printing, fd) in enumerate(waiting, 1):
            if fd in printing.streams and not printing.paused:
                guarded(partial(self._listen_to, printing, fd))
                guarded(partial(self._read, printing, fd))
            if number % _TOGETHER == 0:
                guarded(self._send)
        self._collects = False
        self._send()

    def _hold(self, printing: _Printing, reason: str) -> None:
        if not printing.paused:
            for fd in printing.streams:
                self._poller.remove(fd)
        printing.paused.add(reason)

    def _release(self, printing: _Printing, *reasons: str) -> None:
        if not printing.paused:
            return
        printing.paused.difference_update(reasons)
        if printing.patience is not None and "sink" not in printing.paused:
            printing.patience.cancel()
            printing.patience = None
        if not printing.paused:
            self._listen(printing)
            waiting, printing.when_read = printing.when_read, []
            for then in waiting:
                then()

    def _read(self, printing: _Printing, fd: int) -> None:
        if printing.may_be_named and printing.entry.mesh.name == UNNAMED:
            # by its first actor, which it says over its connection before that prints
            printing.may_be_named = False
            self._hold(printing, "name")
            self._poller.call_when_read(partial(self._release, printing, "name"))
            return
        stream, splitter = printing.streams[fd]
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            splitter.alone = self._source(printing).alone
            self._pass_on(printing, stream, *splitter.feed(data))
            now = time.monotonic()
            if (
                now - printing.last_read < 2 * _GATHER
                and len(data) < _MUCH
                and (printing, fd) not in self._gathering
                and not printing.paused
            ):
                self._gather(printing, fd)
            printing.last_read = now
            if splitter.waiting:
                rest = printing, stream, splitter
                self._rests.add(rest)
                self._poller.call_later(_PROMPT, lambda: self._show_rest(*rest))
        else:
            self._close(printing, fd)

    def _close(self, printing: _Printing, fd: int) -> None:
        if found := printing.streams.pop(fd, None):
            self._pass_on(printing, found[0], *found[1].finish())
            self._poller.remove(fd)
            os.close(fd)

    def _pass_on(
        self, printing: _Printing, stream: str, lines: list[Run], unshown: list[Run]
    ) -> None:
        if not lines:
            return
        tail = printing.entry.tail
        for note, text in lines:
            tail.extend([text] if note.logger else text.rsplit("\n", tail.maxlen or -1))
        output = Output(self._source(printing), stream, time.time(), lines)
        sink = self.sinks.get(printing.entry.mesh.root)
        if sink is not None and not sink.put(
            output, lambda: self._poller.call_soon(lambda: self._release(printing, "sink"))
        ):
            self._hold(printing, "sink")
            # in case it never has any: it is asked again, and takes lines without keeping them if
            # it does not get on at all
            printing.patience = self._poller.call_later(
                _PATIENCE, lambda: self._release(printing, "sink")
            )
        self._show(printing, output._replace(runs=unshown), sink)

    def _show(self, printing: _Printing, output: Output, sink: OutputSink | None) -> None:
        """Send output to the client, as far as it wants to see it, and keeps up."""
        mesh = printing.entry.mesh
        wanted = mesh.wanted.get(printing.entry.rank)
        shown = output if wanted is None else wanted.view(mesh.uid, output)
        if shown is None:
            return
        if sink is not None and printing.unshown > _MOST_UNSHOWN:
            # with files the proc is not held up: its lines are there, only the terminal lacks them
            printing.left_out += shown.line_count
        else:
            self._unsent.setdefault(mesh.root, []).append((printing, shown))
            if not self._collects:
                self._send()

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for client, said in unsent.items():
            if self._publish(client, [output for _, output in said]):
                for printing, output in said:
                    printing.unshown += output.size
                    if printing.unshown > _MOST_UNSHOWN and client not in self.sinks:
                        # the pipe fills, and then the proc waits in its `write`: this bounds memory
                        self._hold(printing, "client")

    def _show_rest(self, printing: _Printing, stream: str, splitter: LineSplitter) -> None:
        """Show text without a newline, as of a prompt or progress bar, if nothing else prints."""
        self._rests.discard((printing, stream, splitter))
        if prompt := splitter.prompt():
            self._show(
                printing, Output(self._source(printing), stream, time.time(), prompt, end=""), None
            )

    def _say_left_out(self, printing: _Printing) -> None:
        sink = self.sinks.get(printing.entry.mesh.root)
        if printing.left_out and sink is not None:
            source = self._source(printing)
            text = (
                f"monarch: {printing.left_out:,} lines were left out here; they are in"
                f" {sink.place_of(source)}"
            )
            printing.left_out = 0
            self._publish(
                printing.entry.mesh.root,
                [Output(source, "stderr", time.time(), [(NO_AUTHOR, text)])],
            )

    def _source(self, printing: _Printing) -> Source:
        entry, known = printing.entry, printing.source
        mesh = entry.mesh
        alone = mesh.size == 1 and not self._several()
        if known is None or (known.mesh, known.alone) != (mesh.name, alone):
            point = ",".join(
                f"{label}={index}" for label, index in Point(entry.rank, mesh.extent).items()
            )
            known = printing.source = Source(
                mesh.name, entry.rank, point, mesh.machine, entry.incarnation, mesh.size, alone,
                entry.address.proc,
            )  # fmt: skip
        return known


class _Printing:
    """A proc that prints."""

    def __init__(self, entry: ProcEntry) -> None:
        self.entry = entry
        self.streams: dict[int, tuple[str, LineSplitter]] = {}
        self.source: Source | None = None
        self.may_be_named = True  # until it has printed
        self.last_read = 0.0
        self.unshown = 0  # characters
        self.left_out = 0  # lines
        self.patience: Timer | None = None
        self.paused: set[str] = set()  # why its pipes are not read
        self.when_read: list[Callable[[], object]] = []
