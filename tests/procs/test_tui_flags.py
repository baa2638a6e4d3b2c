"""Flags of the dashboard in the terminal: ``--theme``, and ``--lang``, which Monarch has."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("textual")

from textual.color import Color

from helpers.dashboards import Seen, watching
from helpers.fake_admin import FakeAdmin, fake_admin, picture_of
from monarch.tools import tui as command


@pytest.fixture
def fake() -> Iterator[FakeAdmin]:
    with fake_admin(picture_of(16, states={3: "stands"})) as made:
        yield made


def test_a_light_theme_is_light_on_every_screen(fake: FakeAdmin) -> None:
    async def typed(seen: Seen) -> None:
        await seen.until("live", "1 in the way")
        assert not seen.app.current_theme.dark
        for key in "12345678":
            await seen.press(key)
            background = seen.app.pane.background_colors[1]
            assert background.brightness > 0.8
        red, green, blue = seen.app.ansi_theme.ansi_colors[2]
        assert Color(red, green, blue).brightness < 0.6  # green that is read on paper

    watching(fake.access, typed, theme="textual-light")


@pytest.mark.parametrize(
    ("flags", "theme"),
    [
        (["--theme", "doom-nord-light", "--lang", "zh"], "textual-light"),
        (["--theme", "nord"], "nord"),
        ([], "textual-dark"),
    ],
)
def test_flags_of_monarch_are_taken(
    fake: FakeAdmin, flags: list[str], theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("MONARCH_ADMIN_TOKEN", "token")
    shown: list[str] = []
    monkeypatch.setattr("monarch.tui.run", lambda access, refresh, theme: shown.append(theme))
    command.app(["--addr", f"127.0.0.1:{fake.port}", *flags], standalone_mode=False)
    assert shown == [theme]
