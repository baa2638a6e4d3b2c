"""Log files are read by time, over rotation, rubbish and crashes: `monarch.logs.reader`."""

from __future__ import annotations

import itertools
import json
import os
import random
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.logs import reader
from monarch.logs.filter import LineFilter
from monarch.logs.line import LogLine
from monarch.logs.reader import MergedLines, RankFile
from monarch.telemetry import log_lines
from monarch.telemetry.answer import of_rows
from monarch.telemetry.registry import Asked


@pytest.fixture(autouse=True)
def _close_readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[MergedLines] = []
    begin = MergedLines.__init__

    def noted(self: MergedLines, *args: Any) -> None:
        made.append(self)
        begin(self, *args)

    monkeypatch.setattr(MergedLines, "__init__", noted)
    yield
    for each in made:
        each.close()


def line(
    time: float, text: str = "", rank: int = 0, host: str = "h0", mesh: str = "trainers"
) -> LogLine:
    return LogLine(time, "stdout", 0, text or f"at {time:g}", host, mesh, rank, f"gpus={rank}")


def path_of(folder: Path, rank: int = 0, host: str = "h0", part: int = 0) -> Path:
    (folder / host).mkdir(exist_ok=True)
    return folder / host / (f"trainers_{rank}.jsonl" + (f".{part}" if part else ""))


def write(path: Path, lines: Iterable[LogLine | str | bytes]) -> None:
    with path.open("ab") as file:
        for each in lines:
            text = each.to_json() + "\n" if isinstance(each, LogLine) else each
            file.write(text if isinstance(text, bytes) else text.encode())


def rotate(path: Path, keep: int = 3) -> None:
    def part(number: int) -> Path:
        return path.with_name(f"{path.name}.{number}") if number else path

    there = next(number for number in itertools.count() if not part(number).exists())
    for number in range(min(there, keep), 0, -1):
        part(number - 1).rename(part(number))


def texts(found: Iterable[LogLine]) -> list[str]:
    return [each.text for each in found]


def times(found: Iterable[LogLine]) -> list[float]:
    return [each.time for each in found]


def test_lines_of_all_ranks_and_hosts_are_merged_by_time(tmp_path: Path) -> None:
    write(path_of(tmp_path, 0), [line(1), line(4)])
    write(path_of(tmp_path, 1), [line(2, rank=1), line(5, rank=1)])
    write(path_of(tmp_path, 2, "h1"), [line(3, rank=2, host="h1"), line(6, rank=2, host="h1")])
    lines = MergedLines(tmp_path)
    assert [(each.time, each.rank) for each in lines.read()] == [
        (1, 0),
        (2, 1),
        (3, 2),
        (4, 0),
        (5, 1),
        (6, 2),
    ]
    assert lines.find() == ["h0", "h1"] and lines.rubbish == 0


def test_lines_of_one_rank_stay_in_order_against_their_times(tmp_path: Path) -> None:
    write(
        path_of(tmp_path, 0), [line(5, "made first"), line(3, "made second"), line(6, "made third")]
    )
    write(path_of(tmp_path, 1), [line(4, "of another", rank=1), line(5.5, "of another", rank=1)])
    found = texts(each for each in MergedLines(tmp_path).read() if each.rank == 0)
    assert found == ["made first", "made second", "made third"]


