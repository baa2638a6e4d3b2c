"""The parts of the dashboard in the terminal that need no terminal and no server."""

from __future__ import annotations

import copy
import ssl

import pytest

from helpers.fake_admin import picture_of
from monarch.admin.picture import delta
from monarch.telemetry.rows import actor_name
from monarch.tui.http import open_access
from monarch.tui.picture import Picture, drawn
from monarch.tui.sources import LogSource, TreeLine, parse_tree
from monarch.tui.text import duration, folded, plain, size, wrapped


def test_a_picture_and_its_deltas_give_the_next_picture() -> None:
    before, after = picture_of(16), picture_of(16, states={3: "stands"})
    after["meshes"]["2"] = after["meshes"]["1"] | {"name": "other"}
    last = copy.deepcopy(after)
    del last["meshes"]["1"]
    picture = Picture()
    picture.apply("state", copy.deepcopy(before))
    picture.apply("delta", copy.deepcopy(delta(before, after)))
    assert picture.parts == after
    picture.apply("delta", copy.deepcopy(delta(after, last)))
    assert picture.parts == last


@pytest.mark.parametrize(
    ("ranks", "width", "height"),
    [(16, 20, 5), (24, 20, 5), (10_000, 78, 15), (7, 100, 3), (1, 1, 1)],
)
def test_a_map_has_room_for_all_ranks_and_shows_the_worst_of_a_cell(
    ranks: int, width: int, height: int
) -> None:
    odd = ranks - 1
    picture = Picture()
    picture.apply("state", picture_of(ranks, states={odd: "stands"}))
    mesh = picture.meshes["1"]
    found = drawn(mesh, lambda number: picture.look(mesh, number), width, height)
    assert len(found.rows) <= height and all(len(cells) <= width for _, cells in found.rows)
    assert sum(len(cells) for _, cells in found.rows) * found.per_cell >= ranks
    assert found.rows[-1][1][-1][0] == "!"  # the cell with the last rank
    if ranks == 24:
        assert [len(cells) for _, cells in found.rows] == [16, 8]  # whole hosts of eight


def test_a_tree_is_read_back_as_it_was_drawn() -> None:
    text = (
        "root  ->  http://h/v1/root\n├── h0 (1 procs)  ->  http://h/v1/host%3Aagent%40h0\n│   └── a"
        "  ->  b[0]  ->  http://h/v1/p.0%40h0\n│       └── x (stopped: y)  -> "
        " http://h/v1/x%3C1%3E.p.0%40h0\n└── h1 (0 procs)  ->  http://h/v1/host%3Aagent%40h1\n! h2"
        " did not answer: late\n"
    )
    assert list(parse_tree(text)) == [
        TreeLine("host:agent@h0", "h0 (1 procs)", 0, 1), TreeLine("p.0@h0", "a  ->  b[0]", 1, 1),
        TreeLine("x<1>.p.0@h0", "x (stopped: y)", 2, 0), TreeLine("host:agent@h1", "h1 (0 procs)", 0, 0),
    ]  # fmt: skip
    assert [node.is_stopped for node in parse_tree(text)] == [False, False, True, False]


def test_lines_of_logs_that_come_twice_are_kept_once_and_the_oldest_go() -> None:
    source = LogSource()
    lines = [
        {"time": float(at), "mesh": "m", "rank": 0, "stream": "log", "text": str(at)}
        for at in range(20_000)
    ]
    source.take((lines[:100], []))
    source.take((lines[97:200], None))
    assert [line["text"] for line in source.lines] == [str(at) for at in range(200)]
    source.take((lines[200:], None))
    assert (
        len(source.lines) == source.MOST
        and source.dropped == 10_000
        and source.lines[-1]["text"] == "19999"
    )


def test_a_line_is_folded_between_words_where_it_has_some() -> None:
    row = [("1 failure  ", "bold"), ("ended by SIGKILL", "red")]
    assert ["".join(text for text, _ in line) for line in folded(row, 20)] == [
        "1 failure  ended by ", "    SIGKILL"
    ]  # fmt: skip


def test_a_line_is_folded_by_its_cells_and_loses_nothing() -> None:
    row = [("! slow", "bold red"), (" waits for 世界世界", ""), ("\x1b[2Jend", "")]
    assert [[text for text, _ in line] for line in folded(row, 12)] == [
        ["! slow", " waits"],
        ["    ", "for "],
        ["    ", "世界世界", ""],
        ["    ", "end"],
    ]
    assert list(folded([], 12)) == [[]] and list(folded(row, 80)) == [[row[0], row[1], ("end", "")]]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07a\x9b1mb\x00c", "abc"), ("\u202eabc", "abc"), ("a\tb\nc", "a    b⏎c"), ("\ud800", "?"),
        ("[bold]x[/]", "[bold]x[/]"), ("x" * 100_000, "x" * 4000),
    ],
)  # fmt: skip
def test_text_keeps_nothing_that_a_terminal_would_obey(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_figures_are_short_and_long_texts_are_cut_into_lines() -> None:
    assert [duration(each) for each in (None, 0.04, 43, 400, 90_000, 300_000)] == [
        "",
        "0.0 s",
        "43 s",
        "7 min",
        "25 h",
        "3 d",
    ]
    assert [size(each) for each in (None, 5, 25_000_000)] == ["", "5 B", "25.0 MB"]
    assert all(len(row[0][0]) <= 30 for row in wrapped("word " * 50, 30, "", "  "))


@pytest.mark.parametrize(
    ("mesh", "ranks", "name"),
    [
        ("trainers", [0, 1, 2, 5], "trainers[0-2,5]"),
        ("metrics", [0], "metrics[0]"),
        ("client", [0], "client"),
        ("host trainers[1] (tcp://h1:1)", [0], "host trainers[1] (tcp://h1:1)"),
    ],
)
def test_ranks_have_a_number_and_the_client_and_silent_hosts_have_none(
    mesh: str, ranks: list[int], name: str
) -> None:
    pytest.importorskip("textual")
    from monarch.tui.now import who

    standing = {"mesh": mesh, "ranks": ranks, "hosts": [], "pids": [], "endpoint": "", "place": ""}
    assert who(standing)[0] == (name, "bold")


def test_the_client_is_no_rank_of_a_mesh_in_tables_of_actors() -> None:
    assert actor_name({"name": "root", "rank": 0, "status": "Client"}) == "client"
    assert actor_name({"name": "trainer", "rank": 3, "status": "Idle"}) == "trainer[3]"


def test_a_token_goes_to_other_machines_by_tls_alone() -> None:
    assert open_access("127.0.0.1:5", "t").url == "http://127.0.0.1:5"
    assert open_access("localhost", "t").url == "http://localhost:1729"
    assert open_access("https://node7:5/monarch/", "t").url == "https://node7:5/monarch"
    assert (
        open_access("node7", "t", context=ssl.create_default_context()).url == "https://node7:1729"
    )
    assert open_access("node7:5", "t", plaintext=True).headers == {"Authorization": "Bearer t"}
    with pytest.raises(ValueError, match="node7 without TLS"):
        open_access("http://node7:5", "t")
    with pytest.raises(ValueError, match="a token is needed"):
        open_access("127.0.0.1:5")
    with pytest.raises(ValueError, match="host:port"):
        open_access("ftp://127.0.0.1", "t")
