"""Actors that own memory and actors that reach for it."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import struct
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest

from monarch.actor import Actor, Port, endpoint
from monarch.rdma import BufferDroppedError, RDMAAction, RDMABuffer, RDMAError

HAS_NIXL = all(importlib.util.find_spec(name) for name in ("nixl", "torch"))
NIXL = pytest.param(
    "nixl",
    marks=pytest.mark.skipif(
        not HAS_NIXL, reason="goes through nixl, which is not installed (it needs torch, too)"
    ),
)
"""The path of that name, for tests that are repeated for each."""

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_SYS_SECCOMP, _SET_MODE_FILTER, _FOR_ALL_THREADS = 317, 1, 1  # of x86-64
_PROCESS_VM_CALLS = (310, 311)  # the same
_SECCOMP_ALLOW, _SECCOMP_ERRNO = 0x7FFF0000, 0x00050000
_BPF_LOAD, _BPF_IF_EQUAL, _BPF_RETURN = 0x20, 0x15, 0x06
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_SYS_PTRACE = 19


def pattern(nbytes: int, seed: int = 1) -> bytearray:
    """Bytes of which no two neighbouring pages are equal."""
    block = bytes((seed * 31 + i * 7) % 251 for i in range(251))
    return bytearray((block * (nbytes // 251 + 1))[:nbytes])


class Owner(Actor):
    """Has memory, and handles to it."""

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}
        self.buffers: dict[str, RDMABuffer] = {}
        self.gone: dict[str, weakref.ref[Any]] = {}

    @endpoint
    def make(self, name: str, nbytes: int, seed: int = 1) -> RDMABuffer:
        self.memory[name] = pattern(nbytes, seed)
        self.buffers[name] = RDMABuffer(self.memory[name])
        return self.buffers[name]

    @endpoint
    def make_readonly(self, content: bytes) -> RDMABuffer:
        self.buffers["readonly"] = RDMABuffer(content)
        return self.buffers["readonly"]

    @endpoint
    def make_words(self, *values: int) -> RDMABuffer:
        self.memory["words"] = bytearray(struct.pack(f"<{len(values)}Q", *values))
        self.buffers["words"] = RDMABuffer(self.memory["words"])
        return self.buffers["words"]

    @endpoint
    def content(self, name: str) -> bytes:
        return bytes(self.memory[name])

    @endpoint
    def make_and_forget(self, name: str, nbytes: int) -> RDMABuffer:
        """Nothing here refers to the memory afterwards but the buffer that is returned."""
        memory = Trackable(nbytes)
        self.gone[name] = weakref.ref(memory)
        return RDMABuffer(memory)

    @endpoint
    def make_and_keep(self, name: str, nbytes: int) -> RDMABuffer:
        """The handle stays here, too; the memory is referred to by nothing else."""
        memory = Trackable(nbytes)
        self.gone[name] = weakref.ref(memory)
        self.buffers[name] = RDMABuffer(memory)
        return self.buffers[name]

    @endpoint
    def make_and_lose(self, name: str) -> None:
        """Makes a buffer and lets go of the only handle to it, without having sent it anywhere."""
        memory = Trackable(100)
        self.gone[name] = weakref.ref(memory)
        RDMABuffer(memory)

    @endpoint
    def forget(self, name: str) -> None:
        del self.buffers[name]

    @endpoint
    def holders(self, name: str) -> int:
        """How many processes have handles to it, as far as they have told."""
        buffer = self.buffers[name]
        return len(buffer.plane.registry._regions[buffer._info.id].holders)

    @endpoint
    def has_gone(self, name: str) -> bool:
        return self.gone[name]() is None

    @endpoint
    def drop(self, name: str) -> None:
        self.buffers[name].drop().get()

    @endpoint
    def drop_and_overwrite(self, name: str) -> None:
        """What becomes of memory that was let go: somebody else's bytes are in it."""
        self.buffers.pop(name).drop().get()
        ctypes.memset(
            (ctypes.c_char * len(self.memory[name])).from_buffer(self.memory[name]),
            0,
            len(self.memory[name]),
        )

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def be_busy(self, until: str, started: Port[None]) -> None:
        """In its endpoint until a file exists."""
        started.send(None)
        while not Path(until).exists():
            time.sleep(0.005)

    @endpoint
    def become_undumpable(self) -> None:
        """From now on the kernel lets nobody without privileges look into this process."""
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class Trackable(bytearray):
    """Tells, by way of weak references, whether it is gone."""


