"""Rows of whole pieces of work: who takes a turn when, what becomes of the numbers, and what is
said of who failed.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import environments, processes
from benchmarks.end_to_end import contenders
from benchmarks.end_to_end.__main__ import rows
from benchmarks.end_to_end.contenders import OURS, Contender, Found, Quantity, Row
from benchmarks.end_to_end.programs.http_load import load
from benchmarks.end_to_end.programs.rank_killed import Plan
from benchmarks.end_to_end.rank_killed import AGAIN, ALL, STILL, outcome
from benchmarks.environments import EnvironmentProblem
from benchmarks.targets import Target

NUMBERS = {OURS: 2.0, "slow": 12.0, "slower": 24.0}


def nothing() -> dict[str, float]:
    raise AssertionError("measured in this process")


def a_row() -> Row:
    targets = {"slow": Target(5, 10), "slower": Target(5, 10)}
    return Row(
        "row",
        "Some work",
        {
            OURS: Contender(nothing, ("json",)),
            "slow": Contender(nothing),
            "slower": Contender(nothing),
            "absent": Contender(nothing, ("json", "no_such_module_here")),
        },
        {
            "all": Quantity("s", targets),
            "lost": Quantity("steps"),
        },
    )


def numbers(row: Row, name: str, settings: Mapping[str, int]) -> dict[str, float]:
    return {"all": NUMBERS[name], "lost": 0.0 if name == OURS else 3.0}


def failing(name: str) -> Callable[..., dict[str, float]]:
    def take(row: Row, asked: str, settings: Mapping[str, int]) -> dict[str, float]:
        if asked == name:
            raise RuntimeError("exit status 3: it broke")
        return numbers(row, asked, settings)

    return take


def line_of(text: str, name: str, at: int = 0) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in lines[at].split("|")[2:-1]]


def test_contenders_take_turns_and_every_second_round_is_reversed() -> None:
    asked: list[str] = []

    def take(row: Row, name: str, settings: Mapping[str, int]) -> dict[str, float]:
        asked.append(name)
        return numbers(row, name, settings)

    contenders.compare(a_row(), {}, 2, take)
    assert asked == [OURS, "slow", "slower", "slower", "slow", OURS]


def test_who_is_not_installed_is_left_out_and_said() -> None:
    found = contenders.compare(a_row(), {}, 1, numbers)
    assert found.missing == {"absent": "no_such_module_here"}
    assert "absent was left out, as it is not installed: no_such_module_here" in contenders.table(
        a_row(), found
    )


def a_row_with_an_environment() -> Row:
    row = a_row()
    other = Contender(nothing, requirement="slow==1.2")
    return replace(row, contenders={**row.contenders, "slow": other})


def test_who_has_a_requirement_is_there_if_its_environment_can_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def make(requirement: str, say: Callable[[str], None]) -> Path:
        made.append(requirement)
        return Path("python")

    monkeypatch.setattr(environments, "ensure_venv", make)
    found = contenders.compare(a_row_with_an_environment(), {}, 1, numbers)
    assert made == ["slow==1.2"]
    assert found.samples("slow", "all") == [12.0]
    assert found.versions["slow"] == "1.2"


def test_who_has_no_environment_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(requirement: str, say: Callable[[str], None]) -> Path:
        raise EnvironmentProblem("making .venv-slow failed at: install slow")

    monkeypatch.setattr(environments, "ensure_venv", refuse)
    found = contenders.compare(a_row_with_an_environment(), {}, 1, numbers)
    assert "making .venv-slow failed" in contenders.table(a_row_with_an_environment(), found)
    assert found.samples("slower", "all") == [24.0]


def test_who_fails_is_not_asked_again_and_has_a_line_that_says_so() -> None:
    found = contenders.compare(a_row(), {}, 3, failing("slow"))
    assert found.rounds["slow"] == []
    text = contenders.table(a_row(), found)
    assert "slow failed: exit status 3: it broke" in text
    assert line_of(text, "slow")[0] == "failed"
    assert line_of(text, "slower")[-1] == "met"


def test_numbers_of_rounds_before_a_failure_are_not_judged() -> None:
    found = Found(
        "row",
        {},
        {},
        rounds={OURS: [{"all": 1.0}], "slow": [{"all": 9.0}]},
        errors={"slow": "it broke"},
    )
    assert found.samples("slow", "all") == []
    assert found.times_better("slow", "all", Quantity("s")) is None


def test_where_ours_failed_others_are_shown_and_not_judged() -> None:
    found = contenders.compare(a_row(), {}, 1, failing(OURS))
    assert line_of(contenders.table(a_row(), found), "slow") == [
        "12.0",
        "12.0",
        "-",
        "5.00x",
        "10x",
        "-",
    ]


def test_ratios_compare_medians_and_verdicts_follow_them() -> None:
    text = contenders.table(a_row(), contenders.compare(a_row(), {}, 1, numbers))
    assert line_of(text, OURS) == ["2.00", "2.00", "-", "-", "-", "-"]
    assert line_of(text, "slow") == ["12.0", "12.0", "6.00x", "5.00x", "10x", "must met"]
    assert line_of(text, "slower") == ["24.0", "24.0", "12.0x", "5.00x", "10x", "met"]


def test_nothing_lost_is_endlessly_better_than_something() -> None:
    found = contenders.compare(a_row(), {}, 1, numbers)
    assert found.times_better("slow", "lost", a_row().quantities["lost"]) == math.inf
    assert line_of(contenders.table(a_row(), found), "slow", at=1)[2] == "∞"


def test_more_is_better_where_the_row_says_so() -> None:
    found = Found("row", {}, {}, rounds={OURS: [{"all": 30.0}], "slow": [{"all": 10.0}]})
    assert found.times_better(
        "slow", "all", Quantity("samples/s", better="higher")
    ) == pytest.approx(3)


def test_what_is_kept_comes_back_and_has_each_sample(tmp_path: Path) -> None:
    found = contenders.compare(a_row(), {"tasks": 5}, 2, failing("slow"))
    contenders.save(found, tmp_path / "kept" / "row.json")
    assert contenders.load(tmp_path / "kept" / "row.json") == found
    kept = json.loads((tmp_path / "kept" / "row.json").read_text())
    assert [each["all"] for each in kept["rounds"]["slower"]] == [24.0, 24.0]


def test_each_row_is_found_under_the_name_of_its_module() -> None:
    assert "benchmarks.end_to_end.tasks" in rows()
    for name in rows():
        module = __import__(name, fromlist=["ROW"])
        assert name == f"benchmarks.end_to_end.{module.ROW.name}"
        assert next(iter(module.ROW.contenders)) == OURS
        judged = {
            other for quantity in module.ROW.quantities.values() for other in quantity.targets
        }
        assert judged <= {*module.ROW.contenders} - {OURS}


def test_of_a_killed_rank_is_told_how_long_nothing_new_was_done_and_what_again() -> None:
    def done(at: float, step: int, ranks: int) -> list[str]:
        return [f"done {step} {rank} {ranks} {at + rank}" for rank in range(ranks)]

    plan = Plan("", 6, 3)
    before = [line for step in range(3) for line in done(10 * step, step, 4)]
    from_checkpoint = [line for step in range(1, 6) for line in done(100 + 10 * step, step, 4)]
    assert outcome([*before, "killed 25.0", *from_checkpoint], plan) == {
        STILL: 105.0,
        ALL: 105.0,
        AGAIN: 2.0,
    }
    fewer = [*done(30, 3, 3), *done(40, 4, 4), *done(50, 5, 4)]
    assert outcome([*before, "killed 25.0", *fewer], plan) == {STILL: 5.0, ALL: 15.0, AGAIN: 0.0}
    with pytest.raises(RuntimeError, match="0 ranks were killed, 3 of 6 steps"):
        outcome(before, plan)


LEAVES_ONE_BEHIND = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print('FOUND {"lost": 1.0}')
"""


def test_what_a_contender_leaves_in_a_session_of_its_own_ends_with_its_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark = processes.new_mark()
    monkeypatch.setattr(processes, "new_mark", lambda: mark)
    monkeypatch.setattr(contenders, "_LEAVE_S", 0.0)
    monkeypatch.setattr(contenders, "ROOT", tmp_path)
    program = tmp_path / contenders.__package__.replace(".", "/") / "row.py"
    program.parent.mkdir(parents=True)
    program.write_text(LEAVES_ONE_BEHIND)
    assert contenders.turn(a_row(), OURS, {}) == {"lost": 1.0}
    assert processes.marked(mark) == set()


def test_a_server_that_answers_wrongly_ends_its_load() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n-1")
        await writer.drain()
        writer.close()

    async def loaded() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            await load(server.sockets[0].getsockname()[1], 4, 2)

    with pytest.raises(RuntimeError, match="asked for 0 twice, got -1"):
        asyncio.run(loaded())
