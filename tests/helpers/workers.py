"""Worker processes on this machine, each of which is a host to the programs that attach it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from helpers.actors import Echo
from helpers.netns import NetHost
from helpers.waiting import PATIENCE, wait_until
from monarch.actor import Actor, HostMesh, attach_to_workers, endpoint
from monarch.config import configured

SECRET = "a secret of tests, which is long enough"
_WORKER = (
    "import sys; from monarch.actor import run_worker_loop_forever;"
    " run_worker_loop_forever(address=sys.argv[1])"
)


class Workers:
    """Attributes:
    addresses: Where they listen.
    processes: Those that wait for the agents, which are their children.
    """

    def __init__(
        self,
        addresses: list[str],
        folder: str,
        env: Mapping[str, str],
        starters: Iterable[Callable[..., subprocess.Popen[bytes]]] = repeat(subprocess.Popen),
    ) -> None:
        self.addresses = addresses
        environment = {**os.environ, "MONARCH_SECRET": SECRET, **env}
        self._logs = [Path(folder, f"worker{index}.log") for index in range(len(addresses))]
        self.processes = []
        for address, path, start in zip(addresses, self._logs, starters, strict=False):
            with path.open("wb") as log:
                self.processes.append(
                    start(
                        [sys.executable, "-c", _WORKER, address],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )

    def wait_until_they_listen(self) -> None:
        for address in self.addresses:
            # bound now
            wait_until(lambda address=address: _can_connect(address), what=f"{address} to listen")  # type: ignore[misc]

    def agent(self, index: int) -> int:
        """Process id of a worker's host agent."""
        (pid,) = children_of(self.processes[index].pid)
        return pid

    def kill_agent(self, index: int) -> None:
        os.kill(self.agent(index), signal.SIGKILL)

    def procs(self, index: int) -> list[int]:
        """Process ids of what runs on a worker."""
        return [proc for spawner in children_of(self.agent(index)) for proc in children_of(spawner)]

    def output(self, index: int) -> str:
        return self._logs[index].read_text()

    def end(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


def _can_connect(address: str) -> bool:
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    with socket.socket(socket.AF_UNIX if scheme == "ipc" else socket.AF_INET) as probe:
        return probe.connect_ex(rest if scheme == "ipc" else (host, int(port))) == 0


def children_of(pid: int) -> list[int]:
    """Those of the main thread of a process; none where it has ended."""
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []


def own_agent() -> int:
    """The host agent that this process has started."""
    (agent,) = [
        child for child in children_of(os.getpid()) if _title(child).startswith("monarch agent")
    ]
    return agent


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # a child of a test, say, that ends just now
        return ""


@contextmanager
def workers(
    count: int, *, tcp: bool = False, env: Mapping[str, str] | None = None
) -> Iterator[Workers]:
    """Start `count` workers, which need not listen yet: whoever attaches waits for that."""
    with tempfile.TemporaryDirectory(prefix="mw") as folder:
        if tcp:
            addresses = [f"tcp://127.0.0.1:{port}" for port in free_ports(count)]
        else:
            addresses = [f"ipc://{folder}/w{index}" for index in range(count)]
        started = Workers(addresses, folder, env or {})
        try:
            yield started
        finally:
            started.end()


@contextmanager
def workers_on(machines: Sequence[NetHost], env: Mapping[str, str]) -> Iterator[Workers]:
    """A worker on each of several machines, reached over TCP."""
    with tempfile.TemporaryDirectory(prefix="mw") as folder:
        addresses = [f"tcp://{machine.address}:26600" for machine in machines]
        started = Workers(addresses, folder, env, [machine.popen for machine in machines])
        try:
            yield started
        finally:
            started.end()


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


@dataclass(frozen=True)
class Cluster:
    """Hosts that are attached, and the workers that they are."""

    hosts: HostMesh
    workers: Workers


class _Greeter(Actor):
    @endpoint
    def greet(self, everybody: Any) -> list[int]:
        # a mesh as an argument
        return everybody.pid.call().get(timeout=PATIENCE).values()  # type: ignore[no-any-return]


@contextmanager
def attached_cluster(
    count: int, *, tcp: bool = False, env: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Workers whose hosts know each other already, so that no test looks as if it leaked what links
    them.
    """
    with workers(count, tcp=tcp, env=env) as started:
        hosts = attach_to_workers(workers=started.addresses)
        hosts.initialized.get(timeout=PATIENCE)
        # for what each host imports, under any load
        with (
            configured(host_spawn_ready_timeout="3min"),
            hosts.spawn_procs(name="warm_up") as procs,
        ):
            echo = procs.spawn("echo", Echo)
            procs.spawn("greeter", _Greeter).greet.call(echo).get(timeout=PATIENCE)
        yield Cluster(hosts, started)
        hosts.shutdown().get(timeout=PATIENCE)
        for process in started.processes:
            assert process.wait(PATIENCE) == 0


def wait_for_procs(found: Workers, index: int, count: int) -> None:
    wait_until(lambda: len(found.procs(index)) == count, what=f"{count} procs on worker {index}")
