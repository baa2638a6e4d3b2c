"""For scripts that lose hosts: workers with short time-outs, a mesh over them, and ways to hurt
one.

from helpers.remote import *

with cluster(3) as (workers, hosts, procs, actors):
    hurt(workers, 1, "kill")
    told(actors.wait.call())
"""

from __future__ import annotations

import os
import signal
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import monarch.actor
from helpers.faults import Faults
from helpers.netns import Network
from helpers.processes import wait_stopped
from helpers.scripts import LIMIT, ScriptResult, run_program
from helpers.waiting import PATIENCE, wait_gone, wait_until
from helpers.workers import SECRET, Workers, children_of, wait_for_procs, workers, workers_on
from monarch.actor import (
    Actor,
    Channel,
    HostMesh,
    MeshFailure,
    Port,
    SupervisionError,
    attach_to_workers,
    context,
    current_rank,
    endpoint,
    get_or_spawn_controller,
    shutdown_context,
    this_host,
)
from monarch.config import configure

RECONNECT = 2.0  # seconds: `channel_reconnect_timeout` of everybody in these scripts
BOUND = 1.25 * RECONNECT  # what hosts promise: 5 s by default
SLACK = 8.0  # for a machine that runs other things as well
WAYS = ("kill", "freeze", "end the worker", "kill the worker", "kill the spawner")

faults = Faults()


class OwnClock:
    """Seconds in which this process ran: it counts ticks, and one that comes late counts once. So a
    machine that is busy with other things does not make a bound.
    """

    TICK = 0.01

    def __init__(self) -> None:
        self._ticks = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(self.TICK)
            self._ticks += 1

    def __call__(self) -> float:
        return self._ticks * self.TICK


now = OwnClock()


class Member(Actor):
    """What runs on the hosts. With a port it is an owner that tells what it hears, and goes on."""

    def __init__(self, heard: Port[Any] | None = None) -> None:
        self.heard = heard
        self.notes: list[Any] = []

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def rank(self) -> int:
        return context().actor_instance.rank.rank

    @endpoint
    def wait(self) -> None:
        time.sleep(600)

    @endpoint
    def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def note(self, value: Any) -> None:
        self.notes.append(value)

    @endpoint
    def noted(self) -> list[Any]:
        return self.notes

    @endpoint
    def ask(self, other: Any, ready: Port[bool]) -> str:
        """Wait for somebody, and say what was told."""
        call = other.wait.call()
        ready.send(True)
        try:
            call.get()
        except SupervisionError as error:
            return f"told: {error}"
        return "it had an answer"

    @endpoint
    def say(self, text: str) -> None:
        print(f"{context().actor_instance.rank.rank} says {text}", flush=True)

    @endpoint
    def send_all(self, port: Port[Any], count: int) -> None:
        for number in range(count):
            port.send(number)

    @endpoint
    def send_now_and_then(self, port: Port[Any], seconds: float) -> int:
        """A numbered stream, that lasts for some seconds."""
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            port.send((current_rank()["hosts"], number))
            number += 1
            time.sleep(0.001)
        return number

    @endpoint
    def ask_neighbours(self, members: Any) -> list[int]:
        """Of the next host: each by itself."""
        sizes = members.sizes
        beside = members.slice(hosts=(current_rank()["hosts"] + 1) % sizes["hosts"])
        return [beside.slice(g=g).rank.call_one().get() for g in range(sizes["g"])]

    @endpoint
    def hire(self, hosts: HostMesh) -> list[int]:
        self.procs = hosts.spawn_procs(name="hired")
        self.hired = self.procs.spawn("hired", Member)
        return list(self.hired.pid.call().get().values())

    @endpoint
    def ask_hired(self, ready: Port[bool]) -> str:
        call = self.hired.wait.call()
        ready.send(True)
        try:
            call.get()
        except SupervisionError as error:
            return f"told: {error}"
        return "it had an answer"

    def __supervise__(self, failure: MeshFailure) -> bool:
        if self.heard is None:
            return False
        self.heard.send((failure.mesh_name, failure.ranks, failure.cause))
        return True


@contextmanager
def cluster(
    count: int, per_host: int = 2, **knobs: Any
) -> Iterator[tuple[Workers, HostMesh, Any, Any]]:
    """Workers, the mesh of their hosts, procs on them, and actors; a fresh client each time.

    Args:
        count: How many hosts.
        per_host: Procs on each; with 0 there are neither procs nor actors.
        knobs: For this client; `channel_reconnect_timeout` and `max_cast_fanout` for all.
    """
    with workers(count, env=_settle(knobs)) as started, _client(started, per_host) as attached:
        yield started, *attached


