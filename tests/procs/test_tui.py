"""The dashboard in the terminal, at a program that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from helpers.admin import admin_of
from helpers.terminals import RunningProgram, running
from monarch.admin.door import Door

pytest.importorskip("textual")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")  # here, as it starts threads
pytest.importorskip("arro3.core")

from helpers.dashboards import Seen, watching
from monarch.tui import diagnose, open_access
from monarch.tui.http import Access, AdminError, Line

pytestmark = pytest.mark.timeout(180)  # each wait has 60 s

PROGRAM = r"""
    import logging, os, sys, threading
    from monarch import configure
    from monarch.actor import Actor, endpoint, this_host
    import monarch.actor

    class Trainer(Actor):
        @endpoint
        def speak(self):
            print("\x1b]0;owned\x07\x1b[2J[bold]spoken[/bold] by a rank", flush=True)
            logging.getLogger("train").warning("a warning")

        @endpoint
        def ask(self, other):
            return other.late.call_one().get()

        @endpoint
        def die(self):
            os._exit(3)

    class Late(Actor):
        @endpoint
        def late(self):
            threading.Event().wait(600)

    if __name__ == "__main__":
        configure(enable_file_capture=True)
        monarch.actor.unhandled_fault_hook = lambda failure: None
        trainers = this_host().spawn_procs({"hosts": 2, "gpus": 2}, name="tuitrainers").spawn("trainer", Trainer)
        dying = this_host().spawn_procs(name="tuidead").spawn("dying", Trainer)
        late = this_host().spawn_procs(name="tuislow").spawn("late", Late)
        trainers.speak.call().get()
        waiting = trainers.slice(hosts=0).ask.call(late)
        try:
            dying.die.call_one().get()
        except Exception as error:
            pass
        print("go", flush=True)
        sys.stdin.read()
    """


class Watched:
    """A program, and the way to its admin interface."""

    def __init__(self, program: RunningProgram, door: Door) -> None:
        self.program = program
        self.door = door

    @property
    def access(self) -> Access:
        return open_access(self.door.url, self.door.access("act")["token"])


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder: Path = tmp_path_factory.mktemp("tui")
    with running(PROGRAM, folder, {"MONARCH_LOG_DIR": str(folder / "logs")}) as program:
        program.wait_for("go")
        with admin_of(program.pid) as (door, asker):
            # each process has been asked: there are connections from now on
            asker.get("/v1/stacks")
            for node in asker.walk():
                properties = node["properties"].get("Proc", {"failed_actor_count": 1})
                if not properties["failed_actor_count"]:
                    asker.get(f"/v1/config/{quote(node['identity'], safe='')}")
            asker.get("/v1/now")
            yield Watched(program, door)


def test_now_says_what_is_wrong_and_shows_a_cell_for_each_rank(watched: Watched) -> None:
    shown = (
        "Stuck",
        "tuitrainers  4 ranks  hosts 2 × gpus 2  w 2 waits  · 2 idle",
        "ww··",
        "1 failure",
        "! tuislow",
    )

    async def typed(seen: Seen) -> None:
        await seen.until(*shown)
        assert all(len(line) <= 80 for line in seen.lines) and len(seen.lines) == 24
        await seen.enlarge()
        await seen.until(*shown, "a wait for another thread, or a lock")
        await seen.holds(lambda: len(seen.lines) == 60, "a screen of 60 lines")
        [first] = [line for line in seen.lines if "Stuck" in line]
        assert first[:120].rstrip() and first[120:].startswith(
            ("tuidead", "tuislow")
        )  # maps beside it
        await seen.press("v")
        await seen.until("map: seconds", "seconds ")
        await seen.find("! tuislow")
        await seen.press("enter")
        await seen.until("▼ ! tuislow", "> late", "waits for late.late()")

    watching(watched.access, typed)


def test_ranks_are_sorted_by_any_column_and_lead_to_their_stack(watched: Watched) -> None:
    async def typed(seen: Seen) -> None:
        def names() -> list[str]:
            return [
                line.split()[0]
                for line in seen.lines[3:]
                if "[" in line or line.startswith("client ")
            ]

        await seen.press("2")
        await seen.until("tuitrainers[3]", "state▼")
        # who holds up the others comes first, once that is known
        await seen.holds(lambda: names()[0] == "tuislow[0]")
        await seen.press("less_than_sign")
        await seen.until("rank▲")
        rising = names()
        assert rising == sorted(rising) and len(rising) == 7
        await seen.press("r")
        await seen.until("rank▼")
        assert names() == rising[::-1]
        await seen.enlarge()
        await seen.until("pid", "host")
        await seen.find("trainers[1]")
        await seen.press("enter")
        await seen.holds(
            lambda: (
                seen.app.pane.TITLE == "Stacks"
                and (seen.app.pane.about() or ("",))[0] == "tuitrainers"
            )
        )

    watching(watched.access, typed)


def test_waits_begin_with_those_who_wait_for_no_other(watched: Watched) -> None:
    async def typed(seen: Seen) -> None:
        await seen.press("4")
        text = await seen.until("! tuislow", "└ tuitrainers[0-1]")
        assert text.index("! tuislow") < text.index("└ tuitrainers[0-1]")
        await seen.press("c")
        await seen.until("▶ ! tuislow")
        assert "└ tuitrainers" not in seen.text
        await seen.enlarge()
        await seen.press("c")
        await seen.until("└ tuitrainers[0-1]", "waits for late.late()")

    watching(watched.access, typed)


def test_logs_are_found_filtered_and_harmless(watched: Watched) -> None:
    async def typed(seen: Seen) -> None:
        await seen.press("5")
        text = await seen.until(
            *(f"tuitrainers[{rank}] [bold]spoken[/bold] by a rank" for rank in range(4))
        )
        assert "owned" not in text and "\x1b" not in text
        await seen.enlarge()
        await seen.until("] a warning")
        await seen.press("m")
        await seen.type("tuitrainers[2] WARNING")
        await seen.press("enter")
        await seen.until("1 lines of mesh=tuitrainers rank=2 level=WARNING", "] a warning")
        assert "spoken" not in seen.text and "tuitrainers[1]" not in seen.text
        await seen.press("enter")
        await seen.until("logger: train")
        await seen.press("escape")
        await seen.find("nothing at all")
        await seen.until("no line here has 'nothing at all'")

    watching(watched.access, typed)


def test_failures_show_their_message_and_lead_to_the_last_output(watched: Watched) -> None:
    async def typed(seen: Seen) -> None:
        await seen.press("6")
        await seen.until("dying", "non-zero code 3")
        await seen.enlarge()
        await seen.until("dying[0]  the process exited with non-zero code 3")
        await seen.press("enter")
        await seen.until("of mesh=tuidead rank=0")

    watching(watched.access, typed)


def test_the_tree_has_the_layout_and_the_keys_of_monarch(watched: Watched) -> None:
    async def typed(seen: Seen) -> None:
        await seen.press("7")
        await seen.until(
            "(5 procs)", "▶ tuitrainers[0]", "Host details", "sys:off • stopped:off", "@", "up "
        )
        await seen.find("tuitrainers[0]")
        await seen.until("mesh_rank:")
        await seen.press("tab", "j")
        await seen.until("trainer (processing: ask)", "Actor details", "messages_processed: 1")
        await seen.enlarge()
        await seen.press("C")
        await seen.until("configuration of", "mesh_admin_addr")
        await seen.press("escape", "d")
        await seen.until("not healthy", "Admin Infrastructure", "tuidead[0] have failed")
        await seen.press("escape", "s")
        await seen.until("sys:on", "▶ client ")
        await seen.press("c")
        await seen.until("▶ ")
        assert "tuitrainers" not in seen.text.partition("details")[0]

    watching(watched.access, typed)


def test_sql_answers_saved_and_typed_questions(watched: Watched) -> None:
    async def typed(seen: Seen) -> None:
        await seen.press("8")
        await seen.until("SHOW TABLES")
        await seen.press("enter")
        await seen.until("actor_failures", "rows")
        await seen.enlarge()
        await seen.press("e", "end", "ctrl+u")
        await seen.type("SELECT mesh, count(*) AS ranks FROM procs GROUP BY mesh ORDER BY mesh")
        await seen.press("enter")
        await seen.until("tuitrainers  4")
        await seen.press("e", "end", "ctrl+u")
        await seen.type("SELECT nonsense")
        await seen.press("enter")
        await seen.until("nonsense", "Binder Error")

    watching(watched.access, typed)


def test_a_report_of_a_sick_program_is_json_and_fails(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    token = watched.door.access("view")["token"]
    assert diagnose(open_access(watched.door.url, token)) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"] is False and found["verdict"]["status"] == "stuck"
    failed = [check for check in found["checks"] if check["status"] == "fail"]
    assert any("tuidead[0]" in check["message"] for check in failed)
    assert {check["group"] for check in found["checks"]} == {"Admin Infrastructure", "Mesh"}


def test_a_link_lets_in_once_and_a_wrong_token_is_said(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    link = watched.door.access("act")["link"]
    assert Line(open_access(link)).get("/v1/admin")["url"] == watched.door.url
    with pytest.raises(AdminError, match="this link was used"):
        open_access(link)
    assert diagnose(open_access(watched.door.url, "wrong")) == 1
    assert "unauthorized" in json.loads(capsys.readouterr().out)["checks"][0]["message"]
