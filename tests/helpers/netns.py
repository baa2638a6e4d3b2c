"""Hosts on one machine: network namespaces, each with an address of its own, joined by a bridge in
another namespace.

    if reason := why_not():
        pytest.skip(reason)
    with Network(3) as network:
        a, b, c = network.hosts
        worker = b.popen([sys.executable, "worker.py", f"tcp://{b.address}:26600"])
        with a.entered():          # sockets and threads that are made in here belong to `a`
            ...
        b.unplug()                 # the cable is out: the host can tell
        b.plug_in()
        b.silence()                # nothing passes, and nobody is told
        b.netem("delay", "20ms", "loss", "1%")

Nothing of the machine's own network is touched, so all of it goes with the namespaces. Needs root
and `ip` (Debian's iproute2); netem also a kernel that has it.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.waiting import wait_until

_CLONE_NEWNET = 0x40000000
_FORWARDING, _DISABLED = "3", "0"  # states of a bridge's port
_serial = iter(range(1_000_000))


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


@functools.cache
def why_not() -> str | None:
    """Why there can be no `Network` here; None if there can."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    for program in ("ip", "bridge", "nsenter"):
        if shutil.which(program) is None:
            return f"there is no `{program}` (Debian: iproute2, util-linux)"
    try:
        with Network(1):
            return None
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.strip()}"


@functools.cache
def why_no_netem() -> str | None:
    """Why `NetHost.netem` can't be used here; None if it can."""
    if (reason := why_not()) is not None:
        return reason
    if shutil.which("tc") is None:
        return "there is no `tc` (Debian: iproute2)"
    with Network(1) as network:
        try:
            network.hosts[0].netem("delay", "1ms")
        except subprocess.CalledProcessError as error:
            return f"the kernel has no netem: {error.stderr.strip()}"
    return None


class NetHost:
    """One namespace.

    Attributes:
        namespace: Its name, for `ip -n`.
        address: Its IPv4 address.
        own_mounts: Each command that is run here has a table of mounts of its own, a copy of the
            machine's.
    """

    def __init__(self, switch: str, namespace: str, number: int, own_mounts: bool) -> None:
        self.namespace = namespace
        self.own_mounts = own_mounts
        self.address = f"10.77.0.{number}"
        self._switch = switch
        self._port = f"port{number}"  # its end of the cable, in the switch

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        """As `subprocess.run`, on this host."""
        return subprocess.run(self._inside(command), **options)

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """As `subprocess.Popen`, on this host; the process is the command itself."""
        return subprocess.Popen(self._inside(command), **options)

    def _inside(self, command: Sequence[str]) -> list[str]:
        within = ["unshare", "--mount", "--"] if self.own_mounts else []
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "--", *within, *command]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let the calling thread, and threads and processes that it starts, be on this host."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set_namespace(Path("/run/netns", self.namespace))
            try:
                yield
            finally:
                _set_namespace(before)
        finally:
            os.close(before)

    def unplug(self) -> None:
        """Pull the cable; the host's own interface loses its carrier."""
        _ip("-n", self._switch, "link", "set", self._port, "down")

    def plug_in(self) -> None:
        """Undo `unplug` and `silence`."""
        _ip("-n", self._switch, "link", "set", self._port, "up")
        # before, its state can't be set
        wait_until(self._is_plugged_in, what=f"{self._port} to be up")
        self._port_state(_FORWARDING)

    def silence(self) -> None:
        """Let nothing pass; the host cannot tell."""
        self._port_state(_DISABLED)

    def _is_plugged_in(self) -> bool:
        """Whether the kernel has noticed; it looks in its own time."""
        shown = _ip("-n", self._switch, "-json", "link", "show", "dev", self._port)
        return bool(json.loads(shown)[0]["operstate"] == "UP")

    def _port_state(self, state: str) -> None:
        command = ["bridge", "-n", self._switch, "link", "set", "dev", self._port, "state", state]
        subprocess.run(command, check=True, capture_output=True, text=True)

    def netem(self, *arguments: str) -> None:
        """Treat what comes to this host as `tc-netem` describes, instead of as before; nothing: as
        it comes.
        """
        change, what = ("replace", ["netem", *arguments]) if arguments else ("del", [])
        command = ["tc", "-n", self._switch, "qdisc", change, "dev", self._port, "root", *what]
        subprocess.run(command, check=True, capture_output=True, text=True)


class Network:
    """Some hosts that reach each other.

    Leaving it ends the namespaces, but no processes: they keep theirs.

    Args:
        count: How many hosts; at most 254.
        own_mounts: See `NetHost`.
    """

    def __init__(self, count: int, own_mounts: bool = False) -> None:
        name = f"monarch-{os.getpid()}-{next(_serial)}"
        self._switch = f"{name}-switch"
        self.hosts = [
            NetHost(self._switch, f"{name}-{number}", number, own_mounts)
            for number in range(1, count + 1)
        ]

    def __enter__(self) -> Network:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for namespace in (self._switch, *(host.namespace for host in self.hosts)):
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)

    def _make(self) -> None:
        switch = self._switch
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for host in self.hosts:
            inside = host.namespace
            _ip("netns", "add", inside)
            _ip(
                "-n",
                switch,
                "link",
                "add",
                host._port,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                inside,
            )
            _ip("-n", switch, "link", "set", host._port, "master", "bridge", "up")
            _ip("-n", inside, "link", "set", "lo", "up")
            _ip("-n", inside, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", inside, "link", "set", "eth0", "up")


_libc = ctypes.CDLL(None, use_errno=True)


def _set_namespace(namespace: Path | int) -> None:
    """`setns` of the calling thread; `os` has it only from Python 3.12."""
    if isinstance(namespace, Path):
        fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set_namespace(fd)
        finally:
            os.close(fd)
    elif _libc.setns(namespace, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")
