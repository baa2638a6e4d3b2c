"""What of the output of ranks is shown at the client, and how: `ProcMesh.logging_option`,
terminals, JSON.
"""

from __future__ import annotations

import json
import logging
import pickle
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from helpers.printing import Prints, PrintsLogs
from helpers.processes import stopped
from helpers.screens import run_on_terminal
from helpers.scripts import program, run_script
from helpers.waiting import PATIENCE, wait_until
from monarch.actor import Point, ProcMesh
from monarch.logs.line import LogLine
from monarch.logs.shown import HIDDEN, Shown
from monarch.supervision import OneForOne

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("output is read from pipes")

Read = Callable[[], str]

SETTINGS = """
from monarch.actor import this_host
from helpers.printing import Prints, PrintsLogs

procs = this_host().spawn_procs(per_host={"gpus": 4}, name="trainers")
prints = procs.spawn("prints", PrintsLogs)
"""


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Read:
    """What this program has written since the last time."""

    def read() -> str:
        captured = capsys.readouterr()
        return captured.out + captured.err

    return read


def option(procs: ProcMesh, *args: Any, **kwargs: Any) -> None:
    procs.logging_option(*args, **kwargs).get(timeout=PATIENCE)


def say(prints: Prints, text: str, read: Read) -> list[str]:
    """What is shown when all have said something."""
    prints.say.call(text).get(timeout=PATIENCE)
    return sorted(read().splitlines())


def lines(name: str, text: str, *ranks: int) -> list[str]:
    return [f"[{name} {rank}] {text}" for rank in ranks]


def test_a_mesh_can_be_silenced_and_shown_again_to_the_line(spawn: Spawn, shown: Read) -> None:
    procs = spawn(2, name="silent")
    prints = procs.spawn("prints", Prints)
    for number in range(10):
        assert say(prints, f"a {number}", shown) == lines("silent", f"a {number}", 0, 1)
        option(procs, stream_to_client=False)
        assert say(prints, f"b {number}", shown) == []
        option(procs)
    assert "b " not in shown()


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (0, [0]),
        ([0, 3], [0, 3]),
        (range(1, 3), [1, 2]),
        (slice(2, None), [2, 3]),
        ({"z": 1}, [1, 3]),
        ({"gpus": slice(0, 1), "z": [0, 1]}, [0, 1]),
        (None, [0, 1, 2, 3]),
        ("point", [2]),
        ("0,2-3", [0, 2, 3]),
        ("gpus=1", [2, 3]),
    ],
)
def test_only_some_ranks_are_shown(
    spawn: Spawn, shown: Read, ranks: Any, expected: list[int]
) -> None:
    procs = spawn({"gpus": 2, "z": 2}, name="some")
    prints = procs.spawn("prints", Prints)
    option(procs, ranks=Point(2, procs.extent) if ranks == "point" else ranks)
    assert say(prints, "hello", shown) == lines("some", "hello", *expected)
    assert say(prints, "again", shown) == lines("some", "again", *expected)