@contextmanager
def machines(
    count: int, per_host: int = 2, own_mounts: bool = False, **knobs: Any
) -> Iterator[tuple[Network, Workers, HostMesh, Any, Any]]:
    """As `cluster`, on machines of their own; the client is on the first of the network."""
    with (
        Network(count + 1, own_mounts) as network,
        workers_on(network.hosts[1:], _settle(knobs)) as started,
    ):
        with network.hosts[0].entered(), _client(started, per_host) as attached:
            yield network, started, *attached


def _settle(knobs: Mapping[str, Any]) -> dict[str, str]:
    """Knobs of this client; the environment of the workers."""
    faults.failures.clear()
    monarch.actor.unhandled_fault_hook = faults
    os.environ["MONARCH_SECRET"] = SECRET
    knobs = {"channel_reconnect_timeout": f"{RECONNECT}s", **knobs}
    configure(**knobs)
    env = {"HYPERACTOR_CHANNEL_RECONNECT_TIMEOUT": knobs["channel_reconnect_timeout"]}
    if "max_cast_fanout" in knobs:
        env["HYPERACTOR_MESH_MAX_CAST_FANOUT"] = str(knobs["max_cast_fanout"])
    return env


@contextmanager
def _client(started: Workers, per_host: int) -> Iterator[tuple[HostMesh, Any, Any]]:
    try:
        hosts = attach_to_workers(workers=started.addresses)
        assert hosts.initialized.get()
        procs = actors = None
        if per_host:
            procs = hosts.spawn_procs(per_host={"g": per_host}, name="procs")
            actors = procs.spawn("members", Member)
            actors.pid.call().get(timeout=PATIENCE)
        yield hosts, procs, actors
    finally:
        thaw(started)
        shutdown_context(host_timeout=0.3).get(timeout=PATIENCE)


def hurt(started: Workers, index: int, how: str) -> int:
    """Let a host be lost in one of the `WAYS`; returns the process id of its agent."""
    agent = started.agent(index)
    if how == "kill":
        os.kill(agent, signal.SIGKILL)
    elif how == "freeze":
        os.kill(agent, signal.SIGSTOP)
        wait_stopped(agent)
    elif how == "kill the spawner":
        os.kill(children_of(agent)[0], signal.SIGKILL)
    else:
        started.processes[index].send_signal(
            signal.SIGTERM if how == "end the worker" else signal.SIGKILL
        )
    return agent


def thaw(started: Workers) -> None:
    for process in started.processes:
        for agent in children_of(process.pid) if process.poll() is None else []:
            os.kill(agent, signal.SIGCONT)


def told(future: Any, host: str = "", *, within: float = BOUND + SLACK) -> str:
    """What a caller hears, on one line: that a host is gone, which, and why; soon enough."""
    start = now()
    try:
        answer = future.get()
    except SupervisionError as error:
        text = " ".join(str(error).split())
        assert (taken := now() - start) < within, (taken, text)
        assert "the host agent is gone" in text and host in text, (host, text)
        return text
    raise AssertionError(f"it had an answer: {answer}")


def heard_of(count: int) -> list[tuple[str, int, str]]:
    """Mesh, rank and cause of what reached the client's hook, once so much has."""
    faults.wait_for(count)
    return sorted(
        (failure.mesh_name, failure.ranks[0], failure.cause) for failure in faults.failures
    )


def within_bound(start: float, slack: float = SLACK) -> None:
    taken = now() - start
    assert taken < BOUND + slack, taken


def run(source: str, *, timeout: float = LIMIT) -> ScriptResult:
    """Run a script that begins as this module says; nothing of it may be left."""
    begin = "from helpers.remote import *\n\nif __name__ == '__main__':\n"
    return run_program(begin + textwrap.indent(textwrap.dedent(source), "    "), timeout=timeout)


__all__ = [
    "BOUND", "RECONNECT", "SLACK", "WAYS", "Channel", "Member", "SupervisionError", "attach_to_workers",
    "children_of", "cluster", "configure", "context", "endpoint", "faults", "get_or_spawn_controller", "heard_of", "hurt", "machines",
    "now", "os",
    "run",
    "shutdown_context", "signal", "thaw", "this_host", "time", "told", "wait_for_procs", "wait_gone", "wait_stopped", "wait_until",
    "within_bound", "workers",
]  # fmt: skip