class User(Actor):
    """Reaches for buffers."""

    def __init__(self) -> None:
        self.kept: dict[str, RDMABuffer] = {}

    @endpoint
    def read(
        self, buffer: RDMABuffer, offset: int = 0, nbytes: int | None = None, timeout: float = 60
    ) -> bytes:
        into = bytearray(buffer.size() if nbytes is None else nbytes)
        buffer.read_into(into, offset=offset, nbytes=nbytes, timeout=timeout).get()
        return bytes(into)

    @endpoint
    def write(self, buffer: RDMABuffer, data: bytes, offset: int = 0, timeout: float = 60) -> None:
        buffer.write_from(data, offset=offset, timeout=timeout).get()

    @endpoint
    def read_many(self, buffers: list[RDMABuffer]) -> list[bytes]:
        into = [bytearray(buffer.size()) for buffer in buffers]
        action = RDMAAction()
        for buffer, target in zip(buffers, into, strict=True):
            action.read_remote(target, buffer)
        action.submit().get()
        return [bytes(target) for target in into]

    @endpoint
    def read_until_dropped(self, buffer: RDMABuffer, started: Port[None]) -> tuple[int, bool]:
        """How many reads have succeeded, and whether the last of them got what the owner had."""
        last, into, done = bytearray(buffer.size()), bytearray(buffer.size()), 0
        while True:
            try:
                buffer.read_into(into).get()
            except BufferDroppedError:
                return done, last == pattern(buffer.size())
            if not done:
                started.send(None)
            last, into, done = into, last, done + 1

    @endpoint
    def read_and_write(
        self, source: RDMABuffer, target: RDMABuffer, data: bytes, offset: int
    ) -> bytes:
        """Both in one action."""
        into = bytearray(source.size())
        RDMAAction().read_remote(into, source).write_remote(
            target, data, offset=offset
        ).submit().get()
        return bytes(into)

    @endpoint
    def failure(
        self, buffer: RDMABuffer, timeout: float = 60, started: Port[None] | None = None
    ) -> RDMAError | None:
        """What a read raises."""
        try:
            reading = buffer.read_into(bytearray(buffer.size()), timeout=timeout)
            if started is not None:
                started.send(None)
            reading.get()
        except RDMAError as error:
            return error
        return None

    @endpoint
    def add(self, buffer: RDMABuffer, value: int, times: int) -> list[int]:
        return [buffer.fetch_add(value).get() for _ in range(times)]

    @endpoint
    def swap(self, buffer: RDMABuffer, expected: int, desired: int, offset: int = 0) -> int:
        return buffer.compare_and_swap(expected, desired, offset=offset).get()

    @endpoint
    def keep(self, name: str, buffer: RDMABuffer) -> None:
        self.kept[name] = buffer

    @endpoint
    def read_kept(self, name: str) -> bytes:
        into = bytearray(self.kept[name].size())
        self.kept[name].read_into(into).get()
        return bytes(into)

    @endpoint
    def forget(self, name: str) -> None:
        del self.kept[name]

    @endpoint
    def collect_garbage(self) -> None:
        gc.collect()

    @endpoint
    def path_to(self, buffer: RDMABuffer) -> str | None:
        return buffer.explain().taken

    @endpoint
    def bytes_received(self, interface: str) -> int:
        """By this process's machine so far."""
        line = next(
            line
            for line in Path("/proc/self/net/dev").read_text().splitlines()
            if f"{interface}:" in line
        )
        return int(line.partition(":")[2].split()[0])

    @endpoint
    def warnings_of_reading(self, buffer: RDMABuffer, times: int = 2) -> list[tuple[str, str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(times):
                buffer.read_into(bytearray(buffer.size())).get()
        return [(warning.category.__name__, str(warning.message)) for warning in caught]

    @endpoint
    def drop_privileges(self) -> None:
        """Threads that this actor starts from now on can't look into any process but as the user
        that they are.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
        data = ctypes.create_string_buffer(24)
        assert libc.capget(header, data) == 0, os.strerror(ctypes.get_errno())
        words = list(struct.unpack("6I", data.raw))
        for index in range(3):  # effective, permitted, inheritable
            words[index] &= ~(1 << _CAP_SYS_PTRACE)
        assert libc.capset(header, struct.pack("6I", *words)) == 0, os.strerror(ctypes.get_errno())

    @endpoint
    def enter_sandbox(self, error: int) -> None:
        """From now on the calls by which the kernel copies between processes fail with `error`: a
        seccomp filter, as containers have them.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        first, second = _PROCESS_VM_CALLS
        steps = [
            (_BPF_LOAD, 0, 0, 0),  # the number of the call
            (_BPF_IF_EQUAL, 2, 0, first),
            (_BPF_IF_EQUAL, 1, 0, second),
            (_BPF_RETURN, 0, 0, _SECCOMP_ALLOW),
            (_BPF_RETURN, 0, 0, _SECCOMP_ERRNO | error),
        ]
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
        program = ctypes.create_string_buffer(
            struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
        )
        assert libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        done = libc.syscall(_SYS_SECCOMP, _SET_MODE_FILTER, _FOR_ALL_THREADS, program)
        assert done == 0, os.strerror(ctypes.get_errno())
