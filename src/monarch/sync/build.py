"""A new version of a workspace on one host, made from files that the host has and files it is sent.

`WorkspaceStore` starts one for each push of `monarch sync`; `host` writes what the client sends
into it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .manifest import File, Manifest
from .removal import is_intact

if TYPE_CHECKING:
    from .store import WorkspaceStore

_COPY = 1 << 20  # bytes at once


class Build:
    """A version that is being made.

    Args:
        store: Where it is to be used.
        path: Its folder.
        manifest: What it is to consist of.

    Attributes:
        missing: Digests of content that it has yet to be sent.
    """

    def __init__(self, store: WorkspaceStore, path: Path, manifest: Manifest) -> None:
        self.store = store
        self.path = path
        self.manifest = manifest
        self._root = str(path)
        # files that its folder did not have at the beginning, by digest
        self._wanted: dict[str, list[File]] = {}
        self.missing: dict[str, None] = {}
        self._there: set[str] = set()  # paths of files
        self._arriving: _Arriving | None = None
        self._lock = -1

    def claim(self) -> None:
        """Hold the lock on its folder."""
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # no other process knows its name

    def inherit(self, other: Build) -> Manifest:
        """Take over the folder of another one, and the lock on it; what it has."""
        self._lock, other._lock = other._lock, -1
        other._give_up()
        old = other.manifest
        there = (file for file in old.files if file.path in other._there)
        return Manifest(there, old.links, old.folders)

    def make(self, old: Manifest | None) -> None:
        """Make its folders and links.

        Args:
            old: The current content of its folder, if any; unwanted files are removed.
        """
        old = old or Manifest([], {}, {})
        manifest, root = self.manifest, self._root
        files = manifest.by_path
        self._there = {path for path, file in old.by_path.items() if files.get(path) == file}
        for path in old.by_path.keys() - self._there:
            os.unlink(f"{root}/{path}")
        for path, target in old.links.items():
            if manifest.links.get(path) != target:
                os.unlink(f"{root}/{path}")
        for path in sorted(old.folders.keys() - manifest.folders.keys(), reverse=True):
            os.rmdir(f"{root}/{path}")
        for path in manifest.folders:
            if path not in old.folders:
                os.mkdir(f"{root}/{path}", 0o700)
        for path, target in manifest.links.items():
            if old.links.get(path) != target:
                os.symlink(target, f"{root}/{path}")
        for path, file in files.items():
            if path not in self._there:
                self._wanted.setdefault(file.digest, []).append(file)
        held = {files[path].digest for path in self._there}
        self.missing = {digest: None for digest in self._wanted if digest not in held}

    def _absent(self) -> list[File]:
        return [
            file
            for files in self._wanted.values()
            for file in files
            if file.path not in self._there
        ]

    def make_empty(self) -> None:
        """Make the files without content that are not there."""
        for file in self._absent():
            if not file.size:
                _Arriving(f"{self._root}/{file.path}", file).write(memoryview(b""))
                self._there.add(file.path)
                self.missing.pop(file.digest, None)

    def take_from(self, root: str, other: Manifest, by_link: bool) -> None:
        """Take over what another version has.

        Args:
            root: Folder of the other version.
            other: Its manifest.
            by_link: As the same files, renamed ones too; otherwise as copies, as its programs may
                yet change them.
        """
        for file in self._absent() if by_link else ():  # where it has the same name
            source, target = f"{root}/{file.path}", f"{self._root}/{file.path}"
            if other.by_path.get(file.path) == file and _link(source, target, file):
                self._there.add(file.path)
                self.missing.pop(file.digest, None)
        for file in other.files if self.missing else ():
            if file.digest in self.missing and is_intact(source := f"{root}/{file.path}", file):
                wanted = self._wanted[file.digest][0]
                if (
                    by_link
                    and file[1:] == wanted[1:]
                    and _link(source, f"{self._root}/{wanted.path}", file)
                ):
                    self._there.add(wanted.path)
                else:
                    try:
                        self._copy(source, wanted)
                    except (OSError, ValueError):  # removed, or changed, since it was looked at
                        continue
                del self.missing[file.digest]

    def check_room(self) -> None:
        """Raise OSError if the disk has no room for the files to come."""
        size = sum(self._wanted[digest][0].size for digest in self.missing)
        status = os.statvfs(self._root)
        free = status.f_bavail * status.f_frsize
        if size > free:
            raise self._no_room(f"{size / 1e6:.1f} MB are to come, {free / 1e6:.1f} MB are free")

    def write(self, digest: str, offset: int, data: memoryview) -> None:
        """Take a piece of some content; pieces of one come in order, one content after the other.

        If one is not there as a whole when another begins, no more of it comes: its file has
        changed.

        Raises:
            OSError: It can't be written.
            ValueError: It was not asked for, or does not match its digest.
        """
        if digest not in self.missing:
            raise ValueError(f"the content {digest} was not asked for")
        file = self._wanted[digest][0]
        if not offset:
            self._give_up()
        if self._arriving is None:
            self._arriving = _Arriving(f"{self._root}/{file.path}", file)
        arriving = self._arriving
        if arriving.file is not file or arriving.size != offset or offset + len(data) > file.size:
            raise ValueError(
                f"a piece of {file.path} came where {arriving.file.path} was to go on at"
                f" {arriving.size}"
            )
        with self.disk_full_said(f"at {file.path}"):
            done = arriving.write(data)
        if done:
            self._arriving = None
            self._there.add(file.path)
            del self.missing[digest]

    def finish(self) -> None:
        """Have it be used: see `WorkspaceStore.use`.

        What several files have in common was sent once.
        """
        if self.missing:
            raise ValueError(
                f"{len(self.missing)} contents have not come, such as that of"
                f" {next(iter(self.missing))}"
            )
        with self.disk_full_said("at the last step"):
            if absent := self._absent():
                files = self.manifest.by_path
                sources = {files[path].digest: path for path in self._there}
                for file in absent:
                    self._copy(f"{self._root}/{sources[file.digest]}", file)
            self._set_modes()
            self.store.use(self.path, self.manifest)
        self._let_go()

    def lay_by(self) -> bool:
        """Leave it complete, and not in use; False where something is missing."""
        if self._absent():
            return False
        self._set_modes()
        self.store.write_list(self.path, self.manifest)
        self._let_go()
        return True

    def _set_modes(self) -> None:
        for path, mode in self.manifest.folders.items():
            os.chmod(f"{self._root}/{path}", mode)

    def drop(self) -> None:
        """Give it up."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            self._let_go()

    def _give_up(self) -> None:
        """Remove a file that has arrived in part only."""
        if self._arriving is not None:
            self._arriving.close()
            os.unlink(f"{self._root}/{self._arriving.file.path}")
            self._arriving = None

    def _let_go(self) -> None:
        if self._arriving is not None:
            self._arriving.close()
            self._arriving = None
        os.close(self._lock)
        self._lock = -1

    def _copy(self, source: str, file: File) -> None:
        target = f"{self._root}/{file.path}"
        arriving = _Arriving(target, file)
        try:
            done = False
            with open(source, "rb", buffering=0) as content:
                while not done:
                    chunk = content.read(_COPY)
                    done = arriving.write(memoryview(chunk))
                    if not chunk:
                        break
            if not done:
                raise ValueError(f"{source} has become shorter")
        except BaseException:
            arriving.close()
            os.unlink(target)
            raise
        self._there.add(file.path)

    @contextmanager
    def disk_full_said(self, where: str) -> Iterator[None]:
        """Have an error that says so be one that says what becomes of the workspace."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._no_room(where) from error
            raise

    def _no_room(self, what: str) -> OSError:
        return OSError(
            errno.ENOSPC,
            f"no room for the workspace in {self._root}: {what}; the one in use stays as it is",
        )


class _Arriving:
    """A file that is being written."""

    def __init__(self, path: str, file: File) -> None:
        self.file = file
        self.size = 0
        self._digest = hashlib.sha256()
        self._fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )

    def write(self, data: memoryview) -> bool:
        """Write more of it; whether that was all."""
        written = 0
        while written < len(data):
            written += os.write(self._fd, data[written:])
        self._digest.update(data)
        self.size += len(data)
        if self.size < self.file.size:
            return False
        if self.size > self.file.size or self._digest.hexdigest() != self.file.digest:
            raise ValueError(
                f"{self.file.path} has not arrived as it was sent: its digest is another one"
            )
        os.fchmod(self._fd, self.file.mode)
        os.utime(self._fd, ns=(self.file.mtime, self.file.mtime))
        self.close()
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _link(source: str, target: str, file: File) -> bool:
    """Give a file another name.

    False where it has been changed, or the file system has no such names.
    """
    if not is_intact(source, file):
        return False
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        return False
    return True
