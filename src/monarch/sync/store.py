"""The folder of a host where workspaces are. Files and locks, no messages.

    BASE/KEY/current        symlink to the version in use
    BASE/KEY/versions/ID/   one state of the workspace, with an ID of its own
    BASE/KEY/versions/ID.json   what it consists of; written when all of it is there
    BASE/KEY/lock           held by whoever changes `current`, or removes versions

A new version is made beside the one in use: what is the same is the same file (a hard link), the
rest comes from the client, and its digest is checked. Then the symlink is replaced: programs see
all of one version or all of the other. Whoever makes a version holds a lock on its folder, so that
what a process left that has died can be told from what another one makes right now. The version
before the last two is taken for the next one, if no program has put anything there: to make and
remove thousands of names takes longer than to look at them.

A program may have changed a file of the workspace. Its size and time show that, and it is not used
for the next version. Files that programs made stay where they are: a version with such files is not
removed.

What ends a wait for a lock: whoever holds it lets go within milliseconds, or has died; or
`_LOCK_PATIENCE`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .manifest import File, Manifest, parse
from .removal import holds_only, is_intact, remove_unchanged

_LOCK_PATIENCE = 30.0  # seconds
_LOCK_PAUSE = 0.02  # seconds until it is tried again; the kernel offers no wait with an end
_COPY = 1 << 20  # bytes at once
_NEEDED = 2  # versions: the one in use, and the one before, in which programs may be


def base_folder() -> Path:
    """Where workspaces of this user are on this host: `MONARCH_SYNC_FOLDER`, or a folder among
    temporary files.

    Raises:
        PermissionError: It belongs to somebody else, who could have procs run other code.
    """
    return own_folder(
        Path(
            os.environ.get("MONARCH_SYNC_FOLDER")
            or Path(tempfile.gettempdir(), f"monarch-sync-{os.getuid()}")
        )
    )


def own_folder(path: Path) -> Path:
    """Make a folder that only this user can write to, unless it is there.

    Raises:
        PermissionError: It belongs to somebody else, who could have procs run other code.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = os.stat(path)
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(
            f"{path} belongs to user {status.st_uid}, or others may write it: set"
            " MONARCH_SYNC_FOLDER for the worker"
        )
    return Path(os.path.realpath(path))


