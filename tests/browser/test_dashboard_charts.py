"""Charts of the dashboard, in a real browser: what is drawn, and what is said of it in words."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from helpers.browsers import Tab
from helpers.demo import Demo, demo
from helpers.terminals import running

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

pytestmark = pytest.mark.timeout(400)  # programs, hosts and a browser start on a busy machine

MARKUP = "<img src=x onerror=alert(1)>"

PROGRAM = f"""
    import select, sys
    from monarch.actor import Actor, endpoint, this_host
    from monarch.config import configure

    class Echo(Actor):
        @endpoint
        def echo(self):
            pass

    if __name__ == "__main__":
        configure(telemetry="sampled")
        actor = this_host().spawn_procs(name="procs").spawn({MARKUP!r}, Echo)
        print("go", flush=True)
        while not select.select([sys.stdin], [], [], 0.01)[0]:
            actor.echo.call_one().get()
    """

INK = """(canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const found = new Set();
    for (let at = 0; at < data.length; at += 4)
        if (data[at + 3] === 255) found.add(`${data[at]} ${data[at + 1]} ${data[at + 2]}`);
    return [...found];
}"""
"""The colours of a canvas."""


@pytest.fixture(scope="module")
def program() -> Iterator[Demo]:
    with demo(8, "straggler") as found:
        yield found


@pytest.fixture
def tab(browser: Any, program: Demo) -> Iterator[Tab]:
    context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {program.token}"})
    found = Tab(context, program.url)
    yield found
    context.close()
    assert found.complaints == [], found.refused


def chart(tab: Tab, label: str) -> Any:
    """A chart whose label has numbers."""
    found = tab.page.get_by_role("img", name=re.compile(rf"{label}, .* Last: .*\d"))
    found.wait_for()
    return found


def test_messages_of_actors_are_lines_that_a_screen_reader_reads_as_well(tab: Tab) -> None:
    page = tab.open("messages")
    said = chart(tab, "Handled per second").get_attribute("aria-label")
    values = {name: float(value) for name, value in re.findall(r"(\w+) ([\d.]+)[,.](?!\d)", said)}
    # a step takes eight ranks 1.3 s: there are seven or eight in the ten seconds of a point
    assert values.keys() >= {"trainer", "loader"} and 5 < values["trainer"] < 7
    figure = page.locator("figure", has_text="Handled per second")
    assert figure.locator("li", has_text="trainer").inner_text().split()[1] in said
    assert "trainer 0" in chart(tab, "Waiting").get_attribute("aria-label")
    colours = {}
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert tab.violations() == []
        colours[theme] = set(figure.locator("canvas").evaluate(INK))
    # of the third line, see style.css
    assert "29 111 52" in colours["light"] - colours["dark"]
    assert "81 200 120" in colours["dark"] - colours["light"]


def is_asked_for_what_is_new(response: Any) -> bool:
    text = response.request.post_data or ""
    return "FROM history" in text and re.search(r"timestamp_us >= \d+ AND", text) is not None


def test_after_ten_minutes_only_what_is_new_is_asked_for(tab: Tab) -> None:
    with tab.page.expect_response(is_asked_for_what_is_new) as again:
        tab.open("messages")
        begin = chart(tab, "Handled per second").get_attribute("aria-label").split()[3]
    assert again.value.status == 200
    points = {row["part"] for row in again.value.json()["rows"]}
    assert 6 <= len(points) <= 9  # the last minute, and since then
    page = tab.page
    page.locator(f"figure [aria-label*='{begin}']").first.wait_for(state="detached")
    first, last = re.findall(
        r"\d+:\d+:\d+", chart(tab, "Handled per second").get_attribute("aria-label")
    )
    seconds = [
        time.mktime(time.strptime(f"2026-01-01 {at}", "%Y-%m-%d %X")) for at in (first, last)
    ]
    assert (seconds[1] - seconds[0]) % 86_400 == 580  # 59 points
    assert re.search("trainer [56]", chart(tab, "Handled per second").get_attribute("aria-label"))


def test_load_and_memory_of_hosts_are_lines_over_ten_minutes(tab: Tab, program: Demo) -> None:
    tab.open("hosts")
    said = chart(tab, "Memory in use").get_attribute("aria-label")
    first, last = (
        time.mktime(time.strptime(f"2026-01-01 {at}", "%Y-%m-%d %X"))
        for at in re.findall(r"\d+:\d+:\d+", said)
    )
    assert (last - first) % 86_400 >= 570
    # eight ranks of 38 GiB and their loader; on the other host what counts steps
    of_hosts = [float(found) for found in re.findall(r"([\d.]+) GiB", said)]
    assert len(of_hosts) == 2 and 300 < max(of_hosts) < 500
    assert re.search(r"[1-9]", chart(tab, "Load").get_attribute("aria-label"))
    assert tab.violations() == []


def test_gpus_are_lines_over_ten_minutes_as_soon_as_one_looks(tab: Tab) -> None:
    tab.open("hosts")
    said = chart(tab, "GPUs busy").get_attribute("aria-label")
    first, last = (
        time.mktime(time.strptime(f"2026-01-01 {at}", "%Y-%m-%d %X"))
        for at in re.findall(r"\d+:\d+:\d+", said)
    )
    assert (last - first) % 86_400 >= 570
    lowest, median, highest = (
        int(re.findall(rf"{name} (\d+) %", said)[0]) for name in ("lowest", "median", "highest")
    )
    assert 88 <= lowest <= median <= highest <= 96
    # 71 GiB of 80, and what the driver takes
    assert "highest 89 %" in chart(tab, "Memory of GPUs").get_attribute("aria-label")


def test_of_many_hosts_the_highest_the_median_and_the_lowest_are_lines(browser: Any) -> None:
    with demo(256, "missing-collective") as many:
        headers = {"Authorization": f"Bearer {many.token}"}
        context = browser.new_context(extra_http_headers=headers)
        tab = Tab(context, many.url)
        tab.open("hosts")
        said = chart(tab, "Load").get_attribute("aria-label")
        highest, lowest, median = (
            float(re.findall(rf"{name} ([\d.]*\d)", said)[0])
            for name in ("highest", "lowest", "median")
        )
        assert lowest <= median <= highest and highest > 0
        assert tab.complaints == [], tab.refused
        context.close()


def test_a_chart_is_as_wide_as_the_page_and_a_pointer_reads_it(tab: Tab) -> None:
    page = tab.open("messages")
    chart(tab, "Handled per second")  # before that its place alone is there
    canvas = page.locator("figure canvas").first
    widths = []
    for width in (1200, 500):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function(
            "() => [...document.querySelectorAll('figure')].every(({ clientWidth }, at) =>"
            " document.querySelectorAll('figure canvas')[at].clientWidth === clientWidth)"
        )
        widths.append(int(canvas.evaluate("it => it.clientWidth")))
    assert widths[1] < widths[0] and widths[1] < 500
    before = page.locator("figcaption .quiet").first.inner_text()
    page.locator("figure .u-over").first.hover(position={"x": 20, "y": 60})
    page.wait_for_function(
        "before => document.querySelector('figcaption .quiet').textContent < before", arg=before
    )


def test_an_earlier_time_has_the_ten_minutes_before_it(tab: Tab, program: Demo) -> None:
    at = program.began - 30
    tab.open(f"messages?at={at:.3f}")
    said = chart(tab, "Handled per second").get_attribute("aria-label")
    end = time.strftime("%H:%M:%S", time.localtime((at // 10 - 1) * 10))
    assert f"to {end}. Last:" in said
    assert re.search(r"trainer [56]", said)


def test_the_slowest_rank_of_each_step_is_a_line_above_the_median(tab: Tab) -> None:
    tab.open("stragglers")
    said = chart(tab, "Time of each step").get_attribute("aria-label")
    took = re.fullmatch(
        r".*Last: trainers, median ([\d.]+) s, trainers, slowest ([\d.]+) s\.", said
    )
    assert took is not None and 1.2 <= float(took[1]) < 1.5 < float(took[2]) < 2
    assert tab.violations() == []


OVER_TIME = """
    SELECT y.timestamp_us // 10000000 * 10000000 AS at_us, h.machine, avg(y.load_1m) AS load
    FROM host_history y JOIN hosts h ON h.id = y.host_id GROUP BY ALL ORDER BY ALL"""


def test_an_answer_with_times_is_drawn_and_the_tables_of_today_come_first(tab: Tab) -> None:
    page = tab.open(f"sql?{urlencode({'q': ' '.join(OVER_TIME.split())})}")
    said = chart(tab, "Over time").get_attribute("aria-label")
    assert re.search(r"head \d+\.?\d*, trainers\[0\] on h0 \d", said), said
    page.locator("main > dl dt").nth(11).wait_for()  # of another question than the chart's
    tables = page.locator("main > dl dt").all_inner_texts()
    assert tables[:3] == ["procs", "actors", "hosts"] and len(tables) == 12
    page.locator("summary", has_text="others").click()
    page.locator("details dt", has_text="root_nodes").wait_for()
    tab.open("sql?q=SELECT+mesh,+count(*)+AS+ranks+FROM+procs+GROUP+BY+mesh")
    tab.wait_for("td", re.compile("^trainers$"))
    assert page.locator("figure").count() == 0
    assert tab.violations() == []


IDLE = """
    import sys
    from monarch.actor import Actor, endpoint, this_host
    from monarch.config import configure

    class Echo(Actor):
        @endpoint
        def echo(self):
            pass

    if __name__ == "__main__":
        configure(telemetry="all")
        actor = this_host().spawn_procs(name="procs").spawn("echo", Echo)
        actor.echo.call_one().get()
        print("idle", flush=True)
        sys.stdin.read()
    """


def test_a_timeline_without_calls_opens_on_the_last_ones(browser: Any, tmp_path: Path) -> None:
    with running(IDLE, tmp_path) as program:
        program.wait_for("idle")
        now = time.time()
        with program.start_monarch("dashboard", str(program.pid), "--no-browser") as server:
            assert server.stdout is not None
            link = server.stdout.readline().strip()
            where = urlsplit(link)
            told = {"now": now + 600, "runs": True}  # as if it had been idle for so long
            context = browser.new_context()
            try:
                tab = Tab(context, f"{where.scheme}://{where.netloc}")
                tab.page.route(re.compile(r"/v1/time\b"), lambda route: route.fulfill(json=told))
                tab.page.goto(link)
                tab.wait_for(".verdict")
                page = tab.open("timeline")
                page.wait_for_url(re.compile(r"at=\d"))
                at = float(re.findall(r"at=([\d.]+)", page.url)[0])
                assert now - 60 < at < now + 60
                tab.wait_for("[aria-label='What this rank did'] td", "echo")
                assert tab.complaints == [], tab.refused
            finally:
                context.close()
                server.send_signal(signal.SIGINT)


def test_the_name_of_an_actor_is_text_in_a_chart(browser: Any, tmp_path: Path) -> None:
    with running(PROGRAM, tmp_path) as program:
        program.wait_for("go")
        with program.start_monarch("dashboard", str(program.pid), "--no-browser") as server:
            assert server.stdout is not None
            link = server.stdout.readline().strip()
            where = urlsplit(link)
            context = browser.new_context()
            tab = Tab(context, f"{where.scheme}://{where.netloc}")
            tab.page.goto(link)
            tab.wait_for(".verdict")
            page = tab.open("messages")
            read = re.compile(rf"Handled per second.* {re.escape(MARKUP)} [\d.]*[1-9]")
            page.get_by_role("img", name=read).wait_for()
            tab.wait_for("figure li", MARKUP)
            assert page.locator("main img").count() == 0
            assert tab.complaints == [], tab.refused
            context.close()
            server.send_signal(signal.SIGINT)
