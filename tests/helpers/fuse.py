"""Whether folders can be mounted here.

Mounts are kept out of the process of pytest: what waits for one that hangs can't be ended.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

from monarch.errors import MountError
from monarch.mounts.table import check_fuse

_PROBE = """
import sys, threading
from monarch.mounts.fuse import serve
from monarch.mounts.table import unmount
from monarch.mounts.tree import MountTree
ended = threading.Event()
serve(MountTree({}), sys.argv[1], "probe", False, ended.set)
unmount(sys.argv[1])
assert ended.wait(20)
"""


@functools.cache
def lacking() -> str:
    """Why nothing can be mounted; empty if something can."""
    try:
        check_fuse()
    except MountError as error:
        return str(error)
    with tempfile.TemporaryDirectory() as folder:
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE, folder], capture_output=True, text=True, timeout=60
        )
    if probe.returncode == 0:
        return ""
    # What fusermount3 says is about this machine; all else is about the code.
    assert "fusermount3:" in probe.stderr, probe.stderr
    return f"FUSE can't be used here: {probe.stderr[-500:]}"


def mounted_below(folder: object, pid: object = "self") -> list[str]:
    """What is mounted in a folder, as a process sees it.

    Not as all others do: who makes a namespace of mounts gets a copy of what is mounted then, which
    stays.
    """
    lines = Path(f"/proc/{pid}/mounts").read_text().splitlines()
    return [line for line in lines if line.split()[1].startswith(f"{folder}/")]
