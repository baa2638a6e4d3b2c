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
    _, mode, mtime, size, _ = file
    return (
        status.st_size == size and status.st_mtime_ns == mtime and status.st_mode == 0o100000 | mode
    )


def holds_only(root: str, manifest: Manifest) -> bool:
    """Return whether a version is as complete as it was, after removing compiled modules."""
    files = {file.path: file for file in manifest.files}
    left = [""]
    found = 0
    for place in left:
        with os.scandir(f"{root}/{place}") as entries:
            for entry in entries:
                path = place + entry.name
                if entry.is_symlink():
                    if manifest.links.get(path) != os.readlink(entry.path):
                        return False
                elif entry.is_dir():
                    if entry.name == "__pycache__":
                        shutil.rmtree(entry.path)
                        continue
                    if path not in manifest.folders:
                        return False
                    left.append(f"{path}/")
                elif path not in files or not is_intact(entry.path, files[path]):
                    return False
                found += 1
    return found == len(files) + len(manifest.links) + len(manifest.folders)


def remove_unchanged(path: Path, manifest: Manifest) -> bool:
    """Remove what a version has from the client; whether nothing else was in it."""
    _clear(str(path), None, "", manifest, {file.path: file for file in manifest.files})
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
