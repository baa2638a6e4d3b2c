"""In a notebook, the output of ranks stands in the cell whose call has caused it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.scripts import TESTS

for _name in ("nbformat", "nbclient", "ipykernel"):
    pytest.importorskip(_name, reason=f"runs a notebook; {_name} is not installed")

RUN = """
import json, sys
import nbclient, nbformat

notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)])
nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
json.dump([[(each.name, each.text) for each in cell.outputs] for cell in notebook.cells], sys.stdout)
"""

SETTINGS = f"""
import sys
sys.path.append({TESTS!r})
from monarch.actor import this_host
from helpers.printing import Prints

procs = this_host().spawn_procs({{"gpus": 2}}, name="trainers")
prints = procs.spawn("prints", Prints)
prints.say.call("with the first cell").get();
"""


def run_cells(folder: Path, *sources: str) -> list[dict[str, str]]:
    """What each cell shows, by the name of the stream, without its colours."""
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=folder,
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    shown: list[dict[str, str]] = []
    for outputs in json.loads(done.stdout):
        streams: dict[str, str] = {}
        for name, text in outputs:
            streams[name] = streams.get(name, "") + re.sub(r"\x1b\[[0-9;]*m", "", text)
        shown.append(streams)
    return shown


@pytest.mark.timeout(110)
def test_output_of_ranks_stands_in_the_cell_that_has_caused_it(tmp_path: Path) -> None:
    first, second, third, fourth, fifth, sixth = run_cells(
        tmp_path,
        SETTINGS,
        "await prints.say.call('with await')\nprint('the last line of the cell')",
        "prints.complain.call('as an error').get();",
        "await procs.logging_option(ranks=1)\nprints.say.call('of one rank').get();",
        "await procs.logging_option(aggregate_window_sec=1000)\nprints.say.call('once"
        " each').get();",
        "procs.stop().get();",
    )
    assert sorted(first["stdout"].splitlines()) == [
        f"[trainers {rank}] with the first cell" for rank in (0, 1)
    ]
    *lines, last = second["stdout"].splitlines()
    assert sorted(lines) == [f"[trainers {rank}] with await" for rank in (0, 1)]
    assert last == "the last line of the cell"
    assert re.fullmatch(r"(\[trainers \d\] as an error\n){2}", third["stderr"])
    assert fourth == {"stdout": "[trainers 1] of one rank\n"}
    assert re.fullmatch(r"(\[trainers \d\] once each\n){2}", fifth["stdout"]), (
        "what the window holds, too"
    )
    assert sixth == {}
