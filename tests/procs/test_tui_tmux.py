"""The dashboard in a real terminal: tmux, 80 columns, no colours; and its report of a healthy
program.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.scripts import package_path
from helpers.terminals import RunningProgram, running

pytest.importorskip("textual")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

PATIENCE = 90.0  # seconds
pytestmark = pytest.mark.timeout(180)  # each wait has 60 s

PROGRAM = r"""
    import sys
    from monarch.actor import Actor, endpoint, this_host

    class Trainer(Actor):
        @endpoint
        def step(self):
            return 1

    if __name__ == "__main__":
        trainers = this_host().spawn_procs({"gpus": 3}, name="\x1b]0;owned\x07tmuxtrainers").spawn("trainer", Trainer)
        trainers.step.call().get()
        print("go", flush=True)
        sys.stdin.read()
    """


Reported = tuple[RunningProgram, "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reported]:
    """A program, and the report on it; from then on its processes have connections to each
    other.
    """
    with running(PROGRAM, tmp_path_factory.mktemp("tmux")) as found:
        found.wait_for("go")
        yield found, found.monarch("tui", "--diagnose", "--program", str(found.pid))


class Terminal:
    """A tmux of its own, with one window of 80 columns and 24 lines."""

    def __init__(self, folder: Path) -> None:
        self._tmux = ["tmux", "-S", str(folder / "s"), "-f", os.devnull]

    def start(self, command: str) -> None:
        subprocess.run(
            [*self._tmux, "new-session", "-d", "-x", "80", "-y", "24", command], check=True
        )

    def press(self, key: str) -> None:
        subprocess.run([*self._tmux, "send-keys", key], check=True)

    def screen(self, *how: str) -> str:
        return subprocess.run(
            [*self._tmux, "capture-pane", "-p", *how], capture_output=True, text=True
        ).stdout

    def title(self) -> str:
        got = subprocess.run(
            [*self._tmux, "display-message", "-p", "#{pane_title}"], capture_output=True, text=True
        )
        return got.stdout

    def until(self, *texts: str) -> str:
        end = time.monotonic() + PATIENCE
        while not all(text in (shown := self.screen()) for text in texts):
            assert time.monotonic() < end, f"{texts} never came:\n{shown}"
            time.sleep(0.05)
        return shown

    def runs(self) -> bool:
        return subprocess.run([*self._tmux, "has-session"], capture_output=True).returncode == 0

    def end(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_in_tmux_without_colours_a_program_is_found_watched_and_left(
    reported: Reported, tmp_path: Path
) -> None:
    program, _ = reported
    terminal = Terminal(tmp_path)
    command = shlex.join(
        [sys.executable, "-m", "monarch.tools", "tui", "--program", str(program.pid)]
    )
    try:
        terminal.start(f"env NO_COLOR=1 PYTHONPATH={shlex.quote(package_path())} {command} 2>&1")
        shown = terminal.until("Fine:", "tmuxtrainers  3 ranks", "0 ···", "live")
        assert len(shown.splitlines()) <= 24
        # a name of the program: shown, not obeyed
        assert r"\x1b]0;owned\x07" in shown and "owned" not in terminal.title()
        styled = terminal.screen("-e")
        numbers = {
            number
            for codes in re.findall(r"\x1b\[([0-9;]*)m", styled)
            for number in codes.split(";")
            if number
        }
        # bold, faint, underlined, reverse
        assert numbers & {"1", "7"} and numbers <= {"0", "1", "2", "4", "7", "39", "49"}, numbers
        terminal.press("2")
        terminal.until(r"owned\x07tmux…", "state▼")
        terminal.press("?")
        terminal.until("All ranks of all meshes", "Esc closes")
        terminal.press("Escape")
        terminal.until(r"owned\x07tmux…", "state▼")  # before that, Escape and q would be one key
        terminal.press("q")
        end = time.monotonic() + PATIENCE
        while terminal.runs():
            assert time.monotonic() < end, terminal.screen()
            time.sleep(0.05)
    finally:
        terminal.end()


def test_a_report_of_a_healthy_program_needs_no_terminal(reported: Reported) -> None:
    program, got = reported
    assert got.returncode == 0, got.stdout + got.stderr
    found = json.loads(got.stdout)
    assert (
        found["healthy"] is True
        and found["verdict"]["status"] == "fine"
        and found["nodes_left_out"] == 0
    )
    assert {check["status"] for check in found["checks"]} <= {"pass", "slow"}
    without = program.monarch("tui", "--program", str(program.pid))
    assert without.returncode == 1 and "needs a terminal" in without.stderr
