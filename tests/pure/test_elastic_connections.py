"""`monarch.elastic`: which connections of a process are those of its world, and what is left
alone.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from monarch._connections import Connections

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="sockets are found in /proc"
)


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname()), server.accept()[0]


def test_only_connections_of_the_blocks_are_shut_down_and_also_within_one() -> None:
    world = Connections()
    mine, peer = connected()
    with world.made():
        early, its_peer = connected()
        world.shut_down()
        assert early.recv(1) == its_peer.recv(1) == b""
    later, later_peer = connected()
    with world.made():
        second, second_peer = connected()
    world.shut_down()
    assert second.recv(1) == b""
    for one, other in ((mine, peer), (later, later_peer)):
        one.sendall(b"x")
        assert other.recv(1) == b"x"
    for each in (mine, peer, early, its_peer, later, later_peer, second, second_peer):
        each.close()


def test_a_descriptor_that_has_become_a_file_is_left_alone(tmp_path: Path) -> None:
    world = Connections()
    with world.made():
        mine, peer = connected()
    with peer, mine, (tmp_path / "file").open("w") as file:
        os.dup2(file.fileno(), mine.fileno())
        before = set(os.listdir("/proc/self/fd"))
        world.shut_down()
        assert set(os.listdir("/proc/self/fd")) == before
        assert os.write(mine.fileno(), b"x") == 1
