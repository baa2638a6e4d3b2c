"""The walk of docs/hangs.md by commands and in the terminal: from a program that is unwell to its
cause, and on.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import cast

import pytest
from benchmarks.demo.answers import Processes
from benchmarks.demo.hub import SimulatedHub
from benchmarks.demo.logs import of_host
from benchmarks.demo.world import DemoWorld

from helpers.commands import prompt
from helpers.dashboards import LARGE, Seen, watching
from helpers.demo import demo
from helpers.screens import at_terminal
from helpers.terminals import running
from helpers.waiting import wait_until
from helpers.walks import COMMANDS, KEYS, MOST_ACTIONS, STATUS, WALKS
from monarch._core.plane import Hub
from monarch.programs import Connection, Program
from monarch.telemetry.run_file import snapshot_source, write_run
from monarch.tui.http import open_access
from monarch.why.run import judged

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")
pytest.importorskip("textual")

pytestmark = pytest.mark.timeout(300)


class Reached(Connection):
    """A connection to the simulated program, which several commands use."""

    def close(self) -> None:
        pass


def reached(fault: str, folder: Path) -> Reached:
    """The simulated program, with what its ranks have printed in the files of its job."""
    began = time.time()
    world = DemoWorld(24, fault, began)
    for host in world.hosts:
        for line in of_host(world, host, 0.0, began):
            log = folder / ".monarch" / "logs" / "demo" / host.hostname
            log.mkdir(parents=True, mode=0o700, exist_ok=True)
            with open(log / f"{line.mesh}_{line.rank}.jsonl", "a") as file:
                file.write(f"{line.to_json()}\n")
    processes = Processes(world, lambda: began + 10 * (time.time() - began))
    hub = cast(Hub, SimulatedHub(world.client, processes.answer))
    program = Program(os.getpid(), "demo", began, False, "head")
    return Reached(hub, program, world.describe(world.hosts[0], began, False))


@pytest.mark.parametrize("fault", WALKS)
def test_commands_tell_the_cause_in_one_action_and_what_led_to_it_in_three(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 + len(COMMANDS[fault]) <= MOST_ACTIONS
    monkeypatch.chdir(tmp_path)
    source = reached(fault, tmp_path)
    monkeypatch.setattr("monarch.why.gather._LIMIT", 0.1)
    for module in ("found", "programs"):
        monkeypatch.setattr(f"monarch.tools.{module}.find", lambda: [source.program])
    for module in ("found", "programs", "why"):
        monkeypatch.setattr(f"monarch.tools.{module}.connect", lambda _: source)
    monarch = prompt(monkeypatch, capsys)
    said = monarch("why", "--seconds", "0.1")
    assert said.exit_code == STATUS[WALKS[fault][0]]
    first = said.out.splitlines()[0]
    assert all(text in first for text in WALKS[fault]), first
    for command, texts in COMMANDS[fault]:
        said = monarch(*command.split())
        assert said.exit_code == 0 and all(text in said.out for text in texts), said
    if fault == "missing-collective":
        file = tmp_path / "run.duckdb"  # what is left of it after its end says the same
        write_run(file, snapshot_source(source), {**judged(source, 0.1), "reason": "a test"}, 30.0)
        assert all(text in monarch("why", str(file)).out for text in WALKS[fault])


PENDING = """
    import select, sys
    from monarch.actor import this_host
    from monarch.job import ProcessJob
    from monarch.job.base.waiting import Waiting

    class Queue(ProcessJob):  # of a scheduler without room
        def _addresses(self):
            with Waiting("Queue job 9") as waiting:
                while not select.select([sys.stdin], [], [], 0.1)[0]:
                    waiting.show("PENDING (Resources)")
            sys.exit()  # it was typed

    if __name__ == "__main__":
        evaluators = this_host().spawn_procs(name="evaluators")
        evaluators.initialized.get()
        print("waits", flush=True)
        Queue({"trainers": 2}).state(cached_path=None)
    """


@pytest.mark.processes("a program that waits for its hosts")
def test_a_program_says_what_its_job_waits_for_and_for_how_long(tmp_path: Path) -> None:
    with running(PENDING, tmp_path) as program:
        program.wait_for("waits")

        def told() -> str:
            said = program.monarch("why", str(program.pid))
            assert said.returncode == 0, said.stderr
            return said.stdout if "Queue job 9" in said.stdout else ""

        first = wait_until(told, what="what it waits for").splitlines()[0]
        assert re.fullmatch(
            r"Fine: nothing runs: 1 rank waits for a message; the client is in _addresses"
            r" \(\w+\.py:\d+\)( for \d+ s)?: waits for Queue job 9: PENDING \(Resources\)\.",
            first,
        ), first


@pytest.mark.processes("a pseudo-terminal")
@pytest.mark.parametrize("fault", WALKS)
def test_a_terminal_tells_the_cause_in_one_action_and_what_led_to_it_in_three(fault: str) -> None:
    assert 1 + len(KEYS[fault]) <= MOST_ACTIONS
    command = [sys.executable, "-m", "monarch.tools", "tui"]
    with demo(24, fault) as program:
        address = {"MONARCH_ADMIN_ADDR": program.url, "MONARCH_ADMIN_TOKEN": program.token}
        with at_terminal(command, address) as terminal:
            modes = terminal.modes
            terminal.wait_for(*WALKS[fault])
            assert terminal.modes != modes
            for key, texts in KEYS[fault]:
                terminal.type(key)
                terminal.wait_for(*texts)
            terminal.type("q")
            wait_until(lambda: (terminal.text, terminal.process.poll())[1] is not None, what="q")
            assert terminal.process.returncode == 0, terminal.text
            assert terminal.modes == modes


@pytest.mark.processes("the demo")
def test_a_rank_and_the_client_have_one_name_on_each_screen() -> None:
    screens: dict[str, str] = {}

    async def typed(seen: Seen) -> None:
        for key, text in (
            ("1", "trainers[10]"),
            ("2", "trainers[10]"),
            ("3", "trainers[10]"),
            ("4", "trainers[10]"),
            ("5", "trainers["),
            ("7", "trainers[1] on h1 (9 procs)"),
        ):
            await seen.press(key)
            screens[key] = (
                await seen.until(text, "client") if key != "5" else await seen.until(text)
            )
        await seen.find("client")
        await seen.until("mesh_rank: client", "process_rss_bytes: 536.9 MB")
        await seen.find("metrics[0]")
        screens["7"] = await seen.until("mesh_rank: metrics[0]")
        await seen.press("2")
        await seen.find("client")
        await seen.press("enter")
        await seen.until("> main  run/main.py:31")

    with demo(24, "missing-collective") as program:
        watching(open_access(program.url, program.token), typed, size=LARGE)
    program_line = r"\d+ · head · 6\d min · benchmarks\.demo --fault missing-collective"
    for screen in screens.values():
        assert re.search(program_line, screen), screen
        assert not re.search(r"client\[|trainers[ :_.-]?\d|rank \d", screen), screen
