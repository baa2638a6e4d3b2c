"""A FUSE file system that shows a tree of files: the only module that imports `mfusepy`.

The actor of `daemon` imports it when it is to mount, and calls `serve`.

A small shell, in a session of its own, unmounts when that process ends: it waits for the end of a
pipe. If the shell is killed, too, as at the end of a batch job, the next mount of this user on that
machine removes the stale one.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import mfusepy

from ..errors import MountError
from .folder import Attributes
from .table import find_mounts, own_name, unmount
from .tree import MountTree
from .view import MOST_PATIENT, STALE_SECONDS, OpenFile

_LIVE_SECONDS = 0.05  # for which the kernel believes what it knows of files that others write
_READ_AHEAD = 4 << 20  # bytes that the kernel asks for before they are read, in questions of 1 MiB
_IDLE = 8  # threads that wait for questions of the kernel
# files of which is known what the kernel was told; others are read past its cache
_MOST_TOLD = 100_000
_MOUNTED = 30.0  # seconds in which the kernel must have the mount
_KEEPER = 'read -r _; if grep -q "^$1 " /proc/mounts; then exec fusermount3 -u -z -q -- "$0"; fi'


class Operations(mfusepy.Operations):  # type: ignore[misc]  # it has types for some only
    """The kernel's requests.

    Its cache has the content of a file once, for all readers, so it holds one version that they may
    all see.

    Args:
        threads: That may answer it at once.
        ready: Set once it asks.
        live: What kind the views are.
    """

    use_ns = True

    def __init__(self, tree: MountTree, threads: int, ready: threading.Event, live: bool) -> None:
        self._tree = tree
        self._live = live
        self._threads = threads
        self._ready = ready
        # with the path where it is read by way of the cache
        self._files: dict[int, tuple[OpenFile, str | None]] = {}
        self._fuse = ctypes.c_void_p()  # the library's
        self._numbers = itertools.count(1)
        self._told: dict[str, Attributes] = {}  # attributes that the kernel was told
        # attributes of files when it may have cached their contents
        self._cached: dict[str, Attributes] = {}
        self._readers: Counter[str] = Counter()  # open files that use its cache, by path
        self._lock = threading.Lock()  # of the last three
        self._ids = {"st_uid": os.getuid(), "st_gid": os.getgid(), "st_nlink": 1}

    def init_with_config(self, connection: Any, config: Any) -> None:
        # What it reads ahead counts: without this, a dozen such questions that wait hold up all
        # others.
        connection.max_background = connection.congestion_threshold = min(self._threads, 0xFFFF)
        self._fuse.value = mfusepy._libfuse.fuse_get_context().contents.fuse
        self._ready.set()

    def look_again(self) -> None:
        """Make open files errors that are others by now; nor has the kernel any more of them.

        Live ones are followed anyway.
        """
        if self._live:
            return
        for file, path in list(self._files.values()):
            if not file.is_current() and path is not None:
                mfusepy._libfuse.fuse_invalidate_path(self._fuse, os.fsencode(path))

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        attributes = self._tree.stat(path[1:])
        with self._lock:
            before = self._cached.get(path)
            if (
                before
                and self._readers[path]
                and before.size > attributes.size
                and not self._follows(before, attributes)
            ):
                # The kernel would take the smaller size for the end of what they read. So it asks,
                # and they get an error.
                attributes = attributes._replace(size=before.size)
            if fh is None:  # else libfuse may ask, and the kernel does not see it
                if len(self._told) > _MOST_TOLD:
                    self._told.clear()
                self._told[path] = attributes
        mode, size, mtime, ctime, _ = attributes
        times = {"st_mtime": mtime, "st_ctime": ctime, "st_atime": mtime}
        return {
            "st_mode": mode,
            "st_size": size,
            "st_blocks": -(-size // 512),
            **times,
            **self._ids,
        }

    def readdir(self, path: str, fh: int) -> Iterator[tuple[str, int, int]]:
        yield from [(".", 0, 0), ("..", 0, 0)]
        for name, mode in self._tree.list(path[1:]):
            yield name, mode, 0

    def readlink(self, path: str) -> str:
        return self._tree.link(path[1:])

    def open(self, path: str, info: Any) -> int:
        file = self._tree.open(path[1:])
        attributes = file.attributes
        with self._lock:
            before = self._cached.get(path)
            # Where the file is another one than the kernel believes, it would read as far as that
            # was long, from its cache.
            known = self._told.get(path) == attributes
            shared = known and (
                before is None or not self._readers[path] or self._follows(before, attributes)
            )
            if shared:
                info.keep_cache = before == attributes
                self._cached[path] = attributes
                self._readers[path] += 1
        # past the kernel's cache, which has another version for other readers
        info.direct_io = not shared
        info.fh = next(self._numbers)
        self._files[info.fh] = file, path if shared else None
        return 0

    def read(self, path: str, size: int, offset: int, info: Any) -> list[memoryview]:
        return self._files[info.fh][0].read(offset, size)

    def release(self, path: str, info: Any) -> int:
        _, shared = self._files.pop(info.fh)
        if shared is not None:
            with self._lock:
                self._readers[path] -= 1
                if not self._readers[path]:
                    del self._readers[path]
                    if len(self._cached) > _MOST_TOLD:
                        self._cached = {each: self._cached[each] for each in self._readers}
        return 0

    def _follows(self, earlier: Attributes, now: Attributes) -> bool:
        """Return whether a reader that opened a file as `earlier` may be shown what it is now."""
        return earlier.inode == now.inode if self._live else earlier == now


class _Fuse(mfusepy.FUSE):  # type: ignore[misc]
    def read(self, path: bytes, buffer: Any, size: int, offset: int, info: Any) -> int:
        """Pickle as the original does, without making all of it one object of bytes.

        That would be one more copy.
        """
        memory = memoryview(
            (ctypes.c_ubyte * size).from_address(ctypes.addressof(buffer.contents))
        ).cast("B")
        filled = 0
        for part in self.operations.read(
            path.decode(self.encoding, self.errors), size, offset, info.contents
        ):
            memory[filled : filled + len(part)] = part
            filled += len(part)
        return filled


def serve(
    tree: MountTree, point: str, key: str, live: bool, ended: Callable[[], None]
) -> Operations:
    """Mount a tree, which a thread of this process serves until it is unmounted.

    Args:
        tree: The tree that is shown.
        point: Folder to mount it on; it is there, and nothing is mounted on it.
        key: Stands in the table of mounts.
        live: Whether files are shown as they grow; otherwise a changed file is another one.
        ended: Called on that thread, at the end.

    Returns:
        What answers the kernel.

    Raises:
        MountError: The kernel has refused; the text gives its reason, if known.
    """
    name = own_name(key)
    keeper = subprocess.Popen(
        ["/bin/sh", "-c", _KEEPER, point, name],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, cwd="/", env={"PATH": os.environ.get("PATH", os.defpath)},
    )  # fmt: skip
    changed = threading.Event()
    # so that some are left when all folders are waited for
    threads = _IDLE + MOST_PATIENT * len(tree.views)
    operations = Operations(tree, threads, changed, live)
    seconds = _LIVE_SECONDS if live else STALE_SECONDS
    failure: list[BaseException] = []

    def run() -> None:
        try:
            _Fuse(
                operations, point, raw_fi=True, foreground=True, ro=True, default_permissions=True,
                fsname=name, subtype="monarch", attr_timeout=seconds, entry_timeout=seconds, negative_timeout=seconds,
                max_threads=threads, max_idle_threads=_IDLE,
            )  # fmt: skip
        except BaseException as error:
            failure.append(error)
        finally:
            assert keeper.stdin is not None
            # tells the shell that the mount is over: a `read` of its standard input ends
            keeper.stdin.close()
            keeper.wait()
            changed.set()
            ended()

    threading.Thread(target=run, name="monarch-mount", daemon=True).start()
    if not changed.wait(_MOUNTED) or failure or (name, point) not in find_mounts():
        unmount(point)
        why = "; ".join(map(str, failure)) or "the kernel does not know of it"
        raise MountError(f"{point} can't be mounted: {why}")
    device = os.stat(point).st_dev
    with suppress(OSError):  # who is not root does with questions of 128 KiB
        Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").write_text(
            f"{_READ_AHEAD >> 10}\n"
        )
    return operations
