"""The folder of a host where workspaces are. Files and locks, no messages.

    BASE/KEY/current        symlink to the version in use
    BASE/KEY/versions/ID/   one state of the workspace, with an ID of its own
    BASE/KEY/versions/ID.json   what it consists of; written when all of it is there
    BASE/KEY/lock           held by the process that changes `current`, or removes versions

A new version is made beside the one in use: unchanged files are hard links, the rest comes from the
client, and its digest is checked. Then the symlink is replaced: programs see all of one version or
all of the other. The process that makes a version holds a lock on its folder, so that what a
process left that has died can be told from what another one makes right now. The version before the
last two is taken for the next one, if no program has put anything there: to make and remove
thousands of names takes longer than to look at them. Where there is none yet, a spare one is made,
a copy of the one in use by hard links, while no update waits for it.

A program may have changed a file of the workspace. Its size and time show that, and it is not used
for the next version. Files that programs made stay where they are: a version with such files is not
removed.

What ends a wait for a lock: its holder lets go within milliseconds, or has died; or
`_LOCK_PATIENCE`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .._ours import NotOurs, make, opened
from .build import Build
from .manifest import File, Manifest, parse
from .removal import holds_only, is_intact, remove_unchanged

_LOCK_PATIENCE = 30.0  # seconds
_LOCK_PAUSE = 0.02  # seconds until it is tried again; the kernel offers no wait with an end
_NEEDED = 2  # versions: the one in use, and the one before, in which programs may be
_SPARE = "spare"  # begins the name of one; those of others are hexadecimal
_SPARE_FILES = 20_000  # of a version of more there is no spare one: that would take seconds


def base_folder() -> Path:
    """The folder of this user's workspaces on this host.

    It is `MONARCH_SYNC_FOLDER`, or a folder among temporary files.

    Raises:
        PermissionError: It belongs to another user, who could have procs run other code.
    """
    # by user: another user's folder of a common name could hold code that procs import
    usual = Path(tempfile.gettempdir(), f"monarch-sync-{os.getuid()}")
    return own_folder(Path(os.environ.get("MONARCH_SYNC_FOLDER") or usual))


def own_folder(path: Path) -> Path:
    """Make a folder that only this user can write to, unless it is there.

    Raises:
        PermissionError: It belongs to another user, who could have procs run other code.
    """
    try:
        make(path)
    except NotOurs as error:
        raise PermissionError(f"{error}: set MONARCH_SYNC_FOLDER for the worker") from None
    return Path(os.path.realpath(path))


def try_lock(fd: int) -> bool:
    """Lock an open file, or folder, against other processes that do; False where one has."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class WorkspaceStore:
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
        """Return the version in use, if it has the id `wanted`, and its files are unchanged."""
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
        there = all(os.path.isdir(f"{root}/{path}") for path in manifest.folders)
        return manifest if there else None

    def begin(self, manifest: Manifest, instead: Build | None = None) -> Build:
        """Begin a version.

        Args:
            manifest: What the version consists of.
            instead: One that is being made, which it replaces: what of it has arrived is kept.

        Raises:
            OSError: The disk has no room for the files to come.
        """
        self._versions.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._versions / uuid.uuid4().hex[:12] if instead is None else instead.path
        build = Build(self, path, manifest)
        try:
            if instead is not None:
                old: Manifest | None = build.inherit(instead)
            else:
                # else another process could remove a folder that is not claimed yet
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
        """The folder of the version in use, and its content.

        None if there is none, or it can't be read.
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
        """Have a complete version take the place of the one in use.

        Where that fails, nothing is left of it but its folder.
        """
        link = self._folder / f"current.{version.name}"
        with self._locked():
            try:
                self.write_list(version, manifest)
                os.symlink(f"versions/{version.name}", link)
                os.replace(link, self.current)
            except BaseException:
                for path in (Path(f"{version}.json"), link):
                    path.unlink(missing_ok=True)
                raise
            self._known[version.name] = manifest

    @staticmethod
    def write_list(version: Path, manifest: Manifest) -> None:
        """Write what a version consists of, beside it: with that it is complete."""
        with opened(version.parent) as folder:
            folder.replace(f"{version.name}.json", manifest.encoded)

    def _recycle(self, path: Path) -> Manifest | None:
        """Have an unused version become the folder of another one.

        Most of it is the same.

        Returns:
            What it consists of; nothing else is in it. None if there is none: the folder is a new
            one.
        """
        for old in [*self._spares(), *reversed(self._complete()[:-_NEEDED])]:
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
        found = [path for path in self._whole() if not path.name.startswith(_SPARE)]
        return sorted(found, key=lambda path: os.stat(f"{path}.json").st_mtime_ns)

    def _spares(self) -> list[Path]:
        return [path for path in self._whole() if path.name.startswith(_SPARE)]

    def _whole(self) -> list[Path]:
        found = [path.with_suffix("") for path in self._versions.glob("*.json")]
        # a process may have died between the folder and its list
        return [path for path in found if path.is_dir()]

    def clean_up(self) -> list[str]:
        """Remove versions but three: in use, the one before, and one to be recycled.

        Programs may still be in the one before.

        Returns:
            Folders of those that stay, as programs have made files there.
        """
        stay = []
        with self._locked():
            whole = [*self._spares(), *self._complete()]
            wanted = {self._name_in_use(), *(path.name for path in whole[-_NEEDED - 1 :])}
            for path in list(self._versions.glob("*.json")):
                if path.with_suffix("") not in whole:
                    path.unlink()
            for path in [path for path in self._versions.iterdir() if not path.suffix]:
                if path not in whole:
                    _remove_unlocked(path)
                elif path.name not in wanted:
                    manifest = self._manifest_of(path.name)
                    if manifest is not None and not remove_unchanged(path, manifest):
                        stay.append(str(path))
            self._known = {
                path.name: self._known[path.name] for path in whole if path.name in self._known
            }
        return stay

    def make_spare(self) -> None:
        """Have a copy of the version in use ready to become the next one.

        Not needed where there is one already, or an old version that can become it.
        """
        name, manifest = self.in_use()
        if manifest is None or len(manifest.files) > _SPARE_FILES:
            return
        path = self._versions / f"{_SPARE}{uuid.uuid4().hex[:12]}"
        build = Build(self, path, manifest)
        with self._locked():
            if self._spares() or len(self._complete()) > _NEEDED:
                return
            path.mkdir(mode=0o700)
            build.claim()
        try:
            build.make(None)
            build.take_from(f"{self._versions}/{name}", manifest, by_link=True)
            build.make_empty()
            # locked: `clean_up` takes a folder without a list for one that a dead process left
            with self._locked():
                if build.lay_by():
                    self._known[path.name] = manifest
        finally:
            build.drop()


def changes(before: Manifest, after: Manifest) -> list[str]:
    """Paths that are in one only, or have other contents or permissions."""
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


def _load(path: Path) -> Manifest | None:
    try:
        return parse(path.read_bytes())
    except (OSError, ValueError):
        return None


def _remove_unlocked(path: Path) -> None:
    """Remove a version that was never complete, unless a process makes it right now."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if try_lock(fd):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)
