"""In the agent: reads what procs print from their pipes, keeps the last lines of each, and passes all of it on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from ..net.poller import Poller
from ..shape import Extent, Point
from ..wire.address import ProcAddress
from .lines import LineSplitter
from .output import Output, Run, Source
from .proc_entry import ProcEntry

_PROMPT = 0.2  # seconds after which text without a newline is shown


class ProcOutput:
    """Args:
    poller: Reads the pipes.
    publish: Takes lines for the client that a proc belongs to.
    several: Whether procs of several meshes may print.
    """

    def __init__(
        self, poller: Poller, publish: Callable[[ProcAddress, Output], None], several: Callable[[], bool]
    ) -> None:
        self._poller = poller
        self._publish = publish
        self._several = several
        self._streams: dict[ProcEntry, dict[int, tuple[str, LineSplitter]]] = {}
        self._sources: dict[ProcEntry, Source] = {}
        self._rests: set[tuple[ProcEntry, str, LineSplitter]] = set()  # text without a newline, until it is shown

    def follow(self, entry: ProcEntry, out: int, err: int) -> None:
        """Read a proc's pipes from now on, until they end; they are closed then."""
        for fd, stream in ((out, "stdout"), (err, "stderr")):
            os.set_blocking(fd, False)
            self._streams.setdefault(entry, {})[fd] = (stream, LineSplitter())
            self._poller.add(fd, lambda events, fd=fd: self._read(entry, fd))  # type: ignore[misc]  # bound now

    def finish(self, entry: ProcEntry) -> None:
        """The proc has ended: what is left in its pipes is the rest."""
        for fd in list(self._streams.get(entry, ())):
            self._read(entry, fd)
            self._close(entry, fd)
        self._streams.pop(entry, None)
        self._sources.pop(entry, None)

    def passed_on(self, then: Callable[[], None]) -> None:
        """Call `then` when all was passed on that procs have printed by now.

        A round of the poller reads what is in the pipes; the first that has not begun yet is the next.
        """

        def finish() -> None:
            for rest in self._rests.copy():
                self._show_rest(*rest)
            then()

        self._poller.call_soon(lambda: self._poller.call_soon(finish))

    def _read(self, entry: ProcEntry, fd: int) -> None:
        stream, splitter = self._streams[entry][fd]
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            splitter.alone = self._source(entry).alone
            self._pass_on(entry, stream, *splitter.feed(data))
            if splitter.waiting:
                rest = entry, stream, splitter
                self._rests.add(rest)
                self._poller.call_later(_PROMPT, lambda: self._show_rest(*rest))
        else:
            self._close(entry, fd)

    def _close(self, entry: ProcEntry, fd: int) -> None:
        found = self._streams[entry].pop(fd, None)
        if found is not None:
            self._pass_on(entry, found[0], *found[1].finish())
            self._poller.remove(fd)
            os.close(fd)

    def _pass_on(self, entry: ProcEntry, stream: str, lines: list[Run], unshown: list[Run]) -> None:
        if lines:
            entry.tail.extend(text for _, texts in lines for text in texts)
            self._show(entry, Output(self._source(entry), stream, time.time(), unshown))

    def _show_rest(self, entry: ProcEntry, stream: str, splitter: LineSplitter) -> None:
        """A prompt, or a progress bar: what has no newline at its end is shown, too, if nothing else prints."""
        self._rests.discard((entry, stream, splitter))
        prompt = splitter.prompt()
        if prompt:
            self._show(entry, Output(self._source(entry), stream, time.time(), prompt, end=""))

    def _show(self, entry: ProcEntry, output: Output) -> None:
        """To the client, as far as it wants to see it."""
        wanted = entry.mesh.wanted.get(entry.rank)
        shown = output if wanted is None else wanted.view(entry.mesh.uid, output)
        if shown is not None:
            self._publish(entry.mesh.root, shown)

    def _source(self, entry: ProcEntry) -> Source:
        mesh = entry.mesh
        alone = mesh.size == 1 and not self._several()
        known = self._sources.get(entry)
        if known is None or (known.mesh, known.alone) != (mesh.name, alone):
            known = self._sources[entry] = Source(
                mesh.name,
                entry.rank,
                _point(mesh.extent, entry.rank),
                mesh.machine,
                entry.incarnation,
                mesh.size,
                alone,
            )
        return known


def _point(extent: Extent, rank: int) -> str:
    return ",".join(f"{label}={index}" for label, index in Point(rank, extent).items())
