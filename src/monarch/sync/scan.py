"""Finding the files in the folders of a workspace.

A known file is hashed again only if its status says that it has changed.

Known files are kept in a file of the user's cache, one for each workspace. Without it, or where it
can't be written, everything is hashed: 50 MB in some 0.2 s.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from .._namedtuple import NamedTuple
from .._ours import opened, plain
from .ignore import QUIET, Rules
from .manifest import Change, File, Manifest, check
from .progress import Progress
from .workspace import Workspace

CHUNK = 1 << 20
"""Bytes that are read at once."""

_ENVIRONMENT = {"pyvenv.cfg", "conda-meta"}  # either is in one
_FORMAT = 3
# ns, the clock's step: a file changed so shortly before the look may change again with the same
# time
_TICK = 50_000_000

# Its path in the workspace; the rules there; by name, a folder's with a slash: status and digest of
# a file, or why it is left out.
_Folder = tuple[str, str, dict[str, Any]]


class Scan(NamedTuple):
    """The current content of a workspace.

    Attributes:
        sources: Digest of a content to a file that has it.
        skipped: Paths that are left out, or stay links that lead out of the workspace, each with
            the reason.
    """

    manifest: Manifest
    sources: dict[str, str]
    skipped: list[tuple[str, str]]


class Scanner:
    """Looks at a workspace as often as one likes.

    Attributes:
        sent: Id of the version that was sent to hosts last, by this program or another one; empty
            if none was.

    Raises:
        ValueError: A line of a file of rules about what to leave out is no pattern.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        self._path = Path(cache, "monarch", "sync", f"{workspace.key}.json")
        self.sent = ""
        self._seen: dict[str, _Folder] | None = None
        self._taken = 0
        self._found_news = False
        # files that are new, changed or gone since the last version sent: their paths, and digests
        # then
        self._touched: dict[str, str] = {}

    def scan(self, copied: Collection[str] = (), copies: str = "") -> Scan:
        """Look.

        Args:
            copied: Files that change all the time: a copy of each is scanned in its place, and
                sent.
            copies: A folder for these.

        Raises:
            OSError: Something can't be read; the error names it.
            ValueError: Something would be at the same place as something else.
        """
        if self._seen is None:
            self._load()
        assert self._seen is not None
        taken = time.time_ns()
        with Progress("read", None) as progress:
            look = _Look(self._seen, self._taken, copied, copies, progress)
            for folder, place in self._workspace.dirs.items():
                look.add_place(place)
                rules = self._workspace.rules_of(folder)
                look.walk(str(folder), place and f"{place}/", rules, str(folder))
        look.files.sort(key=itemgetter(0))  # by their paths
        manifest = Manifest(
            look.files, dict(sorted(look.links.items())), dict(sorted(look.folders.items()))
        )
        if len(self._workspace.dirs) > 1:
            check(manifest, manifest.files)
        if look.found_news or look.folders_seen.keys() != self._seen.keys():
            look.find_gone()
            self._touched = {**look.touched, **self._touched}
            self._seen, self._taken, self._found_news = look.folders_seen, taken, True
        return Scan(manifest, look.sources, sorted(look.skipped))

    def change(self, manifest: Manifest) -> tuple[Change, set[str]] | None:
        """The change since the last version sent, and digests of that version's files.

        None where nothing was sent, or nothing has changed.
        """
        if self.sent in ("", manifest.id):
            return None
        touched = self._touched
        now = [file for file in manifest.files if file.path in touched]
        gone = touched.keys() - {file.path for file in now}
        digests = {file.digest for file in now}
        there = {
            file.digest
            for file in manifest.files
            if file.digest in digests and file.path not in touched
        } | {*touched.values()}
        return Change(self.sent, now, sorted(gone), manifest.links, manifest.folders), there

    def keep(self, manifest: Manifest) -> None:
        """Remember the files that were seen and sent.

        The next scan, of this program or another one, begins with it.
        """
        if self._found_news or self.sent != manifest.id:
            self.sent, self._found_news = manifest.id, False
            self._touched.clear()
            with suppress(OSError):
                self._save()

    def _load(self) -> None:
        self._seen = {}
        with suppress(OSError, ValueError, TypeError), opened(self._path.parent) as folder:
            form, taken, sent, seen = json.loads(folder.read(self._path.name))
            if form == _FORMAT:
                self._seen, self._taken, self.sent = seen, taken, sent

    def _save(self) -> None:
        content = json.dumps((_FORMAT, self._taken, self.sent, self._seen), separators=(",", ":"))
        with opened(self._path.parent, make=True) as folder:
            # else the kernel would have us wait until the new one is on the disk
            folder.remove(self._path.name)
            folder.replace(self._path.name, content.encode("ascii"))


