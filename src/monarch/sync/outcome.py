"""The outcome of a sync, for programs and for people."""

from __future__ import annotations

from .._namedtuple import NamedTuple
from .._words import named


class ProcReload(NamedTuple):
    """A proc's report on reloading changed modules.

    Attributes:
        proc: Name of its mesh, and its rank.
        reloaded: Modules that run their new code.
        objects: Number of objects that have taken the new code of their classes, with what they
            hold.
        kept: What still runs old code, and why.
    """

    proc: str
    reloaded: list[str]
    objects: int
    kept: list[tuple[str, str]]


class SyncResult(NamedTuple):
    """The outcome of a sync.

    Attributes:
        files: Number of files of the workspace.
        size: Bytes of them.
        hosts: Number of hosts that have this version now.
        behind: Number of those that did not have it before.
        sent: Bytes that were sent, each once for all hosts below it in the tree.
        sent_files: Number of contents that were sent.
        seconds: How long it took.
        skipped: Paths that were left out, or are links that lead elsewhere, each with the reason.
        left: Folders on hosts, of old versions that stayed after an earlier sync as programs had
            made files there: host, folder.
        reloads: One of each proc that had something to reload.
        changing: Files, by their paths here, that changed while they were sent: hosts have them as
            they were read a moment later, which may be in the middle of a change.
        environment: What came of the sync of the conda environment, if that was asked for.
    """

    files: int
    size: int
    hosts: int
    behind: int
    sent: int
    sent_files: int
    seconds: float
    skipped: list[tuple[str, str]]
    left: list[tuple[str, str]]
    reloads: list[ProcReload]
    changing: list[str]
    environment: SyncResult | None = None

    def __str__(self) -> str:
        files, hosts = _count(self.files, "file"), _count(self.hosts, "host")
        taken = f"{self._said()} ({self.seconds:.2f} s)"
        lines = [f"{files}, {megabytes(self.size)}, on {hosts}: {taken}"]
        if self.skipped:
            lines.append(f"left out: {listed([f'{path} ({why})' for path, why in self.skipped])}")
        if self.changing:
            lines.append(
                "changed while they were sent, and went as they were a moment later:"
                f" {listed(self.changing)}"
            )
        lines += [
            f"{host}: {named(folder)} stays, as programs have made files there"
            for host, folder in self.left
        ]
        lines += [f"{each.proc}: {_said(each)}" for each in self.reloads]
        if self.environment is not None:
            lines.append(f"environment: {self.environment}")
        return "\n".join(lines)

    def _said(self) -> str:
        if not self.behind:
            return "nothing has changed"
        return (
            f"{_count(self.sent_files, 'file')}, {megabytes(self.sent)} sent to"
            f" {_count(self.behind, 'host')}"
        )


def megabytes(size: int) -> str:
    """A number of bytes, for people."""
    if size >= 1e9:
        return f"{size / 1e9:.2f} GB"
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size:,} bytes"


def listed(texts: list[str], most: int = 8) -> str:
    """List the first of the texts, and how many more there are."""
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return ", ".join([*map(named, texts[:most]), *more])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _said(each: ProcReload) -> str:
    parts = []
    if each.reloaded:
        objects = f", {_count(each.objects, 'object')} with it" if each.objects else ""
        parts.append(f"reloaded {', '.join(each.reloaded)}{objects}")
    parts += [f"{what} runs its old code: {why}" for what, why in each.kept]
    return "; ".join(parts)
