"""A notebook in marimo, in a real browser: rich objects, and a live map of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.notebook_servers import marimo

pytest.importorskip("marimo", reason="marimo is not installed: pip install marimo")
pytest.importorskip("anywidget")

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.may_keep("threads", "descriptors"),  # of its server
]

NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import time
    from pathlib import Path
    from monarch.actor import Actor, current_rank, endpoint, this_host
    from monarch.jupyter.rank_map import of_this_program
    return Actor, Path, current_rank, endpoint, of_this_program, this_host, time


@app.cell
def _(Actor, Path, current_rank, endpoint, this_host, time):
    class Trainer(Actor):
        @endpoint
        def step(self, number: int) -> int:
            "One step of training."
            while current_rank().rank == 2 and not Path(f"release{number}").exists():
                time.sleep(0.01)
            return number

    trainers = this_host().spawn_procs({"gpus": 8}, name="trainers").spawn("trainer", Trainer)
    answer = trainers.step.call(1)
    trainers
    return answer, trainers


@app.cell
def _(of_this_program, trainers):
    trainers
    ranks = of_this_program()
    ranks
    return (ranks,)


@app.cell
def _(answer, ranks):
    ranks
    answer.get()
    return


if __name__ == "__main__":
    app.run()
"""


def test_in_marimo_a_mesh_is_a_table_and_its_map_is_live(browser: Any, tmp_path: Path) -> None:
    notebook = tmp_path / "story.py"
    notebook.write_text(NOTEBOOK.lstrip())
    with marimo(notebook) as url:
        context = browser.new_context(viewport={"width": 900, "height": 900})
        page = context.new_page()
        page.set_default_timeout(60_000)
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url)
        page.locator(".cm-content", has_text="answer.get()").click()
        page.keyboard.press("Control+Shift+R")  # all cells
        page.locator("td", has_text="One step of training.").first.wait_for()
        # while a cell waits for the rank
        canvas = page.locator("canvas[aria-label*='7 idle']").first
        canvas.wait_for()
        (tmp_path / "release1").touch()
        page.locator("canvas[aria-label='trainers: 8 idle']").first.wait_for()
        assert complaints == []
        context.close()
