"""The flags of the dashboard in the terminal that are Monarch's: ``--lang`` and ``--theme``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

pytest.importorskip("textual")

from helpers.dashboards import Seen, watching
from helpers.fake_admin import FakeAdmin, fake_admin, picture_of
from monarch.tui import words
from monarch.tui.app import Dashboard
from monarch.tui.http import Access
from monarch.tui.pane import KEYS
from monarch.tui.picture import LOOKS
from monarch.tui.ranks import _COLUMNS
from monarch.tui.sql import SAVED

_SOURCES = Path(words.__file__).parent
_CHINESE = json.loads((_SOURCES / "zh.json").read_text("utf-8"))


@pytest.fixture
def fake() -> Iterator[FakeAdmin]:
    with fake_admin(picture_of(16, states={3: "stands"})) as made:
        yield made
    words.speak("en")


def test_in_chinese_the_frame_of_each_screen_is_chinese(fake: FakeAdmin) -> None:
    titles = ("现况", "进程", "堆栈", "等待", "日志", "故障", "树", "SQL")

    async def typed(seen: Seen) -> None:
        await seen.until(*titles, "实时", "? 帮助", "1 阻碍", "15 集合通信", "1 停滞", "16 个进程")
        # the verdict is the program's own sentence
        await seen.until("15 ranks of trainers in all_reduce")
        await seen.press("v")
        await seen.until("图:秒")
        await seen.press("2")
        await seen.until("状态▼", "队列", "已处理", "! 停滞", "1 / 16")
        columns = [
            cell_len(line[: line.index("43 s")]) for line in seen.lines if "c 集合通信" in line
        ]
        assert len(set(columns)) == 1  # wide characters leave columns where they are
        await seen.press("question_mark")
        await seen.until("帮助,Esc 关闭", "进程: 所有 mesh 的所有进程", "退出")
        assert all(cell_len(line) <= 80 for line in seen.lines)
        await seen.press("escape")
        await seen.find("nobody has this")
        await seen.until("没有包含 'nobody has this' 的行")
        await seen.press("8")
        await seen.until("有哪些表", "Enter 执行", "按需查询")
        fake.end()
        await seen.press("1")
        await seen.until("连接中断", "前的数据")

    watching(fake.access, typed, lang="zh")


def test_every_text_of_the_frame_has_its_chinese() -> None:
    panes = Dashboard(Access("http://h", {})).panes
    wanted = {text for pane in panes for text in (pane.TITLE, pane.HINTS)}
    wanted |= {*LOOKS, *SAVED, *(column.title for column in _COLUMNS)}
    for source in _SOURCES.glob("*.py"):  # what is said with the text itself
        wanted |= set(re.findall(r'said\(\s*"([^"]+)"', source.read_text()))
    assert wanted - _CHINESE["texts"].keys() == set()
    assert _CHINESE["help"].keys() == {pane.TITLE for pane in panes}
    assert all(cell_len(line) <= 72 for lines in _CHINESE["help"].values() for line in lines)
    assert words.help_of("Now", "text", KEYS) == ("text", KEYS)


def test_help_is_of_the_language_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_spoken", {})  # which is undone
    words.speak("zh")
    about, keys = words.help_of("Now", "text", KEYS)
    assert about.splitlines() == _CHINESE["help"]["Now"]
    assert keys.splitlines() == _CHINESE["keys"]


def test_a_text_keeps_its_places_in_chinese() -> None:
    for english, chinese in _CHINESE["texts"].items():
        assert re.findall(r"\{.*?\}", english) == re.findall(r"\{.*?\}", chinese)


def test_a_language_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="en and zh, not 'fr'"):
        words.speak("fr")


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
