"""A real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Response

WEB = Path(__file__).parents[2] / "dashboard" / "web"
AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"

PATIENCE = 60_000  # milliseconds
REBOUND = "rebound.example"  # a name that leads to this machine, as any stranger can make one
_CHROMIUM = "/usr/bin/chromium"
_ARGUMENTS = [
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window; skips where there is none, and says so."""
    if shutil.which(_CHROMIUM) is None:
        pytest.skip(f"there is no {_CHROMIUM}: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(
                executable_path=_CHROMIUM, args=_ARGUMENTS, timeout=45_000
            )
        except playwright.Error as error:
            pytest.skip(f"{_CHROMIUM} does not start: {str(error).strip().splitlines()[0]}")
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A tab of a browser that was let in, and what it complained of.

    Attributes:
        page: It.
        complaints: Errors on its console, and exceptions that nobody has caught.
        refused: What the server has not answered as asked, and what it said.
    """

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.complaints: list[str] = []
        self.refused: list[str] = []
        self._url = url
        self.page.on("console", lambda said: self._hear(said.type, said.text))
        self.page.on("pageerror", lambda error: self._hear("error", str(error)))
        self.page.on("dialog", self._refuse)
        self.page.on("response", self._read)

    def _read(self, response: Response) -> None:
        if response.status >= 400:
            asked = f"{response.request.method} {response.url} {response.request.post_data or ''}"
            said = f"{response.status} {response.text()[:400]}"
            self.refused.append(f"{time.strftime('%X')} {asked[:400]}: {said}")

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def _refuse(self, dialog: Dialog) -> None:
        self._hear("error", f"a dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, view: str) -> Page:
        """Go to a view: ``logs?mesh=trainers``. What is shown then is no longer the last one."""
        self.page.goto(f"{self._url}/#/{view}")
        path = view.partition("?")[0]
        # on a phone the menu is closed
        current = self.page.locator(f"nav a[aria-current][href^='#/{path}']")
        current.wait_for(state="attached")
        return self.page

    def wait_for(self, selector: str, text: str | re.Pattern[str] = "") -> Any:
        """What is there, as soon as it is, with this text."""
        found = self.page.locator(selector).filter(has_text=text).first
        found.wait_for()
        return found

    def picture(self, name: str) -> None:
        """Keep what is shown, for the docs: where the variable DASHBOARD_PICTURES has a folder."""
        if folder := os.environ.get("DASHBOARD_PICTURES"):
            self.page.screenshot(path=Path(folder, f"dashboard_{name}.png"))

    def violations(self) -> list[str]:
        """What axe-core finds that keeps people from using the page; skips where it is not
        installed.
        """
        if not AXE.exists():
            pytest.skip(f"axe-core is not installed: npm ci in {WEB.name}")
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(AXE.read_text())
        # of what is as it should be a page of many hosts has thousands of elements
        found = self.page.evaluate(
            "async () => (await axe.run({resultTypes: ['violations']})).violations"
        )
        return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]
