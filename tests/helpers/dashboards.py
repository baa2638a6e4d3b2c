"""The dashboard in the terminal, as somebody sees it who types keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from textual import events
from textual.pilot import Pilot

from monarch.tui.app import Dashboard
from monarch.tui.http import Access

PATIENCE = 60.0  # seconds
SMALL, LARGE = (80, 24), (200, 60)

Typist = Callable[["Seen"], Coroutine[Any, Any, None]]


class Seen:
    """Args:
    app: That runs.
    pilot: Which types.
    """

    def __init__(self, app: Dashboard, pilot: Pilot[None]) -> None:
        self.app = app
        self._pilot = pilot

    @property
    def lines(self) -> list[str]:
        """What the screen shows."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        """Likewise, as one text."""
        return "\n".join(self.lines)

    async def press(self, *keys: str) -> None:
        """Type keys."""
        await self._pilot.press(*keys)

    async def click(self, line: int) -> None:
        """Click on a line of what the screen lists."""
        await self._pilot.click(self.app.pane.listing, offset=(3, line))

    async def enlarge(self) -> None:
        """Make the terminal large."""
        await self._pilot.resize_terminal(*LARGE)

    async def find(self, text: str) -> None:
        """Go to the line that has a text."""
        await self.press("slash")
        await self.type(text)
        await self.press("enter")

    async def type(self, text: str) -> None:
        """Paste a text; each key that is typed takes a tenth of a second."""
        assert self.app.focused is not None
        self.app.focused.post_message(events.Paste(text))
        await self._pilot.pause()

    async def until(self, *texts: str) -> str:
        """Wait until all of these are on the screen; returns it."""
        return await self.holds(lambda: all(text in self.text for text in texts), repr(texts))

    async def holds(self, condition: Callable[[], bool], what: str = "") -> str:
        """Wait until something is so; returns the screen."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"{what} never came:\n{self.text}"
            await self._pilot.pause(0.02)
        return self.text


def watching(
    access: Access,
    typist: Typist,
    size: tuple[int, int] = SMALL,
    refresh: float = 0.2,
    **flags: str,
) -> None:
    """Run the dashboard on a terminal of a size, with somebody who types.

    Args:
        flags: ``theme``.
    """

    async def run() -> None:
        app = Dashboard(access, refresh, **flags)
        async with app.run_test(size=size) as pilot:
            await typist(Seen(app, pilot))

    asyncio.run(run())
