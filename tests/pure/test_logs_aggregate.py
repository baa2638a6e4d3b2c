"""The same line from many ranks is shown once, and nothing that is shown misleads: time and lines
in, entries out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monarch.logs import aggregate
from monarch.logs.aggregate import Aggregator, parse
from monarch.logs.line import LogEntry, LogLine

WINDOW = 3.0


def line(text: str, rank: int = 0, level: int = 0, stream: str = "stdout") -> LogLine:
    return LogLine(0.0, stream, level, text, "host", "trainers", rank, f"gpus={rank}")


def said(entries: list[LogEntry]) -> list[str]:
    """Entries as people see them: who, what, and how often where it was more than once each."""
    return [f"[{each.who}] {each.text}" for each in entries]


@dataclass
class Terminal:
    """An aggregator, and all that it has shown."""

    lines: Aggregator = field(default_factory=lambda: Aggregator(WINDOW))
    shown: list[LogEntry] = field(default_factory=list)
    now: float = 0.0

    def say(self, text: str, *ranks: int, stream: str = "stdout", level: int = 0) -> list[str]:
        """These ranks say something, one after the other; what is shown then."""
        new = [
            entry
            for rank in ranks or (0,)
            for entry in self.lines.take(
                line(text.replace("RANK", str(rank)), rank, level, stream), self.now
            )
        ]
        self.shown += new
        return said(new)

    def pass_time(self, seconds: float) -> list[str]:
        """What is shown then."""
        self.now += seconds
        new = self.lines.expire(self.now)
        self.shown += new
        return said(new)


def test_the_first_line_is_shown_at_once_and_those_of_others_once_after_the_window() -> None:
    terminal = Terminal()
    assert terminal.say("ready", *range(512), 513) == ["[gpus 0] ready"]
    assert terminal.pass_time(WINDOW - 0.1) == []
    assert terminal.pass_time(0.2) == ["[gpus 1-511,513] ready"]
    assert terminal.shown[-1].lines == 512


def test_numbers_that_differ_are_shown_as_a_range() -> None:
    terminal = Terminal()
    terminal.say("step 12 loss 9", 9)
    for rank, loss in enumerate(("0.52", "0.31", "0.4", "1e-3")):
        terminal.say(f"step 12 loss {loss}", rank)
    assert terminal.pass_time(WINDOW) == ["[gpus 0-3] step 12 loss 1e-3..0.52"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("loss 0.5", "loss nan"),
        ("using fp8", "using fp16"),
        ("gpu3 ready", "gpu4 ready"),
        ("took 3ms", "took 3s"),
        ("saved to a.pt", "saved to b.pt"),
        ("é1", "é2"),
        ("torch 2.6", "torch 2.6.0"),
        ("at 12:30", "at 1230"),
        ("a 1", "a 1 "),
        ("id 0x10", "id 10"),
        ("a\x00number\x00", "a1"),
    ],
)
def test_lines_that_say_different_things_are_not_merged(one: str, other: str) -> None:
    terminal = Terminal()
    terminal.say(one, 0)
    assert terminal.say(other, 1) == [f"[gpus 1] {other}"], "a kind of its own, so shown at once"
    terminal.say(one, 2)
    terminal.say(other, 3)
    assert terminal.pass_time(WINDOW) == [f"[gpus 2] {one}", f"[gpus 3] {other}"]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("at 12:59:58,9", "at 13:00:01,2", "at 12:59:58,9..13:00:01,2"),
        (
            "2026-11-22 23:59:59.5 up",
            "2026-11-23 00:00:01.5 up",
            "2026-11-22 23:59:59.5..2026-11-23 00:00:01.5 up",
        ),
        ("at 0x7fff", "at 0x10", "at 0x10..0x7fff"),
        ("1,024 tokens", "998 tokens", "998..1,024 tokens"),
        ("peer 10.0.0.9:29500", "peer 10.0.0.10:29500", "peer 10.0.0.9..10.0.0.10:29500"),
        ("shard model-00001", "shard model-00010", "shard model-00001..00010"),
        ("cuda:0 at -3.5%", "cuda:1 at +12%", "cuda:0..1 at -3.5..+12%"),
        ("commit 3f2a91c0de", "commit a91c0de3f2", "commit 3f2a91c0de..a91c0de3f2"),
        (
            "8%|▊         | 8/99 [00:03<00:30,  2.6it/s]",
            "10%|█         | 10/99 [00:04<00:29,  3.0it/s]",
            "8..10%|▊         | 8..10/99 [00:03..00:04<00:29..00:30,  2.6..3.0it/s]",
        ),
    ],
)
def test_a_range_goes_from_the_least_to_the_greatest_as_written(
    one: str, other: str, both: str
) -> None:
    for first, second in ((one, other), (other, one)):
        terminal = Terminal()
        terminal.say(one, 9)
        terminal.say(first, 0)
        terminal.say(second, 1)
        assert terminal.pass_time(WINDOW) == [f"[gpus 0-1] {both}"]


def test_a_kind_that_goes_on_is_shown_once_per_window_with_all_its_ranks() -> None:
    terminal = Terminal()
    terminal.say("step 0", *range(8))
    terminal.pass_time(WINDOW)
    for step in (1, 2, 3):
        assert terminal.say(f"step {step}", *range(8)) == []
        assert terminal.pass_time(WINDOW) == [f"[gpus 0-7] step {step}"]
    assert terminal.pass_time(WINDOW) == []
    assert terminal.say("step 4", 5) == ["[gpus 5] step 4"], "after a window of silence it is new"


def test_lines_of_one_rank_are_counted_too() -> None:
    terminal = Terminal()
    for step in range(10):
        terminal.say(f"step {step}", 3)
    assert terminal.pass_time(WINDOW) == ["[gpus 3] step 1..9"]
    assert terminal.shown[-1].lines == 9


def test_a_new_line_comes_after_all_that_its_rank_has_said_before() -> None:
    terminal = Terminal()
    terminal.say("loading", 0, 1, 2)
    terminal.say("loaded", 0)
    assert terminal.say("no space left", 2) == ["[gpus 1-2] loading", "[gpus 2] no space left"]


def test_a_new_line_does_not_end_the_wait_of_others() -> None:
    terminal = Terminal()
    terminal.say("loading", 0, 1)
    assert terminal.say("loaded", 0) == ["[gpus 0] loaded"], "which has said nothing that waits"
    assert terminal.pass_time(WINDOW) == ["[gpus 1] loading"]


def test_the_same_error_of_two_ranks_is_shown_twice_at_once() -> None:
    terminal = Terminal()
    for text in (
        "ValueError: no",
        "RuntimeError: CUDA error: out of memory",
        "E1123 12:00:01.5 1 nccl.cc:5] no",
    ):
        for rank in (0, 1):
            assert terminal.say(text, rank, stream="stderr") == [f"[gpus {rank}] {text}"]


def test_records_from_level_error_on_are_shown_at_once_others_are_aggregated() -> None:
    terminal = Terminal()
    for rank in (0, 1):
        assert terminal.say("it failed", rank, level=40, stream="log") == [
            f"[gpus {rank}] it failed"
        ]
    terminal.say("slow", 0, 1, level=30, stream="log")
    terminal.say("slow", 0, 1, level=20, stream="log")
    assert terminal.pass_time(WINDOW) == ["[gpus 1] slow", "[gpus 1] slow"], "of two levels"


TRACEBACK = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
    ~^^
ValueError: 3

During handling of the above exception, another exception occurred:

  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 2, in g
  | ExceptionGroup: two (1 sub-exception)
Custom: the end"""


