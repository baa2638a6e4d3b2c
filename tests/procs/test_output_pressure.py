"""A proc that prints more than is shown, or than a disk takes: it waits, or is thinned, and nobody
else is slowed down.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.printing import Prints, Stuck
from helpers.scripts import program, run_script
from helpers.waiting import PATIENCE, wait_until
from monarch._core.client.client import client

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("output is read from pipes")

LINE = "x" * 1000


def numbers(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"line (\d+)", text)]


def test_a_proc_that_prints_more_than_is_shown_waits_and_calls_of_others_go_on(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    # beyond it lines would be left out
    monkeypatch.setattr("monarch._core.processes.output._LIMIT", 3 << 20)
    prints, other = spawn().spawn("prints", Prints), spawn().spawn("other", Prints)
    stuck = Stuck()
    monkeypatch.setattr(sys, "stdout", stuck)
    try:
        printing = prints.say_lines.call_one(6000, LINE)
        wait_until(
            lambda: client().printer._waiting >= 1 << 20, what="more to be printed than is shown"
        )
        for _ in range(200):
            other.say_quietly.call_one("nobody sees this").get(timeout=PATIENCE)
        assert not printing.done()
        assert client().printer._waiting < 3 << 20
    finally:
        stuck.reads.set()
    printing.get(timeout=PATIENCE)
    lines = [line for line in stuck.getvalue().splitlines() if LINE in line]
    assert numbers("\n".join(lines)) == list(range(6000)), (
        "all of them, in order, before the answer"
    )


def test_what_is_left_out_of_the_stream_is_counted_and_is_in_the_files(tmp_path: Path) -> None:
    source = program("""
        import re, sys
        from helpers.printing import Prints, Stuck
        from monarch.actor import this_host

        prints = this_host().spawn_procs(name="gpus").spawn("prints", Prints)
        stdout, stuck, stderr = sys.stdout, Stuck(), Stuck()
        sys.stdout, sys.stderr = stuck, stderr
        stderr.reads.set()
        prints.say_lines.call_one(6000, "x" * 1000).get()  # it does not wait for a reader that stands still
        stuck.reads.set()
        while "were left out" not in stderr.getvalue():
            prints.say.call_one("more").get()
        shown = len(re.findall("<rank", stuck.getvalue()))
        print(shown, stderr.getvalue(), file=stdout)
        """)
    result = run_script(source, env={"HYPERACTOR_MESH_ENABLE_FILE_CAPTURE": "1"}, cwd=tmp_path)
    said = re.fullmatch(
        r"(\d+) monarch: ([\d,]+) lines were left out here; they are in (.*/gpus_0\.log)\n\n",
        result.stdout,
    )
    assert said is not None, str(result)
    shown, left_out, path = int(said[1]), int(said[2].replace(",", "")), said[3]
    assert shown < 3000
    kept = [line for line in Path(path).read_text().splitlines() if "<rank" in line]
    assert numbers("\n".join(kept)) == list(range(6000)), "nothing is missing there"
    assert (
        6000 - shown <= left_out <= 6000 - shown + len(re.findall("more", Path(path).read_text()))
    )
