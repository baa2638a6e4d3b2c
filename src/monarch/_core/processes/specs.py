"""The specification of a new process, agent or proc: a file that it inherits."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

from ..._namedtuple import NamedTuple
from ..wire.address import ProcAddress

if TYPE_CHECKING:
    from ..._guards.main_guard import Nesting
    from ..hub.spawn_requests import LogSettings
    from ..net.trust import Trust
    from ..wire.channel import Channel


PROC_MODULE = f"{__package__}.proc"
"""What a new interpreter runs to become a proc."""

UNNAMED = "anon"
"""Name of procs that were given none; they go by that of the first actors on them."""


class AgentSpec(NamedTuple):
    """The specification of a new agent.

    Attributes:
        address: Its address.
        root: The client that starts it; itself where a worker does.
        parent: The process that it ends with.
        parent_fd: A pidfd of that.
        listener: Descriptor that is about to listen under its address.
        config: Configuration it inherits.
        preload: Modules that every proc needs.
        local_host: What its host is called where its sockets are.
        channel: Where it lets other hosts in; None where it lets none in.
        trust: Whom it lets in, and how it proves itself.
        report: Descriptor to write to what it is called, or why it can't be reached; -1 for none.
    """

    address: ProcAddress
    root: ProcAddress
    parent: int
    parent_fd: int
    listener: int
    config: dict[str, object]
    preload: tuple[str, ...]
    local_host: str
    channel: Channel | None = None
    trust: Trust | None = None
    report: int = -1


class ProcSpec(NamedTuple):
    """The specification of a new proc.

    Attributes:
        local_host: What its host is called where its sockets are.
        pipes: The inodes of those that its agent reads its output from.
    """

    address: ProcAddress
    local_host: str
    root: ProcAddress
    mesh: str
    name: str
    rank: int
    listener: int
    sys_path: list[str]
    cwd: str
    config: dict[str, object]
    nesting: Nesting
    logging: LogSettings | None
    pipes: tuple[int, ...]
    log_level: int | None


def write_spec(spec: tuple[object, ...]) -> int:
    """A descriptor from which another process can read `spec`, however large."""
    fd = os.memfd_create("monarch-spec", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        pickle.dump(spec, file)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


BEFORE_START = (
    "LD_", "PYTHON", "MALLOC_", "GLIBC_", "ASAN_", "LC_", "LANG", "OMP_", "MKL_", "OPENBLAS_",
    "KMP_",
)  # fmt: skip
"""Variables that act before, or while, the interpreter and its libraries start: a proc that changes
one is executed.
"""


def needs_exec(env: dict[str, str], spawner_env: dict[str, str]) -> bool:
    """Return whether an environment takes effect only in a new interpreter."""
    changed = {
        key for key in env.keys() | spawner_env.keys() if env.get(key) != spawner_env.get(key)
    }
    return any(key.startswith(BEFORE_START) for key in changed)
