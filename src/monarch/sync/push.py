"""Bringing a workspace to hosts: the side of the client.

Each step asks all hosts at once, down the tree of their agents: who has this version, what do the
others lack, here it is, use it. What several hosts lack is sent once. A host that fails is left out
of what follows, so the others get there; then the error names it.

What ends the waits: the answer of each host, its loss, or the time limit of a step. Steps are of
bounded size.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pickle import PickleBuffer
from typing import Any

from .._core.plane import ProcAddress, current_hub, extension, pickling, random_uid
from .._ours import plain
from ..actor import Future
from ..errors import SyncError
from ..programs import Gathering, agents_of, ask
from .host import FindLagging, FindWorkspace, Offer, Pieces, Reloaded, SettleVersion
from .manifest import Change, Manifest
from .outcome import ProcReload, SyncResult
from .progress import Progress
from .reload import Reload
from .scan import Scan, Scanner
from .workspace import Workspace

_STEP = 60.0  # seconds in which a host must do one step
_FILES = 500  # so many files of a version add one
_BYTES = 20 << 20  # and so many bytes, as a host may have to copy them
_PIECE = 4 << 20  # bytes of a message with content
# that a file counts beyond them: to make it takes time, and hosts have `_STEP` for a message
_FILE = 4 << 10
# bytes of a change, in up to `_FILES` files, that hosts are sent before they say that they lack it
_LITTLE = 1 << 20
# of them, that no host has yet to have written: memory that this takes here and there
_UNDER_WAY = 3
_RELOAD = 30.0  # seconds in which a proc must reload; it can't while a thread there holds the GIL
_TRIES = 5  # where files change while they are sent; those that have are copied first the next time


class _Changed(Exception):
    """A file is not what it was when it was looked at."""


def sync_hosts(
    hosts: Sequence[str],
    workspace: Workspace,
    auto_reload: bool = False,
    every_program: bool = False,
    scanner: Scanner | None = None,
) -> SyncResult:
    """Bring a workspace to hosts, as it is now; procs that start there afterwards import from it.

    Args:
        hosts: Names of hosts that this program has attached.
        workspace: What to bring.
        auto_reload: Have procs reload modules that have changed.
        every_program: Those of other programs, too.
        scanner: That of an earlier sync of this workspace.

    Raises:
        OSError: A file here can't be read.
        SyncError: A host has failed; the others are done.
    """
    began = time.monotonic()
    scanner = scanner or Scanner(workspace)
    hosts = list(dict.fromkeys(hosts))
    push = _Push(hosts, workspace)
    with tempfile.TemporaryDirectory(prefix="monarch-sync-") as copies:
        try:
            for _ in range(_TRIES):
                scan = scanner.scan(push.changed, copies)
                if push.run(scan, scanner):
                    break
            else:
                raise SyncError(
                    f"other files change each time that they are sent, such as {max(push.changed)}",
                    {},
                )
        except BaseException:
            push.give_up()
            raise
    reloads = push.reload(every_program) if auto_reload else []
    result = SyncResult(
        len(scan.manifest.files), scan.manifest.size, len(push.agents), len(push.behind), push.sent, push.sent_files,
        time.monotonic() - began, scan.skipped, push.left, reloads, sorted(push.changed),
    )  # fmt: skip
    if push.failed:
        raise SyncError(_said(push.failed, len(push.agents)), push.failed, result)
    return result


async def sync_to(
    hosts: Sequence[str], workspace: object, conda: bool, auto_reload: bool
) -> SyncResult:
    """Sync a stand-in for a workspace, as `sync_hosts` does, while the loop goes on.

    A conda environment goes first, if that is wanted.
    """
    environment = await extension.mirror(hosts, workspace) if conda else None
    result = await asyncio.to_thread(sync_hosts, hosts, Workspace.of(workspace), auto_reload)
    return result._replace(environment=environment)


class _Push:
    """One version of a workspace, on its way.

    Attributes:
        agents: Of hosts that have not failed.
        behind: Those of them that did not have it.
        failed: Hosts that have, and why.
        changed: Files that have changed while they were sent.
    """

    def __init__(self, hosts: Sequence[str], workspace: Workspace) -> None:
        self._hub = current_hub()
        self._key = workspace.key
        self._dirs = workspace.imported
        self._sources: dict[str, str] = {}
        self._build = f"{random_uid():x}"
        self.agents = agents_of(hosts)
        self.behind: list[ProcAddress] = []
        self.failed: dict[str, str] = {}
        self.changed: set[str] = set()
        self.sent = self.sent_files = 0
        self.left: list[tuple[str, str]] = []

    def run(self, scan: Scan, scanner: Scanner) -> bool:
        """Send what a scan has found.

        It returns False where files have changed meanwhile: those that have arrived serve the next
        attempt.
        """
        manifest, self._sources = scan.manifest, scan.sources
        longer = _STEP + len(manifest.files) / _FILES + manifest.size / _BYTES
        lacking = self.agents
        known = len(self.changed)
        if not self.changed:
            sizes, change, pieces = self._change(manifest, scanner)
            if self.changed:
                return False
            look = self._begin(
                self.agents,
                FindWorkspace(self._key, manifest.id, self._dirs, change, pieces),
                longer,
            )
            scanner.keep(manifest)  # while they look
            found = self._end(look)
            self.behind = [
                agent for agent, answer in found.items() if answer is None or not answer.had
            ]
            lacking = [agent for agent, answer in found.items() if answer is None]
            if len(lacking) < len(self.behind):
                self._count(sizes)
            self._stay(
                {agent: answer.left for agent, answer in found.items() if answer is not None}
            )
        else:
            self.behind = self.agents
            scanner.keep(manifest)
        if not lacking:
            return True
        offer = Offer(self._build, self._key, self._dirs, PickleBuffer(manifest.encoded))
        self._send(self._ask(lacking, offer, longer), manifest)
        if len(self.changed) > known:
            return False
        self._stay(self._ask(self._alive(lacking), SettleVersion(self._build, True), longer))
        return True

    def _change(
        self, manifest: Manifest, scanner: Scanner
    ) -> tuple[dict[str, int], Change | None, Pieces | None]:
        """The changes since a version that hosts may have, if they are small.

        They have contents and sizes.
        """
        found = scanner.change(manifest)
        if found is not None:
            change, there = found
            sizes = {
                file.digest: file.size
                for file in change.files
                if file.size and file.digest not in there
            }
            if len(change.files) + len(change.gone) <= _FILES and sum(sizes.values()) <= _LITTLE:
                return sizes, change, next(self._pieces(list(sizes), sizes), None)
        return {}, None, None

    def _count(self, sizes: dict[str, int]) -> None:
        self.sent_files, self.sent = self.sent_files + len(sizes), self.sent + sum(sizes.values())

    def _stay(self, left: dict[ProcAddress, list[str]]) -> None:
        self.left += [(agent.host, folder) for agent, folders in left.items() for folder in folders]

    def give_up(self) -> None:
        """Have hosts remove the files that have arrived, without waiting for it."""
        self._begin(self._alive(self.behind), SettleVersion(self._build, False), _STEP)

    def reload(self, every_program: bool) -> list[ProcReload]:
        """Have procs reload modules changed since they began."""
        root = None if every_program else self._hub.root
        lagging = self._ask(self.agents, FindLagging(self._key, root), _STEP)
        found = [each for some in lagging.values() for each in some]
        asked = [
            (each, ask(self._hub, each.address, Reload(each.folder, each.changed)))
            for each in found
        ]
        end = time.monotonic() + _RELOAD
        results, done = [], []
        for each, answer in asked:
            try:
                result = ProcReload(
                    each.name, *answer.get(timeout=max(0.1, end - time.monotonic()))
                )
            except Exception as error:  # it has ended, or holds the GIL
                result = ProcReload(
                    each.name, [], 0, [("all of it", str(error).strip().partition("\n")[0])]
                )
            else:
                done.append((each.address, each.at))
            if result.reloaded or result.kept:
                results.append(result)
        if done:  # else they are asked again next time
            self._ask(
                self._alive([agent for agent, some in lagging.items() if some]),
                Reloaded(self._key, done),
                _STEP,
            )
        return results

    def _alive(self, agents: Sequence[ProcAddress]) -> list[ProcAddress]:
        return [agent for agent in agents if agent.host not in self.failed]

    def _begin(
        self, agents: Sequence[ProcAddress], record: tuple[Any, ...], seconds: float
    ) -> _Step:
        answers = Answers(agents, f"{type(record).__name__} of {len(agents)} hosts")
        return _Step(answers, answers.ask(self._hub, record, seconds) if agents else None)

    def _ask(
        self, agents: Sequence[ProcAddress], record: tuple[Any, ...], seconds: float
    ) -> dict[ProcAddress, Any]:
        return self._end(self._begin(agents, record, seconds))

    def _end(self, step: _Step) -> dict[ProcAddress, Any]:
        values = {} if step.future is None else step.future.get()
        self.failed = {**step.answers.silent, **self.failed}  # why it failed first
        self.agents = self._alive(self.agents)
        return values

    def _send(self, lacking: dict[ProcAddress, list[str]], manifest: Manifest) -> None:
        """Send contents: each once to all who lack it."""
        groups: dict[tuple[str, ...], list[ProcAddress]] = {}
        for agent, lacks in lacking.items():
            groups.setdefault(tuple(lacks), []).append(agent)
        who: dict[str, tuple[int, ...]] = {}
        for number, group in enumerate(groups):
            for digest in group:
                who[digest] = (*who.get(digest, ()), number)
        sizes = {file.digest: file.size for file in manifest.files}
        receivers = list(groups.values())
        contents: dict[tuple[int, ...], list[str]] = {}
        for digest, numbers in who.items():
            contents.setdefault(numbers, []).append(digest)
        going = {digest: sizes[digest] for digest in who}
        self._count(going)
        with Progress("sync", sum(going.values())) as progress:
            for numbers, digests in contents.items():
                agents = [agent for number in numbers for agent in receivers[number]]
                self._send_to(agents, self._pieces(digests, sizes), progress)

    def _send_to(
        self, agents: list[ProcAddress], pieces: Iterator[Pieces], progress: Progress
    ) -> None:
        under_way: deque[tuple[_Step, int]] = deque()

        def wait() -> None:
            nonlocal agents
            step, size = under_way.popleft()
            self._end(step)
            progress.advance(size)
            alive = self._alive(agents)
            agents = agents if len(alive) == len(agents) else alive

        for record in pieces:
            if not agents:
                break
            under_way.append(
                (self._begin(agents, record, _STEP), sum(size for _, _, size in record.table))
            )
            if len(under_way) == _UNDER_WAY:
                wait()
        while under_way:
            wait()

    def _pieces(self, digests: Sequence[str], sizes: dict[str, int]) -> Iterator[Pieces]:
        table: list[tuple[str, int, int]] = []
        parts: list[bytes] = []
        held = 0
        for digest in digests:
            offset = 0
            held += _FILE
            try:
                for chunk in _read(self._sources[digest], digest, sizes[digest]):
                    table.append((digest, offset, len(chunk)))
                    parts.append(chunk)
                    offset += len(chunk)
                    held += len(chunk)
                    if held >= _PIECE:
                        yield Pieces(self._build, table, PickleBuffer(b"".join(parts)))
                        table, parts, held = [], [], 0
            except _Changed:  # hosts drop what they have of it when the next one begins
                self.changed.add(self._sources[digest])
        if table:
            yield Pieces(self._build, table, PickleBuffer(b"".join(parts)))


class _Step:
    """A question, until its answers are looked at."""

    def __init__(self, answers: Answers, future: Future[dict[ProcAddress, Any]] | None) -> None:
        self.answers = answers
        self.future = future


class Answers(Gathering[dict[ProcAddress, Any]]):
    """The answers by process. Of those that have none, `silent` says why."""

    def read(self, frames: Sequence[Any]) -> dict[ProcAddress, Any]:
        return {
            self._agents[frame.rank]: pickling.loads(frame.payload, frame.buffers)
            for frame in frames
        }


def _read(path: str, digest: str, size: int) -> Iterator[bytes]:
    """The content of a file, in pieces, if it is still the one that was looked at.

    A log that has grown since is: no more goes.
    """
    seen, left = hashlib.sha256(), size
    try:
        with open(plain(path), "rb", buffering=0) as file:
            while left:
                chunk = file.read(min(_PIECE, left))
                if not chunk:
                    break
                seen.update(chunk)
                left -= len(chunk)
                if not left and seen.hexdigest() != digest:
                    raise _Changed(path)
                yield chunk
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise _Changed(path) from None
    if left:
        raise _Changed(path)


def _said(failed: dict[str, str], done: int) -> str:
    texts = "; ".join(f"{host}: {why}" for host, why in failed.items())
    return f"the workspace is not on {len(failed)} of {len(failed) + done} hosts: {texts}"
