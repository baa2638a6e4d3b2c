"""The flag of the dashboard in the terminal that is Monarch's: ``--theme``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("textual")

from helpers.dashboards import Seen, watching
from helpers.fake_admin import FakeAdmin, fake_admin, picture_of


@pytest.fixture
def fake() -> Iterator[FakeAdmin]:
    with fake_admin(picture_of(16, states={3: "stands"})) as made:
        yield made


def test_the_light_theme_of_monarch_is_light_on_every_screen(fake: FakeAdmin) -> None:
    async def typed(seen: Seen) -> None:
        await seen.until("live", "1 in the way")
        assert seen.app.theme == "doom-nord-light" and not seen.app.current_theme.dark
        for key in "12345678":
            await seen.press(key)
            background = seen.app.pane.background_colors[1]
            assert background.brightness > 0.8
        style = seen.app.ansi_theme.ansi_colors
        assert tuple(style[2]) == (0x4F, 0x89, 0x4C)  # green that is read on paper

    watching(fake.access, typed, theme="doom-nord-light")
