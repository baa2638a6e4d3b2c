"""Commands on hosts: `exec_command`, and the actor that runs them.

A command is a program of its own on each rank, in the process group of the rank's proc, so it ends
with that in any case. It writes to what its proc writes to: each line is shown at the client as it
comes, with its rank in front if there are several.
"""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

from .. import actor

_SUBDIR = "$SUBDIR"

RankPlace = tuple[int, dict[str, int]]
"""A host of a mesh: its number and its coordinates."""


def exec_command(
    host_mesh: actor.HostMesh,
    cmd: Sequence[str],
    env: Mapping[str, str] | None = None,
    workdir: str | None = None,
    output_dir: str | None = None,
    rank: int | None = None,
    point: Mapping[str, int] | None = None,
    per_host: Mapping[str, int] | None = None,
) -> actor.Future[int]:
    """Run a command on hosts. It starts at once; its output is shown line by line.

    Each rank has the variables ``MONARCH_RANK_<dim>`` and ``MONARCH_SIZE_<dim>`` for each dimension
    of `host_mesh` as it was given, and of `per_host`.

    Args:
        host_mesh: The hosts.
        cmd: The command and its arguments. ``["train.py", ...]`` and ``["-m", "module", ...]`` are
            run by the interpreter of the host.
        env: Variables for it, beside those of the host.
        workdir: Its working directory; by default that of this program where the host has it.
        output_dir: Folder on each host for the files ``stdout.txt`` and ``stderr.txt``, in place of
            the client; ``$SUBDIR`` in it stands for the rank, such as ``hosts_1_gpus_0``. Without
            it, several ranks have a folder each.
        rank: Only the host of this number.
        point: Only these hosts, by coordinates.
        per_host: Ranks of each host, as `HostMesh.spawn_procs` has them.

    Returns:
        A future of the highest exit status; 128 + the signal for a command that a signal has ended;
        127 or 126, as of a shell, for one that can't be started.

    Raises:
        TypeError: The command is no list.
        ValueError: It is empty; both `rank` and `point` are given, or there is no such host.
    """
    if isinstance(cmd, str):
        raise TypeError(
            f"cmd is a list: the command and its arguments, such as {shlex.split(cmd)}; got {cmd!r}"
        )
    if not cmd:
        raise ValueError("cmd is the command and its arguments, and there is none")
    command = RunningCommand(tuple(cmd), dict(env or {}), workdir, output_dir)
    return start(host_mesh, command, places_of(host_mesh.sizes, rank, point), per_host).status


class RunningCommand(NamedTuple):
    """A command that runs.

    Attributes:
        words: The command and its arguments.
        env: Variables for it, beside those of the host.
        workdir: Its working directory; None for that of this program where the host has it.
        output_dir: Folder on each host for its output, as `exec_command` has it; None for the
            client.
        programs: Folder that programs are looked for in first.
    """

    words: tuple[str, ...]
    env: Mapping[str, str] = {}
    workdir: str | None = None
    output_dir: str | None = None
    programs: str | None = None


class Running(NamedTuple):
    """A command that runs.

    Attributes:
        status: A future of its highest exit status.
        signal: Sends a signal to the command on every rank.
    """

    status: actor.Future[int]
    signal: Callable[[int], None]


def start(
    host_mesh: actor.HostMesh,
    command: RunningCommand,
    places: Sequence[RankPlace],
    per_host: Mapping[str, int] | None = None,
) -> Running:
    """As `exec_command`, for those who may have to end the command.

    Args:
        host_mesh: The hosts.
        command: What runs.
        places: On which of them, as `places_of` gives them.
        per_host: Ranks of each host.
    """
    numbers = [number for number, _ in places]
    hosts = host_mesh.flatten("rank").select(numbers) if host_mesh.sizes else host_mesh
    per_host = dict(per_host or {})
    coordinates = [{**place, **each} for _, place in places for each in _points(per_host)]
    if host_mesh._python:  # of a mount, with what belongs to it
        command = command._replace(programs=os.path.dirname(host_mesh._python))
    of = f"-{host_mesh._name}" if host_mesh._name and len(places) == len(host_mesh) else ""
    runner: Any = actor.this_proc().spawn("exec", _Runner, command, os.getcwd(), f"exec{of}")
    status: actor.Future[int] = runner.run.call_one(
        hosts, per_host, coordinates, {**host_mesh.sizes, **per_host}
    )
    status.add_done_callback(lambda _: runner.stop("the command has ended"))
    return Running(status, runner.signal.broadcast)


