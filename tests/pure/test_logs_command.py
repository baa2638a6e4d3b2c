"""`monarch logs` on files: which job, which lines, how they look, what is said to a mistake."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

import pytest

from helpers.commands import Type, Typed, prompt
from monarch._words import tame
from monarch.job import JobError, JobState, JobTrait, job_load
from monarch.job.find_logs import find_logs
from monarch.logs.filter import parse_since
from monarch.logs.line import LogEntry, LogLine
from monarch.logs.text import dated
from monarch.tools import logs

NOON = datetime(2026, 3, 1, 12).timestamp()
RAN = "0f1e2d3c-0000-4000-8000-000000000001"
OTHER = "a0a0a0a0-0000-4000-8000-000000000002"


class Fake(JobTrait):
    """A job that runs until it is told to end."""

    _is_all_here = True

    def _create(self, client_script: str | None) -> None: ...

    def _state(self) -> JobState:
        return JobState({})

    def can_run(self, spec: JobTrait) -> bool:
        return self.active

    def _kill(self) -> None: ...


def running() -> tuple[Fake, str]:
    """A job that runs, and its id."""
    job = Fake()
    job.state()
    assert job.apply_id is not None
    return job, job.apply_id


@pytest.fixture
def monarch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Type:
    """`monarch("logs")`: the command, in this process and in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return prompt(monkeypatch, capsys)


def line(
    time: float, text: str, rank: int = 0, mesh: str = "trainers", host: str = "h0", level: int = 0
) -> LogLine:
    stream, location = ("log", "train.py:12") if level else ("stdout", "")
    return LogLine(
        NOON + time, stream, level, text, host, mesh, rank, f"gpus={rank}", location=location
    )


def show(each: LogLine, colours: bool = False) -> str:
    return dated(LogEntry(each, each.text, 1, {each.rank: each.point}), colours)


def write(job: str, lines: Iterable[LogLine], folder: Path = Path(".monarch/logs")) -> Path:
    for each in lines:
        path = folder / job / each.host / f"{each.mesh}_{each.rank}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(each.to_json() + "\n")
    return folder / job


LINES = [
    line(0, "starting"),
    line(1, "starting", rank=1),
    line(2, "loss is 0.5", rank=1, level=logging.INFO),
    line(3, "disk is full", mesh="savers", host="h1", level=logging.ERROR),
    line(4, "bye"),
]


def texts(typed: Typed) -> list[str]:
    assert typed.exit_code == 0, typed.err
    return [str(json.loads(each)["text"]) for each in typed.out.splitlines()]


def test_lines_of_all_hosts_are_shown_by_time_with_host_mesh_and_rank(monarch: Type) -> None:
    write(RAN, LINES)
    said = monarch("logs")
    assert said == Typed(
        0,
        "2026-03-01 12:00:00.000 h0 [trainers 0] starting\n"
        "2026-03-01 12:00:01.000 h0 [trainers 1] starting\n"
        "2026-03-01 12:00:02.000 h0 [trainers 1] INFO: loss is 0.5\n"
        "2026-03-01 12:00:03.000 h1 [savers 0] ERROR: disk is full\n"
        "2026-03-01 12:00:04.000 h0 [trainers 0] bye\n",
        "",
    )


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--mesh", "savers"], [3]),
        (["--rank", "1"], [1, 2]),
        (["--rank", "gpus=0"], [0, 3, 4]),
        (["--rank", "0-1", "--mesh", "trainers"], [0, 1, 2, 4]),
        (["--level", "info"], [2, 3]),
        (["--level", "ERROR"], [3]),
        (["--grep", "^s|full$"], [0, 1, 3]),
        (["--since", "2026-03-01T12:00:03"], [3, 4]),
        (["--since", "5m"], []),
        (["--since", "36500d"], [0, 1, 2, 3, 4]),
    ],
)
def test_options_choose_lines(monarch: Type, options: list[str], shown: list[int]) -> None:
    write(RAN, LINES)
    assert texts(monarch("logs", "--json", *options)) == [LINES[each].text for each in shown]


def test_that_nothing_matches_is_said_with_the_hosts_that_were_looked_at(monarch: Type) -> None:
    write(RAN, LINES)
    assert monarch("logs", "--grep", "nothing") == Typed(
        0, "", f"no line of {RAN} matches; there are files of h0, h1\n"
    )


