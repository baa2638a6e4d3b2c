"""The addresses of processes and actors: small values that hash, compare and pickle."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..._namedtuple import NamedTuple

AGENT = "agent"
"""Name, on every host, of the process that runs the host agent."""

CLIENT = "client"
"""What the name of a client's process begins with, and no other's: those are random, without an i
or l.
"""

SYSTEM = 1
"""Actor id, in every process, of the process itself: spawning, stopping, resolving.

User actors have random ids.
"""

ROOT = 2
"""Actor id of the root client actor, in the client process."""


class ProcAddress(NamedTuple):
    """A process: its host, and its own name, unique on that host.

    The host of a client has a random name. A host that others can dial goes by the address at which
    they do: ``tcp://10.0.0.7:26600``.
    """

    host: str
    proc: str

    def __str__(self) -> str:
        return f"{self.proc}@{self.host}"

    @property
    def agent(self) -> ProcAddress:
        """The host agent that answers for this process."""
        return ProcAddress(self.host, AGENT)

    @property
    def is_client(self) -> bool:
        """True if the process uses the API from outside: no parent of ours knows its end."""
        return self.proc.startswith(CLIENT)

    @property
    def mesh(self) -> str:
        """The id of the mesh that a proc was spawned with.

        Of a client: its name, but for a guest's number.
        """
        return self.proc.rpartition(".")[0]

    @property
    def rank(self) -> int:
        """The rank of a proc in that mesh."""
        return int(self.proc.rpartition(".")[2])


class ActorAddress(NamedTuple):
    """One actor: its process, and its id there (the same id on every rank of one actor mesh)."""

    proc: ProcAddress
    uid: int


def random_name(bits: int = 64) -> str:
    """A unique name: `bits` random bits in base 32, lower case."""
    number = int.from_bytes(os.urandom((bits + 7) // 8), "big")
    digits = "0123456789abcdefghjkmnpqrstvwxyz"
    return "".join(digits[(number >> shift) & 31] for shift in range(0, bits, 5))


def random_uid() -> int:
    """A 63-bit id for an actor mesh; ids below 16 are taken by the system."""
    return int.from_bytes(os.urandom(8), "big") >> 1 | 16


def host_labels(hosts: Sequence[str]) -> list[str]:
    """Return short labels for hosts: ``node4`` for ``tcp://node4:26600``, unless ambiguous."""
    short = [_machine(host) for host in hosts]
    return short if len(set(short)) == len(short) else [*hosts]


def _machine(host: str) -> str:
    scheme, _, rest = host.partition("://")
    return rest.rpartition(":")[0] if scheme in ("tcp", "metatls") else host


def has_address(host: str) -> bool:
    """Return whether a host can be dialed."""
    return "://" in host
