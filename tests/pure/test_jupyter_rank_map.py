"""The map of ranks in a notebook: when its thread looks, and how large the picture is."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anywidget")

from monarch.jupyter import html, rank_map
from monarch.jupyter.rank_map import RankMap, RankMapWatch
from monarch.why.model import EXIT_STATUS

SOURCE = Path(rank_map.__file__).with_name("rank_map.js")


class Clock:
    """Seconds, that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(rank_map, "time", made)
    return made


def test_a_map_is_watched_for_a_minute_after_a_sign_and_a_cell_stops_the_clock(
    clock: Clock,
) -> None:
    watch = RankMapWatch()
    assert watch.is_watched
    clock.now += 61
    assert not watch.is_watched
    watch.see()
    clock.now += 30
    watch.cell_begins()
    clock.now += 3600
    assert watch.is_watched
    watch.cell_ends()
    clock.now += 29
    assert watch.is_watched
    clock.now += 2
    assert not watch.is_watched


def test_a_map_that_is_not_shown_rests_until_a_view_gives_a_sign(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Semaphore(0)

    def look(found: Any) -> None:
        clock.now += 100  # from now on nobody looks
        looks.release()

    monkeypatch.setattr(RankMap, "look", look)
    monkeypatch.setattr(rank_map, "_EASE", 0.0)
    before = set(threading.enumerate())
    shown = RankMap(seconds=0.001)
    (thread,) = set(threading.enumerate()) - before
    for beat in (1.0, 2.0, 3.0):
        assert looks.acquire(timeout=60)
        shown.beat = beat
    assert looks.acquire(timeout=60)
    assert not looks.acquire(blocking=False)
    shown.close()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_seconds_between_pictures_must_be_positive(seconds: float) -> None:
    with pytest.raises(ValueError, match="positive number"):
        RankMap(seconds)


def test_a_map_of_any_shape_fits_a_page(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("runs JavaScript; node is not installed")
    module = tmp_path / "rank_map.mjs"
    module.write_text(SOURCE.read_text())
    shapes: list[dict[str, int]] = [
        {"hosts": 2, "gpus": 8}, {"hosts": 256, "gpus": 8}, {"gpus": 10_000}, {"hosts": 1250, "gpus": 8}, {"hosts": 3, "gpus": 5000}, {},
    ]  # fmt: skip
    script = (
        f"import {{layout}} from {json.dumps(module.as_uri())};"
        f" console.log(JSON.stringify({json.dumps(shapes)}.map(shape =>"
        " layout(Object.values(shape).reduce((a, b) => a * b, 1), shape))))"
    )
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    assert all(
        each["columns"] * each["cell"] <= 660 and each["rows"] * each["cell"] <= 660
        for each in found
    ), found
    assert found[0]["columns"] == 8 and found[1]["columns"] % 8 == 0


def test_each_verdict_has_one_colour_in_a_map_and_in_html() -> None:
    source = SOURCE.read_text(encoding="utf-8")
    [line] = [line for line in source.splitlines() if "// verdicts" in line]
    assert html._COLOURS.keys() == EXIT_STATUS.keys()
    assert all(f'{status}: "{colour}"' in line for status, colour in html._COLOURS.items())
