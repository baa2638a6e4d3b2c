"""Reads log files on other hosts.

An actor there reads and filters, and the matching lines come here in pieces.

The actor has a proc of its own, for as long as its reader looks: a search for a regular expression
would keep a host agent from its work. What ends a wait for a piece is the piece, or the end of
the proc, or of its host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .._core.plane import client
from ..actor import Actor, HostMesh, endpoint
from ..errors import MonarchError
from .filter import LineFilter
from .line import LogLine
from .reader import MergedLines

_MOST = 1 << 20  # characters of a piece
_PATIENCE = 10.0  # seconds in which a host must answer first


class LogReader(Actor):
    """Reads the log files of its host.

    Args:
        folder: Of the job.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._reader: MergedLines | None = None
        self._lines: Iterator[LogLine] = iter(())

    @endpoint
    def hosts(self) -> list[str]:
        """Names of the hosts of which there are files here."""
        return MergedLines(self._folder).find()

    @endpoint
    def begin(self, wanted: LineFilter, without: list[str]) -> None:
        """Read from now on, but not the files of some hosts."""
        self._reader = MergedLines(self._folder, wanted, without)
        self._lines = self._reader.read()

    @endpoint
    def read(self) -> tuple[list[str], bool]:
        """Return lines that were not read yet, as JSON, and whether these were all of them."""
        texts, size = [], 0
        for line in self._lines:
            texts.append(line.to_json())
            size += len(texts[-1])
            if size > _MOST:
                return texts, False
        assert self._reader is not None
        self._lines = self._reader.read()  # for the next time
        return texts, True


class RemoteFiles:
    """The files of hosts that one host can read; used like a `MergedLines`.

    Attributes:
        hosts: Names of these hosts.
        error: Why nothing more can be read, if that is so.
    """

    def __init__(self, hosts: list[str], reader: LogReader) -> None:
        self.hosts = hosts
        self.error = ""
        self._reader = reader

    def read(self) -> Iterator[LogLine]:
        """Yield the lines that are there now and were not read before."""
        done = bool(self.error)
        while not done:
            try:
                texts, done = self._reader.read.call_one().get()
            except MonarchError as error:
                self.error = str(error)
                return
            yield from map(LogLine.from_json, texts)


def look_on() -> None:
    """Have hosts that are attached from now on keep the settings of their own program."""
    client().hosts.looks_on = True


class RemoteLogs(NamedTuple):
    """The readable logs of other hosts, and the reasons why the rest is missing."""

    files: list[RemoteFiles]
    unreachable: list[str]


def open_remote(
    meshes: Iterable[HostMesh], folder: Path, wanted: LineFilter, here: Sequence[str]
) -> RemoteLogs:
    """Find the files that are not here on the hosts of a job.

    Each is read at one host, though several may see it.

    Args:
        meshes: Attached hosts.
        folder: Of the job, the same on every host.
        wanted: Which lines.
        here: Names of the hosts with files here.
    """
    readers, unreachable = [], []
    for mesh in meshes:
        for rank in range(len(mesh)):
            procs = mesh.select([rank]).spawn_procs(name="monarch_logs")
            readers.append((mesh, rank, procs.spawn("log_reader", LogReader, str(folder))))
    seen, files = set(here), []
    for mesh, rank, reader in readers:
        try:
            hosts = [
                host for host in reader.hosts.call_one().get(timeout=_PATIENCE) if host not in seen
            ]
            if hosts:
                reader.begin.call_one(wanted, sorted(seen)).get(timeout=_PATIENCE)
                files.append(RemoteFiles(hosts, reader))
                seen.update(hosts)
        except (MonarchError, RuntimeError, TimeoutError) as error:
            unreachable.append(f"{mesh._hosts[rank]}: {str(error).splitlines()[0]}")
    return RemoteLogs(files, unreachable)
