"""Bytes that a proc prints, and the lines that come of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch._core.hub.prints import BEGIN, END, NEWLINE, NO_AUTHOR, Note, head_of
from monarch._core.processes import lines
from monarch._core.processes.lines import LineSplitter
from monarch._core.processes.output import Run

TRAIN = Note("trainers", "train")
EVALUATE = Note("trainers", "evaluate")
RECORD = Note("trainers", "train", 40, "a.library", "file.py:12", 1.5)


def texts(runs: list[Run]) -> list[str]:
    return [line for note, text in runs for line in ([text] if note.logger else text.split("\n"))]


def feed(splitter: LineSplitter, data: bytes) -> list[str]:
    return texts(splitter.feed(data)[0])


def finish(splitter: LineSplitter) -> list[str]:
    return texts(splitter.finish()[0])


@given(
    st.lists(st.binary(max_size=50).filter(lambda line: b"\r" not in line and BEGIN not in line)),
    st.lists(st.integers(1, 30), min_size=1),
)
def test_lines_come_out_whole_from_any_chunks(lines: list[bytes], sizes: list[int]) -> None:
    data = b"\n".join(lines)
    splitter = LineSplitter()
    got: list[str] = []
    start = 0
    for i in range(len(data)):
        if start >= len(data):
            break
        end = start + sizes[i % len(sizes)]
        got += feed(splitter, data[start:end])
        start = end
    got += finish(splitter)
    expected = [line.decode(errors="replace") for line in data.split(b"\n")]
    if expected[-1] == "":
        expected.pop()
    assert got == expected


@given(st.text(alphabet="aé漢\U0001f600\n", max_size=60), st.integers(1, 5))
def test_characters_cut_by_a_chunk_are_not_harmed(text: str, size: int) -> None:
    data = text.encode()
    splitter = LineSplitter()
    got: list[str] = []
    for start in range(0, len(data), size):
        got += feed(splitter, data[start : start + size])
    got += finish(splitter)
    assert "\n".join(got) == text.removesuffix("\n")


def test_a_line_without_an_end_is_given_when_the_stream_ends() -> None:
    splitter = LineSplitter()
    assert feed(splitter, b"one\ntwo") == ["one"]
    assert finish(splitter) == ["two"]
    assert finish(splitter) == []
    assert feed(splitter, b"") == []


def test_empty_lines_and_bytes_that_are_no_text_are_kept() -> None:
    assert feed(LineSplitter(), b"\n\n\xff\xfe\0\x1b[2J\n") == ["", "", "\ufffd\ufffd\0\x1b[2J"]


def test_a_line_of_ten_megabytes_stays_whole() -> None:
    splitter = LineSplitter()
    line = b"x" * 10_000_000
    got = [
        text
        for start in range(0, len(line), 65536)
        for text in feed(splitter, line[start : start + 65536])
    ]
    assert [*got, *feed(splitter, b"\n")] == [line.decode()]


@settings(max_examples=20)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8))
def test_a_line_that_never_ends_is_passed_on_in_pieces_and_loses_nothing(sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "LONGEST", 2000)
        splitter = LineSplitter()
        got: list[str] = []
        held = 0
        for size in sizes:
            new = feed(splitter, b"x" * size)
            held = 0 if new else held + size
            got += new
            assert held <= 2000
        got += finish(splitter)
    assert "".join(piece.removeprefix("[continued] ") for piece in got) == "x" * sum(sizes)
    assert all(piece.startswith("[continued] ") for piece in got[1:]), (
        "a reader sees that it is no line of its own"
    )


@pytest.mark.parametrize("character", ["é", "€", "\U0001f600"])
@pytest.mark.parametrize("extra", [1, 2, 3, 4])
def test_a_line_passed_on_in_pieces_is_not_cut_inside_a_character(
    character: str, extra: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LONGEST", 2000)
    text = character * 2000
    data, cut = text.encode(), 2000 + extra
    splitter = LineSplitter()
    got = [*feed(splitter, data[:cut]), *feed(splitter, data[cut:]), *finish(splitter)]
    assert "".join(piece.removeprefix("[continued] ") for piece in got) == text
    assert len(got) > 1


def test_a_long_line_that_is_no_text_is_passed_on_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "LONGEST", 2000)
    (piece,) = feed(LineSplitter(), b"\xff" * 2001)
    assert piece == "\ufffd" * 2001


# who said it


def noted(note: Note, *lines: str) -> bytes:
    return b"".join(head_of(note) + line.encode() + b"\n" for line in lines)


def test_lines_that_follow_each_other_are_of_one_run_if_the_same_one_says_them() -> None:
    data = (
        noted(TRAIN, "one", "two")
        + noted(EVALUATE, "three")
        + b"of a child\n"
        + noted(TRAIN, "four")
    )
    runs, shown = LineSplitter().feed(data)
    assert runs == [
        (TRAIN, "one\ntwo"),
        (EVALUATE, "three"),
        (NO_AUTHOR, "of a child"),
        (TRAIN, "four"),
    ]
    assert shown == runs


@pytest.mark.parametrize("size", [1, 7, 64])
def test_heads_are_read_from_any_chunks(size: int) -> None:
    data = noted(TRAIN, "one", "two", "three") + b"\n" + noted(EVALUATE, "four")
    splitter = LineSplitter()
    got: list[tuple[Note, str]] = []
    for start in range(0, len(data), size):
        found = splitter.feed(data[start : start + size])[0]
        got += [(note, line) for note, text in found for line in text.split("\n")]
    assert got == [
        (TRAIN, "one"),
        (TRAIN, "two"),
        (TRAIN, "three"),
        (NO_AUTHOR, ""),
        (EVALUATE, "four"),
    ]


def test_who_begins_before_a_line_has_ended_begins_a_new_one() -> None:
    runs, _ = LineSplitter().feed(
        b"a child, not ended" + noted(TRAIN, "one") + b"a thread" + noted(NO_AUTHOR, "another")
    )
    assert runs == [
        (NO_AUTHOR, "a child, not ended"), (TRAIN, "one"), (NO_AUTHOR, "a thread\nanother")
    ]  # fmt: skip


def test_a_record_of_several_lines_stays_one() -> None:
    record = head_of(RECORD) + b"it failed" + NEWLINE + b"Traceback:" + NEWLINE + b"  ValueError\n"
    runs, _ = LineSplitter().feed(noted(TRAIN, "before") + record)
    assert runs == [(TRAIN, "before"), (RECORD, "it failed\nTraceback:\n  ValueError")]


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_heads_that_are_none_harm_nothing_but_themselves(before: bytes, after: bytes) -> None:
    """A program may write any bytes, also these."""
    splitter = LineSplitter()
    splitter.feed(before + BEGIN + after + END + b"\n")
    assert feed(splitter, b"\n" + noted(TRAIN, "one"))[-1] == "one"


# what has no newline at its end


def test_a_prompt_is_shown_once_and_is_part_of_its_line() -> None:
    splitter = LineSplitter()
    assert splitter.feed(head_of(TRAIN) + b"how many? ") == ([], [])
    assert splitter.waiting
    assert splitter.prompt() == [(TRAIN, "how many? ")]
    assert not splitter.waiting
    assert splitter.prompt() == []
    whole, shown = splitter.feed(b"three\n" + noted(TRAIN, "next"))
    assert whole == [(TRAIN, "how many? three\nnext")]
    assert texts(shown) == ["three", "next"]


def test_a_prompt_is_not_cut_inside_a_character() -> None:
    splitter = LineSplitter()
    splitter.feed("50 €".encode()[:-1])
    assert texts(splitter.prompt()) == ["50 "]
    splitter.feed("€".encode()[-1:])
    assert texts(splitter.prompt()) == ["€"]


@pytest.mark.parametrize("cut", range(1, len(head_of(TRAIN)) + 1))
def test_a_prompt_ends_before_a_head_of_which_only_half_has_come(cut: int) -> None:
    splitter, said = LineSplitter(), head_of(TRAIN) + b"two"
    splitter.feed(head_of(EVALUATE) + b"one" + said[:cut])
    assert texts(splitter.prompt()) == (["one"] if cut < len(head_of(TRAIN)) else ["one", ""])
    splitter.feed(said[cut:])
    assert "".join(texts(splitter.prompt())) == "two"


def test_bytes_that_look_like_a_head_and_are_none_do_no_harm() -> None:
    splitter = LineSplitter()
    for _ in range(3):
        splitter.feed(BEGIN + b"a" * 70_000 + b"\rb")
    assert splitter.feed(b"\n")[0] == [(NO_AUTHOR, "b")]


def test_where_others_print_too_there_is_no_prompt() -> None:
    splitter = LineSplitter()
    splitter.alone = False
    splitter.feed(b"how many? ")
    assert not splitter.waiting


def test_a_progress_bar_is_one_line_with_its_last_state() -> None:
    splitter = LineSplitter()
    splitter.alone = False
    assert splitter.feed(head_of(TRAIN) + b"\r 10%") == ([], [])
    assert splitter.feed(b"\r 50%\r100%") == ([], [])
    assert splitter.feed(b"\r100%\n") == ([(TRAIN, "100%")], [(TRAIN, "100%")])


def test_a_progress_bar_that_prints_alone_is_shown_as_it_goes() -> None:
    splitter = LineSplitter()
    splitter.feed(b"\r 10%")
    assert texts(splitter.prompt()) == ["\r 10%"]
    splitter.feed(b"\r 50%")
    assert texts(splitter.prompt()) == ["\r 50%"]
    whole, shown = splitter.feed(b"\r100%\n")
    assert (texts(whole), texts(shown)) == (["100%"], ["\r100%"])


def test_what_a_progress_bar_has_shown_is_not_kept_for_hours() -> None:
    splitter = LineSplitter()
    splitter.alone = False
    splitter.feed(head_of(TRAIN))
    for i in range(100_000):
        splitter.feed(b"\r%7d of 100000" % i)
        assert len(splitter._rest) < 2 * lines._BAR
    assert splitter.feed(b"\n")[0] == [(TRAIN, "  99999 of 100000")]


def test_what_a_progress_bar_has_shown_is_not_shown_again() -> None:
    splitter = LineSplitter()
    shown = ""
    for i in range(20_000):
        splitter.feed(b"\r%7d" % i)
        shown += "".join(texts(splitter.prompt()))
    shown += "".join(texts(splitter.feed(b" done\n")[1]))
    assert shown == "".join(f"\r{i:7}" for i in range(20_000)) + " done"


def test_lines_that_end_as_on_windows_lose_nothing_but_that() -> None:
    assert feed(LineSplitter(), b"one\r\ntwo\r\n") == ["one", "two"]
