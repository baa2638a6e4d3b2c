"""A virtual environment of this host, made from a file of requirements.

By conda, it is made from an ``environment.yml``; or of files that a client has mirrored, see
`enter`.

    BASE/environments/DIGEST/           the environment; what it is made from, and the Python, is in its name
    BASE/environments/DIGEST/complete   written when all of it is there, and locked by each process that runs in it
    BASE/environments/DIGEST.lock       held by the process that makes or removes it, and by the
    installer, which may outlive that

So what a process left that has died is seen: it has no ``complete``, and the next one removes it,
or makes it anew. One that was not asked for in a while, and no process runs in, is removed when
another one is made.

What ends a wait: `_LIMIT`, for the installer, and for another process that makes the same one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import EnvironmentFailed
from ..sync.store import base_folder, own_folder, try_lock
from .requirements import Requirements, content_of, text_of

_LIMIT = 3600.0  # seconds
_PAUSE = 0.1  # seconds until a lock is tried again; the kernel offers no wait with an end
_KEPT = 14 * 86400.0  # seconds since it was last asked for
_MOST_LINES = 30  # of what an installer says
COMPLETE = "complete"
"""Name of the file of an environment that says so."""

YAML = (".yml", ".yaml")  # what conda reads


class Wanted(NamedTuple):
    """An environment.

    Attributes:
        source: The file.
        wheels: Folder of wheels to install from; empty for none.
        offline: Whether from nothing else.
        conda: Content of an ``environment.yml``, in place of `source`.
    """

    source: str
    wheels: str
    offline: bool
    conda: str = ""


class Made(NamedTuple):
    """An environment that is there.

    Attributes:
        python: Its interpreter.
        new: Whether it was made just now.
    """

    python: str
    new: bool


class _Plan(NamedTuple):
    """The plan of an environment: its base and its content.

    Attributes:
        of: Requirements, and code.
        folder: Where relative paths begin.
        wheels: See `Wanted`.
        offline: See `Wanted`.
        conda: See `Wanted`.
    """

    of: Requirements
    folder: Path
    wheels: str
    offline: bool
    conda: str

    @property
    def digest(self) -> str:
        """The digest of all that it is made from."""
        parts = [*of_worker(), "|", *self.of.lines, "|", *self.of.constraints, "|"]
        parts += [*self.of.editable, f"|{self.offline}", self.conda, *self.of.contents()]
        if self.wheels:
            parts += ["|", *content_of(Path(self.wheels))]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def make(wanted: Wanted) -> Made:
    """Make an environment here, unless it is there.

    Raises:
        EnvironmentFailed: A file is missing, or the installer has failed.
    """
    root = Path(os.environ.get("WORKSPACE_DIR") or os.getcwd())
    source = root / wanted.source
    if not wanted.conda and not source.is_file():
        raise EnvironmentFailed(f"there is no file {source}")
    wheels = str(root / wanted.wheels) if wanted.wheels else ""
    if wheels and not os.path.isdir(wheels):
        raise EnvironmentFailed(f"there is no folder of wheels {wheels}")
    folder = root if wanted.conda else source.parent
    conda = wanted.conda or (text_of(source) if source.suffix in YAML else "")
    plan = _Plan(
        Requirements(folder) if conda else _read(source), folder, wheels, wanted.offline, conda
    )
    fill = _make_by_conda if conda else _make_venv
    return made_once(plan.digest, lambda folder, lock: fill(folder, plan, lock), plan.of.editable)


def made_once(
    digest: str, fill: Callable[[Path, int], object], editable: Sequence[str] = ()
) -> Made:
    """Have an environment here, on top of that of the worker.

    Args:
        digest: Of all that it is made from.
        fill: Makes it, in a folder that is not there, and says which lock a process that it starts
            has to inherit.
        editable: Folders that it imports from as well.

    Raises:
        EnvironmentFailed: `fill` does; or it has no Python, or another version than the worker.
    """
    base = own_folder(_base())
    folder = base / digest
    with _locked(Path(f"{folder}.lock"), _LIMIT) as lock:
        new = not (folder / COMPLETE).exists()
        if new:
            shutil.rmtree(folder, ignore_errors=True)
            try:
                fill(folder, lock)
                _complete(folder, editable)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        os.utime(folder / COMPLETE)
    if new:
        _collect(base)
    return Made(f"{folder}/bin/python", new)


def _base() -> Path:
    """The folder for environments, by default not among temporary files.

    There, files that were not read for days are removed.
    """
    if os.environ.get("MONARCH_SYNC_FOLDER"):
        return base_folder() / "environments"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "monarch", "environments")


def _read(source: Path) -> Requirements:
    found = Requirements(source.parent)
    if source.name == "uv.lock":
        uv = _uv()
        if not uv:
            raise EnvironmentFailed(
                f"uv is not on this host, which reads {source}; `uv export` makes a"
                " requirements.txt of it"
            )
        export = [
            *uv, "export", "--frozen", "--no-emit-project", "--quiet", "--directory",
            str(source.parent),
        ]  # fmt: skip
        found.add_editable(".", complete=True)
        found.read(_run(export, source.parent), source.parent, complete=True)
    elif source.name == "pyproject.toml":
        found.add_editable(".")
    else:
        found.read_file(source)
    return found


def _complete(folder: Path, editable: Sequence[str]) -> None:
    packages = _packages(folder)
    # Python runs lines that begin with `import` when it starts; the lock ends with the process.
    used = (
        f"import fcntl, os; fcntl.flock(os.open({str(folder / COMPLETE)!r}, os.O_RDONLY |"
        " os.O_CLOEXEC), fcntl.LOCK_SH)"
    )
    below = [f"import site; site.addsitedir({each!r})" for each in _below()]
    own = packages / "zz_monarch.pth"
    own.unlink(missing_ok=True)  # a copy of an environment has that of the other one
    own.write_text("\n".join([used, *editable, *below, ""]))
    (folder / COMPLETE).write_text("\n".join(_below()))


def _packages(folder: Path) -> Path:
    """The folder in which the environment's Python looks for packages.

    It is as that of the worker, as procs load the same extension modules.

    Raises:
        EnvironmentFailed: It has none, or another version.
    """
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    if not python.exists():
        raise EnvironmentFailed(
            f"the environment has no Python: it needs python={mine}, as of the worker"
        )
    asked = "import sysconfig; print(sysconfig.get_python_version(), sysconfig.get_path('purelib'))"
    version, _, packages = _run([str(python), "-I", "-c", asked], folder).strip().partition(" ")
    if version != mine:
        raise EnvironmentFailed(
            f"the environment has Python {version}: it needs python={mine}, as of the worker"
        )
    return Path(packages)


def _make_by_conda(folder: Path, plan: _Plan, lock: int) -> None:
    conda = shutil.which("conda")
    if conda is None:
        raise EnvironmentFailed("conda is not on the PATH of the worker on this host")
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        file.write(plan.conda)
        file.flush()
        options = ["--offline"] if plan.offline else []
        command = [
            conda, "env", "create", "--yes", "--quiet", *options, "--prefix", str(folder), "--file",
            file.name,
        ]  # fmt: skip
        _run(command, plan.folder, lock)


def _make_venv(folder: Path, plan: _Plan, lock: int) -> None:
    uv = _uv()
    python = str(folder / "bin" / "python")
    if not uv and importlib.util.find_spec("pip") is None:
        raise EnvironmentFailed(
            f"neither uv nor pip is there for {sys.executable} on this host: install one of them"
        )
    if uv:
        _run([*uv, "venv", "--quiet", "--python", sys.executable, str(folder)], plan.folder, lock)
        install = [*uv, "pip", "install", "--quiet", "--python", python]
    else:
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], plan.folder, lock)
        install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        install += ["--disable-pip-version-check", "--no-input"]
    file, constraints = folder / "requirements.txt", folder / "constraints.txt"
    file.write_text("\n".join([*plan.of.lines, ""]), encoding="utf-8")
    constraints.write_text("\n".join([*plan.of.constraints, ""]), encoding="utf-8")
    if plan.of.lines:
        options = ["--no-index"] if plan.offline else []
        options += ["--find-links", plan.wheels] if plan.wheels else []
        options += ["-c", str(constraints)] if plan.of.constraints else []
        _run([*install, *options, "-r", str(file)], plan.folder, lock)


def of_worker() -> list[str]:
    """Return the base of an environment: Python, and the packages below."""
    return [sys.version, sys.executable, *_below()]


def _below() -> list[str]:
    """Folders of packages of the worker."""
    folders = [
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    ]
    with suppress(OSError):  # of a process that is in one of these itself
        folders += Path(sys.prefix, COMPLETE).read_text().splitlines()
    return list(dict.fromkeys([*filter(os.path.isdir, folders), str(Path(__file__).parents[2])]))


def _uv() -> list[str]:
    """The command; empty where there is none."""
    found = shutil.which("uv")
    return [found] if found else []


def _run(command: Sequence[str], folder: Path, lock: int | None = None) -> str:
    """Run a program, and return its output.

    Raises:
        EnvironmentFailed: It has failed; the text has what it said.
    """
    name = " ".join(
        command[:1] if command[0] != sys.executable else [Path(sys.executable).name, *command[1:3]]
    )
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT, check=False,
            pass_fds=() if lock is None else (lock,),
            env={each: value for each, value in os.environ.items() if each not in ("PYTHONPATH", "VIRTUAL_ENV", "PIP_REQUIRE_VIRTUALENV")},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailed(f"{name}: {error}") from None
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        said = [line for line in said if line.startswith("ERROR")] or said
        raise EnvironmentFailed(
            "\n  ".join([f"{name} ended with status {done.returncode}:", *said[-_MOST_LINES:]])
        )
    return done.stdout


@contextmanager
def _locked(path: Path, seconds: float) -> Iterator[int]:
    end = time.monotonic() + seconds
    while (lock := _lock_of(path)) is None:
        if time.monotonic() >= end:
            raise EnvironmentFailed(f"another process has held {path} for {seconds:g} s")
        time.sleep(_PAUSE)
    try:
        yield lock
    finally:
        os.close(lock)


def _lock_of(path: Path) -> int | None:
    """Open and lock a file; None where another process holds it, or has just removed it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(FileNotFoundError):
        if try_lock(lock) and os.path.samestat(os.fstat(lock), os.stat(path)):
            return lock
    os.close(lock)
    return None


def _collect(base: Path) -> None:
    """Remove environments that were not asked for in a while and that no process runs in.

    Remains of unfinished ones are removed as well.
    """
    for folder in {each.with_suffix("") for each in base.iterdir()}:
        path = Path(f"{folder}.lock")
        with suppress(OSError, EnvironmentFailed), _locked(path, 0):
            if not _is_needed(folder / COMPLETE):
                # removed first: if this process dies now, the rest does not count as an environment
                (folder / COMPLETE).unlink(missing_ok=True)
                shutil.rmtree(folder, ignore_errors=True)
                path.unlink()


def _is_needed(complete: Path) -> bool:
    try:
        with open(complete, "r+") as file:  # some file systems want that for a lock
            return time.time() - complete.stat().st_mtime <= _KEPT or not try_lock(file.fileno())
    except FileNotFoundError:
        return False