class _Look:
    def __init__(
        self,
        seen: dict[str, _Folder],
        taken: int,
        copied: Collection[str],
        copies: str,
        progress: Progress,
    ) -> None:
        self._progress = progress
        self._copied = copied
        self._copies = copies
        self._seen = seen
        self._settled = taken - _TICK
        self.files: list[File] = []
        self.links: dict[str, str] = {}
        self.folders: dict[str, int] = {}
        self.sources: dict[str, str] = {}
        self.skipped: list[tuple[str, str]] = []
        self.folders_seen: dict[str, _Folder] = {}
        self.touched: dict[str, str] = {}
        self.found_news = False

    def find_gone(self) -> None:
        """Find files that were seen before, and are no more."""
        for folder, (place, _, names) in self._seen.items():
            now = self.folders_seen[folder][2] if folder in self.folders_seen else {}
            for name, row in names.items() if now != names else ():
                if type(row) is list and type(now.get(name)) is not list:
                    self.touched[place + name] = row[4]

    def add_place(self, place: str) -> None:
        """Make the folders on the way to where something is put."""
        parts = place.split("/") if place else []
        for count in range(1, len(parts) + 1):
            self.folders.setdefault("/".join(parts[:count]), 0o755)

    def walk(self, folder: str, place: str, rules: Rules, root: str) -> None:
        """Walk a folder.

        Args:
            folder: Path of the folder on this machine.
            place: Where its content goes: "" or a path with a slash at its end.
            rules: Rules of ignored files, from the folders above.
            root: The folder of the workspace that it is in.
        """
        with os.scandir(folder) as listing:
            entries = list(listing)
        names = {entry.name for entry in entries}
        if folder != root and not _ENVIRONMENT.isdisjoint(names):
            self.folders.pop(place[:-1], None)
            self.skipped.append((f"{place}", "an environment, which works at its own place only"))
            return
        rules = rules.below(folder, names)
        before = self._seen.get(folder)
        known = before[2] if before is not None and before[1] == rules.fingerprint else {}
        now: dict[str, Any] = {}
        for entry in entries:
            try:
                name = entry.name
                old = known.get(name)
                if type(old) is list and entry.is_file(follow_symlinks=False):  # most of them
                    now[name] = self._file(entry, place + name, old)
                else:
                    self._entry(entry, place, rules, root, known, now)
            except FileNotFoundError:  # an editor's file, say, which is gone again
                pass
        self.folders_seen[folder] = (place, rules.fingerprint, now)
        self.found_news |= known != now

    def _entry(
        self,
        entry: os.DirEntry[str],
        place: str,
        rules: Rules,
        root: str,
        known: dict[str, Any],
        now: dict[str, Any],
    ) -> None:
        name = entry.name
        path, old = place + name, known.get(name)
        if is_folder := entry.is_dir(follow_symlinks=False):
            name += "/"  # rules may mean folders only
            old = known.get(name)
        why = (
            (old if type(old) is str else "")
            if old is not None
            else rules.why_not(os.path.dirname(entry.path), entry.name, is_folder)
        )
        if why:
            now[name] = why
            if entry.name not in QUIET:
                self.skipped.append((place + name, why))
        elif entry.is_symlink():
            now[name] = 0
            self._link(entry.path, path, root)
        elif is_folder:
            mode = stat.S_IMODE(entry.stat().st_mode) & 0o777 | 0o700
            now[name] = 0
            self.folders[path] = mode
            try:
                self.walk(entry.path, f"{path}/", rules, root)
            except FileNotFoundError:
                del self.folders[path]
                raise
        elif entry.is_file(follow_symlinks=False):
            now[name] = self._file(entry, path, old)
        else:
            self.skipped.append((path, "neither a file nor a folder"))

    def _file(self, entry: os.DirEntry[str], path: str, old: Any) -> list[Any]:
        status = entry.stat(follow_symlinks=False)
        size, mtime, ctime = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        source = entry.path
        if self._copied and source in self._copied:
            fd, copy = tempfile.mkstemp(dir=self._copies)
            os.close(fd)
            source, old = shutil.copyfile(source, copy, follow_symlinks=False), None
        inode = status.st_ino
        if (
            old
            and old[1] == mtime < self._settled > ctime == old[2]
            and old[0] == size
            and old[3] == inode
        ):
            row: list[Any] = old
            digest: str = old[4]
        else:
            digest, size = _hash(source, self._progress.advance)
            row = [size, mtime, ctime, inode, digest]
            self.touched[path] = old[4] if old else ""
            self.found_news = True
        self.files.append(File(path, status.st_mode & 0o777, mtime, size, digest))
        self.sources[digest] = source
        return row

    def _link(self, where: str, path: str, root: str) -> None:
        target, folder = os.readlink(where), os.path.dirname(where)
        named = os.path.normpath(os.path.join(folder, target))

        def is_inside(way: str) -> bool:
            return way == root or way.startswith(f"{root}/")

        if os.path.isabs(target) or not is_inside(named):
            # To where the same is on the host. Another path may lead there, as that of a home which
            # is a link itself.
            parent, name = os.path.split(named)
            ways = named, os.path.join(os.path.realpath(parent), name), os.path.realpath(named)
            inside = next(filter(is_inside, ways), None)
            if inside is None:
                self.skipped.append(
                    (path, f"kept as a link, which leads out of the workspace, to {target}")
                )
            else:
                target = os.path.relpath(inside, folder)
        self.links[path] = target


def _hash(path: str, advance: Callable[[int], None]) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with open(plain(path), "rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
            advance(len(chunk))
    return digest.hexdigest(), size
