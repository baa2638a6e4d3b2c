"""What a process listens on over TCP, and whether a store of torch is behind it."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from contextlib import suppress

_LISTENS = "0A"
_VALIDATE, _COUNT_KEYS, _MAGIC = 0, 7, 0x3C85F7CE  # of torch's stores
_PATIENCE = 1.0  # seconds until what does not answer is no store


def listening(pid: int | str = "self") -> list[tuple[str, int]]:
    """The addresses on which a process listens, whatever its network namespace."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):  # closed meanwhile
            inodes.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return [(host, port) for host, port, inode in tables(pid) if f"socket:[{inode}]" in inodes]


def tables(pid: int | str = "self") -> list[tuple[str, int, str]]:
    """Return addresses, ports and inodes of the sockets that listen in the network of a process."""
    found = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as file:
            for fields in map(str.split, file.readlines()[1:]):
                if fields[3] == _LISTENS:
                    host, port = fields[1].split(":")
                    found.append((_readable(host), int(port, 16), fields[9]))
    return found


def _readable(host: str) -> str:
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    return str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words)))


def is_store(host: str, port: int) -> bool:
    """Whether a store of torch says how many keys it has, to somebody without a secret.

    Torch's own client can't be told when to give up.
    """
    with socket.create_connection((host, port)) as asker, suppress(OSError):
        asker.settimeout(_PATIENCE)
        asker.sendall(struct.pack("=BIB", _VALIDATE, _MAGIC, _COUNT_KEYS))
        return len(asker.recv(9)) == 8
    return False
