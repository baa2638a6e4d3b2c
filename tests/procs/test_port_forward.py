"""`monarch port-forward`, with an HTTP server on the host."""

from __future__ import annotations

import functools
import http.server
import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from helpers.serving import serving
from monarch.job import ProcessJob, job_load
from monarch.tools.port_forward import port_forward

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.jobs import Home

pytestmark = pytest.mark.usefixtures("_process_test")

_PATIENCE = 60.0  # seconds


@pytest.fixture
def server(tmp_path: Path) -> Iterator[http.server.ThreadingHTTPServer]:
    """An HTTP server of a file ``page``, on the loopback interface, which is that of the hosts."""
    (tmp_path / "page").write_bytes(os.urandom(1 << 20))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    of_folder = functools.partial(Handler, directory=str(tmp_path))
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), of_folder)) as server:
        yield server


def start(home: Home, place: str) -> tuple[subprocess.Popen[str], int]:
    """The command, and its port."""
    command = home.monarch_started("port-forward", place, "0", "--json")
    assert command.stdout is not None and command.stderr is not None
    line = command.stdout.readline()
    assert line, command.stderr.read()
    told = json.loads(line)
    assert told["place"] == place
    return command, told["local"]


def get(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=_PATIENCE) as answer:
        content: bytes = answer.read()
    return content


@pytest.mark.timeout(180)  # seven commands, one after the other
@pytest.mark.slow
def test_a_server_on_a_host_is_in_ones_browser(
    home: Home, server: http.server.ThreadingHTTPServer, tmp_path: Path
) -> None:
    (home.folder / "cluster.py").write_text(
        "from monarch.job import *\njob = ProcessJob({'hosts': 2})\n"
    )
    with pytest.raises(
        ValueError, match=r"MESH\[RANK\]:PORT, such as trainers\[0\]:6006, got 'hosts'"
    ):
        port_forward("hosts")
    home.monarch("apply", "cluster.job")
    for wrong, why in (
        ("hosts:6006", "hosts has 2 hosts: say which, such as hosts[0]"),
        (f"hosts[0]:{server.server_port}", f"port {server.server_port} can't be had here"),
    ):
        assert why in home.monarch("port-forward", wrong, exit_code=1)

    command, port = start(home, f"hosts[1]:{server.server_port}")
    page = (tmp_path / "page").read_bytes()
    with ThreadPoolExecutor(8) as pool:
        assert all(content == page for content in pool.map(get, [port] * 16))
    nobody = socket.socket()  # bound, so that nobody else gets it; it does not listen
    nobody.bind(("127.0.0.1", 0))
    free = nobody.getsockname()[1]
    command.send_signal(signal.SIGINT)  # the way to end it
    assert command.communicate(timeout=_PATIENCE) == ("", "") and command.returncode == 0

    command, port = start(home, f"hosts[1]:{free}")
    with (
        socket.create_connection(("127.0.0.1", port), _PATIENCE) as connection,
        pytest.raises(ConnectionResetError),
    ):
        connection.recv(1)
    assert command.stderr is not None
    assert f"nothing listens on 127.0.0.1:{free}" in command.stderr.readline()
    saved = job_load(home.folder / ".monarch" / "job_state.pkl")
    assert isinstance(saved, ProcessJob)
    os.kill(saved._all_workers()[1].pid, signal.SIGKILL)
    _, said = command.communicate(timeout=_PATIENCE)
    assert (
        command.returncode == 1 and "error: hosts[1] is gone: " in said and "Traceback" not in said
    ), said
    nobody.close()
    home.monarch("kill")
