"""A real pseudo-terminal for programs: what a person would see of them."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import tempfile
import termios
import uuid
from collections.abc import Mapping
from pathlib import Path

from helpers.scripts import GONE_WITHIN, SLACK, TAG, package_path, program, wait_tag_gone

SIZE = 50, 120
"""Lines and columns."""


def run_on_terminal(
    source: str, *, env: Mapping[str, str] | None = None, timeout: float = 80.0
) -> str:
    """Runs a script, which may import the helpers, on a terminal of its own, to its good end; what
    it has written there.

    Args:
        env: changes to the environment; none of those that say something on colours are inherited.
        timeout: seconds until it counts as hung.
    """
    tag = uuid.uuid4().hex
    quiet = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    environment = {
        **quiet,
        TAG: tag,
        "PYTHONPATH": package_path(),
        "TERM": "xterm-256color",
        **(env or {}),
    }
    screen, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", *SIZE, 0, 0))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(program(source))
        process = subprocess.Popen(
            [sys.executable, str(script)],
            cwd=folder,
            env=environment,
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
        )
        os.close(end)
        seen = bytearray()
        try:
            while True:
                try:
                    data = os.read(screen, 65536)
                except OSError:  # nobody has the other end any more
                    break
                if not data:
                    break
                seen += data
            status = process.wait(timeout)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            os.close(screen)
        text = seen.decode(errors="replace").replace("\r\n", "\n")
        left = wait_tag_gone(tag, GONE_WITHIN + SLACK)
    assert status == 0, text
    assert left == [], text
    return text
