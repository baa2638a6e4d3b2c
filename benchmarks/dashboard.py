"""How soon the dashboard shows something, and what it costs to leave it open:
`python -m benchmarks.dashboard`.

The page Now of `benchmarks.demo`, in chromium. Needs the extras `admin` and `telemetry`, playwright,
and /usr/bin/chromium. For each number of ranks, the least and the median of several runs:

    paint     from the link until the browser paints something, while the helper starts
    cold      from the link to the map of all ranks, while the helper starts; then to the verdict, which takes two looks a second apart
    warm      the same, of the page loaded again, with a helper that runs; and for how many seconds that computes
    cpu       of the browser's tab, of the whole browser, and of the helper, in per cent of a core, while one looks
    memory    of the helper, and what the page's scripts have in use

With `--pairs` it measures instead what a page costs to the job that it shows: processor time of all
its processes for a step (client, host agent, spawners, ranks), and steps in a second, with Now open
and not, by turns.

Times of the clock are those of a machine and an hour; on a busy one, compare processor time. Of the
helper that is also what simulating all ranks takes.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import monarch

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
]
PATIENCE = 120_000  # milliseconds
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
MAP, VERDICT = "article[aria-label='Mesh trainers'] canvas", ".verdict"
COLUMNS = (
    "ranks",
    "of runs",
    "paint s",
    "cold s",
    "verdict s",
    "warm s",
    "verdict s",
    "map cpu s",
    "verdict cpu s",
    "tab %",
    "browser %",
    "helper %",
    "helper MB",
    "page MB",
)
_TICK = os.sysconf("SC_CLK_TCK")


def below(pid: int) -> list[int]:
    """A process and all that it has started."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError):  # the thread has ended
            found += [each for child in children.read_text().split() for each in below(int(child))]
    return found


def cpu(pids: list[int]) -> float:
    """Seconds that processes have computed."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


def resident(pid: int) -> float:
    """Megabytes of memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def demo(ranks: int) -> Iterator[tuple[int, str]]:
    """The process of one, and the link that lets in."""
    command = [sys.executable, "-m", "benchmarks.demo", "--json", "--ranks", str(ranks)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.pid, json.loads(process.stdout.readline())["link"]
        finally:
            process.send_signal(signal.SIGINT)


def measured(browser: Any, browser_pid: int, ranks: int, seconds: float) -> list[float]:
    """A row of the table."""
    with demo(ranks) as (program, link):
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE)
        row = [took for took, _ in shown(page, link, program)]
        row.insert(0, page.evaluate(PAINTED) / 1000)
        (helper,) = below(program)[1:]
        page.goto("about:blank")
        time.sleep(5)  # until what was found for the first page is too old for the second
        again = shown(page, link.partition("/login")[0], helper)
        row += [took for took, _ in again] + [computed for _, computed in again]
        metrics = page.context.new_cdp_session(page)
        metrics.send("Performance.enable")
        before = task(metrics), cpu(below(browser_pid)), cpu([helper])
        time.sleep(seconds)
        after = task(metrics), cpu(below(browser_pid)), cpu([helper])
        row += [100 * (late - early) / seconds for early, late in zip(before, after, strict=True)]
        row += [resident(helper), metric(metrics, "JSHeapUsedSize") / 1e6]
        page.close()
        return row


def shown(page: Any, url: str, pid: int) -> list[tuple[float, float]]:
    """After how many seconds the map is there, and the verdict; and for how many a process has
    computed by then.
    """
    begun, computed, found = time.monotonic(), cpu([pid]), []
    page.goto(url)
    for selector in (MAP, VERDICT):
        page.locator(selector).first.wait_for()
        found.append((time.monotonic() - begun, cpu([pid]) - computed))
    return found


def metric(session: Any, name: str) -> float:
    """One of chromium's own."""
    return float(
        next(
            each["value"]
            for each in session.send("Performance.getMetrics")["metrics"]
            if each["name"] == name
        )
    )


def task(session: Any) -> float:
    """Seconds that the tab's main thread has worked."""
    return metric(session, "TaskDuration")


def speed(browser: Any, browser_pid: int, sizes: Iterable[int], runs: int, seconds: float) -> None:
    """Print how soon Now is there, and what it takes, for each number of ranks."""
    print("| " + " | ".join(COLUMNS) + " |\n|" + " ---: |" * len(COLUMNS))
    for ranks in sizes:
        rows = [measured(browser, browser_pid, ranks, seconds) for _ in range(runs)]
        for name, chosen in (("least", min), ("median", statistics.median)):
            values = " | ".join(f"{chosen(column):.1f}" for column in zip(*rows, strict=True))
            print(f"| {ranks:,} | {name} | {values} |", flush=True)


def cost(browser: Any, pairs: int, seconds: float) -> None:
    """Print what Now costs the processes that it shows, pair by pair, and the medians."""
    print("| cpu of a step % | steps in a second % | cpu ms in a second |\n|" + " ---: |" * 3)
    with tempfile.NamedTemporaryFile() as counted:
        counted.truncate(8)
        command = [sys.executable, "-m", "benchmarks.workloads._watched", counted.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            link = json.loads(program.stdout.readline())["link"]
            job = below(program.pid)  # the helper is not there yet
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(PATIENCE)
            page.goto(link)
            rows = []
            for number in range(pairs):
                seen = {}
                for url in ("about:blank", link.partition("/login")[0])[:: (-1) ** number]:
                    page.goto(url)
                    if url != "about:blank":
                        page.locator(VERDICT).first.wait_for()
                    time.sleep(3)  # until what was begun for the page before has ended
                    seen[url == "about:blank"] = per_step(job, counted.name, seconds)
                (step, pace), (plain, usual) = seen[False], seen[True]
                rows.append(
                    (
                        100 * (step / plain - 1),
                        100 * (pace / usual - 1),
                        1000 * (step - plain) * pace,
                    )
                )
                print("| " + " | ".join(f"{each:+.1f}" for each in rows[-1]) + " |", flush=True)
            medians = [statistics.median(column) for column in zip(*rows, strict=True)]
            print("| " + " | ".join(f"{each:+.1f}" for each in medians) + " | median")
            program.kill()


def per_step(pids: list[int], counted: str, seconds: float) -> tuple[float, float]:
    """Seconds that processes compute for a step, and steps in a second."""

    def now() -> tuple[float, int, float]:
        return (
            cpu(pids),
            int.from_bytes(Path(counted).read_bytes(), sys.byteorder),
            time.monotonic(),
        )

    before = now()
    time.sleep(seconds)
    computed, steps, took = (late - early for early, late in zip(before, now(), strict=True))
    return computed / steps, steps / took


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="for which the page is left open"
    )
    parser.add_argument("--runs", type=int, default=5, help="of each number of ranks")
    parser.add_argument("--pairs", type=int, default=0, help="of times with Now open, and not")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody compiles a package at each start
    compileall.compile_dir(str(Path(monarch.__file__).parent), quiet=2)  # as pip does
    with sync_playwright() as driver:
        own = set(below(os.getpid()))
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        browser_pid = next(pid for pid in below(os.getpid()) if pid not in own)
        if options.pairs:
            cost(browser, options.pairs, options.seconds)
        else:
            speed(browser, browser_pid, options.ranks, options.runs, options.seconds)
        browser.close()


if __name__ == "__main__":
    main()
