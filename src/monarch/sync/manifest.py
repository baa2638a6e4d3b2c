"""The content of a workspace, as the client describes it to hosts. Pure: bytes and names.

Whoever receives one trusts no path in it: `decode` refuses what leads out of the workspace, or
through a symlink. As each folder is named before what is in it, and a name stands for one thing,
whoever makes the folders itself never writes through a link.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from itertools import starmap

from .._namedtuple import NamedTuple


class File(NamedTuple):
    """A file of a workspace.

    Attributes:
        path: Below the workspace.
        mode: Its permissions.
        mtime: When it was changed last, in ns since 1970, here; hosts get the same.
        size: Bytes.
        digest: SHA-256 of the content, in hex.
    """

    path: str
    mode: int
    mtime: int
    size: int
    digest: str


class Manifest:
    """The files, links and folders of a workspace.

    Args:
        files: By their paths, where two are to have the same `id`.
        links: Path of a symlink to what it says.
        folders: Path to permissions; a folder stands before what is in it.
    """

    def __init__(
        self, files: Iterable[File], links: dict[str, str], folders: dict[str, int]
    ) -> None:
        self.files = list(files)
        self.links = links
        self.folders = folders

    @cached_property
    def encoded(self) -> bytes:
        """The bytes for `decode`."""
        return json.dumps([self.files, self.links, self.folders], separators=(",", ":")).encode()

    @cached_property
    def id(self) -> str:
        """The same for the same content, names, permissions and times."""
        return hashlib.sha256(self.encoded).hexdigest()

    @cached_property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @cached_property
    def entries(self) -> dict[str, File | str]:
        """Files by path; a symlink has what it says."""
        return {**{file.path: file for file in self.files}, **self.links}


class Change(NamedTuple):
    """The difference between two versions of a workspace.

    Attributes:
        base: Id of the first one.
        files: Those that are new, or other ones.
        gone: Paths of files that are there no more.
        links: Of the second one, all of them, as in `Manifest`; `folders` as well.
    """

    base: str
    files: list[File]
    gone: list[str]
    links: dict[str, str]
    folders: dict[str, int]

    def applied_to(self, before: Manifest) -> Manifest:
        """Return the manifest that the change makes of the one that it begins at.

        Raises:
            ValueError: A path leads elsewhere, or stands for two things.
        """
        files = {file.path: file for file in before.files}
        for path in self.gone:
            files.pop(path, None)
        files.update((file.path, file) for file in starmap(File, self.files))
        manifest = Manifest(sorted(files.values()), dict(self.links), dict(self.folders))
        check(manifest)
        return manifest


def decode(data: bytes) -> Manifest:
    """Decode `Manifest.encoded`.

    Raises:
        ValueError: It is none; or it has a path that leads out of the workspace, or through
            something that is no folder.
    """
    manifest = parse(data)
    try:
        check(manifest)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"no list of files of a workspace: {error}") from error
    return manifest


def parse(data: bytes) -> Manifest:
    """Decode what this side has written itself, where no one else may write.

    It is as `decode`, but does not check paths.

    Raises:
        ValueError: It is none.
    """
    try:
        files, links, folders = json.loads(data := bytes(data))
        manifest = Manifest(starmap(File, files), dict(links), dict(folders))
        manifest.encoded = data
    except (TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"no list of files of a workspace: {error}") from error
    return manifest


def check(manifest: Manifest) -> None:
    """Raise ValueError where a path leads elsewhere, or stands for two things."""
    seen: set[str] = set()
    known = {""}
    for path in [*manifest.folders, *manifest.links, *(file.path for file in manifest.files)]:
        parent, _, name = path.rpartition("/")
        if parent not in known or name in ("", ".", "..") or "\0" in name or path.startswith("/"):
            raise ValueError(
                f"{path!r} leads out of the workspace, or through something that is no folder of it"
            )
        if path in seen:
            raise ValueError(f"{path!r} stands for two things")
        seen.add(path)
        if path in manifest.folders:
            known.add(path)
    for file in manifest.files:
        if file.size < 0 or len(file.digest) != 64 or file.mode & ~0o777:
            raise ValueError(f"{file.path!r} has no sensible size, digest or permissions: {file}")
