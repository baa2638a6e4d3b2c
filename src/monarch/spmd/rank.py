"""One rank of a script.

It is a program of its own, started by an actor, with the variables of `torchrun` in its
environment.

The script runs as ``python -u script arguments``, as under `torchrun`: it may handle signals, fork,
call ``sys.exit``, be ``__main__`` for `multiprocessing`. It is in the process group of the actor's
proc, so it ends with that in any case.
"""

from __future__ import annotations

import asyncio
import glob
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from .._ours import APPEND, opened
from .._stack_dump import FILE as STACK_FILE
from .._stack_dump import SIGNAL as STACK_SIGNAL
from ..actor import Actor, Point, concurrent_endpoint, context, endpoint
from ..stacks import capture
from . import numa
from .elastic import own_name, variables
from .options import LINE_PREFIX, STDERR, STDOUT, Options
from .torch_store import TorchStore

_STARTUP = Path(__file__).parents[1] / "_startup"
_TAIL = 64 * 1024  # bytes of stderr that are kept for a report
_NOT_STARTED = 127  # the exit status of shells for a command that can't be started
# seconds in which what the script has left in its pipes is read, if another process holds them open
_REST = 1.0
_LOCALHOST = "localhost"
_DEVICE = re.compile(r"\d|GPU-|MIG-")


class Exit(NamedTuple):
    """How a rank has ended.

    Attributes:
        rank: Its rank.
        local_rank: Its rank on its host.
        host: Name of its host.
        pid: Process number of the script; 0 if it never ran.
        status: Exit status; negative: the signal that has ended it.
        time: When, in seconds since the epoch; where the script has recorded its error, when that
            was.
        error: The last it has written to stderr, or what it has recorded.
    """

    rank: int
    local_rank: int
    host: str
    pid: int
    status: int
    time: float
    error: str


class Attempt(NamedTuple):
    """The common part of all ranks of one start.

    Attributes:
        number: 0 for the first, 1 after the first restart, ...
        files: Name of the folder for the files of output where no ``--log-dir`` says which: in that
            for temporary ones, and of this run alone.
        address: Host of the store.
        port: TCP port of the store.
        has_store: Whether that is open already, so that rank 0 need not.
        ways: Where `address` is not that of the loopback interface: a port of each host, on that
            interface, that leads to the store.
    """

    number: int
    files: str
    address: str
    port: int
    has_store: bool
    ways: tuple[int, ...] = ()


class HostProbe(Actor):
    """Says what a host has."""

    @endpoint
    def ranks(self, wanted: str) -> int:
        """Return the number of ranks for ``"auto"``, ``"gpu"`` or ``"cpu"``.

        Raises:
            ValueError: GPUs are wanted, and there are none.
        """
        found = gpus()
        if wanted == "gpu" and not found:
            raise ValueError(f"--nproc-per-node gpu: there are none on {socket.gethostname()}")
        return found if found and wanted != "cpu" else os.cpu_count() or 1