def test_tracebacks_are_shown_whole_at_once_though_ranks_say_the_same() -> None:
    terminal = Terminal()
    terminal.say("step 0", 0, 1)
    lines = TRACEBACK.splitlines()
    shown = [each for part in lines for each in terminal.say(part, 0, 1, stream="stderr")]
    assert shown[:3] == [
        f"[gpus 0] {lines[0]}",
        "[gpus 1] step 0",
        f"[gpus 1] {lines[0]}",
    ], "what was said before it, first"
    for rank in (0, 1):
        assert [
            each for each in shown if each.startswith(f"[gpus {rank}]") and "step 0" not in each
        ] == [f"[gpus {rank}] {part}" for part in lines]
    assert terminal.say("step 1", 0, 1, stream="stderr") == ["[gpus 0] step 1"], "no part of it"


def test_lines_in_colours_are_compared_without_them() -> None:
    terminal = Terminal()
    terminal.say("\x1b[31mstep 1\x1b[0m", 0)
    terminal.say("\x1b[32mstep 2\x1b[0m", 1)
    terminal.say("step 3", 2)
    assert terminal.pass_time(WINDOW) == ["[gpus 1-2] step 2..3"]


def test_very_long_lines_and_tables_of_numbers_stay_as_they_are() -> None:
    terminal = Terminal()
    for rank in (0, 1):
        assert terminal.say("x" * 5000, rank) == [f"[gpus {rank}] {'x' * 5000}"]
    table = " ".join(map(str, range(40)))
    terminal.say(table, 0, 1, 2)
    assert terminal.pass_time(WINDOW) == [f"[gpus 1-2] {table}"]
    assert parse(table) == ((table,), [])


def test_the_kinds_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "_MOST_KINDS", 5)
    terminal = Terminal()
    for number in range(100):
        terminal.say(f"word{number}", 0, 1)
        assert len(terminal.lines._known) <= 5
        assert len(terminal.lines._held) <= 5
    terminal.shown += terminal.lines.flush()
    assert sum(each.lines for each in terminal.shown) == 200