class _Runner(actor.Actor):
    """Owns the procs of one command, in the client."""

    def __init__(self, command: RunningCommand, folder: str, name: str) -> None:
        self._command = command
        self._folder = folder
        self._name = name  # of the procs, in front of what they print
        self._ranks: Any = None
        self._signal = 0  # the last that was sent before there were ranks

    def __supervise__(self, failure: actor.MeshFailure) -> bool:
        return True  # the waits for the rank end with this error

    @actor.concurrent_endpoint
    async def run(
        self,
        hosts: actor.HostMesh,
        per_host: dict[str, int],
        coordinates: list[dict[str, int]],
        sizes: dict[str, int],
    ) -> int:
        procs = hosts.spawn_procs(per_host or None, name=self._name)
        try:
            self._ranks = procs.spawn(
                "exec", _CommandRank, self._command, self._folder, coordinates, sizes
            )
            if self._signal:
                self._ranks.signal.broadcast(self._signal)
            statuses: dict[actor.Point, int] = dict((await self._ranks.run.call()).items())
            return max(status if status >= 0 else 128 - status for status in statuses.values())
        finally:
            await procs.stop("the command has ended")

    @actor.endpoint
    async def signal(self, number: int) -> None:
        self._signal = number
        if self._ranks is not None:
            self._ranks.signal.broadcast(number)