class RankProcess(Actor):
    """The actor that runs a rank's script.

    Args:
        options: What to run.
        folder: Working directory, where the host has it.
    """

    def __init__(self, options: Options, folder: str) -> None:
        self._options = options
        self._folder = folder if os.path.isdir(folder) else None
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = False
        self._store = TorchStore()
        self._streams: _Streams | None = None
        self._ended = 0.0

    @endpoint
    async def open_store(self, hosts: Sequence[str]) -> tuple[str, int, bool]:
        """Open the store at which ranks find each other, on the loopback interface.

        Args:
            hosts: The addresses of all hosts on which ranks run.

        Returns:
            What ranks are told of it, host and port; whether it is a store, or just a free port, as
            torch is not installed.
        """
        address = self._options.master_addr or (
            _LOCALHOST if len(hosts) == 1 else own_name(hosts=hosts)
        )
        listener = socket.create_server(("127.0.0.1", self._options.master_port))
        port: int = listener.getsockname()[1]
        has_store = find_spec("torch") is not None
        if has_store:
            await self._store.serve(listener)
        else:
            listener.close()
        return address, port, has_store

    @concurrent_endpoint
    async def run(self, attempt: Attempt) -> Exit:
        """Run the script to its end."""
        # no other user reads what the script writes there
        with open(os.memfd_create("monarch-error"), "rb") as file:
            return await self._run(attempt, Path(f"/proc/{os.getpid()}/fd/{file.fileno()}"))

    async def _run(self, attempt: Attempt, error_file: Path) -> Exit:
        point = context().actor_instance.rank
        local = point.rank % _local(point)
        ends = partial(Exit, point.rank, local, socket.gethostname())
        if self._ending:
            return ends(0, 0, time.time(), "")
        try:
            environment = self._environment(point, attempt, error_file)
            streams, process = self._start(environment, local, attempt)
        except OSError as error:
            # there is no such program, the folder of the logs can't be made, ...
            return ends(0, _NOT_STARTED, time.time(), str(error))
        await asyncio.to_thread(process.wait)
        capture.program = 0
        ended = self._ended = time.time()
        streams.finish()
        ended, text = _recorded(error_file) or (ended, streams.stderr.tail())
        return ends(process.pid, process.returncode, ended, text)

    def _start(
        self, environment: dict[str, str], local: int, attempt: Attempt
    ) -> tuple[_Streams, subprocess.Popen[bytes]]:
        rank = int(environment["RANK"])
        streams = self._streams = _Streams(self._options, rank, local, attempt)
        try:
            self._process = subprocess.Popen(
                self._command(local), stdin=subprocess.DEVNULL, stdout=streams.stdout.target,
                stderr=streams.stderr.target, env=environment, cwd=self._folder,
            )  # fmt: skip
        finally:
            streams.started()
        capture.program = self._process.pid
        return streams, self._process

    @concurrent_endpoint
    async def quiet(self) -> float:
        """Seconds since the script has begun, printed or ended."""
        return time.time() - max(
            self._ended, self._streams.last_output if self._streams is not None else time.time()
        )

    @concurrent_endpoint
    async def end(self, number: int) -> None:
        """Send the script a signal, and SIGKILL if it has not ended `shutdown_timeout` later.

        Args:
            number: The signal.
        """
        self._ending = True
        if self._process is None:
            return
        self._process.send_signal(number)  # does nothing to one that has ended
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(
                asyncio.to_thread(self._process.wait), self._options.shutdown_timeout
            )
            return
        self._process.kill()

    async def __cleanup__(self, exc: Exception | None) -> None:
        if self._process is not None:
            self._process.kill()

    def _command(self, local: int) -> list[str]:
        options = self._options
        command = [options.script, *options.args]
        if not options.no_python:
            command = [sys.executable, "-u", *(["-m"] if options.module else []), *command]
        if options.virtual_local_rank:
            one = _allotted(os.environ.get("CUDA_VISIBLE_DEVICES"), local)
            command = ["env", f"CUDA_VISIBLE_DEVICES={one}", "LOCAL_RANK=0", *command]
        if options.numa_binding:  # before that: it looks at all GPUs of the host
            near = [sys.executable, "-m", numa.__name__, options.numa_binding, str(local)]
            command = [*near, *command]
        return command

    def _environment(self, point: Point, attempt: Attempt, error_file: Path) -> dict[str, str]:
        options = self._options
        made = {
            **os.environ,
            **variables(point, attempt.address, attempt.port),
            "ROLE_NAME": options.role,
        }
        signals = [signal.Signals(number).name for number in options.signals]
        made |= {
            "TORCHELASTIC_RESTART_COUNT": str(attempt.number),
            "TORCHELASTIC_MAX_RESTARTS": str(options.max_restarts),
            "TORCHELASTIC_RUN_ID": options.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": str(attempt.has_store),
            "TORCHELASTIC_ERROR_FILE": str(error_file),
            "TORCHELASTIC_SIGNALS_TO_HANDLE": ",".join(signals),
        }
        made.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
        if attempt.address == _LOCALHOST:
            made.setdefault("GLOO_SOCKET_IFNAME", "lo")
        if _local(point) > 1:
            made.setdefault("OMP_NUM_THREADS", "1")
        if attempt.ways:
            way = attempt.ways[int(made["GROUP_RANK"])]
            made["MONARCH_STORE_AT"] = f"{way}:{attempt.port}:{attempt.address}"
        if attempt.ways or not options.no_python:
            path = made.get("PYTHONPATH")
            made["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_STARTUP), path)))
        if not options.no_python:
            made["MONARCH_STACKS"] = f"{int(STACK_SIGNAL)}:{STACK_FILE}"
        return made


class _Way:
    """A way for what a stream says: to a file or the terminal, as it comes or line by line.

    Args:
        file: Where it goes.
        head: Stands before each line; without one all goes as it comes.
        texts: Only lines with one of these go; none for all.
    """

    def __init__(self, file: io.FileIO, head: bytes = b"", texts: Sequence[bytes] = ()) -> None:
        self._file, self._head, self._texts = file, head, texts
        self._rest = b""  # of a line that has not ended

    @property
    def is_direct(self) -> bool:
        """True if the script may have the file itself."""
        return not self._file.closefd and not self._head

    def fileno(self) -> int:
        return self._file.fileno()

    def write(self, data: bytes) -> None:
        if self._head:
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > _TAIL:  # is none: nothing is held for ever
                lines, self._rest = [*lines, self._rest], b""
            texts = self._texts or (b"",)
            chosen = [line for line in lines if any(text in line for text in texts)]
            data = b"".join(self._head + line + b"\n" for line in chosen)
        with suppress(OSError):  # a full disk is no reason to stop a training
            while data:
                data = data[self._file.write(data) :]

    def close(self) -> None:
        if self._rest:
            self.write(b"\n")
        self._file.close()


class _Stream:
    """The destination of a stream of the script.

    It is that of this proc, as it is or through a thread that passes it on.

    Args:
        ways: Where it goes.
        keep: Bytes of its end to keep.
    """

    def __init__(self, ways: Sequence[_Way], keep: int) -> None:
        self._ways = ways
        self._keep = keep
        self._kept = b""
        self._read: int | None = None
        self._thread: threading.Thread | None = None
        self.last_output = time.time()
        self.target = ways[0].fileno() if ways else subprocess.DEVNULL
        if keep or not all(way.is_direct for way in ways):
            self._read, self.target = os.pipe()

    def started(self) -> None:
        if self._read is not None:
            os.close(self.target)
            self._thread = threading.Thread(
                target=self._pass_on, name="monarch-rank-output", daemon=True
            )
            self._thread.start()

    def finish(self) -> None:
        if self._thread is not None:
            self._thread.join(_REST)  # what the script has started may go on and hold the pipe

    def tail(self) -> str:
        return self._kept.decode(errors="replace")

    def _pass_on(self) -> None:
        assert self._read is not None
        while data := os.read(self._read, 65536):
            self.last_output = time.time()
            if self._keep:
                self._kept = (self._kept + data)[-self._keep :]
            for way in self._ways:
                way.write(data)
        os.close(self._read)
        for way in self._ways:
            way.close()


class _Streams:
    def __init__(self, options: Options, rank: int, local_rank: int, attempt: Attempt) -> None:
        shown = options.shown_local_ranks is None or local_rank in options.shown_local_ranks
        redirected, teed = options.redirects.of(local_rank), options.tee.of(local_rank)
        top = options.log_dir or tempfile.gettempdir()
        run = options.run_id if options.log_dir else f"{attempt.files}/{options.run_id}"
        place = os.path.join(top, run, f"attempt_{attempt.number}")
        names = {"role_name": options.role, "rank": rank, "local_rank": local_rank}

        def head(template: str) -> bytes:
            return Template(template).safe_substitute(names, hostname=socket.gethostname()).encode()

        def file(folder: str, name: str) -> io.FileIO:
            with opened(folder, make=True, root=top) as there:
                return io.FileIO(there.open(name, APPEND), "ab")

        def stream(fd: int, bit: int, name: str, keep: int, texts: Sequence[str]) -> _Stream:
            ways = []
            if shown and not (redirected & ~teed & bit):
                ways.append(_Way(io.FileIO(fd, "wb", closefd=False), head(options.line_prefix)))
                if texts:
                    one, words = file(place, f"filtered_{name}"), [each.encode() for each in texts]
                    ways.append(_Way(one, head(options.line_prefix or LINE_PREFIX), words))
            if (redirected | teed) & bit:
                ways.append(_Way(file(os.path.join(place, str(local_rank)), name)))
            return _Stream(ways, keep)

        # otherwise it is not looked at
        keep = 1 if options.hang_timeout else 0
        self.stdout = stream(1, STDOUT, "stdout.log", keep, options.stdout_filters)
        self.stderr = stream(2, STDERR, "stderr.log", _TAIL, options.stderr_filters)

    @property
    def last_output(self) -> float:
        """The time of the script's last output, or of its start, in seconds since the epoch."""
        return max(self.stdout.last_output, self.stderr.last_output)

    def started(self) -> None:
        self.stdout.started()
        self.stderr.started()

    def finish(self) -> None:
        self.stdout.finish()
        self.stderr.finish()


def _recorded(file: Path) -> tuple[float, str] | None:
    """The error that the script has recorded, if it has.

    ``torch.distributed.elastic.multiprocessing.errors.record`` does that.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        message: Mapping[str, Any] = json.loads(file.read_text())["message"]
        return float(message["extraInfo"]["timestamp"]), str(message["extraInfo"]["py_callstack"])
    return None


def _allotted(visible: str | None, local_rank: int) -> str:
    """The GPU of a rank, among those that this host may use.

    Raises:
        OSError: It may use fewer.
    """
    if visible is None:
        return str(local_rank)
    devices = _named(visible)
    if local_rank >= len(devices):
        raise OSError(
            f"--virtual-local-rank: local rank {local_rank} has no GPU, as CUDA_VISIBLE_DEVICES is"
            f" {visible!r}; start as many ranks as it names"
        )
    return devices[local_rank]


def _named(visible: str) -> list[str]:
    """The devices of ``CUDA_VISIBLE_DEVICES``, up to the first that is none, as CUDA reads it.

    ``NoDevFiles``, where Slurm has allotted none, is none, and so is -1.
    """
    return list(takewhile(_DEVICE.match, (device.strip() for device in visible.split(","))))


def _local(point: Point) -> int:
    return point.extent.sizes[-1] if point.extent.sizes else 1


def gpus() -> int:
    """How many GPUs of NVIDIA this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len(_named(visible))
    return len(glob.glob("/dev/nvidia[0-9]*"))