def try_lock(fd: int) -> bool:
    """Lock an open file, or folder, against other processes that do; False where one has."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Store:
    """The folder of one workspace.

    Args:
        base: See `base_folder`.
        key: Name of the workspace.

    Raises:
        ValueError: That is no name of a workspace.
    """

    def __init__(self, base: Path, key: str) -> None:
        if not re.fullmatch(r"\w[\w-]{0,200}", key):
            raise ValueError(f"{key!r} is no name of a workspace")
        self._base = base
        self._folder = base / key
        self._versions = self._folder / "versions"
        self._known: dict[str, Manifest] = {}  # by version; what one consists of never changes
        self.current = self._folder / "current"

    def find(self, wanted: str) -> Manifest | None:
        """The version in use, if it has the id `wanted`, and nobody has changed it."""
        name, manifest = self.in_use()
        if manifest is None or manifest.id != wanted:
            return None
        root = f"{self._versions}/{name}"
        if not all(is_intact(f"{root}/{file[0]}", file) for file in manifest.files):
            return None
        for path, target in manifest.links.items():
            try:
                if os.readlink(f"{root}/{path}") != target:
                    return None
            except OSError:
                return None
        return (
            manifest
            if all(map(os.path.isdir, (f"{root}/{path}" for path in manifest.folders)))
            else None
        )

    def begin(self, manifest: Manifest, instead: Build | None = None) -> Build:
        """Begin a version.

        Args:
            instead: One that is being made, which it replaces: what of it has arrived is kept.

        Raises:
            OSError: The disk has no room for what is to come.
        """
        self._versions.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._versions / uuid.uuid4().hex[:12] if instead is None else instead.path
        build = Build(self, path, manifest)
        try:
            if instead is not None:
                old: Manifest | None = build.inherit(instead)
            else:
                # else another process could remove a folder that nobody has claimed yet
                with self._locked():
                    old = self._recycle(path)
                    build.claim()
            with build.disk_full_said("at its folders"):
                build.make(old)
            name, before = self.in_use()
            if before is not None:
                build.take_from(f"{self._versions}/{name}", before, by_link=True)
            build.make_empty()
            for path in self._base.glob("*/versions/*.json") if build.missing else ():
                if (
                    path.parent != self._versions
                    and build.missing
                    and (other := _load(path)) is not None
                ):
                    build.take_from(str(path)[: -len(".json")], other, by_link=False)
            build.check_room()
        except BaseException:
            build.drop()
            raise
        return build

    def in_use(self) -> tuple[str, Manifest | None]:
        """The folder of the version in use, and what it consists of; None if there is none, or that
        can't be read.
        """
        name = self._name_in_use()
        return name, self._manifest_of(name)

    def _manifest_of(self, name: str) -> Manifest | None:
        if name not in self._known:
            manifest = _load(self._versions / f"{name}.json")
            if manifest is None:
                return None
            self._known[name] = manifest
        return self._known[name]

    def _name_in_use(self) -> str:
        try:
            return os.path.basename(os.readlink(self.current))
        except OSError:
            return ""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._folder / "lock", "w") as file:
            end = time.monotonic() + _LOCK_PATIENCE
            while not try_lock(file.fileno()):
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"another process has held {file.name} for {_LOCK_PATIENCE:g} s"
                    )
                time.sleep(_LOCK_PAUSE)
            yield

    def use(self, version: Path, manifest: Manifest) -> None:
        """Have a complete version take the place of the one in use; where that fails, nothing is
        left of it but its folder.
        """
        new, known, link = (
            Path(f"{version}.json.new"),
            Path(f"{version}.json"),
            self._folder / f"current.{version.name}",
        )
        with self._locked():
            try:
                new.write_bytes(manifest.encoded)
                os.replace(new, known)
                os.symlink(f"versions/{version.name}", link)
                os.replace(link, self.current)
            except BaseException:
                for path in (new, known, link):
                    path.unlink(missing_ok=True)
                raise
            self._known[version.name] = manifest

    def _recycle(self, path: Path) -> Manifest | None:
        """Have a version that nobody needs become the folder of another one: most of it is the
        same.

        Returns:
            What it consists of; nothing else is in it. None if there is none: the folder is a new
            one.
        """
        for old in reversed(self._complete()[:-_NEEDED]):
            manifest = self._manifest_of(old.name)
            if (
                old.name != self._name_in_use()
                and manifest is not None
                and holds_only(str(old), manifest)
            ):
                os.rename(old, path)
                Path(f"{old}.json").unlink()
                return manifest
        path.mkdir(mode=0o700)
        return None

    def _complete(self) -> list[Path]:
        """Versions that are or were in use, in their order."""
        found = [
            path
            for path in self._versions.iterdir()
            if not path.suffix and Path(f"{path}.json").exists()
        ]
        return sorted(found, key=lambda path: os.stat(f"{path}.json").st_mtime_ns)

    def clean_up(self) -> list[str]:
        """Remove versions but for the one in use, the one before, in which programs may be, and one
        to be recycled.

        Returns:
            Folders of those that stay, as programs have made files there.
        """
        stay = []
        with self._locked():
            complete = self._complete()
            wanted = {self._name_in_use(), *(path.name for path in complete[-_NEEDED - 1 :])}
            for path in [path for path in self._versions.iterdir() if not path.suffix]:
                if path not in complete:
                    _remove_unlocked(path)
                elif path.name not in wanted:
                    manifest = self._manifest_of(path.name)
                    if manifest is not None and not remove_unchanged(path, manifest):
                        stay.append(str(path))
            self._known = {
                path.name: self._known[path.name] for path in complete if path.name in self._known
            }
        return stay


class Build:
    """A version that is being made.

    Args:
        store: Where it is to be used.
        path: Its folder.
        manifest: What it is to consist of.

    Attributes:
        missing: Content that it has yet to be sent, by digest: the first file with it.
    """

    def __init__(self, store: Store, path: Path, manifest: Manifest) -> None:
        self.store = store
        self.path = path
        self.manifest = manifest
        self._root = str(path)
        self._wanted: dict[str, list[File]] = {}
        for file in manifest.files:
            self._wanted.setdefault(file.digest, []).append(file)
        self.missing = dict.fromkeys(self._wanted)
        self._there: set[str] = set()  # paths of files
        self._arriving: _Arriving | None = None
        self._lock = -1

    def claim(self) -> None:
        """Hold the lock on its folder."""
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # nobody else knows its name

    def inherit(self, other: Build) -> Manifest:
        """Take over the folder of another one, and the lock on it; what it has."""
        self._lock, other._lock = other._lock, -1
        other._give_up()
        manifest = other.manifest
        return Manifest(
            (file for file in manifest.files if file.path in other._there),
            manifest.links,
            manifest.folders,
        )

    def make(self, old: Manifest | None) -> None:
        """Make its folders and links.

        Args:
            old: What its folder has now, if that is something; what is not wanted of it is removed.
        """
        old = old or Manifest([], {}, {})
        manifest, root = self.manifest, self._root
        for file in old.files:
            if manifest.entries.get(file.path) == file:
                self._there.add(file.path)
                self.missing.pop(file.digest, None)
            else:
                os.unlink(f"{root}/{file.path}")
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

    def make_empty(self) -> None:
        """Make the files without content that are not there."""
        for file in self.manifest.files:
            if not file.size and file.path not in self._there:
                _Arriving(f"{self._root}/{file.path}", file).write(memoryview(b""))
                self._there.add(file.path)
                self.missing.pop(file.digest, None)

    def take_from(self, root: str, other: Manifest, by_link: bool) -> None:
        """Take over what another version has.

        Args:
            by_link: As the same files, renamed ones too; otherwise as copies, as its programs may
                yet change them.
        """
        for file in self.manifest.files if by_link else ():  # where it has the same name
            source, target = f"{root}/{file.path}", f"{self._root}/{file.path}"
            if (
                file.path not in self._there
                and other.entries.get(file.path) == file
                and _link(source, target, file)
            ):
                self._there.add(file.path)
                self.missing.pop(file.digest, None)
        for file in other.files:
            if file.digest in self.missing and is_intact(source := f"{root}/{file.path}", file):
                wanted = self._wanted[file.digest][0]
                if (
                    by_link
                    and file[1:] == wanted[1:]
                    and _link(source, f"{self._root}/{wanted.path}", file)
                ):
                    self._there.add(wanted.path)
                else:
                    self._copy(source, wanted)
                del self.missing[file.digest]

    def check_room(self) -> None:
        """Raise OSError where there is none for what is to come."""
        size = sum(self._wanted[digest][0].size for digest in self.missing)
        status = os.statvfs(self._root)
        if size > status.f_bavail * status.f_frsize:
            raise self._no_room(
                f"{size / 1e6:.1f} MB are to come, {status.f_bavail * status.f_frsize / 1e6:.1f} MB"
                " are free"
            )

    def write(self, digest: str, offset: int, data: memoryview) -> None:
        """Take a piece of some content; pieces of one come in order, one content after the other.

        If one is not there as a whole when another begins, no more of it comes: its file has
        changed.

        Raises:
            OSError: It can't be written.
            ValueError: It is not what was asked for, or is not what its digest says.
        """
        if digest not in self.missing:
            raise ValueError(f"nobody has asked for the content {digest}")
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
        """Have it be used: see `Store.use`. What several files have in common was sent once."""
        if self.missing:
            raise ValueError(
                f"{len(self.missing)} contents have not come, such as that of"
                f" {next(iter(self.missing))}"
            )
        with self.disk_full_said("at the last step"):
            for files in (
                self._wanted.values() if len(self._there) < len(self.manifest.files) else ()
            ):
                sources = [file for file in files if file.path in self._there]
                for file in files:
                    if file.path not in self._there:
                        self._copy(f"{self._root}/{sources[0].path}", file)
            for path, mode in self.manifest.folders.items():
                os.chmod(f"{self._root}/{path}", mode)
            self.store.use(self.path, self.manifest)
        self._let_go()

    def drop(self) -> None:
        """Give it up."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            self._let_go()

    def _give_up(self) -> None:
        """Remove what has arrived of a file that is not there as a whole."""
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
        arriving = _Arriving(f"{self._root}/{file.path}", file)
        try:
            done = False
            with open(source, "rb", buffering=0) as content:
                while chunk := content.read(_COPY):
                    done = arriving.write(memoryview(chunk))
            if not done:
                raise ValueError(f"{source} has become shorter")
        except BaseException:
            arriving.close()
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


def changes(before: Manifest, after: Manifest) -> list[str]:
    """Paths that are in one only, or whose content or permissions are others."""
    old, new = before.entries, after.entries
    paths = [
        path
        for path, entry in new.items()
        if old.get(path) is not entry and _is_other(old.get(path), entry)
    ]
    return paths + [path for path in old if path not in new]


def _is_other(old: File | str | None, new: File | str) -> bool:
    if not isinstance(old, File) or not isinstance(new, File):
        return old != new
    return (old.mode, old.digest) != (new.mode, new.digest)


def _link(source: str, target: str, file: File) -> bool:
    """Give a file another name; False where it has been changed, or the file system has no such
    names.
    """
    if not is_intact(source, file):
        return False
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        return False
    return True


def _load(path: Path) -> Manifest | None:
    try:
        return parse(path.read_bytes())
    except (OSError, ValueError):
        return None


def _remove_unlocked(path: Path) -> None:
    """Remove a version that was never complete, unless somebody makes it right now."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if try_lock(fd):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)
