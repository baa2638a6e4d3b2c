"""Each page as it looked when its picture was last looked at: light, dark and on a phone.

The pictures in `references/` are of `monarch demo`, whose run is recorded, at a time of day that
stays. After a change that is meant, `DASHBOARD_REFERENCES=1 pytest tests/browser/test_pictures.py`
takes them anew: look at each before it is committed. Fonts make other pictures, so another
browser than that of `made_with.txt` compares nothing.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browsers import Tab
from helpers.each import for_each
from helpers.terminals import killed_after
from helpers.waiting import wait_until

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

pytestmark = pytest.mark.timeout(400)  # programs and a browser start on a busy machine

REFERENCES = Path(__file__).with_name("references")
MADE_WITH = REFERENCES / "made_with.txt"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1200, "height": 750}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1200, "height": 750}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
PAGES = {
    "now": ".strip b", "stacks": "main", "waits": "td", "stragglers": "main", "timeline": "canvas", "meshes": "td",
    "hosts": "[aria-label=GPUs] td", "messages": "figure canvas", "metrics": "figure canvas", "logs": ".line",
    "debugger": "main", "actions": "main",
    "sql": "main", "runs": "article",
}  # fmt: skip
SAME = 5
"""Pictures in a row that are equal, before one counts: some pages ask again with the answer."""

TOLERATED = 0.02
"""Of the parts of a picture, four by four points each, that may have another colour."""

DIFFERENCE = """async ([one, other]) => {
  const pixels = async (data) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const [width, height] = [image.width >> 2, image.height >> 2];
    const context = new OffscreenCanvas(width, height).getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, width, height);
    return context.getImageData(0, 0, width, height).data;
  };
  const [a, b] = [await pixels(one), await pixels(other)];
  if (a.length !== b.length) return 1;
  let apart = 0;
  for (let at = 0; at < a.length; at += 4)
    if (Math.max(...[0, 1, 2].map((colour) => Math.abs(a[at + colour] - b[at + colour]))) > 40) apart++;
  return (apart * 4) / a.length;
}"""


def _without_this_machine(route: Any) -> None:
    """Of the runs that there are, those of the demo; no folder and no program of this machine."""
    answer = route.fetch()
    told = answer.json()
    for run in told["runs"]:
        run["path"] = run["path"].replace(told["folder"], "/home/ada")
    route.fulfill(response=answer, json={**told, "folder": "/home/ada", "programs": []})


class Pictures:
    """The pages of the recorded run in a browser.

    Args:
        browser: It.
        url: Of the demo.
        link: Lets in, once.
    """

    def __init__(self, browser: Any, url: str, link: str) -> None:
        self._compares = browser.new_context().new_page()
        context = browser.new_context(timezone_id="UTC", locale="en-GB", reduced_motion="reduce")
        context.route(re.compile(r"/v1/runs\b"), _without_this_machine)
        self.tab = Tab(context, url)
        self.tab.page.clock.set_fixed_time("2026-12-24T03:00:00Z")
        self._asked: set[Any] = set()  # what has no answer yet; streams go on
        self.tab.page.on("request", self._begun)
        self.tab.page.on("requestfinished", lambda asked: self._asked.discard(asked))
        self.tab.page.on("requestfailed", lambda asked: self._asked.discard(asked))
        self.tab.page.goto(link)
        self.tab.wait_for(".verdict")

    def take(self, view: str, look: str) -> bytes:
        """The picture of a page, as soon as some in a row are the same, and no answer is missing."""
        page, there = self.tab.page, LOOKS[look]
        page.set_viewport_size(there["viewport"])
        page.emulate_media(color_scheme=there["color_scheme"])
        page.evaluate("(view) => (location.hash = `#/${view}`)", view)
        page.locator(f"nav a[aria-current][href^='#/{view}']").wait_for(state="attached")
        self.tab.wait_for(PAGES[view])
        last: list[bytes] = []

        def stands() -> bytes | None:
            if self._asked:
                last.clear()
            last.append(page.screenshot(animations="disabled"))
            return last[-1] if last[-SAME:] == [last[-1]] * SAME and not self._asked else None

        found = wait_until(stands, what=f"a picture of {view} that stays")
        assert found is not None
        return found

    def _begun(self, asked: Any) -> None:
        if not asked.url.endswith("/events"):
            self._asked.add(asked)

    def difference(self, one: bytes, other: bytes) -> float:
        """The share of parts that have another colour."""
        told = [base64.b64encode(each).decode() for each in (one, other)]
        return float(self._compares.evaluate(DIFFERENCE, told))


@pytest.fixture(scope="module")
def pictures(browser: Any) -> Iterator[Pictures]:
    command = [sys.executable, "-m", "monarch.tools", "demo", "--json"]
    env = {**os.environ, "TZ": "UTC"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        with killed_after(150, process):
            access = json.loads(process.stdout.readline() or "{}")
        yield Pictures(browser, access["url"], access["link"])
    finally:
        process.send_signal(signal.SIGINT)
        with killed_after(90, process):
            process.communicate()


@for_each("look, view", [(look, view) for look in LOOKS for view in PAGES])
def test_each_page_looks_as_it_did(pictures: Pictures, browser: Any, look: str, view: str) -> None:
    path, made_with = REFERENCES / f"{view}_{look}.png", f"chromium {browser.version}\n"
    renews = bool(os.environ.get("DASHBOARD_REFERENCES"))
    if renews:
        REFERENCES.mkdir(exist_ok=True)
        MADE_WITH.write_text(made_with)
    elif MADE_WITH.read_text() != made_with:
        pytest.skip(f"the pictures are of {MADE_WITH.read_text()}, and this is {made_with}")
    found = pictures.take(view, look)
    if renews:
        path.write_bytes(found)
    apart = pictures.difference(found, path.read_bytes())
    assert apart <= TOLERATED, f"{apart:.1%} of it is other than in {path.name}"


def test_what_a_page_loses_is_seen(pictures: Pictures) -> None:
    before = pictures.take("now", "light")
    assert pictures.difference(before, before) == 0
    assert pictures.difference(before, pictures.take("now", "dark")) > 0.5
    pictures.take("now", "light")
    pictures.tab.page.evaluate("document.querySelector('.verdict').style.display = 'none'")
    without = pictures.tab.page.screenshot(animations="disabled")
    assert pictures.difference(before, without) > TOLERATED


def test_the_pictures_are_of_every_page_and_small() -> None:
    kept = {path.stem for path in REFERENCES.glob("*.png")}
    assert kept == {f"{view}_{look}" for view in PAGES for look in LOOKS}
    pages = Path(__file__).parents[2] / "dashboard" / "web" / "src" / "pages"
    assert {path.stem.lower() for path in pages.glob("*.svelte")} == set(PAGES)
    assert sum(path.stat().st_size for path in REFERENCES.glob("*.png")) < 3_000_000