def test_json_lines_are_those_of_the_files(monarch: Type) -> None:
    write(RAN, LINES)
    assert [LogLine.from_json(each) for each in monarch("logs", "--json").out.splitlines()] == LINES


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--rank", "5-"], "'5-' does not say which ranks"),
        (["--level", "loud"], "a level is one of DEBUG"),
        (["--grep", "("], "'(' is no regular expression"),
        (["--since", "5"], "a time is an age such as 90s"),
        (["--since", "-5m"], "a time is an age such as 90s"),
    ],
)
def test_an_option_that_makes_no_sense_is_wrong_usage(
    monarch: Type, options: list[str], complaint: str
) -> None:
    write(RAN, LINES)
    said = monarch("logs", *options)
    flat = " ".join(each.strip(" │") for each in said.err.splitlines())
    assert said.exit_code == 2 and complaint in flat and options[0] in flat


def test_the_same_line_of_many_ranks_can_be_shown_once(monarch: Type) -> None:
    write(RAN, [line(each / 100, f"step {each % 2}", rank=each) for each in range(8)])
    shown = monarch("logs", "--merge").out.splitlines()
    assert [each.split(" h0 ")[1] for each in shown] == [
        "[trainers 0] step 0",
        "[trainers gpus 1-7] step 0..1",
    ]
    merged = json.loads(monarch("logs", "--merge", "--json").out.splitlines()[1])
    assert (
        merged["lines"] == 7
        and merged["ranks"] == [1, 2, 3, 4, 5, 6, 7]
        and merged["text"] == "step 0..1"
    )


def test_torn_lines_are_counted(monarch: Type) -> None:
    folder = write(RAN, LINES)
    with (folder / "h0" / "trainers_0.jsonl").open("a") as file:
        file.write("Segmentation fault\n")
    said = monarch("logs")
    assert (
        said.err == "1 lines were torn, or none, and were left out\n"
        and len(said.out.splitlines()) == 5
    )


# which job


def test_without_any_logs_the_folder_is_named(monarch: Type, tmp_path: Path) -> None:
    hint = "a program without a job keeps some with HYPERACTOR_MESH_ENABLE_FILE_CAPTURE=1"
    assert monarch("logs") == Typed(1, "", f"error: no logs in {tmp_path}/.monarch/logs; {hint}\n")


def test_the_job_that_runs_comes_before_one_that_has_written_later(monarch: Type) -> None:
    job, name = running()
    write(name, [line(0, "running")])
    write(OTHER, [line(1, "of another program")])
    assert texts(monarch("logs", "--json")) == ["running"]
    job.kill()
    assert texts(monarch("logs", "--json")) == ["running"], "it was the last job here"
    assert texts(monarch("logs", "a0a0", "--json")) == ["of another program"]


def test_without_a_job_what_was_written_last_is_shown(monarch: Type) -> None:
    os.utime(write(RAN, [line(0, "old")]) / "h0" / "trainers_0.jsonl", (1, 1))
    os.utime(Path(".monarch/logs", RAN), (1, 1))
    write(OTHER, [line(0, "new")])
    assert texts(monarch("logs", "--json")) == ["new"]


def test_a_context_stands_for_its_job_also_when_that_has_ended(monarch: Type) -> None:
    monarch("context", "use", "small")
    job, name = running()
    write(name, [line(0, "of small")])
    monarch("context", "use", "large")
    write(OTHER, [line(0, "of another")])
    assert texts(monarch("logs", "small", "--json")) == ["of small"]
    job.kill()
    assert texts(monarch("logs", "small", "--json")) == ["of small"]
    assert monarch("logs", "large").err.startswith("error: no logs of context 'large' in ")


def test_a_folder_can_be_given(monarch: Type, tmp_path: Path) -> None:
    write("copied", [line(0, "from elsewhere")], tmp_path)
    assert texts(monarch("logs", "copied", "--json")) == ["from elsewhere"]
    assert texts(monarch("logs", str(tmp_path / "copied"), "--json")) == ["from elsewhere"]


def test_an_unknown_job_is_an_error_that_names_the_last_ones(monarch: Type, tmp_path: Path) -> None:
    write(RAN, LINES)
    write(OTHER, LINES)
    said = monarch("logs", "nosuch")
    assert said.exit_code == 1 and said.err.count("\n") == 1
    assert (
        "'nosuch' is no job, no process id, no id of a job, and no folder" in said.err
        and f"{OTHER}, {RAN}" in said.err
    )