class _CommandRank(actor.Actor):
    def __init__(
        self,
        command: RunningCommand,
        folder: str,
        coordinates: list[dict[str, int]],
        sizes: dict[str, int],
    ) -> None:
        self._command = command
        self._folder = folder if os.path.isdir(folder) else None  # that of the client
        self._place = coordinates[actor.current_rank().rank]
        self._sizes = sizes
        self._process: subprocess.Popen[bytes] | None = None
        self._signal = 0  # one that came before the command was started

    @actor.concurrent_endpoint
    async def run(self) -> int:
        """Run it to its end; its exit status, negative for a signal."""
        # is there already, in an async actor; programs that only describe jobs need none of it
        import asyncio

        if self._signal:
            return -self._signal
        try:
            self._start()
        except OSError as error:  # as a shell does it
            print(f"monarch exec: {error}", file=sys.stderr)
            return 127 if isinstance(error, FileNotFoundError) else 126
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait)

    def _start(self) -> None:
        command = self._command
        variables = {f"MONARCH_RANK_{name}": str(number) for name, number in self._place.items()}
        variables |= {f"MONARCH_SIZE_{name}": str(size) for name, size in self._sizes.items()}
        if command.programs:
            variables["PATH"] = os.pathsep.join([command.programs, os.environ["PATH"]])
        with ExitStack() as files:
            out, err = self._files(files)
            self._process = subprocess.Popen(
                _with_interpreter(command.words),
                env={**os.environ, **variables, **command.env},
                cwd=command.workdir or self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @actor.endpoint
    async def signal(self, number: int) -> None:
        self._signal = number
        if self._process is not None:
            self._process.send_signal(number)

    def _files(self, files: ExitStack) -> tuple[IO[bytes] | None, IO[bytes] | None]:
        output = self._command.output_dir
        if output is None:
            return None, None
        place = "_".join(f"{name}_{number}" for name, number in self._place.items())
        folder = Path(output.replace(_SUBDIR, place))
        if _SUBDIR not in output and len(self._sizes) and self._place:
            folder /= place
        folder.mkdir(parents=True, exist_ok=True)
        out, err = (
            files.enter_context((folder / name).open("wb")) for name in ("stdout.txt", "stderr.txt")
        )
        return out, err


class BashActor(actor.Actor):
    """Runs bash scripts on the ranks of a mesh."""

    @actor.endpoint
    def run(
        self, script: str, target_ranks: Sequence[int] | None = None, output_dir: str | None = None
    ) -> dict[str, Any]:
        """Run a script to its end.

        Args:
            script: For ``bash -c``.
            target_ranks: Ranks that run it; None for all.
            output_dir: Folder for ``stdout.txt`` and ``stderr.txt``.

        Returns:
            ``returncode``, ``stdout`` and ``stderr``; ``{"skipped": True}`` on other ranks.
        """
        if target_ranks is not None and actor.current_rank().rank not in target_ranks:
            return {"skipped": True}
        found = subprocess.run(
            ["bash", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        answer = {
            "returncode": found.returncode,
            "stdout": found.stdout.decode(errors="replace"),
            "stderr": found.stderr.decode(errors="replace"),
        }
        if output_dir is not None:
            folder = Path(output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "stdout.txt").write_bytes(found.stdout)
            (folder / "stderr.txt").write_bytes(found.stderr)
        return answer

    @actor.endpoint
    def run_streaming(
        self, script: str, port: actor.Port[str], ranks: Sequence[int] | None = None
    ) -> None:
        """Run a script, and send each line through a port as it comes.

        The lines are ``RANK:out:LINE``, ``RANK:err:LINE``, and at the end
        ``RANK:rc:STATUS``; ``skip:RANK`` comes from a rank that does not run it.

        Args:
            script: For ``bash -c``.
            port: Where lines go.
            ranks: Ranks that run it; None for all.
        """
        rank = actor.current_rank().rank
        if ranks is not None and rank not in ranks:
            port.send(f"skip:{rank}")
            return
        none, pipe = subprocess.DEVNULL, subprocess.PIPE
        process = subprocess.Popen(["bash", "-c", script], stdin=none, stdout=pipe, stderr=pipe)
        assert process.stdout is not None and process.stderr is not None
        streams = (process.stdout, "out"), (process.stderr, "err")
        threads = [
            threading.Thread(target=_send_lines, args=(*each, rank, port), daemon=True)
            for each in streams
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        port.send(f"{rank}:rc:{process.wait()}")


def _send_lines(stream: IO[bytes], name: str, rank: int, port: actor.Port[str]) -> None:
    with stream:
        for line in stream:
            port.send(f"{rank}:{name}:{line.decode(errors='replace').rstrip()}")


def _with_interpreter(words: Sequence[str]) -> list[str]:
    is_python = words[0] == "-m" or words[0].endswith(".py")
    return [sys.executable, "-u", *words] if is_python else list(words)


def places_of(
    sizes: Mapping[str, int], rank: int | None = None, point: Mapping[str, int] | None = None
) -> list[RankPlace]:
    """The hosts that are meant.

    Args:
        sizes: Of the host mesh.
        rank: Only the host of this number.
        point: Only these hosts, by coordinates.

    Raises:
        ValueError: Both are given, or there is no such host.
    """
    everywhere = list(enumerate(_points(sizes)))
    if rank is not None and point is not None:
        raise ValueError("give either a rank or a point, not both")
    if rank is not None:
        if not 0 <= rank < len(everywhere):
            raise ValueError(
                f"there is no host {rank}: they are numbered from 0 to {len(everywhere) - 1}"
            )
        return [everywhere[rank]]
    unknown = sorted(set(point or ()) - set(sizes))
    if unknown:
        raise ValueError(
            f"hosts have no dimension {unknown[0]!r}; they have {list(sizes) or 'none'}"
        )
    meant = dict(point or {})
    found = [(number, place) for number, place in everywhere if meant.items() <= place.items()]
    if not found:
        raise ValueError(f"there is no host at {meant}; the sizes are {dict(sizes)}")
    return found


def _points(sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """Return the coordinates of every rank, the last dimension fastest."""
    return [
        dict(zip(sizes, place, strict=True))
        for place in itertools.product(*map(range, sizes.values()))
    ]
