"""``monarch metrics``.

The metrics of a running program for Prometheus, once, or served for it to scrape.

The server is this command, a process of its own: nothing in the program listens, or does anything
between two scrapes.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

import typer

from .._listening import SharedListener
from .._ours import HERE, NEW, opened, resolved
from .._words import tame
from ..programs import Connection
from ..telemetry.answer import Collected
from ..telemetry.gather import of_program, question
from ..telemetry.prometheus import CONTENT_TYPE, SCRAPED, exposition, samples
from .found import OPTION, PROGRAM, reach

app = typer.Typer()

_PATIENCE = 20.0  # seconds for an answer; hosts that are late are named before
_MOST = 64  # connections at a time
_MOST_ROWS = 100_000  # of each table
_LOCAL = ("127.0.0.1", "localhost")
_SCRAPE = """scrape_configs:
- job_name: monarch
  authorization: {{credentials_file: {token}}}
  static_configs: [{{targets: ['127.0.0.1:{port}']}}]"""


@app.command(epilog="Example: monarch metrics --serve 9464")
def metrics(
    serve: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve /metrics on 127.0.0.1 until the program ends; 0: any port.",
        ),
    ] = None,
    token: Annotated[
        Path,
        typer.Option(
            "--token-file",
            help="Who scrapes must send what is in this file; it is made if it is missing.",
        ),
    ] = Path(HERE, "metrics.token"),
    program: PROGRAM = None,
    option: OPTION = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the samples as JSON; with --serve, where they are served."
        ),
    ] = False,
) -> None:
    """Print the metrics of all processes of a running program.

    They are in the text format of Prometheus.
    """
    with reach(program, option) as connection:
        if serve is None:
            found = _asked(connection)
            text = json.dumps(samples(found), indent=2) + "\n" if as_json else exposition(found)
            print(tame(text, False), end="")
            return
        with _Server(connection, serve, _token(token)) as server:
            port, file = server.server_address[1], str(token.absolute())
            told = {"url": f"http://127.0.0.1:{port}/metrics", "token_file": file}
            print(
                json.dumps(told) if as_json else _SCRAPE.format(token=file, port=port), flush=True
            )
            threading.Thread(
                target=server.serve_forever, name="monarch-metrics", daemon=True
            ).start()
            connection.wait()
            server.shutdown()


def _asked(connection: Connection) -> Collected:
    return of_program(connection, question(SCRAPED, limit=_MOST_ROWS)).get(timeout=_PATIENCE)


def _token(path: Path) -> str:
    above, name = os.path.split(resolved(path))
    with opened(above, make=True) as folder:
        with suppress(FileExistsError), open(folder.open(name, NEW), "w") as file:
            file.write(secrets.token_urlsafe(32))
        found = folder.read(name).decode().strip()
    if not found:
        raise ValueError(f"{path} is empty: remove it, and it is made anew")
    return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, connection: Connection, port: int, token: str) -> None:
        self.connection = connection
        self.token = token.encode()
        self.one_at_a_time = threading.Lock()
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise ValueError(f"port {port} can't be listened at: {error.strerror}") from None
        self.socket = SharedListener(self.socket.detach(), _MOST)

    def handle_error(self, request: object, client_address: object) -> None:
        """Do not report requesters that left before their answer."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    """Takes GET /metrics with the token, and nothing else.

    Its base class refuses all other methods.
    """

    server: _Server
    timeout = 10  # seconds without a byte

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        # a page in a browser that has made up a name
        if self.headers.get("Host", "").rpartition(":")[0] not in _LOCAL:
            self._answer(403, "this is served for 127.0.0.1 alone\n")
        elif not hmac.compare_digest(given, self.server.token):
            self._answer(401, "send the token of `monarch metrics`: Authorization: Bearer ...\n")
        elif self.path != "/metrics":
            self._answer(404, "there is /metrics\n")
        else:
            try:
                with self.server.one_at_a_time:
                    text = exposition(_asked(self.server.connection))
            except Exception as error:
                self._answer(503, f"{error}\n")
            else:
                self._answer(200, text)

    def _answer(self, status: int, text: str) -> None:
        body = text.encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    # its base class calls it that
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Does not log requests: scrapes are frequent."""
