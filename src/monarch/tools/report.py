"""``monarch report``.

The facts that the search for a bug begins with, in one file, without secrets.
"""

from __future__ import annotations

import io
import json
import os
import platform
import resource
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from .. import _engine_log, config
from .._ours import NotOurs, choose, opened
from .._words import named
from ..job.base.logs import folder_of
from ..job.base.trait import DEFAULT_JOB_PATH
from ..job.checkup import version
from .json_option import JSON, say
from .redact import SECRET_NAME, redactor, secret_files

app = typer.Typer()

_PACKAGES = (
    "pymonarch", "cloudpickle", "torch", "numpy", "typer", "rich", "debugpy", "py-spy", "nixl",
)  # fmt: skip
_MOST_OF_A_FILE = 2 << 20  # bytes, its last
_MOST = 32 << 20  # bytes of all logs, before they are compressed; the newest files
_OURS = ("MONARCH_", "HYPERACTOR_", "TORCH", "CUDA_", "NCCL_", "PYTHON", "SLURM_")


@app.command(epilog="Example: monarch report")
def report(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="New file. Default: monarch-report-TIME.tar.gz, here."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Pack what the report of a bug needs, such as logs.

    They are those of this folder.

    What actors have printed is not in it. Secrets are left out as far as they can be recognised:
    look through it before you give it away.
    """
    path = output or Path(time.strftime("monarch-report-%Y%m%d-%H%M%S.tar.gz"))
    redact = redactor(os.environ, secret_files(os.environ))
    files = []
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, when, text in _parts():
            content = redact(text).encode(errors="replace")
            member = tarfile.TarInfo(f"monarch-report/{redact(name)}")
            member.size, member.mtime, member.mode = len(content), int(when), 0o600
            archive.addfile(member, io.BytesIO(content))
            files.append({"name": redact(name), "bytes": len(content)})
            if not as_json:
                print(f"{len(content):>9} {named(redact(name))}")
    size = path.stat().st_size
    said = f"wrote {path}, {size} bytes; look through it before you give it away"
    say(as_json, said, path=str(path), bytes=size, files=files)


def _parts() -> Iterator[tuple[str, float, str]]:
    """Name, time and text of each file of the report."""
    now = time.time()
    yield "versions.txt", now, _versions()
    yield "configuration.json", now, json.dumps(_configuration(), indent=1, default=str) + "\n"
    left = _MOST
    for path in sorted(_logs(), key=lambda path: path.lstat().st_mtime, reverse=True):
        try:
            text = _tail(path, min(left, _MOST_OF_A_FILE))
        except NotOurs as error:
            text = f"left out: {error}\n"
        left -= len(text)
        if left <= 0:
            yield (
                "left_out.txt",
                now,
                f"files older than {path} are left out, as there were more than {_MOST} bytes\n",
            )
            return
        name = str(path).removeprefix(f"{Path.cwd()}/").lstrip("/")
        yield name, path.lstat().st_mtime, text


def _logs() -> Iterator[Path]:
    """Iterate over the logs of the engine, workers and failures in this folder.

    Logs of actors are not among them.
    """
    yield from Path(choose(_engine_log.FAILURES, "failures")[0]).glob("*.txt")
    yield from Path(choose(_engine_log.FOLDER, "engine")[0]).glob("*/*.log*")
    jobs = folder_of(Path(DEFAULT_JOB_PATH), "")
    yield from jobs.glob("*/job.json")
    yield from jobs.glob("*/workers/*.log")


def _tail(path: Path, most: int) -> str:
    with opened(path.parent) as folder, open(folder.open(path.name), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - most))
        text = file.read(most).decode(errors="replace")
    return text if size <= most else f"... the last {most} of {size} bytes\n{text}"


def _versions() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lines = [
        f"Python {sys.version}",
        f"at {sys.executable}",
        f"{platform.platform()}, {platform.machine()}, glibc {platform.libc_ver()[1]}",
        (
            f"{os.cpu_count()} CPUs, {len(os.sched_getaffinity(0))} usable, {memory >> 20} MiB of"
            " memory"
        ),
        f"open files: {soft} (at most {hard})",
        *(f"{name} {version(name) or 'not installed'}" for name in _PACKAGES),
    ]
    return "\n".join(lines) + "\n"


def _configuration() -> dict[str, object]:
    """Settings that differ from their defaults, and variables of the environment that matter.

    Secret ones show only the name.
    """
    try:
        settings: object = config.exported()
    except ValueError as error:  # the environment has one that can't be read, which may be the bug
        settings = str(error)

    def hidden(name: str) -> str:
        return "<redacted>" if SECRET_NAME.search(name) else os.environ[name]

    return {
        "settings": settings,
        "environment": {
            name: hidden(name) for name in sorted(os.environ) if name.startswith(_OURS)
        },
    }
