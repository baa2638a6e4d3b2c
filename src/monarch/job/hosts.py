"""Hosts that a file names, so that a program need not.

The file is ``monarch.toml`` in the working directory or the nearest folder above it, or the one
that the environment variable MONARCH_HOSTS names. It has a table for each mesh of hosts::

    [hosts.trainers]
    workers = ["tcp://10.0.0.7:26600", "tcp://10.0.0.8:26600"]   # each runs `monarch worker --listen ...`
    ca = "certs/ca.pem"                # mutual TLS
    private_key = "certs/me.pem"       # or, instead of these two, a secret of their own:
    # secret_file = "secret"           # without any of them, the usual secret: MONARCH_SECRET, ~/.monarch/secret

    [hosts.laptop]
    processes = 2                      # worker processes on this machine, as long as the program runs

Without such a file every name stands for this machine: one worker process of it.

Relative paths are relative to the file. It is data: nothing in it is run. But workers run what they
are sent, and what they answer is unpickled, so a file that another user has made is used only if
the variable names it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import _ours
from .._extras import TOML, of_extra
from ..actor import HostMesh, attach_to_workers
from ..errors import JobError
from ..trust import read_secret_file
from .process import ProcessJob

logger = logging.getLogger("monarch.job")

VARIABLE = "MONARCH_HOSTS"
FILE = "monarch.toml"
_EXAMPLE = f"""an example of {FILE}:

    [hosts.NAME]
    workers = ["tcp://10.0.0.7:26600", "tcp://10.0.0.8:26600"]

or, for workers on this machine:

    [hosts.NAME]
    processes = 2"""

_KEYS: dict[str, tuple[str, ...]] = {
    "workers": ("ca", "private_key", "secret_file"),
    "processes": ("env",),
}

_FILES = ("ca", "private_key", "secret_file")

# one set of processes per table, however often it is asked for
_started: dict[tuple[Path, str], ProcessJob] = {}


def hosts_from_config(name: str) -> HostMesh:
    """The hosts of a table of the configuration file, as a mesh with the dimension ``hosts``.

    Where there is no file, it is one host, this machine, and a warning of the logger `monarch.job`
    says so. Worker processes that it starts on this machine end with the program.

    Args:
        name: Of the table: ``[hosts.name]``.

    Raises:
        FileNotFoundError: MONARCH_HOSTS names no file.
        KeyError: The file has no such table.
        JobError: The file is not TOML, or the table makes no sense; the message names the file and
            the key. Or another user owns or may write it, or a folder on the way to it, and
            MONARCH_HOSTS does not name it.
    """
    path = _find()
    if path is None:
        logger.warning(
            "no %s in %s or a folder above it, and %s names no file: the hosts %r are this machine;"
            " %s", FILE, Path.cwd(), VARIABLE, name, _EXAMPLE,
        )  # fmt: skip
        return _local(name, Path(), {"processes": 1}, f"hosts_from_config({name!r})")
    if not os.environ.get(VARIABLE):  # who names a file trusts it
        _ours.check_all_levels(
            path,
            "it is not read, as it says to whom objects are sent. If you trust it:"
            f" {VARIABLE}={path}",
        )
    tables = _read(path).get("hosts")
    if not isinstance(tables, Mapping) or name not in tables:
        known = ", ".join(sorted(tables)) if isinstance(tables, Mapping) else ""
        raise KeyError(f"{path} has no table [hosts.{name}]; it has hosts: {known or 'none'}")
    where = f"{path}, table [hosts.{name}]"
    table = _checked(tables[name], where)
    if "processes" in table:
        return _local(name, path, table, where)
    return _remote(name, path, table, where)


def _remote(name: str, path: Path, table: Mapping[str, Any], where: str) -> HostMesh:
    files = {
        key: str(path.parent / Path(table[key]).expanduser()) for key in _FILES if key in table
    }
    try:
        secret = read_secret_file(files["secret_file"]) if "secret_file" in files else None
        ca, key = files.get("ca"), files.get("private_key")
        workers = table["workers"]
        return attach_to_workers(ca=ca, private_key=key, secret=secret, workers=workers, name=name)
    except ValueError as error:
        raise JobError(f"{where}: {error}") from error


def _local(name: str, path: Path, table: Mapping[str, Any], where: str) -> HostMesh:
    try:
        job = ProcessJob({name: table["processes"]}, env=table.get("env"))
    except (TypeError, ValueError) as error:
        raise JobError(f"{where}: {error}") from error
    job = _started.setdefault((path, name), job)
    return job.state(cached_path=None)._hosts[name]


def _find() -> Path | None:
    named = os.environ.get(VARIABLE)
    if named:
        path = Path(named).expanduser().absolute()
        if not path.is_file():
            raise FileNotFoundError(f"{VARIABLE} names {named!r}, which is no file")
        return path
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return folder / FILE
    return None


def _read(path: Path) -> Mapping[str, Any]:
    missing = f"to read {FILE}, Python 3.10 needs a package: pip install 'pymonarch[jobs]'"
    toml = of_extra(TOML, missing, JobError)
    try:
        with path.open("rb") as file:
            content: Mapping[str, Any] = toml.load(file)
            return content
    except (toml.TOMLDecodeError, UnicodeDecodeError) as error:
        raise JobError(f"{path} is not valid TOML: {error}") from error


def _checked(table: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise JobError(f"{where}: expected a table, got {table!r}; {_EXAMPLE}")
    kinds = [kind for kind in _KEYS if kind in table]
    if len(kinds) != 1:
        raise JobError(
            f"{where}: needs either `workers` or `processes`, has {sorted(table)}; {_EXAMPLE}"
        )
    allowed = {kinds[0], *_KEYS[kinds[0]]}
    unknown = sorted(set(table) - allowed)
    if unknown:
        raise JobError(
            f"{where}: {', '.join(unknown)} makes no sense there; with `{kinds[0]}`:"
            f" {sorted(allowed)}"
        )
    workers = table.get("workers", ["-"])
    if (
        not isinstance(workers, list)
        or not workers
        or not all(isinstance(worker, str) for worker in workers)
    ):
        raise JobError(
            f'{where}: workers is a list of addresses such as "tcp://10.0.0.7:26600", got'
            f" {workers!r}"
        )
    for key in _FILES:
        if not isinstance(table.get(key, ""), str):
            raise JobError(f"{where}: {key} is the path of a file, got {table[key]!r}")
    return table
