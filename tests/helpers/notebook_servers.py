"""Servers of notebooks, as people start them, each with settings and a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from helpers.scripts import package_path
from helpers.waiting import wait_until
from helpers.workers import free_ports

PATIENCE = 60.0  # seconds

_TOKEN = "a-token-of-this-test"
_QUIET = {  # asks its makers' server for news, and says that it can't
    "disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}
}


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """JupyterLab over the notebooks of a folder; the URL of one, alone on its page, to be filled in."""
    settings = {
        name: str(folder / name.lower())
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    }
    page = Path(settings["JUPYTER_CONFIG_DIR"], "labconfig", "page_config.json")
    page.parent.mkdir(parents=True)
    page.write_text(json.dumps(_QUIET))
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={free_ports(1)[0]}", f"--IdentityProvider.token={_TOKEN}", f"--ServerApp.root_dir={folder}",
        "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    runtime = Path(settings["JUPYTER_RUNTIME_DIR"])
    with _server(command, folder, settings) as process:

        def told() -> dict[str, str] | None:
            assert process.poll() is None, (folder / "server.log").read_text()
            found = next(runtime.glob("jpserver-*.json"), None)
            return json.loads(found.read_text() or "null") if found else None

        found = wait_until(told, what="JupyterLab listens", timeout=PATIENCE) or {}
        yield f"{found['url']}doc/tree/{{}}?token={_TOKEN}"


@contextmanager
def marimo(notebook: Path) -> Iterator[str]:
    """Marimo with one notebook; its URL."""
    port = free_ports(1)[0]
    command = [
        sys.executable, "-m", "marimo", "--yes", "edit", str(notebook), "--headless", "--host", "127.0.0.1", "--port", str(port),
        "--token-password", _TOKEN, "--skip-update-check",
    ]  # fmt: skip
    with _server(command, notebook.parent, {"HOME": str(notebook.parent)}) as process:

        def listens() -> bool:
            assert process.poll() is None, (notebook.parent / "server.log").read_text()
            with socket.socket() as tried:
                return tried.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens, what="marimo listens", timeout=PATIENCE)
        yield f"http://127.0.0.1:{port}/?access_token={_TOKEN}"


@contextmanager
def _server(
    command: Sequence[str], folder: Path, settings: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, **settings, "PYTHONPATH": package_path()}
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
