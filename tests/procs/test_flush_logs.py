"""What was printed is seen: when it is asked for, at a stop, at the end of a cell, at the end of a
program.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.scripts import run_script
from helpers.waiting import PATIENCE
from monarch.actor import Actor, Port, ProcMesh, endpoint
from monarch.logs import flush_logs

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("output is read from pipes")

ROUNDS = 20


class Writes(Actor):
    """Past Python's own streams: the answer does not say that something was printed."""

    @endpoint
    def write(self, text: str) -> None:
        os.write(1, text.encode() + b"\n")

    @endpoint
    def be_busy(self, started: Port[None], text: str) -> None:
        started.send(None)
        print(text)

    @endpoint
    def flush(self) -> None:
        flush_logs().get()

    def __cleanup__(self, error: Exception | None) -> None:
        os.write(1, b"the last words\n")


def check_shown_when_asked_for(procs: ProcMesh, capsys: pytest.CaptureFixture[str]) -> None:
    writes = procs.spawn("writes", Writes)
    for number in range(ROUNDS):
        writes.write.call(f"line {number}").get(timeout=PATIENCE)
        (procs.flush_logs if number % 2 else flush_logs)().get(timeout=PATIENCE)
        assert capsys.readouterr().out.count(f"line {number}\n") == procs.size()


def test_all_that_was_written_is_shown_when_asked_for(
    spawn: Spawn, capsys: pytest.CaptureFixture[str]
) -> None:
    check_shown_when_asked_for(spawn(2), capsys)


def test_lines_of_other_hosts_are_shown_when_asked_for(
    spawn_far: Spawn, capsys: pytest.CaptureFixture[str]
) -> None:
    check_shown_when_asked_for(spawn_far(1), capsys)


def test_lines_that_are_collected_are_shown_when_asked_for(
    spawn: Spawn, capsys: pytest.CaptureFixture[str]
) -> None:
    procs = spawn(2)
    procs.logging_option(aggregate_window_sec=3600).get(timeout=PATIENCE)
    writes = procs.spawn("writes", Writes)
    writes.write.call("the same").get(timeout=PATIENCE)
    writes.write.call("the same").get(timeout=PATIENCE)
    procs.flush_logs().get(timeout=PATIENCE)
    assert capsys.readouterr().out.count("the same") == 2, "the first at once, the others as one"


def test_an_actor_cannot_ask_for_what_the_client_shows(spawn: Spawn) -> None:
    writes = spawn().spawn("writes", Writes)
    with pytest.raises(RuntimeError, match="for the client"):
        writes.flush.call_one().get(timeout=PATIENCE)


def test_who_has_stopped_a_mesh_has_seen_all_that_it_printed(
    spawn: Spawn, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(5):
        procs = spawn(2)
        procs.spawn("writes", Writes).write.call("a line").get(timeout=PATIENCE)
        procs.stop().get(timeout=PATIENCE)
        shown = capsys.readouterr().out
        assert shown.count("a line\n") == 2
        assert shown.count("the last words\n") == 2


def test_lines_are_in_the_files_when_asked_for(tmp_path: Path) -> None:
    result = run_script(
        """
        import os, pathlib
        from monarch.actor import Actor, endpoint, this_host
        from monarch.logs import flush_logs

        class Writes(Actor):
            @endpoint
            def write(self, text):
                os.write(1, text.encode() + b"\\n")

        writes = this_host().spawn_procs(name="gpus").spawn("writes", Writes)
        for number in range(20):
            writes.write.call_one(f"line {number}").get()
            flush_logs().get()
            (file,) = pathlib.Path(".monarch/logs").glob("*/*/gpus_0.log")
            assert file.read_text().endswith(f"line {number}\\n")
        """,
        env={"HYPERACTOR_MESH_ENABLE_FILE_CAPTURE": "1"},
        cwd=tmp_path,
    )
    assert result.exit_code == 0, str(result)


def test_lines_are_shown_at_the_end_of_the_cell_that_has_printed_them() -> None:
    result = run_script("""
        import os, sys, types
        hooks = []
        events = types.SimpleNamespace(register=lambda name, hook: hooks.append((name, hook)))
        shell = types.SimpleNamespace(events=events, execution_count=1)
        sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)

        from monarch.actor import Actor, endpoint, this_host

        class Writes(Actor):
            @endpoint
            def write(self, text):
                os.write(1, text.encode() + b"\\n")

        procs = this_host().spawn_procs()
        procs.logging_option(aggregate_window_sec=3600).get()
        writes = procs.spawn("writes", Writes)
        for cell in range(5):
            writes.write.call_one("the same").get()
            ((name, hook),) = hooks
            hook(object())
            print(f"end of {name} {cell}", flush=True)
        """)
    assert result.stdout == "".join(
        f"the same\nend of post_run_cell {cell}\n" for cell in range(5)
    ), str(result)


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), signal.SIGTERM)", "raise ValueError('unhandled')"]
)
def test_nothing_is_lost_when_a_program_ends_badly(end: str) -> None:
    result = run_script(f"""
        import os, signal, sys
        from monarch.actor import Actor, endpoint, this_host

        class Writes(Actor):
            @endpoint
            def write(self):
                for number in range(5000):
                    print("line", number)
                sys.stdout.flush()
                {end}

        this_host().spawn_procs().spawn("writes", Writes).write.broadcast()
        import time
        time.sleep(60)
        """)
    lines = [line for line in result.stdout.splitlines() if line.startswith("line")]
    assert lines == [f"line {number}" for number in range(5000)], str(result)[-2000:]
    assert result.exit_code == 1, str(result)[-2000:]
