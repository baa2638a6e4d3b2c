"""Removing versions of a workspace: what came from the client, as it came, and nothing else.

Programs may have put anything into a version: files, links in the place of files, a link to where
they have moved a folder. So nothing here follows a symlink, neither at the end of a path nor on the
way: each folder is opened from the one it is in.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from .manifest import File, Manifest

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_intact(path: str, file: File, folder: int | None = None) -> bool:
    """Return whether a file is as the client sent it, by its status.

    Args:
        path: Path of the file.
        file: What the manifest says of it.
        folder: Descriptor of the folder that the path begins at.
    """
    try:
        status = os.lstat(path, dir_fd=folder)
    except OSError:
        return False
    return _is_as_sent(status, file)


def _is_as_sent(status: os.stat_result, file: File) -> bool:
    _, mode, mtime, size, _ = file
    return (
        status.st_size == size and status.st_mtime_ns == mtime and status.st_mode == 0o100000 | mode
    )


def holds_only(root: str, manifest: Manifest) -> bool:
    """Return whether a version is as complete as it was, after removing compiled modules."""
    files, left = manifest.by_path, [""]
    found = 0
    for place in left:
        folder = os.open(f"{root}/{place}", _FOLDER)
        try:
            with os.scandir(folder) as entries:  # names below a descriptor are found faster
                for entry in entries:
                    path = place + entry.name
                    if path in files:  # most of them
                        if not _is_as_sent(entry.stat(follow_symlinks=False), files[path]):
                            return False
                    elif path in manifest.folders and entry.is_dir(follow_symlinks=False):
                        left.append(f"{path}/")
                    elif path in manifest.links and entry.is_symlink():
                        if os.readlink(entry.name, dir_fd=folder) != manifest.links[path]:
                            return False
                    elif entry.name == "__pycache__" and entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(f"{root}/{path}")
                        continue
                    else:
                        return False
                    found += 1
        finally:
            os.close(folder)
    return found == len(files) + len(manifest.links) + len(manifest.folders)


def remove_unchanged(path: Path, manifest: Manifest) -> bool:
    """Remove what a version has from the client; whether nothing else was in it."""
    _clear(str(path), None, "", manifest, manifest.by_path)
    if path.exists():
        return False
    Path(f"{path}.json").unlink(missing_ok=True)
    return True


def _clear(
    name: str, parent: int | None, place: str, manifest: Manifest, files: dict[str, File]
) -> None:
    """Remove the files of the manifest and compiled modules, and the folder if it is then empty.

    Args:
        name: Name of the folder.
        parent: Descriptor of the folder that it is in.
        place: Its path in the workspace, with a slash at its end.
        manifest: What the version consists of.
        files: Its files, by path.
    """
    with suppress(OSError):
        folder = os.open(name, _FOLDER, dir_fd=parent)
        try:
            for each in os.listdir(folder):
                path = place + each
                with suppress(OSError):
                    if path in manifest.folders:
                        _clear(each, folder, f"{path}/", manifest, files)
                    elif path in files:
                        if is_intact(each, files[path], folder):
                            os.unlink(each, dir_fd=folder)
                    elif path in manifest.links:
                        if os.readlink(each, dir_fd=folder) == manifest.links[path]:
                            os.unlink(each, dir_fd=folder)
                    elif each == "__pycache__":
                        # rmtree has no dir_fd before Python 3.11
                        shutil.rmtree(f"/proc/self/fd/{folder}/{each}", ignore_errors=True)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=parent)
