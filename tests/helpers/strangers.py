"""Another user of this machine, who means harm: programs that run as `nobody`, without a
capability.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import monarch

STRANGER = 65534

_AS_STRANGER = [
    "setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
    sys.executable, "-I", "-c",
]  # fmt: skip


def _possible() -> bool:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    return (
        subprocess.run([*_AS_STRANGER, ""], cwd="/", capture_output=True, check=False).returncode
        == 0
    )


needs_another_user = pytest.mark.skipif(
    not _possible(), reason="only root may start this Python as another user"
)

_LISTENERS = """
import os, socket, time

def listeners():
    "Every socket on this machine that listens, as /proc/net/unix names it for everybody."
    names = set()
    with open("/proc/net/unix") as table:
        for line in table.readlines()[1:]:
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and int(fields[3], 16) & 0x10000:
                names.add(fields[7].rstrip("\\n"))
    return {name for name in names if "monarch" in name}

def as_address(name):
    return "\\0" + name[1:] if name.startswith("@") else name
"""

_PLANT = """
import json, os, sys
for path, target in json.loads(sys.argv[1]):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if target:
        os.symlink(target, path)
    else:
        os.makedirs(path)
"""


@contextmanager
def stranger(script: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A program of another user; `listeners()` and `as_address(name)` are there for it.

    It is ended at the end.
    """
    program = subprocess.Popen(
        [*_AS_STRANGER, _LISTENERS + textwrap.dedent(script), *args],
        cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    with program:
        try:
            yield program
        finally:
            program.kill()


def with_limited_processes(script: str, limit: int) -> subprocess.CompletedProcess[str]:
    """Run a script as a user who may have so many processes and threads.

    Root may have any, so it runs as somebody else, who has nothing else running; with the right to
    read this Python and this package, wherever they are.
    """
    user = random.randrange(60_000, 64_000)
    caps = "-all,+dac_read_search"
    package = str(Path(monarch.__file__).parent.parent)
    begin = (
        f"import resource, sys\nresource.setrlimit(resource.RLIMIT_NPROC, ({limit},"
        f" {limit}))\nsys.path.insert(0, {package!r})\n"
    )
    return subprocess.run(
        [
            "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", f"--inh-caps={caps}", f"--ambient-caps={caps}",
            f"--bounding-set={caps}", sys.executable, "-I", "-c", begin + textwrap.dedent(script),
        ],
        cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}, timeout=60, check=False,
    )  # fmt: skip


def given_to_stranger(path: Path) -> Path:
    """The same path, now another user's."""
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    return path


def plant(*planted: tuple[Path, str]) -> None:
    """Have the other user make links, or folders where no target is said."""
    told = json.dumps([(str(path), target) for path, target in planted])
    with stranger(_PLANT, told) as program:
        assert program.wait() == 0
