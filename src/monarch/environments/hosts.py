"""Packages for procs.

On each host a virtual environment is made from a file of requirements, once, and shared.

`in_environment` has it made, by an actor on each host, and gives host meshes that start procs in
it; `venv` is what happens there. The file, and wheels for hosts without a network, come with a
sync, or are on a disk that the hosts share.

What ends the waits: the answer of each host, or its loss. What it waits for is bounded there.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .._words import draw, named
from ..actor import Actor, ActorError, HostMesh, MeshFailure, SupervisionError, endpoint, this_proc
from ..errors import EnvironmentFailed
from .conda import CondaEnvironment
from .venv import YAML, Made, Wanted, make

__all__ = ["CondaEnvironment", "in_environment"]

_SHOWN_EVERY = 0.5  # seconds


def in_environment(
    hosts: HostMesh,
    source: str | os.PathLike[str] | CondaEnvironment,
    *,
    wheels: str | os.PathLike[str] | None = None,
    offline: bool = False,
) -> HostMesh:
    """Make an environment on hosts, unless it is there.

    It returns the same hosts; their procs start in it.

    Modules that it lacks come from the environment of the worker: `monarch` itself, and torch,
    unless the file asks for another.

    Args:
        hosts: Where.
        source: ``requirements.txt``, ``pyproject.toml``, ``uv.lock`` or, for conda,
            ``environment.yml``. A relative path is one in the workspace that was synced last, or in
            the working directory, where nothing was. Or a conda environment of this machine.
        wheels: A folder of wheels to install from as well; a path of the same kind.
        offline: Install from nothing else.

    Raises:
        EnvironmentFailed: It can't be made on a host; the text has what the installer said.
        ValueError: Wheels are given, and conda is to make it.
    """
    if wheels is not None and (
        isinstance(source, CondaEnvironment) or os.fspath(source).endswith(YAML)
    ):
        raise ValueError(
            f"conda installs from no folder of wheels: leave out wheels={os.fspath(wheels)!r}"
        )
    if isinstance(source, CondaEnvironment):
        wanted = Wanted(str(source.conda_prefix), "", offline, source.export())
    else:
        wanted = Wanted(os.fspath(source), "" if wheels is None else os.fspath(wheels), offline)
    owner = this_proc().spawn("environments", _EnvironmentOwner)
    try:
        with _shown(f"environment of {wanted.source} on {len(hosts)} hosts"):
            made = owner.make.call_one(hosts, wanted).get()
    except ActorError as error:
        raise error.exception from None
    finally:
        owner.stop("the environment is made").get()
    pythons = {each.python for each in made}
    if len(pythons) > 1:
        raise EnvironmentFailed(
            f"hosts have different interpreters, or folders: {', '.join(sorted(pythons))}"
        )
    return hosts.with_python_executable(pythons.pop())


class _EnvironmentOwner(Actor):
    """Owns the procs on the hosts, in the client."""

    def __supervise__(self, failure: MeshFailure) -> bool:
        return True  # the waits for it end with this error

    @endpoint
    async def make(self, hosts: HostMesh, wanted: Wanted) -> list[Made]:
        """Have all hosts make it."""
        procs = hosts.spawn_procs(name="environment")
        makers = procs.spawn("environment", _Maker)
        try:
            answers = (await makers.make.call(wanted)).values()
        except SupervisionError as error:
            raise EnvironmentFailed(f"a host was lost: {error}") from None
        finally:
            await procs.stop()
        failed = [each for each in answers if isinstance(each, str)]
        if failed:
            where = f"{len(failed)} of {len(answers)} hosts"
            texts = [
                f"the environment can't be made on {where}: {text}"
                for text in dict.fromkeys(failed)
            ]
            raise EnvironmentFailed("\n".join(texts))
        return [each for each in answers if isinstance(each, Made)]


class _Maker(Actor):
    """Makes the environment, on a host."""

    @endpoint
    def make(self, wanted: Wanted) -> Made | str:
        """Make it; or why it can't be made, so that all hosts are heard."""
        try:
            return make(wanted)
        except (EnvironmentFailed, OSError) as error:
            return str(error)


@contextmanager
def _shown(what: str) -> Iterator[None]:
    """Show progress as a line on a terminal: what goes on, and since when."""
    if not sys.stderr.isatty():
        yield
        return
    done, began = threading.Event(), time.monotonic()

    def show() -> None:
        while not done.wait(_SHOWN_EVERY):
            draw(f"\r{named(what)}: {time.monotonic() - began:.0f} s ")

    thread = threading.Thread(target=show, name="monarch-environment", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        draw("\r\x1b[K")
