"""A client goes, in whatever way: what it had on attached hosts goes within `mesh_orphan_timeout`,
all else stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.effort import shortened
from helpers.leaks import open_descriptors
from helpers.processes import wait_stopped
from helpers.remote import BOUND, RECONNECT, SLACK
from helpers.scripts import program
from helpers.waiting import PATIENCE, wait_until
from helpers.workers import SECRET, Workers, children_of, wait_for_procs, workers
from monarch import config

PER_CLIENT = 2  # procs on each host
CLIENT = f"""
    import sys
    from helpers.remote import *
    from monarch.actor import attach

    if __name__ == "__main__":
        how, via, *addresses = sys.argv[1:]
        configure(channel_reconnect_timeout="{RECONNECT}s")
        if via:
            attach(via)
        hosts = attach_to_workers(workers=addresses)
        procs = hosts.spawn_procs(per_host={{"g": {PER_CLIENT}}})
        members = procs.spawn("members", Member)
        members.pid.call().get()
        waiting = procs.spawn("waiting", Member).wait.call()
        print("up", flush=True)
        if how == "end":
            sys.exit(0)
        while how == "call":
            members.pid.call().get()
            time.sleep(0.01)
        waiting.get()
"""
GOES = (
    "end",
    "SIGKILL",
    "SIGTERM",
    "SIGINT",
    "agent SIGKILL",
    "agent SIGSTOP",
    "all SIGSTOP",
)


@pytest.fixture
def hosts() -> Iterator[Workers]:
    with workers(2, env={"HYPERACTOR_CHANNEL_RECONNECT_TIMEOUT": f"{RECONNECT}s"}) as started:
        yield started


@contextmanager
def client(
    hosts: Workers, how: str, folder: Path, via: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """A program that has procs on all hosts, and is up."""
    script = folder / "client.py"
    script.write_text(program(CLIENT))
    with (folder / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, str(script), how, via, *hosts.addresses],
            env={**os.environ, "MONARCH_SECRET": SECRET},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n", (folder / "stderr").read_text()
        yield process
    finally:
        for agent in children_of(process.pid) if process.poll() is None else []:
            os.kill(agent, signal.SIGCONT)  # a test that failed may have left it frozen
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def let_go(process: subprocess.Popen[str], how: str) -> list[int]:
    """Returns the processes that stand still."""
    (agent,) = children_of(process.pid)
    if how == "agent SIGKILL":
        os.kill(agent, signal.SIGKILL)
    elif how.endswith("SIGSTOP"):
        frozen = [agent] if how == "agent SIGSTOP" else [process.pid, agent]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
            wait_stopped(pid)
        return frozen
    elif how != "end":
        process.send_signal(getattr(signal, how))
    return []


def wait_procs(hosts: Workers, count: int, timeout: float = PATIENCE) -> None:
    for index in range(2):
        wait_until(
            lambda index=index: len(hosts.procs(index)) == count,  # type: ignore[misc]
            what=f"{count} procs",
            timeout=timeout,
        )


@pytest.mark.parametrize("how", GOES)
def test_what_a_client_had_ends_with_it_and_another_client_does_not_notice(
    hosts: Workers, how: str, tmp_path: Path
) -> None:
    orphans: float = config.value("mesh_orphan_timeout")
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    with client(hosts, "call", tmp_path / "other") as other:
        before = [set(hosts.procs(index)) for index in range(2)]
        with client(hosts, "end" if how == "end" else "wait", tmp_path / "one") as process:
            frozen = let_go(process, how)
            start = time.monotonic()
            wait_procs(hosts, PER_CLIENT, timeout=orphans + SLACK)
            assert [set(hosts.procs(index)) for index in range(2)] == before
            if frozen:
                assert time.monotonic() - start > 0.5 * RECONNECT, (
                    "it may go on before its time is over"
                )
            else:
                process.wait(20)
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
            process.wait(BOUND + SLACK + 10)  # it has lost its hosts, and hears of it
            if frozen:
                assert "the host agent is gone" in (tmp_path / "one" / "stderr").read_text()
        assert other.poll() is None, (tmp_path / "other" / "stderr").read_text()
    wait_procs(hosts, 0, timeout=orphans + SLACK)
    assert all(process.poll() is None for process in hosts.processes)


@pytest.mark.parametrize("how", ["end", "SIGKILL", "agent SIGSTOP"])
def test_what_a_client_had_on_hosts_that_it_reaches_through_another_ends_with_it(
    hosts: Workers, how: str, tmp_path: Path
) -> None:
    orphans: float = config.value("mesh_orphan_timeout")
    with client(
        hosts, "end" if how == "end" else "wait", tmp_path, via=hosts.addresses[0]
    ) as process:
        frozen = let_go(process, how)
        wait_procs(hosts, 0, timeout=orphans + SLACK)
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)


def test_a_client_that_stands_still_for_a_moment_has_never_been_away(
    hosts: Workers, tmp_path: Path
) -> None:
    with client(hosts, "call", tmp_path) as process:
        pids = [process.pid, *children_of(process.pid)]
        for _ in range(2):
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in pids:
                    os.kill(pid, number)
                time.sleep(0.4 * RECONNECT)
        time.sleep(BOUND)
        assert process.poll() is None, (tmp_path / "stderr").read_text()
        assert len(hosts.procs(0)) == PER_CLIENT
    wait_procs(hosts, 0)


COMERS = f"""
    import sys
    from helpers.remote import *

    if __name__ == "__main__":
        count, addresses = int(sys.argv[1]), sys.argv[2:]
        configure(channel_reconnect_timeout="{RECONNECT}s")
        for number in range(count):
            hosts = attach_to_workers(workers=addresses)
            members = hosts.spawn_procs().spawn("members", Member)
            members.pid.call().get()
            members.echo.call(bytes(1_000_000)).get()
            members.slice(hosts=0).hire.call_one(hosts.slice(hosts=1)).get()
            if number % 2:
                hosts.stop().get()
            shutdown_context(host_timeout=0.3).get()
"""


def resources(hosts: Workers) -> list[int]:
    """Descriptors and threads of each agent, and descriptors of each spawner."""
    found = []
    for index in range(2):
        agent = hosts.agent(index)
        (spawner,) = children_of(agent)
        threads = len(os.listdir(f"/proc/{agent}/task"))
        found += [len(open_descriptors(agent)), threads, len(open_descriptors(spawner))]
    return found


@pytest.mark.parametrize(
    "count", [3, pytest.param(shortened(50, 15), marks=pytest.mark.timeout(300))]
)
@pytest.mark.slow
def test_clients_that_came_and_went_leave_nothing_on_a_worker(
    hosts: Workers, count: int, tmp_path: Path
) -> None:
    script = tmp_path / "comers.py"
    script.write_text(program(COMERS))

    def come_and_go(clients: int) -> None:
        command = [sys.executable, str(script), str(clients), *hosts.addresses]
        subprocess.run(
            command, check=True, timeout=250, env={**os.environ, "MONARCH_SECRET": SECRET}
        )
        with client(hosts, "wait", tmp_path) as killed:
            killed.kill()
        for index in range(2):
            wait_for_procs(hosts, index, 0)

    come_and_go(1)  # the link between the two, which stays
    before = resources(hosts)
    come_and_go(count)

    def no_more() -> bool:
        return all(now <= then for now, then in zip(resources(hosts), before, strict=True))

    wait_until(no_more, what=f"{before}, as at first")
