"""Runs a case, and says what was wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from endings.cases import Case
from endings.sandbox import Sandbox
from helpers.scripts import GONE_WITHIN, SLACK, TAG, package_path, wait_tag_gone
from helpers.waiting import is_alive
from helpers.workers import children_of

PROGRAM = Path(__file__).with_name("program.py")
ENDS_WITHIN = 60.0  # seconds
NOISE = (
    "Unhandled monarch error",
    "internal error",
    "Exception ignored",
    "Exception in thread",
    "monarch.errors.SupervisionError",
    "resource_tracker",
    "monarch:",
)


def violations(case: Case) -> list[str]:
    """Run the program of a case; return what was wrong."""
    tag = uuid.uuid4().hex
    environment = {**os.environ, TAG: tag, "PYTHONPATH": package_path()}
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "stderr").open("w+b") as stderr:
        sandbox = Sandbox(Path(folder))
        found = _run(case, sandbox, environment, stderr)
        left = wait_tag_gone(tag, GONE_WITHIN + SLACK)
        left += sandbox.left()
        if left:
            found.append(f"left behind: {left}")
        stderr.seek(0)
        text = stderr.read().decode(errors="replace")
        if _is_noisy(case, text):
            found.append(f"stderr:\n{text}")
    return found


def _run(case: Case, sandbox: Sandbox, environment: Mapping[str, str], stderr: object) -> list[str]:
    arguments = [str(PROGRAM), case.name, str(case.moment), str(case.threads)]
    started = time.monotonic()
    program = sandbox.start(
        arguments,
        environment,
        stdin=subprocess.DEVNULL,
        stdout=stderr,
        stderr=stderr,
        start_new_session=True,
    )
    try:
        if case.way.signals:
            time.sleep(max(0.0, started + case.moment - time.monotonic()))
            _signal(case, program.pid)
        status = program.wait(ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
        return ["it did not end"]
    return [] if status in case.way.statuses else [f"status {status}, not {case.way.statuses}"]


def _signal(case: Case, client: int) -> None:
    agents = [child for child in children_of(client) if _title(child).startswith("monarch agent")]
    spawners = [child for agent in agents for child in children_of(agent)]
    pids = {"client": [client], "agent": agents, "spawner": spawners}
    late = False
    for who, number in case.way.signals:
        for pid in pids[who]:
            late |= number == signal.SIGSTOP and not is_alive(client)
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, number)
    if late:
        # the kernel has told of the client's end already, and where agent and spawner both are
        # stopped there is no other process that could act
        for pid in agents:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _title(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def _is_noisy(case: Case, text: str) -> bool:
    allowed = case.way.text
    if allowed == "":
        return bool(text)
    own = (
        text.replace("Exception in thread Thread", "") if case.name == "raise in a thread" else text
    )
    if any(noise in own for noise in NOISE):
        return True
    return allowed is not None and text.rstrip().splitlines()[-1:] != [allowed]
