"""The machine, described so that numbers can be compared, and without a name in it: no host, user
or path.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import socket
from pathlib import Path


def describe() -> dict[str, float | str]:
    """CPU model, usable cores, memory, kernel, Python, and the load before the run (the noise to
    expect).
    """
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(
            int((_field("/proc/meminfo", "MemTotal") or "0").split()[0]) / 2**20, 1
        ),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def scrub(text: str) -> str:
    """`text` without absolute paths (their last part stays), this host's name and the user's
    name.
    """
    text = re.sub(r"(?<![\w.:/])/(?:[^\s/'\":,()]+/)+", "", text)
    for name in (socket.gethostname(), _user()):
        if len(name) > 1:
            text = re.sub(rf"\b{re.escape(name)}\b", "...", text)
    return text


def _field(path: str, key: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    values = [
        value for name, _, value in (line.partition(":") for line in lines) if name.strip() == key
    ]
    return values[0].strip() if values else None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
