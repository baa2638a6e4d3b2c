"""Draws the pictures of docs/tui.md: screens of a program whose ranks wait for one of them.

    python docs/plot_tui.py

Needs the extras: `pip install -e '.[cli,admin,telemetry,tui]'`.
"""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

from monarch import actor, admin
from monarch.actor import Actor, endpoint, this_host
from monarch.tui.app import Dashboard
from monarch.tui.http import Access, open_access

IMAGES = Path(__file__).resolve().parent / "images"
SIZE = (100, 26)
FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # that a browser would fetch from elsewhere
LOOKS = 600  # of a tenth of a second


class Loader(Actor):
    """Has batches; one of them never comes."""

    @endpoint
    def batch(self, rank: int) -> int:
        if rank == 5:
            threading.Event().wait()
        return rank


class Trainer(Actor):
    @endpoint
    def train(self, loaders: Loader, rank: int) -> int:
        return loaders.batch.call_one(rank).get()


async def draw(access: Access) -> None:
    """Write a picture of the screens Now and Stacks."""
    app = Dashboard(access)
    async with app.run_test(size=SIZE) as pilot:
        for key, name, text in (("1", "now", "Stuck"), ("3", "stacks", "batch")):
            await pilot.press(key)
            for _ in range(LOOKS):
                await pilot.pause(0.1)
                if any(text in piece for row in app.pane.listing.lines for piece, _ in row):
                    break
            picture = app.export_screenshot(title=f"monarch tui: {name}")
            (IMAGES / f"tui_{name}.svg").write_text(FONTS.sub("", picture))


def main() -> None:
    """Run the program, and look at it."""
    actor.unhandled_fault_hook = lambda failure: None  # at its end, those who wait are told
    loaders = this_host().spawn_procs({"loaders": 1}, name="loaders").spawn("loader", Loader)
    trainers = (
        this_host().spawn_procs({"hosts": 2, "gpus": 8}, name="trainers").spawn("trainer", Trainer)
    )
    for host in range(2):
        for gpu in range(8):
            trainers.slice(hosts=host, gpus=gpu).train.broadcast(loaders, 8 * host + gpu)
    there = admin.access("act")
    asyncio.run(draw(open_access(there["url"], there["token"])))


if __name__ == "__main__":
    main()