def test_what_means_several_jobs_is_refused(monarch: Type) -> None:
    write("ab-1", LINES)
    write("ab-2", LINES)
    said = monarch("logs", "ab")
    assert said.exit_code == 1 and "several have logs here for 'ab': ab-1, ab-2" in said.err


def test_the_process_id_of_a_program_finds_its_logs_and_those_of_its_job(monarch: Type) -> None:
    write("20260301-120000_4711", [line(0, "of a program without a job")])
    uses = write(RAN, [line(0, "of a job with telemetry")]) / "clients" / "4712"
    uses.parent.mkdir()
    uses.touch()
    assert texts(monarch("logs", "4711", "--json")) == ["of a program without a job"]
    assert texts(monarch("logs", "4712", "--json")) == ["of a job with telemetry"]
    assert monarch("logs", "4713").exit_code == 1


def test_a_host_of_a_job_is_shown_as_the_job_calls_it(monarch: Type) -> None:
    write(RAN, [line(0, "hi", host="trainers[1] on node7")])
    assert monarch("logs").out == "2026-03-01 12:00:00.000 trainers[1] [trainers 0] hi\n"


def test_a_folder_without_files_of_hosts_is_an_error(monarch: Type, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (
        monarch("logs", "empty").err
        == "error: no logs of empty: there are no files in empty/<host>\n"
    )


def test_a_job_that_cannot_be_loaded_any_more_does_not_hide_its_logs(
    monarch: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, name = running()
    write(name, LINES)
    monkeypatch.delattr(sys.modules[__name__], "Fake")
    with pytest.raises(Exception, match="can't be read as a job"):
        job_load()
    assert find_logs().folder.name == name


class Elsewhere(Fake):
    """A job whose hosts are other machines, which cannot be reached."""

    _is_all_here = False

    def _state(self) -> JobState:
        raise JobError("no route to host\nand more")


def test_hosts_that_cannot_be_reached_are_said_and_the_files_that_are_here_are_shown(
    monarch: Type,
) -> None:
    job = Elsewhere()
    with pytest.raises(JobError):
        job.state()
    name = job.apply_id
    assert name is not None
    write(name, [line(0, "from here")])
    said = monarch("logs", "--json")
    assert texts(said) == ["from here"]
    assert said.err == f"not reachable: the hosts of {name}: no route to host\n"
    job.kill()


def test_an_ended_jobs_shown_hosts_are_named_and_where_others_keep_logs(
    monarch: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Elsewhere, "_state", Fake._state)
    job = Elsewhere()
    job.state()
    name = job.apply_id
    assert name is not None
    folder = write(name, [line(0, "from here")])
    job.kill()
    said = monarch("logs", "--json")
    assert texts(said) == ["from here"]
    assert (
        said.err
        == f"not reachable: files on hosts of {name} other than h0, as it does not run; there, they"
        f" are in {folder.absolute()}\n"
    )


# follow


def sleep_here(monkeypatch: pytest.MonkeyPatch, step: Callable[[float], object]) -> None:
    """Has this thread take a step where it would sleep; other threads of the process sleep."""
    here, sleep = threading.get_ident(), time.sleep

    def sleeps(seconds: float) -> None:
        (step if threading.get_ident() == here else sleep)(seconds)

    monkeypatch.setattr(time, "sleep", sleeps)


def test_following_goes_on_until_the_job_has_ended(
    monarch: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, name = running()
    write(name, [line(0, "before")])
    steps: list[Callable[[], object]] = [
        lambda: write(name, [line(1, "while it runs")]),
        lambda: write(name, [line(2, "of a new rank", rank=9)]),
        job.kill,
    ]
    sleep_here(monkeypatch, lambda _: steps.pop(0)())
    monkeypatch.setattr(logs, "_CHECK", 0.0)
    said = monarch("logs", "-f", "--json")
    assert texts(said) == ["before", "while it runs", "of a new rank"]
    assert said.err == f"{name} does not run\n"


def test_following_ends_in_order_with_an_interrupt(
    monarch: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(RAN, LINES)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    sleep_here(monkeypatch, interrupt)
    said = monarch("logs", "-f")
    assert said.exit_code == 0 and len(said.out.splitlines()) == 5 and said.err == ""


def test_following_with_merge_shows_what_was_held_back_when_the_job_ends(
    monarch: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, name = running()
    now = time.time() - NOON
    write(name, [line(now, "step 1", rank=0)])
    steps: list[Callable[[], object]] = [
        lambda: write(name, [line(now + 1, "step 1", rank=1)]),
        job.kill,
    ]
    sleep_here(monkeypatch, lambda _: steps.pop(0)())
    monkeypatch.setattr(logs, "_CHECK", 0.0)
    assert texts(monarch("logs", "-f", "--merge", "--json")) == ["step 1", "step 1"]


# how lines look


HOSTILE = [
    ("\x1b[2J\x1b[Hcleared", "cleared"),
    ("\x1b]0;title\x07text", "text"),
    ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x1b]52;c;cm0gLXJm\x07clipboard", "clipboard"),
    ("\x1bPq#0\x1b\\sixel", "sixel"),
    ("\x1b[?1049h\x1b[31mred\x1b[0m", "red"),
    ("\x1bcreset", "reset"),
    ("\x1b(0charset", "charset"),
    ("unfinished \x1b]0;title", "unfinished "),
    ("bare \x1b", "bare "),
    ("c1 \x9b2J \x90q", "c1  "),
    ("back\x08\x08\x7fspace\rreturn\x00", "backspacereturn"),
    ("\u202efdp.exe", "fdp.exe"),
    ("tab\tand é漢\U0001f600", "tab\tand é漢\U0001f600"),
]


@pytest.mark.parametrize(("text", "safe"), HOSTILE)
def test_what_could_deceive_a_terminal_is_left_out(text: str, safe: str) -> None:
    assert tame(text, False) == safe


def test_colours_are_kept_for_terminals_and_end_with_the_line() -> None:
    shown = show(line(0, "\x1b[31;1mred\x1b[2J"), colours=True)
    assert "\x1b[31;1mred\x1b[0m" in shown and "\x1b[2J" not in shown


def test_a_long_hostile_text_takes_no_longer_than_another() -> None:
    for piece in ("\x1b]", "\x1b[", "\x1bP", "\x1b[1;", "\x1b"):
        tame(piece * 200_000, False)  # and not for hours, until the time limit of the test


def test_no_part_of_a_line_can_forge_another(monarch: Type) -> None:
    forged = "\n2026-03-01 12:00:00.000 h0 [trainers 1] all is well"
    shown = show(line(0, "text" + forged, mesh="m" + forged, host="h" + forged), colours=False)
    assert not any(each.startswith("2026") for each in shown.split("\n")[1:])


def test_levels_and_ranks_have_colours() -> None:
    shown = [
        show(line(0, "x", rank=rank, level=level), colours=True)
        for rank, level in ((0, 40), (1, 30), (1, 0))
    ]
    assert (
        "\x1b[31mERROR" in shown[0] and "\x1b[33mWARNING" in shown[1] and "\x1b[31m" not in shown[2]
    )
    assert shown[0].split("[trainers")[0] != shown[1].split("[trainers")[0]


def test_a_level_that_the_program_has_written_is_not_written_again() -> None:
    assert show(line(0, "12:00 WARNING disk", level=30), colours=False).endswith(
        "[trainers 0] 12:00 WARNING disk\n"
    )


def test_records_of_several_lines_say_who_on_each() -> None:
    shown = show(line(0, "failed\nTraceback:\n  x", level=40), colours=False)
    assert shown.endswith(
        " [trainers 0] ERROR: failed\n[trainers 0] Traceback:\n[trainers 0]   x\n"
    )


def test_text_that_the_terminal_cannot_encode_is_shown_all_the_same(
    monarch: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(RAN, [line(0, "é \ud800")])
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", plain)
    assert monarch("logs").exit_code == 0
    plain.seek(0)
    assert plain.read().endswith("[trainers 0] \\xe9 \\ud800\n")


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("90s", NOON - 90), ("5m", NOON - 300), ("1.5h", NOON - 5400), ("500ms", NOON - 0.5), ("1d", NOON - 86400),
        ("2026-03-01", NOON - 12 * 3600), ("2026-03-01 11:59", NOON - 60), ("1000000d", 0.0),
    ],
)  # fmt: skip
def test_since_takes_ages_and_times(text: str, time: float) -> None:
    assert parse_since(text, NOON) == time