def test_what_was_read_is_not_read_again_and_what_is_added_is(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    lines = MergedLines(tmp_path)
    assert texts(lines.read()) == []
    write(path, [line(1)])
    assert texts(lines.read()) == ["at 1"]
    assert texts(lines.read()) == []
    write(path, [line(2)])
    write(path_of(tmp_path, 7, "h9"), [line(1.5, "a new rank", rank=7)])
    assert texts(lines.read()) == ["a new rank", "at 2"]


def test_a_line_that_is_written_in_two_pieces_is_read_once_it_is_whole(tmp_path: Path) -> None:
    text = line(1, "whole").to_json() + "\n"
    lines = MergedLines(tmp_path)
    write(path_of(tmp_path), [text[:20]])
    assert texts(lines.read()) == []
    write(path_of(tmp_path), [text[20:-1]])
    assert texts(lines.read()) == []
    write(path_of(tmp_path), ["\n"])
    assert texts(lines.read()) == ["whole"] and lines.rubbish == 0


def test_files_of_some_hosts_can_be_left_to_others(tmp_path: Path) -> None:
    write(path_of(tmp_path, 0, "h0"), [line(1)])
    write(path_of(tmp_path, 0, "h1"), [line(2)])
    assert times(MergedLines(tmp_path, LineFilter(), ["h0"]).read()) == [2]


def test_rotated_files_are_read_first(tmp_path: Path) -> None:
    for part, time in ((2, 1.0), (1, 2.0), (0, 3.0)):
        write(path_of(tmp_path, part=part), [line(time), line(time + 0.5)])
    assert times(MergedLines(tmp_path).read()) == [1, 1.5, 2, 2.5, 3, 3.5]


def test_a_file_that_is_missing_for_a_moment_hides_no_older_one(tmp_path: Path) -> None:
    write(path_of(tmp_path, part=2), [line(1)])
    write(path_of(tmp_path), [line(3)])
    assert times(MergedLines(tmp_path).read()) == [1, 3]


@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_rotation_between_two_reads_loses_nothing(tmp_path: Path, rotations: int) -> None:
    path = path_of(tmp_path)
    lines = MergedLines(tmp_path)
    write(path, [line(1)])
    assert times(lines.read()) == [1]
    write(path, [line(2)])
    expected = [2.0]
    for number in range(rotations):
        rotate(path)
        write(path, [line(number + 3)])
        expected.append(number + 3)
    assert times(lines.read()) == expected
    write(path, [line(9)])
    assert times(lines.read()) == [9]


def test_what_was_rotated_away_between_two_reads_is_skipped_and_the_rest_is_read(
    tmp_path: Path,
) -> None:
    path = path_of(tmp_path)
    lines = MergedLines(tmp_path)
    write(path, [line(1)])
    assert times(lines.read()) == [1]
    write(path, [line(2)])  # is read even so: the file is open
    for number in range(6):
        rotate(path, keep=2)
        write(path, [line(number + 3)])
    assert times(lines.read()) == [2, 6, 7, 8]


def test_a_file_that_was_emptied_is_read_from_its_start(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    lines = MergedLines(tmp_path)
    write(path, [line(1), line(2), b'{"time": 3, "torn'])
    assert times(lines.read()) == [1, 2]
    os.truncate(path, 0)
    write(path, [line(4)])
    assert times(lines.read()) == [4] and lines.rubbish == 1


RUBBISH = [
    b"\xff\xfe\x00binary\n",
    b"Traceback (most recent call last):\n",
    b"[1, 2]\n",
    b'"text"\n',
    b"null\n",
    b"{}\n",
    b'{"time": "noon", "stream": "stdout", "level": 0, "rank": 0}\n',
    b'{"time": NaN, "stream": "stdout", "level": 0, "rank": 0}\n',
    b'{"time": 1e999, "stream": "stdout", "level": 0, "rank": 0}\n',
    b'{"time": ' + b"9" * 400 + b', "stream": "stdout", "level": 0, "rank": 0}\n',
    b'{"time": 1, "stream": "stdout", "level": 0, "rank": 0, "text": ["a"]}\n',
    b"[" * 100_000 + b"\n",
    b"\x00" * 100_000 + b"x\n",
    b'{"time": 1, "stre\n',
]


@pytest.mark.parametrize("rubbish", RUBBISH, ids=range(len(RUBBISH)))
def test_rubbish_between_lines_is_passed_over_and_counted(tmp_path: Path, rubbish: bytes) -> None:
    write(path_of(tmp_path), [line(1), rubbish, line(2)])
    lines = MergedLines(tmp_path)
    assert times(lines.read()) == [1, 2] and lines.rubbish == 1


def test_empty_lines_and_what_a_crash_leaves_as_zeros_are_not_counted(tmp_path: Path) -> None:
    write(path_of(tmp_path), [line(1), b"\n\r\n" + b"\0" * 4096 + b"\n", line(2)])
    lines = MergedLines(tmp_path)
    assert times(lines.read()) == [1, 2] and lines.rubbish == 0


def test_the_next_line_behind_a_torn_one_is_found(tmp_path: Path) -> None:
    write(path_of(tmp_path), [line(1), line(2, 'she said {"time": 3}').to_json()[:-4], line(4)])
    assert times(MergedLines(tmp_path).read()) == [1, 4]


@given(junk=st.binary(max_size=200))
def test_any_bytes_between_lines_leave_the_others_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    write(path_of(folder), [line(1), junk + b"\n", line(2)])
    assert times(MergedLines(folder).read()) == [1, 2]


def test_a_line_of_10_mb_is_read(tmp_path: Path) -> None:
    long = "x" * 10_000_000
    write(path_of(tmp_path), [line(1), line(2, long), line(3)])
    assert texts(MergedLines(tmp_path).read()) == ["at 1", long, "at 3"]


def test_a_line_without_end_is_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_LONGEST", 100_000)
    write(path_of(tmp_path), [line(1), b"x" * 1_000_000, b"\n", line(2)])
    lines = MergedLines(tmp_path)
    assert times(lines.read()) == [1, 2] and lines.rubbish == 1
    write(path_of(tmp_path), [b"y" * 1_000_000])
    assert times(lines.read()) == []
    assert all(rank._rest == [b"?"] for rank in lines._ranks.values())


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(path_of(tmp_path, 1))
    path_of(tmp_path, 2).mkdir()
    path_of(tmp_path, 3).symlink_to("nowhere")
    write(path_of(tmp_path, 0), [line(1)])
    assert times(MergedLines(tmp_path).read()) == [1]


def test_a_filter_lets_through_what_it_matches(tmp_path: Path) -> None:
    for rank in range(4):
        write(path_of(tmp_path, rank), [line(rank, rank=rank), line(rank + 10, "loss", rank=rank)])
    assert times(MergedLines(tmp_path, LineFilter(ranks="gpus=1:3", grep="los+")).read()) == [
        11,
        12,
    ]


def test_since_begins_where_it_should_and_reads_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in range(3, -1, -1):
        begin = (3 - part) * 10_000
        write(
            path_of(tmp_path, part=part), [line(begin + each, "x" * 100) for each in range(10_000)]
        )
    parsed = 0
    parse = reader._parse

    def counted(text: bytes) -> LogLine | None:
        nonlocal parsed
        parsed += 1
        return parse(text)

    monkeypatch.setattr(reader, "_parse", counted)
    assert times(MergedLines(tmp_path, LineFilter(since=25_000)).read()) == list(
        range(25_000, 40_000)
    )
    assert parsed < 15_000 + 600  # one piece of 64 KiB has 330 lines


@pytest.mark.parametrize("seed", range(5))
def test_since_finds_each_line_also_among_rubbish_and_long_ones(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_PIECE", 256)
    random_ = random.Random(seed)
    now, all_lines = 100.0, []
    for part in range(2, -1, -1):
        for _ in range(200):
            now += random_.random() * 4
            written = line(
                now + random_.uniform(-reader._DISORDER / 2, 0), "x" * random_.choice([0, 10, 2000])
            )
            all_lines.append(written)
            write(
                path_of(tmp_path, part=part),
                [random_.choice([b"", b"rubbish\n", b"\0\xff" * 500 + b"\n"]), written],
            )
    for since in [0.0, 100.0, now, now + 100, *(random_.uniform(100, now) for _ in range(20))]:
        found = list(MergedLines(tmp_path, LineFilter(since=since)).read())
        assert found == [each for each in all_lines if each.time >= since], (seed, since)


def test_only_the_last_bytes_are_read_if_that_is_wanted(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    for part in range(3):  # the first is put aside twice
        write(path, [line(part * 10 + number, "x" * 50) for number in range(10)])
        if part < 2:
            rotate(path)
    size = sum(each.stat().st_size for each in path.parent.iterdir())
    for most in (size, size * 2 // 3, size // 2, 200, 1):
        rank = RankFile(path, most=most)
        found = [at for at, _ in rank.read(lambda line: True)]
        rank.close()
        whole = [float(number) for number in range(30)]
        assert found == whole[len(whole) - len(found) :] and rank.skipped is (most < size)
        assert len(found) == int(30 * most / size) or len(found) == int(30 * most / size) - 1
    late = RankFile(path, since=27.0, most=size)
    assert [at for at, _ in late.read(LineFilter(since=27.0).matcher())] == [
        27.0,
        28.0,
        29.0,
    ] and not late.skipped
    late.close()


def test_following_a_file_that_is_written_and_rotated_at_random_finds_each_line_once(
    tmp_path: Path,
) -> None:
    random_ = random.Random(7)
    path = path_of(tmp_path)
    lines, found, written = MergedLines(tmp_path), [], 0
    for _ in range(2000):
        action = random_.random()
        if action < 0.8:
            write(path, [line(written, "x" * random_.choice([1, 300]))])
            written += 1
        elif action < 0.9 and path.exists():
            rotate(path, keep=1000)
        else:
            found += times(lines.read())
    found += times(lines.read())
    assert found == list(range(written))


def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    write(path_of(tmp_path), [line(each, "x" * 1000) for each in range(20_000)])
    tracemalloc.start()
    try:
        assert sum(1 for _ in MergedLines(tmp_path).read()) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_line_is_the_same_after_its_way_through_a_file(tmp_path: Path) -> None:
    full = LogLine(
        1.25,
        "log",
        40,
        "é\n\x1b[31m\u2028",
        "h",
        "m",
        3,
        "hosts=0,gpus=3",
        "job",
        2,
        "a",
        "e",
        "l",
        "f.py:1",
    )
    bare = LogLine(2.0, "stdout", 0, "", "", "", 0, "")
    write(path_of(tmp_path), [full, bare])
    assert list(MergedLines(tmp_path).read()) == [full, bare]
    assert json.loads(full.to_json())["text"] == full.text


def test_an_agent_answers_only_lines_that_match_however_many_others_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        path_of(tmp_path),
        [
            line(1.0, "wanted"),
            *(line(float(at)) for at in range(2, 50)),
            line(60.0, "wanted, later"),
        ],
    )
    kept = SimpleNamespace(flush=lambda done: done(), written={path_of(tmp_path)})
    monkeypatch.setattr(log_lines, "files_of", lambda root: [kept])
    service: Any = SimpleNamespace()
    asked = Asked(service, 0, None, None, {}, None, LineFilter(grep="wanted", until=59.0))
    found = of_rows({"logs": log_lines._logs(asked)}, {"logs": ["text"]}, None, 3)
    assert found.columns["logs"]["text"] == ["wanted"] and not found.left_out and not found.silent
