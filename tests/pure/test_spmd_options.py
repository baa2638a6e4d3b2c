"""The command line of torchrun, as `monarch run` reads it."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path

import pytest

from monarch.spmd.launcher import Outcome, describe, explain, traceback_of
from monarch.spmd.options import LINE_PREFIX, Options, Streams, parse, parse_command, parser
from monarch.spmd.rank import Exit, _allotted, gpus


def test_options_end_at_the_script_and_the_rest_is_its_own() -> None:
    found = parse(
        ["--nproc-per-node", "4", "--max_restarts=2", "train.py", "--nproc-per-node", "7", "-m"]
    )
    assert (found.procs, found.max_restarts) == (4, 2)
    assert (found.script, found.args) == ("train.py", ("--nproc-per-node", "7", "-m"))


def test_both_spellings_and_short_forms_are_known() -> None:
    found = parse(
        [
            "--nproc_per_node=2",
            "--rdzv_id",
            "nightly",
            "-m",
            "-r",
            "0:1,1:3",
            "-t",
            "2",
            "pkg.train",
        ]
    )
    assert found.module and found.run_id == "nightly" and found.script == "pkg.train"
    assert [found.redirects.of(rank) for rank in range(3)] == [1, 3, 0]
    assert [found.tee.of(rank) for rank in range(2)] == [2, 2]


@pytest.mark.parametrize(("text", "nodes"), [("3", (3, 3)), ("2:4", (2, 4))])
def test_a_number_of_hosts_may_be_a_range(text: str, nodes: tuple[int, int]) -> None:
    assert parse(["--nnodes", text, "train.py"]).nodes == nodes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--nnodes", "4:2", "train.py"],
            "--nnodes is at least 1, and MIN is at most MAX, got '4:2'",
        ),
        (["--nnodes", "0", "train.py"], "--nnodes is at least 1"),
        (["--nnodes", "two", "train.py"], "--nnodes is a number, or MIN:MAX, got 'two'"),
        (["--nproc-per-node", "some", "train.py"], "a number, gpu, cpu or auto, got 'some'"),
        (["--nproc-per-node", "0", "train.py"], "at least 1, got 0"),
        (["--max-restarts", "-1", "train.py"], "--max-restarts is at least 0"),
        (["--max-restarts", "x", "train.py"], "invalid int value: 'x'"),
        (
            ["--redirects", "4", "train.py"],
            "--redirects: 0 is none, 1 stdout, 2 stderr, 3 both; got '4'",
        ),
        (["--tee", "a:1", "train.py"], "--tee is 0, 1"),
        (["--local-ranks-filter", "a", "train.py"], "a list of numbers, got 'a'"),
        (["--signals-to-handle", "SIGNONE", "train.py"], "there is no signal 'SIGNONE'"),
        (["--signals-to-handle", "SIGTERM,SIGKILL", "train.py"], "no program can handle SIGKILL"),
        (
            ["--master-port", "99999", "train.py"],
            "--master-port is a TCP port, or 0 for a free one, got 99999",
        ),
        (["--module", "--no-python", "train.py"], "exclude each other"),
        ([], "the following arguments are required: script"),
        (["--no-such-option", "train.py"], "--no-such-option"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_was_got(arguments: list[str], said: str) -> None:
    with pytest.raises(ValueError) as error:
        parse(arguments)
    assert said in str(error.value)


def test_the_environment_stands_for_options_as_under_torchrun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PET_MAX_RESTARTS", "3")
    monkeypatch.setenv("PET_NPROC_PER_NODE", "2")
    monkeypatch.setenv("PET_MODULE", "1")
    found = parse(["--max-restarts", "1", "train"])
    assert (found.max_restarts, found.procs, found.module) == (1, 2, True)


def test_options_without_effect_are_known_and_say_why() -> None:
    found = parse(["--standalone", "--rdzv-backend=c10d", "--node-rank", "0", "train.py"])
    assert set(found.without_effect) == {"--rdzv-backend", "--node-rank"}
    assert all(found.without_effect.values())


def test_lines_begin_as_under_torchrun_where_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def prefix(*arguments: str) -> str:
        return parse([*arguments, "train.py"]).line_prefix

    assert [prefix(), prefix("--tee", "0:0"), prefix("--redirects", "3")] == ["", LINE_PREFIX, ""]
    assert prefix("--tee", "2") == "[${role_name}${local_rank}]:"
    monkeypatch.setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[${rank}]: ")
    assert prefix("--tee", "3") == "[${rank}]: "
    monkeypatch.setenv("PET_LOG_LINE_PREFIX_TEMPLATE", "${hostname}: ")
    assert prefix() == "${hostname}: "
    assert prefix("--log-line-prefix-template", "> ") == "> "


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("", ()), ("apple,orange", ("apple", "orange")), ("a,,b,c", ("a,b", "c")), ("a,", ("a",))],
)
def test_texts_to_look_for_are_a_list_in_which_two_commas_are_one(
    text: str, wanted: tuple[str, ...]
) -> None:
    found = parse(["--duplicate-stdout-filters", text, "--duplicate-stderr-filters=x", "train.py"])
    assert (found.stdout_filters, found.stderr_filters) == (wanted, ("x",))


def test_the_script_of_completion_is_that_of_all_commands() -> None:
    with pytest.raises(ValueError, match=r"`monarch --show-completion` prints the script for zsh"):
        parse(["--print-completion", "zsh"])


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "--nproc-per-node", "2", "train.py", "--lr", "1"],
        ["/usr/bin/torchrun", "--nproc-per-node=2", "train.py", "--lr", "1"],
        ["torch.distributed.run", "--nproc-per-node=2", "train.py", "--lr", "1"],
        ["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py", "--lr", "1"],
        ["python3", "-u", "-m", "torchrun", "--nproc-per-node=2", "train.py", "--lr", "1"],
    ],
)
def test_a_whole_command_of_torchrun_is_read_in_all_its_forms(command: list[str]) -> None:
    found = parse_command(command)
    assert (found.procs, found.script, found.args) == (2, "train.py", ("--lr", "1"))


def test_a_command_of_python_is_one_rank() -> None:
    assert parse_command(["python", "train.py", "--lr", "1"]) == Options("train.py", ("--lr", "1"))
    assert parse_command(["python3.11", "-m", "pkg.train"]) == Options("pkg.train", module=True)


@pytest.mark.parametrize("command", [[], ["bash", "train.sh"], ["torchrun"]])
def test_other_commands_are_refused(command: list[str]) -> None:
    with pytest.raises(ValueError):
        parse_command(command)


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="compares with torchrun, which comes with torch",
)
def test_every_option_of_torchrun_is_known() -> None:
    from torch.distributed.run import get_args_parser

    from monarch.spmd.options import parser

    def spellings(made: object) -> set[str]:
        # argparse has no public list
        return set(made._option_string_actions)  # type: ignore[attr-defined]

    assert spellings(get_args_parser()) - spellings(parser("monarch run")) == set()


def exit_of(rank: int, status: int, time: float = 0.0, error: str = "") -> Exit:
    return Exit(rank, rank, "node1", 4711, status, time, error)


def test_the_first_failure_comes_before_those_that_followed_from_it() -> None:
    outcome = Outcome(
        (
            exit_of(0, -signal.SIGTERM, 1.0),
            exit_of(2, 3, 3.0),
            exit_of(1, 1, 2.0),
            exit_of(3, 0, 0.5),
        )
    )
    assert [each.rank for each in outcome.failures] == [1, 2, 0]
    assert outcome.status == 1


def test_a_run_that_a_signal_ended_says_so_by_its_status() -> None:
    assert Outcome((exit_of(0, -signal.SIGTERM),), signal=signal.SIGINT).status == 130
    assert Outcome((exit_of(0, 0),)).status == 0


TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'x'"""
CHAIN = (
    f"{TRACEBACK}\n\nDuring handling of the above exception, another exception"
    f" occurred:\n\n{TRACEBACK}"
)


