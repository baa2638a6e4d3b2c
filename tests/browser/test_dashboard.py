"""The dashboard of a program that runs, in a real browser."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

import pytest

from helpers.browsers import Tab, chromium
from helpers.leaks import descendants
from helpers.terminals import RunningProgram, running

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

pytestmark = pytest.mark.timeout(400)  # programs, hosts and a browser start on a busy machine

PROGRAM = """
    import os, sys
    from monarch.actor import Actor, endpoint, this_host
    from monarch.config import configure

    class Trainer(Actor):
        def __init__(self):
            self.data, _ = os.pipe()

        @endpoint
        def say(self):
            print("<img src=x onerror=alert(1)><script>alert(2)</script>")
            print("\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07\\u202egnirts javascript:alert(3)")
            print("begin of a long line " + "x" * 1_000_000)
            print("next to last")

        @endpoint
        def step(self, third):
            third.next_batch.call_one().get()

        @endpoint
        def next_batch(self):
            os.read(self.data, 1)

    if __name__ == "__main__":
        configure(enable_file_capture=True)
        trainers = this_host().spawn_procs({"hosts": 2, "gpus": 2}, name="trainers").spawn("trainer", Trainer)
        victims = this_host().spawn_procs(name="victims").spawn("victim", Trainer)
        trainers.slice(hosts=0, gpus=1).say.call_one().get()
        print("go", flush=True)
        sys.stdin.readline()
        trainers.without([2]).step.broadcast(trainers.slice(hosts=1, gpus=0))
        print("stuck", flush=True)
        sys.stdin.read()
    """

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PAGES = ("now", "stacks", "waits", "logs", "meshes", "hosts", "sql?q=SELECT+name,+id+FROM+actors")


class Seen:
    """A program, its dashboard, and a browser that was let in."""

    def __init__(self, program: RunningProgram, server: int, url: str, tab: Tab) -> None:
        self.program = program
        self.server = server
        self.url = url
        self.tab = tab


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with chromium() as browser, running(PROGRAM, tmp_path_factory.mktemp("dashboard")) as program:
        program.wait_for("go")
        with program.dashboard() as (link, server):
            where = urlsplit(link)
            url = f"{where.scheme}://{where.netloc}"
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
            tab = Tab(context, url)
            tab.page.goto(link)
            tab.wait_for(".verdict")
            yield Seen(program, server, url, tab)
            context.close()


@pytest.fixture(scope="module")
def stuck(seen: Seen) -> Tab:
    """Its program gets stuck while one looks at the front page, which is not loaded again."""
    seen.tab.open("now")
    seen.tab.wait_for(".verdict.good")
    assert seen.program.process.stdin is not None
    seen.program.process.stdin.write("\n")
    seen.program.process.stdin.flush()
    seen.tab.wait_for(".verdict.bad")
    return seen.tab


@pytest.fixture
def tab(seen: Seen) -> Iterator[Tab]:
    seen.tab.complaints.clear()
    yield seen.tab
    assert seen.tab.complaints == [], seen.tab.refused


def test_a_program_that_goes_on_is_fine(tab: Tab) -> None:
    tab.open("now")
    tab.wait_for(".verdict.good", "fine")
    assert re.fullmatch(r"✓ fine · \S+\.py · Now", tab.page.title())


def test_a_fault_that_happens_while_one_looks_is_seen_at_once(stuck: Tab) -> None:
    stuck.wait_for(".verdict.bad", "next_batch (train.py")
    stuck.wait_for("article", "3 waits")  # the legend of the map


@pytest.mark.usefixtures("stuck")
def test_from_the_verdict_to_the_command_of_the_debugger(seen: Seen, tab: Tab) -> None:
    page = tab.open("now")
    tab.wait_for(".verdict.bad").click()
    odd = tab.wait_for("article.odd", "trainers[2]")
    assert "next_batch" in odd.inner_text()
    odd.get_by_role("button", name="copy").click()
    odd.get_by_role("button", name="copied").wait_for()
    command = page.evaluate("() => navigator.clipboard.readText()")
    # it has not stopped
    assert command == f"monarch debug {seen.program.pid} interrupt trainer 2"
    assert seen.program.monarch(*command.split()[1:3], "list").returncode == 0
    odd.get_by_role("link", name="logs around then").click()
    tab.wait_for("h1", "Logs")
    # no longer so many seconds ago: the link can be sent
    page.wait_for_url(re.compile(r"since=\d"))


@pytest.mark.usefixtures("stuck")
def test_the_same_way_by_keyboard(tab: Tab) -> None:
    page = tab.open("now")
    tab.wait_for(".verdict.bad").press("Enter")
    odd = tab.wait_for("article.odd")
    odd.get_by_role("button", name="copy").press("Enter")
    odd.get_by_role("button", name="copied").wait_for()
    page.locator("h1").click()
    page.keyboard.press("3")
    tab.wait_for("h1", "Waits")
    tab.wait_for("td", "trainers[2]")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    ranks = page.get_by_role("slider", name="Ranks of trainers")
    ranks.press("End")
    tab.wait_for("dl", "rank 3 (hosts=1, gpus=1)".replace("rank ", ""))
    tab.wait_for('[aria-valuetext*="state waits"]')  # unknown while it has not been asked
    ranks.press("ArrowLeft")
    ranks.press("Enter")
    page.wait_for_url(re.compile("stacks.*rank=2"))


def test_a_pointer_on_a_cell_shows_its_rank(tab: Tab) -> None:
    page = tab.open("now")
    ranks = page.get_by_role("slider", name="Ranks of trainers")
    ranks.hover(position={"x": 5, "y": 5})
    tab.wait_for("dl", "0 (hosts=0, gpus=0)")


@pytest.mark.usefixtures("stuck")
@pytest.mark.parametrize("view", PAGES)
def test_each_page_complains_of_nothing_and_is_for_everybody(tab: Tab, view: str) -> None:
    page = tab.open(view)
    tab.wait_for({"now": ".verdict", "stacks": "article", "logs": ".line"}.get(view, "td"))
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        assert tab.violations() == []
    page.emulate_media(color_scheme="light")


def test_all_that_ranks_print_is_text(tab: Tab) -> None:
    page = tab.open("logs?mesh=trainers&rank=1")
    tab.wait_for(".line", "<img src=x onerror=alert(1)><script>alert(2)</script>")
    tab.wait_for(".line", "red \ufffdgnirts javascript:alert(3)")
    tab.wait_for(".line", "1,000,021 characters").click()
    assert len(tab.wait_for("pre", "begin of a long line").inner_text()) > 1_000_000
    assert page.locator("main img, main script, main a[href^='javascript']").count() == 0
    assert "\x1b" not in page.locator("main").inner_text()


def test_a_search_is_in_the_link_and_leads_to_what_others_said_then(tab: Tab) -> None:
    page = tab.open("logs")
    page.keyboard.press("/")
    page.keyboard.type("next to")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"grep=next\+to"))
    page.reload()
    tab.wait_for(".line", "next to last").click()
    page.get_by_role("link", name="what others said then").click()
    tab.wait_for(".line.here", "next to last")
    tab.wait_for(".line", "onerror")


def test_the_policy_of_the_pages_lets_nothing_inline_run(seen: Seen, tab: Tab) -> None:
    page = tab.open("waits")
    answer = page.request.get(f"{seen.url}/")
    assert answer.headers["content-security-policy"].startswith(
        "default-src 'self'; base-uri 'none'"
    )
    page.evaluate(
        "() => { document.body.insertAdjacentHTML('beforeend', '<b id=probe"
        ' style="color:red">x</b>\') }'
    )
    assert page.locator("#probe").evaluate("it => it.style.color") == ""
    assert [text for text in tab.complaints if "Content Security Policy" in text]
    tab.complaints.clear()


def test_integers_that_a_browser_would_round_are_shown_as_they_are(tab: Tab) -> None:
    page = tab.open("sql?q=SELECT+18446744073709551615%3A%3AUBIGINT+AS+n")
    tab.wait_for("td", "18446744073709551615")
    page.get_by_label("One statement").fill("SELEC")
    page.keyboard.press("Control+Enter")
    tab.wait_for("[role=alert]", "syntax error")
    # the console says that the server has refused it
    assert all("400" in text for text in tab.complaints)
    tab.complaints.clear()


@pytest.mark.usefixtures("stuck")
def test_after_the_helper_has_died_the_page_is_live_again(seen: Seen, tab: Tab) -> None:
    page = tab.open("now")
    tab.wait_for("[role=status]", "live")
    with page.expect_response(re.compile("/v1/now/events")) as again:
        os.kill(next(iter(descendants(seen.server))), signal.SIGKILL)
    assert again.value.status == 200
    tab.wait_for("[role=status]", "live")
    tab.wait_for(".verdict.bad")
    tab.complaints.clear()  # of the connection that was lost


def test_only_the_page_that_is_looked_at_asks(tab: Tab) -> None:
    page = tab.open("hosts")
    tab.wait_for("td", "trainers")
    tab.open("waits")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    # it has asked again since
    with page.expect_request("**/v1/waits*"), page.expect_request("**/v1/waits*"):
        pass
    assert {path for path in asked if not path.startswith("/assets/")} == {"/v1/waits"}


def test_the_failure_that_ends_the_program_is_the_last_that_is_shown(seen: Seen, tab: Tab) -> None:
    tab.open("sql?q=SELECT+pid+FROM+procs+WHERE+mesh+%3D+%27victims%27")
    tab.wait_for("[aria-label=Answer] th:only-child", "pid")  # not the answer before
    victim = int(tab.wait_for("[aria-label=Answer] td").inner_text())
    tab.open("now")
    tab.wait_for(".verdict")
    os.kill(victim, signal.SIGKILL)
    tab.wait_for("[role=status]", "the program has ended")
    tab.wait_for("article[aria-label='Mesh victims']", "1 failed")
    tab.wait_for(".verdict.bad", "SIGKILL")
    tab.wait_for("section[aria-label=Failures]", "SIGKILL")
    assert tab.page.get_by_role("alert").count() == 0
    # the server ends with the program: the browser notes itself what was asked a moment later
    gone = "Failed to load resource: net::ERR_CONNECTION_REFUSED"
    tab.complaints[:] = [each for each in tab.complaints if each != gone]
