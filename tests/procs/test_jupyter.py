"""A notebook, by a real kernel: what it shows of Monarch's objects, ``%monarch``, the map of ranks,
and an edited class.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

for _name in ("nbformat", "nbclient", "ipykernel", "anywidget"):
    pytest.importorskip(_name, reason=f"runs a notebook; {_name} is not installed")

RUN = """
import json, sys
import nbclient, nbformat

notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)])
nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3", allow_errors=True).execute()
json.dump(notebook, sys.stdout)
"""

CELLS = {
    "begin": (
        """
%load_ext monarch
import time
import monarch
from monarch.actor import Actor, endpoint, this_host
monarch.configure(enable_file_capture=True)
"""
    ),
    "mesh": (
        """
class Counter(Actor):
    def __init__(self):
        self.count = 0
    @endpoint
    def add(self, by: int):
        "Count on."
        self.count += by
        print("counted", by)
        return self.count
    @endpoint
    def fail(self):
        raise ValueError("<i>no</i>")
    @endpoint
    def wait(self, release):
        while not release.exists():
            time.sleep(0.01)
procs = this_host().spawn_procs({"gpus": 4}, name="counters")
counter = procs.spawn("counter", Counter)
counter
"""
    ),
    "call": "counter.add.call(2).get()",
    "error": (
        """
try:
    counter.fail.call().get()
except Exception as error:
    caught = error
caught
"""
    ),
    "logs": "%monarch logs counters --grep counted",
    "no logs": "%monarch logs counters --grep nothing",
    "sql": (
        "%%monarch sql found\nSELECT name, rank FROM actors WHERE name = 'counter' ORDER BY rank"
    ),
    "rows": "found",
    "line": "%monarch sql SELECT 6 * 7 AS answer",
    "refused": "%monarch sql DROP TABLE actors",
    "unknown": "%monarch wait",
    "hang": (
        """
from pathlib import Path
release = Path("release")
waiting = counter.slice(gpus=2).wait.call_one(release)
verdict = %monarch why --seconds 0.2
verdict
"""
    ),
    "stacks": "%monarch stacks counters --rank 2",
    "ranks": (
        """
ranks = %monarch ranks
while not ranks.meshes and not ranks.error:
    time.sleep(0.05)
release.touch()
waiting.get()
again = %monarch ranks
assert again is ranks
ranks
"""
    ),
    "state": (
        """
import json
print(json.dumps({"error": ranks.error, "sentence": ranks.sentence, "states": ranks.states, "meshes": ranks.meshes}))
ranks.close()
anew = %monarch ranks
assert anew is not ranks
anew.close()
"""
    ),
    "edited": (
        """
class Counter(Actor):
    @endpoint
    def add(self, by: int):
        self.count += 100 * by
        return self.count
await counter.update_class(Counter)
print(await counter.add.call(1))
"""
    ),
    "end": "await procs.stop()",
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The outputs of each cell."""
    folder = tmp_path_factory.mktemp("notebook")
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=folder,
        input=json.dumps(list(CELLS.values())),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    return {name: cell["outputs"] for name, cell in zip(CELLS, cells, strict=True)}


pytestmark = pytest.mark.timeout(320)


def html(outputs: list[Any]) -> str:
    (found,) = [each["data"] for each in outputs if each["output_type"] == "execute_result"]
    return str(found["text/html"])


def printed(outputs: list[Any]) -> str:
    return re.sub(
        r"\x1b\[[0-9;]*m",
        "",
        "".join(each["text"] for each in outputs if each["output_type"] == "stream"),
    )


def test_a_mesh_of_actors_shows_its_endpoints(shown: dict[str, list[Any]]) -> None:
    table = html(shown["mesh"])
    assert "add(by: &#x27;int&#x27;)" in table or "add(by: int)" in table
    assert "Count on." in table and "fail()" in table


def test_answers_and_errors_of_ranks_are_tables(shown: dict[str, list[Any]]) -> None:
    assert html(shown["call"]).count("<td>2</td>") >= 4
    assert "ValueError: &lt;i&gt;no&lt;/i&gt;" in html(shown["error"])


def test_logs_are_shown_and_what_many_ranks_say_once(shown: dict[str, list[Any]]) -> None:
    text = printed(shown["logs"])
    assert text.count("counted 2") <= 2, "that of the first rank, and that of the others"
    assert "counters" in text and "None of 4 lines matches." in printed(shown["no logs"])


def test_rows_of_a_query_are_kept_by_name_and_shown(shown: dict[str, list[Any]]) -> None:
    assert shown["sql"] == []
    # of a DataFrame, too, where pandas is installed
    cells = re.findall("<td[^>]*>([^<]*)</td>", html(shown["rows"]))
    assert cells == ["counter", "0", "counter", "1", "counter", "2", "counter", "3"]
    assert "42" in html(shown["line"])


def test_what_is_wrong_with_a_magic_is_one_line(shown: dict[str, list[Any]]) -> None:
    for name, why in [("refused", "monarch sql: "), ("unknown", "invalid choice: 'wait'")]:
        (line,) = printed(shown[name]).strip().splitlines()
        assert line.startswith("UsageError: ") and why in line


def test_a_rank_that_waits_is_found_with_its_stack(shown: dict[str, list[Any]]) -> None:
    assert "1 rank [2]" in html(shown["hang"])
    assert "wait" in html(shown["stacks"]) and "counters (4 ranks)" in html(shown["stacks"])


def test_the_map_has_a_letter_for_the_state_of_each_rank(shown: dict[str, list[Any]]) -> None:
    (view,) = [each["data"] for each in shown["ranks"] if each["output_type"] == "execute_result"]
    assert "application/vnd.jupyter.widget-view+json" in view
    state = json.loads(printed(shown["state"]))
    assert state["error"] == ""
    (mesh,) = [each for each in state["meshes"] if each["name"] == "counters"]
    assert mesh["shape"] == {"gpus": 4} and len(mesh["ranks"]) == 4
    assert state["states"][ord(mesh["ranks"][0]) - ord("a")] == "idle"


def test_an_edited_class_is_taken_and_the_count_goes_on(shown: dict[str, list[Any]]) -> None:
    assert printed(shown["edited"]).count("102") == 4
