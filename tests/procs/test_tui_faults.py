"""The dashboard in the terminal: a server that goes away, text that is hostile, ten thousand ranks,
no colours.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textual")

from textual.content import Content

from helpers.certificates import authority
from helpers.dashboards import LARGE, Seen, watching
from helpers.fake_admin import fake_admin, picture_of
from monarch.tools.tui import _tls as tls_of
from monarch.tui import diagnose, open_access
from monarch.tui.app import Overlay
from monarch.tui.ranks import Ranks
from monarch.tui.text import Row

pytestmark = pytest.mark.timeout(180)  # each wait has 60 s

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31m[red]markup[/red]\u202etfel\x9b5A\x00\ud800\tend"
HARMLESS = "[red]markup[/red]tfel?    end"


def test_what_was_seen_stays_with_its_age_until_the_connection_is_back() -> None:
    with fake_admin(picture_of(16)) as fake:

        async def typed(seen: Seen) -> None:
            await seen.until("live", "16 collective")
            fake.end()
            await seen.until("LOST", "what is shown is", " old", "16 collective")
            fake.picture = picture_of(16, states={3: "stands"})
            fake.start()
            await seen.until("live", "15 collective", "1 in the way", "ccc!cccc")
            assert "LOST" not in seen.text

        watching(fake.access, typed)


def test_what_does_not_fit_ends_in_dots_and_place_and_age_come_first() -> None:
    with fake_admin(picture_of(16)) as fake:

        async def typed(seen: Seen) -> None:
            seen.app._take_program(
                {"command": "train.py " + "--option " * 20, "pid": 4711, "host": "h0", "since": time.time() - 3600}, ""
            )  # fmt: skip
            await seen.until("4711 · h0 · 60 min · train.py", "…")

        watching(fake.access, typed)


def test_answers_that_are_no_json_or_of_another_version_are_told_and_looked_for_anew() -> None:
    with fake_admin(picture_of(16)) as fake:
        classes = fake.verdict["classes"]

        async def typed(seen: Seen) -> None:
            await seen.until("live", "16 collective")
            await seen.press("3")
            await seen.until("live", "Fine.")
            fake.pages.add("/v1/why")
            await seen.until("LOST: the server answers with text/html", "Fine.")
            fake.pages.clear()
            await seen.until("live")
            del fake.verdict["classes"]
            await seen.until(
                "LOST: an answer that this version can't read: KeyError('classes')", "Fine."
            )
            await seen.press("c", "enter", "j")
            fake.verdict["classes"] = classes
            await seen.until("live", "Fine.")
            fake._json = lambda path: "not an object"  # type: ignore[method-assign]
            await seen.press("5")
            await seen.until("LOST: an answer that this version can't read: TypeError")
            await seen.press("1")
            await seen.until("live")
            change = picture_of(16)
            change["meshes"]["1"]["columns"]["seconds"] = []
            fake.picture = change
            await seen.press("2")
            await seen.until(
                "a line that can't be made: an answer that this version can't read: IndexError"
            )

        watching(fake.access, typed)


def test_a_failure_whose_process_is_not_there_is_told() -> None:
    shown = picture_of(8)
    shown["failures"] = [
        {
            "reference": "a<1>.p.0@h0",
            "message": "m",
            "root_cause": "",
            "occurred_us": 1,
            "is_propagated": False,
        }
    ]
    with fake_admin(shown) as fake:

        async def typed(seen: Seen) -> None:
            await seen.press("6")
            await seen.until("a<1>")
            await seen.press("enter")
            await seen.until("KeyError('Proc')")

        watching(fake.access, typed, LARGE)


@pytest.mark.parametrize(
    "title", ["a [red]x[/red]", "b [@click=app.quit]x[/]", "back\\", "[/] end", "[", "$accent"]
)
def test_a_title_is_shown_as_it_is(title: str) -> None:
    box = next(iter(Overlay(title, []).compose()))
    assert Content.from_markup(str(box.border_title)).plain == f"{title}, Esc closes"


def test_a_click_on_the_head_moves_nothing_and_one_on_a_line_goes_there() -> None:
    with fake_admin(picture_of(160)) as fake:

        async def typed(seen: Seen) -> None:
            await seen.press("2")
            await seen.until("1 of 160")
            await seen.click(5)
            await seen.until("5 of 160")
            await seen.click(0)
            assert "5 of 160" in seen.text

        watching(fake.access, typed)


def test_esc_leaves_the_prompt_for_lines_and_a_level_alone_is_one() -> None:
    with fake_admin(picture_of(8)) as fake:

        async def typed(seen: Seen) -> None:
            await seen.press("5")
            await seen.until("no lines yet")
            await seen.press("m")
            await seen.until("trainers[0,3-5] WARNING")
            await seen.press("escape")
            await seen.holds(lambda: "trainers[0,3-5] WARNING" not in seen.text)
            await seen.press("m")
            await seen.type("WARNING")
            await seen.press("enter")
            await seen.until("of level=WARNING")

        watching(fake.access, typed)


def test_a_held_screen_asks_nothing_and_follows_again() -> None:
    with fake_admin(picture_of(16)) as fake:

        async def typed(seen: Seen) -> None:
            await seen.until("16 collective")
            await seen.press("f")
            await seen.until("HELD")
            fake.picture = picture_of(16, states={3: "stands"})
            asked = len(fake.asked)
            await seen.press("j", "k")
            assert "16 collective" in seen.text and len(fake.asked) == asked
            await seen.press("f")
            await seen.until("live", "1 in the way")

        watching(fake.access, typed)


def test_only_the_screen_that_is_looked_at_asks() -> None:
    with fake_admin(picture_of(16)) as fake:

        async def typed(seen: Seen) -> None:
            await seen.until("16 collective")
            await seen.press("2")
            await seen.until("trainers[0]")
            assert sorted(fake.asked) == [
                "/v1/access",
                "/v1/now/events",
            ]  # the same source: nothing was asked anew
            await seen.press("3")
            await seen.holds(lambda: fake.asked.count("/v1/why") > 2)
            assert fake.asked.count("/v1/now/events") == 1
            await seen.press("8")
            await seen.until("SHOW TABLES")
            asked = len(fake.asked)
            await seen.press("j", "k", "j", "k")
            assert len(fake.asked) <= asked + 1  # which was on its way

        watching(fake.access, typed, refresh=0.01)


@pytest.mark.parametrize("size", [(80, 24), LARGE], ids=["80x24", "200x60"])
def test_hostile_text_is_shown_harmless_on_every_screen(size: tuple[int, int]) -> None:
    shown = picture_of(8, HOSTILE, {3: "stands"})
    shown["verdict"].update(sentence=HOSTILE, full=[HOSTILE], circles=[[HOSTILE, "b"]])
    shown["failures"] = [
        {
            "reference": "a",
            "message": HOSTILE,
            "root_cause": HOSTILE,
            "occurred_us": 1,
            "is_propagated": False,
        }
    ]
    shown["silent"] = {HOSTILE: HOSTILE}
    standing: dict[str, Any] = {
        "mesh": HOSTILE, "size": 8, "ranks": [0], "hosts": [HOSTILE], "pids": [1], "point": HOSTILE, "endpoint": HOSTILE,
        "place": HOSTILE, "state": "stands", "reason": HOSTILE, "seconds": 1.0, "blamed": True,
        "lines": [{"kind": "user", "function": HOSTILE, "file": HOSTILE, "line": 1}],
    }  # fmt: skip
    line = {
        "time": 1.0,
        "stream": "stdout",
        "level": 0,
        "host": "h",
        "mesh": HOSTILE,
        "rank": 0,
        "text": HOSTILE * 20_000,
    }
    with fake_admin(shown) as fake:
        fake.verdict.update(
            sentence=HOSTILE,
            classes=[standing] * 2,
            waits=[{"waits": 0, "for": 1}],
            circles=[[HOSTILE]],
        )
        fake.lines = [line]
        fake.tree += f"    └── {HOSTILE}  ->  http://h/v1/a%40b\n"

        async def typed(seen: Seen) -> None:
            for key in "1234567":
                await seen.press(key)
                text = await seen.until(HARMLESS[:18])
                assert "owned" not in text and all(
                    character.isprintable() or character == "\n" for character in text
                )
                assert (
                    all(len(line) <= size[0] for line in seen.lines) and len(seen.lines) == size[1]
                )

        watching(fake.access, typed, size)


def test_ten_thousand_ranks_are_on_the_screen_and_keys_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    make = Ranks._row

    def counted(pane: Ranks, index: int) -> Row:
        made.append(index)
        return make(pane, index)

    monkeypatch.setattr(Ranks, "_row", counted)
    with fake_admin(picture_of(10_000, states={4_170: "stands"})) as fake:

        async def typed(seen: Seen) -> None:
            text = await seen.until("10,000 ranks", "1 in the way", "a cell is 8 ranks", "9472 ccc")
            # found in the map among all others
            assert sum(line.count("!") for line in text.splitlines()[4:]) == 1
            await seen.press("2")
            await seen.until("1 of 10,000", "trainers[4170]", "! stands")
            await seen.press("G")
            await seen.until("10,000 of 10,000")
            made.clear()
            for key in "kkkkkk":
                await seen.press(key)
            await seen.until("9,994 of 10,000")
            assert 0 < len(made) < 6 * 200  # a key costs the lines in sight
            fake.picture = picture_of(10_000, states={4_170: "stands", 9_999: "frozen"})
            await seen.press("g")
            await seen.until("trainers[9999]", "! frozen")

        watching(fake.access, typed)


def test_without_colours_letters_say_what_colours_would(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_admin(picture_of(16, states={3: "stands"})) as fake:

        def styles(seen: Seen) -> list[Any]:
            strips = seen.app.screen._compositor.render_strips()
            return [segment.style for strip in strips for segment in strip if segment.style]

        async def coloured(seen: Seen) -> None:
            await seen.until("ccc!cccc")
            assert any(style.color is not None for style in styles(seen))

        async def colourless(seen: Seen) -> None:
            await seen.until("ccc!cccc", "1 in the way")
            found = styles(seen)
            assert not any(style.color or style.bgcolor for style in found)
            # the marked line, and the screen that is open
            assert any(style.reverse for style in found)

        watching(fake.access, coloured)
        monkeypatch.setenv("NO_COLOR", "1")
        watching(fake.access, colourless)


def test_the_dashboard_imports_no_engine() -> None:
    code = (
        "import sys, monarch.tui.app; print([name for name in sys.modules if"
        " name.startswith('monarch._core')])"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # the points where guests are added, which the package says first
    assert got.stdout == "['monarch._core', 'monarch._core.extension']\n"


@pytest.mark.parametrize(
    "answer", ["not an object", {}, {"children": 7}, {"children": [7]}, None, []]
)
def test_a_report_on_answers_of_another_version_is_a_report_and_fails(
    answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_admin(picture_of(16)) as fake:
        fake._json = lambda path: answer  # type: ignore[method-assign]
        assert diagnose(fake.access) == 1
    found = json.loads(capsys.readouterr().out)
    failed = [check["message"] for check in found["checks"] if check["status"] == "fail"]
    assert failed and all(
        message.startswith("an answer that this version can't read: ") for message in failed
    )
    assert all("\n" not in message for message in failed)


def test_a_report_on_no_server_or_another_one_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_admin(picture_of(16)) as fake:
        fake.pages |= {"/v1/root", "/v1/why", "/v1/admin"}
        assert diagnose(fake.access) == 1
        assert (
            "answers with text/html" in json.loads(capsys.readouterr().out)["checks"][0]["message"]
        )
        fake.end()
        assert diagnose(fake.access) == 1
        assert "refused" in json.loads(capsys.readouterr().out)["checks"][0]["message"]


def test_why_there_is_no_tls_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    issuer, stranger = authority(), authority("another one")
    server = issuer.sign_address("127.0.0.1")
    texts = {
        "server": server.pem + server.key_pem(),
        "stranger": stranger.pem,
        "none": "no certificate",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(tmp_path / "server")
    trusts = tls_of(tmp_path / "stranger", None, None)

    def said(port: int) -> str:
        assert diagnose(open_access(f"https://127.0.0.1:{port}", "token", context=trusts)) == 1
        return str(json.loads(capsys.readouterr().out)["checks"][0]["message"])

    with fake_admin(picture_of(16)) as fake:
        assert f"127.0.0.1:{fake.port} does not speak TLS as this does: " in said(fake.port)
        assert fake._server is not None
        fake._server.socket = serves.wrap_socket(fake._server.socket, server_side=True)
        assert re.fullmatch(
            r"the certificate of \S+ is not trusted: .*; --tls-ca names who has signed it",
            said(fake.port),
        )
    for name in ("none", "gone"):
        with pytest.raises(
            ValueError, match=f"^{tmp_path / name} can't be read as certificates: [a-z ]+$"
        ):
            tls_of(tmp_path / name, None, None)


def test_a_link_is_read_from_the_environment_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = f"http://127.0.0.1:{server.getsockname()[1]}/login?code=x"

        def start(*more: str, **env: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "monarch.tools", "tui", "--diagnose", *more]
            return subprocess.Popen(
                command, cwd=tmp_path, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True
            )

        with start("--addr", link) as shown, start(MONARCH_ADMIN_ADDR=link) as hidden:
            with server.accept()[0] as connection:
                assert connection.recv(1 << 16).startswith(b"POST /login?code=x HTTP/1.1\r\n")
            assert "MONARCH_ADMIN_ADDR='" in shown.communicate()[1] and shown.returncode == 1
            assert "MONARCH_ADMIN_ADDR" not in hidden.communicate()[1] and hidden.returncode == 1
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # only one has come
            server.accept()