def test_the_traceback_of_a_text_is_its_last_with_those_that_led_to_it() -> None:
    assert traceback_of(f"warning: slow\n{TRACEBACK}\n") == TRACEBACK
    assert traceback_of(f"{TRACEBACK}\nwent on\n{CHAIN}\n") == CHAIN
    assert traceback_of("killed\n") == "killed"


def test_the_report_ends_with_the_whole_error_of_the_rank_that_failed_first() -> None:
    outcome = Outcome(
        (exit_of(1, 1, 2.0, TRACEBACK), exit_of(0, -signal.SIGTERM, 3.0), exit_of(2, -11, 2.5))
    )
    lines = explain(outcome, Options("train.py")).splitlines()
    assert lines[0] == "train.py failed on rank 1 first"
    assert "rank 2" in lines[1] and "SIGSEGV" in lines[1]
    assert "1 other rank was stopped then" in lines[2]
    assert lines[-1].strip() == "KeyError: 'x'"
    assert explain(Outcome((exit_of(0, 0),)), Options("train.py")) == ""


def test_the_end_of_a_script_in_words() -> None:
    assert describe(3) == "failed with exit status 3"
    assert describe(-9) == "was killed by SIGKILL"


def test_streams_that_are_named_for_some_ranks_are_none_for_the_others() -> None:
    assert Streams(3).of(5) == 3
    assert Streams(0, {1: 2}).of(5) == 0


