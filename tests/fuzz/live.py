"""Targets that are real processes, to which a peer speaks that has proved who it is: a proc and the
agent of this machine, and the gateway of another host. Whatever the peer says, each of them lives,
takes no memory to speak of, and answers others. An actor to which it speaks may fail, as one whose
endpoint raises.

A pickle is a program, and five bytes of one may claim 64 GiB (`LONG_BINPUT`), for which the kernel
would kill a process, this one or another. So these may have as much as is allowed here, and no
more: Python raises `MemoryError` then, after which they go on.
"""

from __future__ import annotations

import itertools
import os
import resource
import socket
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from helpers.floods import memory
from helpers.processes import agent_of
from helpers.streams import Net
from helpers.waiting import PATIENCE
from helpers.workers import SECRET, workers
from monarch._core.net import unix
from monarch._core.net.trust import trust_for
from monarch._core.routing.route import Route, with_route
from monarch._core.wire import pickling
from monarch._core.wire.address import SYSTEM, ProcAddress
from monarch._core.wire.frame import CALL, GONE, HELLO, PORT, PROTOCOL_VERSION, REPLY, Frame, encode
from monarch._core.wire.link_records import (
    FAREWELL,
    JOIN,
    PING,
    Hello,
    Join,
    control,
    data_chunks,
    greeting,
    pack,
)
from monarch.actor import (
    Actor,
    MeshFailure,
    attach_to_workers,
    endpoint,
    this_host,
    this_proc,
)

from ._target import Target

_MOST_MEMORY = 1 << 30  # bytes
_ANSWERS = 0.05  # seconds in which a peer that goes on is listened to
_CONTENT = pickling.dumps_call((b"a value",), {})
_RECORDS = (b"AskWhatKeeps", b"LetGo", b"DescribeHost", b"monarch._kept_store.AskStore", b"")
_names = itertools.count()


class Echo(Actor):
    """Answers. Where it owns another, that is what the peer speaks to."""

    @endpoint
    def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def own(self) -> Any:
        self.owned = this_proc().spawn("owned", Echo)
        return self.owned

    def __supervise__(self, failure: MeshFailure) -> bool:
        return True


def _frames(target: int) -> list[Frame]:
    """Frames for an actor, and for the process that it is in."""
    calls = [Frame(CALL, 0, 0, SYSTEM, 78, 79, name, *_CONTENT) for name in _RECORDS]
    kinds = [Frame(kind, 0, 0, target, 78, 79, b"echo", *_CONTENT) for kind in (CALL, PORT, REPLY)]
    return [*calls, *kinds, Frame(GONE, 0, 0, 0, 0, 0, b"the end", b"")]


def _bytes(frame: Frame) -> bytes:
    return encode(frame)[0] + b"".join(map(bytes, frame.buffers))


class Live:
    """Processes to speak to, made on first use."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def close(self) -> None:
        self._stack.close()
        self.__dict__.clear()
        self._stack = ExitStack()

    @cached_property
    def _here(self) -> tuple[Any, list[ProcAddress], list[int]]:
        """An actor of this machine, its proc and agent, and their process ids."""
        procs = self._stack.enter_context(this_host().spawn_procs({"g": 1}))
        actor: Any = procs.spawn("echo", Echo)
        assert actor.echo.call_one(1).get() == 1
        address = procs._procs.address(0)
        places = [address, address.agent]
        pid = actor.pid.call_one().get()
        return actor, places, _bounded([pid, agent_of(pid)])

    @cached_property
    def _there(self) -> tuple[Any, str, ProcAddress, list[int]]:
        """An actor of another host, the address of that, its proc, and ids of processes."""
        started = self._stack.enter_context(workers(1, tcp=True))
        hosts = attach_to_workers(workers=started.addresses, secret=SECRET)
        procs = hosts.spawn_procs({"g": 1})
        self._stack.callback(lambda: hosts.shutdown().get())
        actor: Any = procs.spawn("echo", Echo)
        assert actor.echo.call_one(1).get() == 1
        pids = [started.agent(0), *started.procs(0)]
        return actor, started.addresses[0], procs._procs.address(0), _bounded(pids)

    @cached_property
    def _net(self) -> Net:
        return self._stack.enter_context(Net())

    def samples(self) -> list[bytes]:
        actor, _, _ = self._here
        return list(map(_bytes, _frames(actor.own.call_one().get()._uid)))

    def samples_of_links(self, flags: int = 0) -> list[bytes]:
        actor, _, proc, _ = self._there
        source = ProcAddress("tcp://them:1", "mesh.0")
        owned = actor.own.call_one().get()._uid
        routed = [with_route(each, Route(proc, source, 0, 0)) for each in _frames(owned)]
        data = [
            b"".join(
                map(bytes, data_chunks(pack(frame._replace(flags=frame.flags | flags)), at, 0))
            )
            for at, frame in enumerate(routed, 1)
        ]
        return [*data, b"".join(data), control(PING), control(FAREWELL, 0, "bye")]

    def check_proc(self, data: bytes) -> None:
        self._say(0, data)

    def check_agent(self, data: bytes) -> None:
        self._say(1, data)

    def _say(self, index: int, data: bytes) -> None:
        actor, places, pids = self._here
        name = b"them\0mesh.%d" % next(_names)
        hello = encode(Frame(HELLO, PROTOCOL_VERSION, 0, 0, 0, 0, name, b""))[0]
        with unix.connect(places[index]) as sock, suppress(OSError):
            sock.settimeout(_ANSWERS)
            sock.sendall(hello + data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):
                pass
        _all_is_well(actor, pids)

    def check_gateway(self, data: bytes) -> None:
        actor, address, _, pids = self._there
        name = f"them{next(_names)}"
        hello = greeting(Hello(name, f"tcp://{name}:1", address))
        stream = self._net.connect(address, trust_for(secret=SECRET)).wait_ready().stream
        stream.write([hello + control(JOIN, 0, Join(name, False, 0, 1)) + data])
        _all_is_well(actor, pids)
        stream.close()


def _bounded(pids: list[int]) -> list[int]:
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    return pids


def _all_is_well(actor: Any, pids: list[int]) -> None:
    try:
        assert actor.echo.call_one("a value").get() == "a value"
        for pid in pids:
            assert memory("VmRSS", pid) < _MOST_MEMORY  # and it lives
    except Exception as error:
        told = [repr(error), str(error), *map(_described, pids)]
        with suppress(Exception):  # it may live; if not, this says how it has ended
            told.append(str(actor.echo.call_one("a value").exception(timeout=PATIENCE)))
        raise AssertionError("\n".join(told)) from error


def _described(pid: int) -> str:
    """Say what has become of a process; how it ended is in what those are told that call it."""
    try:
        name, state = Path(f"/proc/{pid}/status").read_text().split("\n")[0:3:2]
        most = memory("VmHWM", pid) >> 20
    except (OSError, AssertionError) as error:
        return f"process {pid} is no more: {error}"
    return f"process {pid}, {name}, {state}, has had up to {most} MiB"


live = Live()
NAMES = ("a proc", "an agent", "a gateway")


def targets() -> list[Target]:
    """All of them: their processes start."""
    checks = live.check_proc, live.check_agent, live.check_gateway
    samples = live.samples(), live.samples(), live.samples_of_links()
    return [Target(*each, 60) for each in zip(NAMES, checks, samples, strict=True)]