@pytest.mark.parametrize(
    ("points", "text"),
    [
        ([""], "ranks 0"),
        (["gpus=0", "gpus=1", "gpus=5"], "gpus 0-1,5"),
        ([f"hosts={h},gpus={g}" for h in (0, 1) for g in range(4)], "hosts 0-1 gpus 0-3"),
        (
            ["hosts=0,gpus=0", "hosts=0,gpus=1", "hosts=1,gpus=1"],
            "hosts 0 gpus 0-1; hosts 1 gpus 1",
        ),
        ([f"hosts={n},gpus={n}" for n in range(9)], "ranks 0-8"),
        (
            [f"gpus={n * 2}" for n in range(30)],
            ",".join(f"{n * 2}" for n in range(24)) + ",... (6 more)",
        ),
    ],
)
def test_ranks_are_written_in_the_coordinates_of_their_mesh(points: list[str], text: str) -> None:
    entry = LogEntry(line(""), "", 1, dict(enumerate(points)))
    assert entry.who == text if text[0] in "rgh" else entry.who == f"gpus {text}"


WORDS = ["loss", "gpu", "fp", "a", "ERROR", "nan", "no", "\x1b[1m", "|", "", "é"]
NUMBERS = ["0", "7", "12", "-3", "0.5", "1e5", "0x1f", "12:30:05", "1,000", "3ms", ".5", "1.2.3"]
texts = st.lists(st.sampled_from(WORDS + NUMBERS), max_size=5).map(" ".join)
glued = st.lists(st.sampled_from(WORDS + NUMBERS), max_size=4).map("".join)
events = st.lists(
    st.one_of(
        st.builds(
            line,
            texts | glued | st.text(max_size=5),
            st.integers(0, 3),
            st.sampled_from([0, 20, 40]),
            st.sampled_from(["stdout", "log"]),
        ),
        st.floats(0.1, 4.0),
    ),
    max_size=40,
)


@given(events)
@example([line("a 1", 0), line("a 2", 1), line("b", 1), line("a 3", 1)])
def test_nothing_is_lost_invented_late_or_out_of_order(happened: list[LogLine | float]) -> None:
    """Against what may be known without the rules of kinds: what goes in, what comes out, when."""
    lines, now = Aggregator(WINDOW), 0.0
    waiting: list[tuple[float, LogLine]] = []  # said, and not shown

    def check(entries: list[LogEntry], new: LogLine | None) -> None:
        for entry in entries:
            mine = _taken(entry, waiting)
            assert len(mine) == entry.lines
            assert {each.rank for each in mine} == set(entry.ranks)
            assert mine[0] is entry.line
            if entry.line.level >= 40 or (
                not entry.line.level and "ERROR" in entry.line.text.split()
            ):
                assert entry.line is new, "at once"
                assert entry.lines == 1
            if entry.line is new:
                assert not [each for _, each in waiting if each.rank == entry.line.rank], (
                    "nothing was overtaken"
                )
            _check_text(entry.text, mine)
        oldest = [entry.line for entry in entries]
        order = [each for each in order_of_lines if any(each is one for one in oldest)]
        assert [id(each) for each in order] == [id(each) for each in oldest], (
            "the order of the oldest lines"
        )

    order_of_lines: list[LogLine] = []
    for event in happened:
        if isinstance(event, float):
            now += event
            check(lines.expire(now), None)
        else:
            event = event._replace(time=now)
            order_of_lines.append(event)
            waiting.append((now, event))
            check(lines.take(event, now), event)
        assert all(now - when <= WINDOW for when, _ in waiting), (
            "no line waits longer than the window"
        )
        assert bool(waiting) <= (lines.due is not None)
    check(lines.flush(), None)
    assert not waiting


def _taken(entry: LogEntry, waiting: list[tuple[float, LogLine]]) -> list[LogLine]:
    """The lines of an entry: the oldest ones that look like it."""
    start = next(at for at, (_, each) in enumerate(waiting) if each is entry.line)
    found = [
        each
        for _, each in waiting[start:]
        if (each.stream, each.level, _skeleton(each.text))
        == (entry.line.stream, entry.line.level, _skeleton(entry.line.text))
    ]
    if entry.lines == 1 and len(found) > 1:  # shown alone, while others of its kind wait
        found = found[:1]
    waiting[:] = [item for item in waiting if not any(item[1] is each for each in found)]
    return found


def _skeleton(text: str) -> tuple[str, ...]:
    return parse(re.sub(r"\x1b\[[0-9;]*m", "", text))[0]


def _check_text(text: str, lines: list[LogLine]) -> None:
    """Each number that is shown was said, and the two of a range are the least and the greatest."""
    if (
        any(text == each.text for each in lines)
        and len({parse(each.text)[1] == parse(text)[1] for each in lines}) == 1
    ):
        return
    columns = list(
        zip(*(parse(re.sub(r"\x1b\[[0-9;]*m", "", each.text))[1] for each in lines), strict=True)
    )
    rest = text
    for column in columns:
        low, high = min(column), max(column)
        written = low[1] if low == high else f"{low[1]}..{high[1]}"
        assert written in rest
        rest = rest[rest.index(written) + len(written) :]
