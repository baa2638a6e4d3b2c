"""The terminal's table, the markdown, the blocks of the pages, and the stored forms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import results
from benchmarks.machine import describe, scrub
from benchmarks.report import (
    BEGIN,
    END,
    align,
    markdown,
    number,
    summary,
    table,
    update_block,
)

from bench.bench_samples import mixed_report, report, row, side


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, "-"),
        (0, "0"),
        (0.01234, "0.0123"),
        (4.5678, "4.57"),
        (78.94, "78.9"),
        (499.6, "500"),
        (12_345, "12,300"),
        (2_104_000.0, "2,100,000"),
    ],
)
def test_numbers_show_three_significant_digits(value: float | None, wanted: str) -> None:
    assert number(value) == wanted


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_are_on_the_right() -> None:
    assert align([["name", "n"], ["a", "100"], ["long name", "5"]], right={1}).splitlines() == [
        "name         n",
        "---------  ---",
        "a          100",
        "long name    5",
    ]


def test_the_table_has_a_line_for_the_floor_and_for_each_workload() -> None:
    lines = table(mixed_report()).splitlines()
    cells = {line.split()[0]: line.split() for line in lines[2:6]}
    assert cells["floor"][:3] == ["floor", "µs", "20.0"]
    assert cells["call_one_sync"] == [
        "call_one_sync",
        "µs",
        "20.0",
        "39.0",
        "490",
        "12.6x",
        "5x",
        "10x,",
        "2",
        "floors",
        "met",
    ]
    assert cells["one_way"] == [
        "one_way",
        "/s",
        "-",
        "20,000",
        "25,000",
        "0.80x",
        "4x",
        "10x",
        "not",
        "met",
    ]
    assert cells["spawn_64"] == [
        "spawn_64",
        "s",
        "-",
        "failed",
        "12.0",
        "-",
        "10x",
        "<",
        "1",
        "s",
        "failed",
    ]


def test_below_the_table_stand_the_contestants_the_machine_and_the_failures() -> None:
    text = table(mixed_report())
    for wanted in (
        "pymonarch 0.1.0",
        "torchmonarch 0.7.0",
        "Some CPU, 2 cores",
        "spawn_64, this: round 1: no end within",
    ):
        assert wanted in text


def test_a_floor_that_failed_is_said() -> None:
    broken = replace(mixed_report(), floor=side(error="round 1: exit status 1"))
    assert "floor: round 1: exit status 1" in table(broken)


def test_markdown_rows_have_as_many_cells_as_the_header() -> None:
    lines = [line for line in markdown(mixed_report()).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 3
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert "| 12.6x |" in lines[2]


def test_markdown_shows_the_plot_only_if_there_is_one() -> None:
    assert "docs/benchmarks.png" in markdown(mixed_report(), "docs/benchmarks.png")
    assert "](" not in markdown(mixed_report())


def test_the_summary_counts_the_rows_of_all_reports_that_have_a_ratio() -> None:
    plot, _, text = summary([mixed_report(), mixed_report()], "docs/benchmarks.png").splitlines()
    assert plot == "![pymonarch 0.1.0 against torchmonarch 0.7.0](docs/benchmarks.png)"
    assert text.startswith("Ahead in 2 of 4 rows, by 0.80x to 12.6x, median 6.68x. Measured on ")


def test_the_block_between_the_markers_is_replaced_and_nothing_else() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    updated = update_block(text, "new\n")
    assert updated == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert update_block(updated, "new") == updated


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END} {BEGIN}", f"{BEGIN} {END} {BEGIN} {END}"])
def test_a_readme_without_exactly_one_block_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="benchmarks:begin"):
        update_block(text, "new")


def test_a_stored_report_comes_back_equal(tmp_path: Path) -> None:
    stored = tmp_path / "results" / "latest.json"
    results.save(mixed_report(), stored)
    assert results.load(stored) == mixed_report()


def test_a_report_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 99"):
        results.from_document({"format": 99})


def test_each_json_line_stands_alone() -> None:
    lines = [json.loads(line) for line in results.to_lines(mixed_report())]
    assert [(line["name"], line["verdict"]) for line in lines] == [
        ("call_one_sync", "met"),
        ("one_way", "not met"),
        ("spawn_64", "failed"),
    ]
    assert all(line["machine"]["cpu"] == "Some CPU" and line["rounds"] == 3 for line in lines)
    assert lines[0]["this"]["value"] == 39.0


def test_the_machine_is_described_without_names() -> None:
    described = describe()
    assert {"cpu", "cores", "memory_gib", "kernel", "python"} <= set(described)
    assert "/" not in str(described["cpu"])


def test_scrubbing_leaves_the_last_part_of_a_path_and_no_host_or_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "bighost")
    monkeypatch.setattr("getpass.getuser", lambda: "alice")
    text = (
        "File '/home/alice/x/run.py' on bighost: alice saw 5 /s and monarch.actor (/opt/lib/a.so)"
    )
    assert scrub(text) == "File 'run.py' on ...: ... saw 5 /s and monarch.actor (a.so)"


def test_the_plot_is_drawn_for_rows_with_two_values(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.plot import draw

    draw(mixed_report(), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="nothing to plot"):
        draw(report(row("call_8", side(1.0), None)), tmp_path / "none.png")