def test_only_lines_that_match_are_shown(spawn: Spawn, shown: Read) -> None:
    procs = spawn(2, name="matches")
    prints = procs.spawn("prints", Prints)
    option(procs, match=r"loss \d")
    assert say(prints, "noise\nthe loss 3\nof words", shown) == lines("matches", "the loss 3", 0, 1)
    option(procs, match=re.compile("NOISE", re.IGNORECASE))
    assert say(prints, "noise\nthe loss 3", shown) == lines("matches", "noise", 0, 1)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"level": 256}, ValueError, "Invalid logging level: 256"),
        ({"level": -1}, ValueError, "Invalid logging level: -1"),
        (
            {"stream_to_client": False, "aggregate_window_sec": 3},
            RuntimeError,
            "cannot set aggregate window without streaming",
        ),
        ({"aggregate_window_sec": -3}, ValueError, "got -3"),
        ({"aggregate_window_sec": "3"}, ValueError, "got '3'"),
        ({"match": "("}, ValueError, "regular expression"),
        ({"ranks": 2}, IndexError, "rank 2"),
        ({"ranks": {"x": 0}}, TypeError, "no such dimension"),
        ({"ranks": "first"}, ValueError, "'first'"),
        ({"ranks": 0.5}, TypeError, "0.5"),
    ],
)
def test_wrong_options_are_refused_at_the_call(
    spawn: Spawn, options: Any, error: Any, text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        spawn(2).logging_option(**options)


def test_options_of_a_slice_are_those_of_its_ranks(spawn: Spawn, shown: Read) -> None:
    procs = spawn(3, name="slices")
    prints = procs.spawn("prints", Prints)
    option(procs.slice(gpus=slice(1, 3)), stream_to_client=False)
    assert say(prints, "hello", shown) == lines("slices", "hello", 0)
    option(procs.slice(gpus=2))
    assert say(prints, "hello", shown) == lines("slices", "hello", 0, 2)


def test_options_survive_a_restart(spawn: Spawn, shown: Read) -> None:
    procs = spawn(2, name="restarts", restart=OneForOne())
    logs = procs.spawn("prints", PrintsLogs)
    option(procs, level=logging.DEBUG, match="kept")
    logs.say.call("up").get(timeout=PATIENCE)
    procs.slice(gpus=1).restart().get(timeout=PATIENCE)
    logs.log.call(logging.DEBUG, "kept, or not").get(timeout=PATIENCE)
    logs.log.call(logging.DEBUG, "dropped").get(timeout=PATIENCE)
    found = shown()
    assert found.count("kept, or not") == 2, found
    assert "dropped" not in found


@pytest.mark.parametrize("configured", [False, True])
def test_the_level_counts_for_records_of_every_level(
    spawn: Spawn, shown: Read, configured: bool
) -> None:
    procs = spawn(name="levels")
    logs = procs.spawn("prints", PrintsLogs)
    if configured:
        logs.configure.call().get(timeout=PATIENCE)
    for level in (logging.DEBUG, 15, logging.INFO, logging.WARNING, logging.ERROR, 255):
        option(procs, level=level)
        for said in (10, 15, 20, 30, 40, 255):
            logs.log.call(said, f"said at {said}").get(timeout=PATIENCE)
        found = re.findall(r"said at (\d+)", shown())
        assert [int(each) for each in found] == [
            each for each in (10, 15, 20, 30, 40, 255) if each >= level
        ]


def test_a_logger_with_a_level_of_its_own_is_filtered_and_prints_are_not(
    spawn: Spawn, shown: Read
) -> None:
    procs = spawn(name="own")
    logs = procs.spawn("prints", PrintsLogs)
    logs.configure.call().get(timeout=PATIENCE)
    option(procs, level=logging.ERROR)
    logs.log_as.call("chatty", logging.DEBUG, "whatever the root logger says").get(timeout=PATIENCE)
    logs.say.call("printed").get(timeout=PATIENCE)
    assert shown() == "printed\n"


def test_an_actor_may_set_the_options_of_its_own_proc(spawn: Spawn, shown: Read) -> None:
    procs = spawn(2, name="own")
    prints = procs.spawn("prints", PrintsLogs)
    prints.slice(gpus=1).silence_own_proc.call_one().get(timeout=PATIENCE)
    assert say(prints, "hello", shown) == lines("own", "hello", 0)


def test_options_are_in_force_though_a_rank_stands_still(spawn: Spawn, shown: Read) -> None:
    procs = spawn(2, name="frozen")
    prints = procs.spawn("prints", Prints)
    frozen = prints.slice(gpus=1).pid.call_one().get(timeout=PATIENCE)
    with stopped(frozen):
        option(procs, match="yes")
        prints.slice(gpus=0).say.call_one("yes\nno").get(timeout=PATIENCE)
        assert shown() == "[frozen 0] yes\n"


def test_the_client_itself_and_procs_that_were_stopped_have_nothing_to_be_shown() -> None:
    result = run_script(
        program("""
            from monarch.actor import this_host, this_proc

            this_proc().logging_option(level=40).get()  # before there is a host agent
            procs = this_host().spawn_procs()
            procs.initialized.get()
            procs.stop().get()
            procs.logging_option(stream_to_client=False).get()
            print("done")
            """)
    )
    assert (result.stdout, result.stderr) == ("done\n", ""), str(result)


def test_options_reach_other_hosts(spawn_far: Spawn, shown: Read) -> None:
    procs = spawn_far(2, name="far")
    prints = procs.spawn("prints", Prints)
    for _ in range(3):
        option(procs, ranks={"hosts": 1})
        assert say(prints, "hello", shown) == lines("far", "hello", 2, 3)
        option(procs)
        assert len(say(prints, "hello", shown)) == len(procs)


def test_equal_lines_are_shown_once_when_the_window_ends(spawn: Spawn, shown: Read) -> None:
    procs = spawn(8, name="window")
    prints = procs.spawn("prints", Prints)
    prints.pid.call().get(timeout=PATIENCE)  # all are there
    option(procs, aggregate_window_sec=0.3)
    prints.say_rank.call("step 7 loss 0.{rank}").get(timeout=PATIENCE)
    text = ""

    def complete() -> bool:
        nonlocal text
        text += shown()
        return sum(map(_ranks_in, text.splitlines())) == 8

    wait_until(complete, what="all eight ranks")
    first, *rest = text.splitlines()
    assert re.fullmatch(r"\[window \d\] step 7 loss 0\.\d", first), text
    assert 1 <= len(rest) < 7, (
        "one, unless the machine was so busy that the first window had ended before: " + text
    )
    assert all(
        re.fullmatch(r"\[window (gpus [0-7,-]+|\d)\] step 7 loss 0\.\d(\.\.0\.\d)?", line)
        for line in rest
    ), text


def _ranks_in(line: str) -> int:
    found = re.match(r"\[window (?:gpus )?([0-7,-]+)\]", line)
    assert found is not None, line
    runs = [run.split("-") for run in found[1].split(",")]
    return sum(int(run[-1]) - int(run[0]) + 1 for run in runs)


def test_errors_and_tracebacks_do_not_wait_for_the_window(spawn: Spawn, shown: Read) -> None:
    procs = spawn(2, name="errors")
    prints = procs.spawn("prints", PrintsLogs)
    option(procs, aggregate_window_sec=1000)
    prints.say.call("step 1").get(timeout=PATIENCE)
    assert len(shown().splitlines()) == 1
    prints.print_traceback.call("no such thing").get(timeout=PATIENCE)
    text = shown()
    assert text.count("Traceback (most recent call last)") == 2, text
    assert len(re.findall(r"\[errors \d\] ValueError: no such thing", text)) == 2, text
    assert text.count("step 1") == 1, "the other one, before the error of its rank: " + text
    prints.log.call(logging.ERROR, "it failed").get(timeout=PATIENCE)
    assert shown().count("it failed") == 2
    option(procs)


def test_what_the_window_holds_is_shown_when_the_window_is_taken_away(
    spawn: Spawn, shown: Read
) -> None:
    procs = spawn(4, name="held")
    prints = procs.spawn("prints", Prints)
    option(procs, aggregate_window_sec=1000)
    assert len(say(prints, "old", shown)) == 1
    option(procs)
    found = say(prints, "new", shown)
    assert len(found) == 5, found
    assert sum("old" in line for line in found) == 1, found


def test_a_flush_and_the_stop_of_procs_show_what_the_window_holds(
    spawn: Spawn, shown: Read
) -> None:
    procs = spawn(4, name="held")
    prints = procs.spawn("prints", Prints)
    option(procs, aggregate_window_sec=1000)
    assert len(say(prints, "loaded", shown)) == 1
    procs.flush_logs().get(timeout=PATIENCE)
    assert re.fullmatch(r"\[held gpus [0-3,-]+\] loaded\n", shown())
    assert len(say(prints, "trained", shown)) == 1
    procs.stop().get(timeout=PATIENCE)
    assert re.fullmatch(r"\[held gpus [0-3,-]+\] trained\n", shown())


def test_what_the_window_holds_is_shown_when_the_program_ends() -> None:
    result = run_script(
        program(
            SETTINGS,
            """
            procs.logging_option(aggregate_window_sec=1000).get()
            prints.say.call("ready").get()
            """,
        )
    )
    text = re.sub(r"[0-9,-]+\]", "N]", result.stdout)
    assert text == "[trainers N] ready\n[trainers gpus N] ready\n", str(result)


def test_lines_are_printed_as_json_for_machines() -> None:
    source = program(
        SETTINGS,
        """
        procs.logging_option(aggregate_window_sec=1000).get()
        prints.say.call("said").get()
        prints.log.call(30, "logged").get()
        """,
    )
    result = run_script(source, env={"MONARCH_LOG_FORMAT": "json"})
    assert result.exit_code == 0, str(result)
    said = [LogLine.from_json(line) for line in result.stdout.splitlines()]
    assert {
        (line.text, line.rank, line.point, line.mesh, line.stream, line.endpoint) for line in said
    } == {("said", rank, f"gpus={rank}", "trainers", "stdout", "say") for rank in range(4)}
    logged = [json.loads(line) for line in result.stderr.splitlines()]
    assert sorted(line["rank"] for line in logged) == [0, 1, 2, 3]
    assert all(
        (line["stream"], line["level"], line["logger"]) == ("log", 30, "of.a.library")
        for line in logged
    )
    assert all("logged" in line["text"] for line in logged)


def test_a_terminal_gets_colours_by_rank_and_level() -> None:
    seen = run_on_terminal(
        SETTINGS + 'prints.say.call("hello").get()\nprints.log.call(30, "late").get()'
    )
    for rank, colour in enumerate((36, 32, 35, 34)):
        assert f"\x1b[{colour}m[trainers {rank}] \x1b[0mhello\n" in seen, seen
    assert len(re.findall(r"\x1b\[33m.*late\x1b\[0m\n", seen)) == 4, seen


def test_records_of_a_single_proc_are_coloured_by_level() -> None:
    source = """
        from monarch.actor import this_host
        from helpers.printing import PrintsLogs

        logs = this_host().spawn_procs().spawn("prints", PrintsLogs)
        logs.log.call_one(40, "it failed").get()
        logs.say.call_one("printed").get()
        """
    seen = run_on_terminal(source)
    assert re.fullmatch(r"\x1b\[31m.*it failed\x1b\[0m\nprinted\n", seen), seen


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_no_colours_gets_none(env: dict[str, str]) -> None:
    seen = run_on_terminal(SETTINGS + 'prints.say.call("\\x1b[31mhello\\x1b[0m").get()', env=env)
    assert sorted(seen.splitlines()) == lines("trainers", "hello", 0, 1, 2, 3)


def test_a_pipe_gets_what_was_printed_and_no_colours() -> None:
    result = run_script(program(SETTINGS, 'prints.say.call("\\x1b[31mhello\\x1b[0m").get()'))
    assert sorted(result.stdout.splitlines()) == lines(
        "trainers", "\x1b[31mhello\x1b[0m", 0, 1, 2, 3
    )
    forced = run_script(
        program(SETTINGS, 'prints.say.call("hello").get()'), env={"FORCE_COLOR": "1"}
    )
    assert "\x1b[36m[trainers 0] \x1b[0mhello\n" in forced.stdout, str(forced)


def test_ranks_cannot_clear_the_screen_nor_move_the_cursor() -> None:
    source = SETTINGS + r'prints.say.call("a\x1b[2J\x1b[5Ab\x1b]0;title\x07c \x1b[1mbold").get()'
    seen = run_on_terminal(source)
    assert seen.count("abc \x1b[1mbold\x1b[0m\n") == 4, seen
    assert not re.search(r"\x1b(?!\[[0-9;]*m)", seen), seen


def test_a_single_proc_may_draw_in_its_line_and_do_no_more_with_the_terminal() -> None:
    seen = run_on_terminal(r"""
        from monarch.actor import this_host
        from helpers.printing import Prints

        this_host().spawn_procs().spawn("prints", Prints).say.call_one("a\x1b[2Kb\x1b[2Jc").get()
        """)
    assert seen == "a\x1b[2Kbc\n"


def test_lines_of_ranks_do_not_tear_a_live_display_of_rich() -> None:
    pytest.importorskip("rich")
    seen = run_on_terminal(
        SETTINGS
        + """
from rich.progress import Progress

with Progress(refresh_per_second=50) as progress:
    task = progress.add_task("epochs", total=20)
    for _ in range(20):
        prints.say_lines.call(5, "x" * 20).get()
        progress.advance(task)
""",
        env={"COLUMNS": "100"},
    )
    _check_whole(seen, 20 * 5 * 4)
    assert "100%" in seen


def test_lines_of_ranks_do_not_tear_a_progress_bar_of_tqdm() -> None:
    pytest.importorskip("tqdm")
    seen = run_on_terminal(
        SETTINGS
        + """
from tqdm import tqdm

for _ in tqdm(range(20), desc="epochs", mininterval=0, ncols=80):
    prints.say_lines.call(5, "x" * 20).get()
""",
    )
    _check_whole(seen, 20 * 5 * 4)
    assert "epochs: 100%" in seen


def test_a_progress_bar_of_tqdm_in_each_rank_is_one_line_each() -> None:
    pytest.importorskip("tqdm")
    seen = run_on_terminal(
        SETTINGS + 'prints.show_progress.call(20).get()\nprint("done")', env={"NO_COLOR": "1"}
    )
    *bars, last = seen.splitlines()
    assert last == "done", seen
    assert sorted(bar[:25] for bar in bars) == [
        f"[trainers {rank}] epochs: 100%" for rank in range(4)
    ], seen
    collected = run_on_terminal(
        SETTINGS
        + "procs.logging_option(aggregate_window_sec=1000).get()\nprints.show_progress.call(20).get()\nprocs.stop().get()",
        env={"NO_COLOR": "1"},
    )
    first, others = collected.splitlines()
    assert re.match(r"\[trainers \d\] epochs: 100%", first), collected
    assert re.match(r"\[trainers gpus [0-3,-]+\] epochs: 100%", others), collected


def _check_whole(seen: str, count: int) -> None:
    """Each line of a rank begins where a line begins, and nothing stands behind it."""
    cleared = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)
    found = [line.rpartition("\r")[2] for line in cleared.split("\n") if "<rank" in line]
    assert len(found) == count, seen[-2000:]
    torn = [
        line
        for line in found
        if not re.fullmatch(r"\[trainers \d\] <rank \d line \d+ x{20}>", line)
    ]
    assert torn == [], torn[:3]


def test_a_program_that_sets_nothing_does_not_import_the_plane_of_logs() -> None:
    result = run_script(
        program(
            SETTINGS,
            """
            prints.say.call("hello").get()
            print([name for name in sys.modules if name.startswith("monarch.logs")])
            """,
        )
    )
    assert result.stdout.splitlines()[-1] == "[]", str(result)


def test_what_the_agent_is_told_brings_no_module_of_the_engine_with_it() -> None:
    told = pickle.dumps([HIDDEN.left_of, Shown(True, 20, re.compile("a"), 3.0).left_of]).hex()
    result = run_script(f"""
        import pickle, sys
        pickle.loads(bytes.fromhex("{told}"))
        print(*sorted(name for name in sys.modules if name.startswith("monarch.")))
        """)
    assert result.stdout.split() == [
        "monarch._core",
        "monarch._core.extension",  # the points, which are there in every process
        "monarch._guests",
        "monarch._public",
        "monarch.compat",
        "monarch.logs",
        "monarch.logs.shown",
    ], str(result)
