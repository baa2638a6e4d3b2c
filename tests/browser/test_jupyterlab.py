"""A notebook in JupyterLab, in a real browser: rich objects, a live map of ranks, the stop button."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.notebook_servers import jupyterlab

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytest.importorskip(
    "jupyterlab", reason="JupyterLab is not installed: pip install jupyterlab ipywidgets"
)
pytest.importorskip("anywidget")
pytest.importorskip("ipywidgets")

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.may_keep("threads", "descriptors"),  # Jupyter's own
]

CELLS = {
    "begin": """
%load_ext monarch
import time
from pathlib import Path
from monarch.actor import Actor, current_rank, endpoint, this_host""",
    "mesh": """
class Trainer(Actor):
    @endpoint
    def step(self, number: int) -> int:
        "One step of training."
        Path(f"begun{number}").touch()
        while current_rank().rank == 2 and not Path(f"release{number}").exists():
            time.sleep(0.01)
        return number

trainers = this_host().spawn_procs({"gpus": 8}, name="trainers").spawn("trainer", Trainer)
trainers""",
    "map": "%monarch ranks",
    "stuck": "answer = trainers.step.call(1)\nanswer.get()",
    "goes on": """
Path("release1").touch()
answer.get()""",
    "awaits": "await trainers.step.call(2)",
    "released": """
Path("release2").touch()
sum(trainers.step.call(2).get().values())""",
}


class Notebook:
    """A notebook in a tab of JupyterLab.

    Attributes:
        complaints: Exceptions that nobody has caught.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def cell(self, name: str) -> Locator:
        return self.page.locator(".jp-CodeCell").nth(list(CELLS).index(name))

    def run(self, name: str) -> Locator:
        """Type Shift-Enter in a cell; where its output comes."""
        cell = self.cell(name)
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        return cell.locator(".jp-OutputArea")

    def waits(self, name: str) -> None:
        """Until a cell runs: it has a star where its number will be."""
        self.cell(name).locator(".jp-InputPrompt", has_text="[*]").wait_for()

    def done(self, name: str) -> None:
        """Until it has its number."""
        self.cell(name).locator(".jp-InputPrompt", has_text=re.compile(r"\[\d+\]")).wait_for()

    def stop(self) -> None:
        """Press the stop button."""
        self.page.locator("[data-command='notebook:interrupt-kernel']").click()


@pytest.fixture
def notebook(browser: Any, tmp_path: Path) -> Iterator[Notebook]:
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "source": source.strip(), "metadata": {}, "outputs": [], "execution_count": None, "id": f"c{number}"}
        for number, source in enumerate(CELLS.values())
    ]  # fmt: skip
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    story = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "story.ipynb").write_text(json.dumps(story))
    with jupyterlab(tmp_path) as url:
        context = browser.new_context(viewport={"width": 900, "height": 860})
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(url.format("story.ipynb"))
        page.locator(".jp-CodeCell").first.wait_for()
        page.locator("#jp-main-statusbar", has_text="(ipykernel) | Idle").wait_for()
        yield Notebook(page)
        context.close()


def test_a_mesh_is_a_table_its_map_is_live_and_the_stop_button_gives_the_prompt_back(
    notebook: Notebook, tmp_path: Path
) -> None:
    notebook.run("begin")
    notebook.done("begin")
    table = notebook.run("mesh").locator("table").first
    table.wait_for()
    assert (
        "step(number: int)" in table.inner_text() and "One step of training." in table.inner_text()
    )
    ranks = notebook.run("map")
    ranks.locator("canvas[aria-label='trainers: 8 idle']").wait_for()
    notebook.run("stuck")
    notebook.waits("stuck")
    # the map goes on while the cell waits
    ranks.locator("canvas[aria-label*='7 idle']").wait_for()
    canvas = ranks.locator("canvas[aria-label^='trainers']")
    canvas.focus()
    for _ in range(3):
        canvas.press("ArrowRight")
    if folder := os.environ.get("DASHBOARD_PICTURES"):
        notebook.page.screenshot(path=Path(folder, "notebook.png"))
    notebook.stop()
    notebook.cell("stuck").locator(".jp-OutputArea", has_text="KeyboardInterrupt").wait_for()
    answered = notebook.run("goes on")  # ranks went on
    answered.locator("table").first.wait_for()
    ranks.locator("canvas[aria-label='trainers: 8 idle']").wait_for()
    notebook.run("awaits")
    notebook.waits("awaits")
    ranks.locator("canvas[aria-label*='7 idle']").wait_for()
    notebook.stop()
    notebook.cell("awaits").locator(".jp-OutputArea", has_text="CancelledError").wait_for()
    notebook.run("released").locator("pre", has_text="16").wait_for()
    assert notebook.complaints == []