def test_a_prefix_that_is_unique_stands_for_an_option() -> None:
    assert parse(["--redirect=3", "train.py", "--redirect"]).redirects.of(0) == 3


@pytest.mark.parametrize(
    "option",
    ["--start-method=thread", "--rdzv-backend=carrier", "--logs-specs=x", "--numa-binding=x"],
)
def test_a_value_that_torchrun_does_not_have_is_an_error(option: str) -> None:
    with pytest.raises(ValueError, match="invalid choice"):
        parse([option, "train.py"])


def test_a_standalone_run_has_an_id_of_its_own() -> None:
    first, second = (parse(["--standalone", "train.py"]).run_id for _ in range(2))
    assert len({first, second, "none", ""}) == 4
    assert parse(["--rdzv-id", "a", "train.py"]).run_id == "a"


def test_a_rank_never_gets_a_gpu_outside_of_what_it_may_use() -> None:
    assert [_allotted("4, 6", rank) for rank in range(2)] == ["4", "6"]
    assert _allotted(None, 2) == "2"
    assert _allotted("GPU-8932f937,MIG-2", 1) == "MIG-2"
    for visible in ("4,6", "4,6,-1,7", "NoDevFiles", ""):
        with pytest.raises(OSError, match="local rank 2 has no GPU"):
            _allotted(visible, 2)


@pytest.mark.parametrize(
    ("visible", "count"),
    [("NoDevFiles", 0), ("", 0), ("-1", 0), ("0", 1), ("0, 1,-1,2", 2), ("GPU-1,MIG-2", 2)],
)
def test_gpus_are_counted_as_cuda_reads_its_variable(
    monkeypatch: pytest.MonkeyPatch, visible: str, count: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus() == count


@pytest.mark.torch
def test_every_option_of_torchrun_is_taken_and_is_in_the_table() -> None:
    run = pytest.importorskip("torch.distributed.run")
    newer = ("--log-line-prefix-template", "--print-completion")  # of 2.14
    page = (Path(__file__).parents[2] / "docs" / "coming_from_torchrun.md").read_text()
    rows = "".join(line for line in page.splitlines() if line.startswith("| `--"))
    ours = parser("monarch run")._option_string_actions
    for name in (*run.get_args_parser()._option_string_actions, *newer):
        if name not in ("-h", "--help"):
            assert name in ours, name
            short = name.startswith("--") and "_" not in name  # one of two spellings
            assert not short or f"`{name}`" in rows, name
