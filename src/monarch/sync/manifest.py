"""The content of a workspace, as the client describes it to hosts. Pure: bytes and names.

A receiver trusts no path in it: `decode` refuses what leads out of the workspace, or
through a symlink. As each folder is named before its contents, and a name stands for one thing,
a receiver that makes the folders itself never writes through a link.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from functools import cached_property
from itertools import starmap
from json.encoder import encode_basestring_ascii as _quoted

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
        folders: Path to permissions; a folder stands before its contents.
    """

    def __init__(
        self, files: Iterable[File], links: dict[str, str], folders: dict[str, int]
    ) -> None:
        self.files = list(files)
        self.links = links
        self.folders = folders

    @cached_property
    def lines(self) -> dict[str, str]:
        """Each file by its path, as it stands in `encoded`."""
        return {file.path: _line(file) for file in self.files}

    @cached_property
    def encoded(self) -> bytes:
        """The bytes for `decode`: a line of JSON for links and folders, and one for each file."""
        rest = json.dumps([self.links, self.folders], separators=(",", ":"))
        return "\n".join([rest, *self.lines.values()]).encode()

    @cached_property
    def id(self) -> str:
        """A digest of content, names, permissions and times."""
        return hashlib.sha256(self.encoded).hexdigest()

    @cached_property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @cached_property
    def by_path(self) -> dict[str, File]:
        """Files by path."""
        return {file.path: file for file in self.files}

    @cached_property
    def entries(self) -> dict[str, File | str]:
        """Files by path; a symlink has what it says."""
        return {**self.by_path, **self.links}


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
        changed = {file.path: file for file in starmap(File, self.files)}
        files, lines = dict(before.by_path), dict(before.lines)
        for path in self.gone:
            files.pop(path, None)
            lines.pop(path, None)
        is_new = not files.keys() >= changed.keys()
        files.update(changed)
        lines.update((path, _line(file)) for path, file in changed.items())
        if is_new:
            files, lines = dict(sorted(files.items())), dict(sorted(lines.items()))
        manifest = Manifest(files.values(), dict(self.links), dict(self.folders))
        manifest.by_path, manifest.lines = files, lines
        # where these are the same, the other files have been looked at
        rest_is_same = (self.links, self.folders) == (before.links, before.folders)
        check(manifest, changed.values() if rest_is_same else manifest.files)
        return manifest


def _line(file: File) -> str:
    path, mode, mtime, size, digest = file
    return f"[{_quoted(path)},{mode},{mtime},{size},{_quoted(digest)}]"


def decode(data: bytes) -> Manifest:
    """Decode `Manifest.encoded`.

    Raises:
        ValueError: It is none; or it has a path that leads out of the workspace, or through
            something that is no folder.
    """
    manifest = parse(data)
    try:
        check(manifest, manifest.files)
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
        rest, *lines = (data := bytes(data)).decode().split("\n")
        links, folders = json.loads(rest)
        files = starmap(File, json.loads(f"[{','.join(lines)}]"))
        manifest = Manifest(files, dict(links), dict(folders))
        manifest.encoded = data
        manifest.lines = dict(zip((file.path for file in manifest.files), lines, strict=True))
    except (TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"no list of files of a workspace: {error}") from error
    return manifest


def check(manifest: Manifest, files: Collection[File]) -> None:
    """Raise ValueError where a path leads elsewhere, or stands for two things.

    Args:
        manifest: The manifest that is checked.
        files: Those of its files that are new, and were not checked before.
    """
    seen: set[str] = set()
    known = {""}
    for path in [*manifest.folders, *manifest.links, *(file.path for file in files)]:
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
    for file in files:
        if file.size < 0 or len(file.digest) != 64 or file.mode & ~0o777:
            raise ValueError(f"{file.path!r} has no sensible size, digest or permissions: {file}")
