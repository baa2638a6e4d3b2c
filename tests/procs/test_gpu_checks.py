"""How `monarch doctor --gpu` runs checks: what is wrong is named, and keeps no other from running."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the checks need torch, which is not installed")
pytest.importorskip("typer", reason="the command needs typer, which is not installed")

import torch
from typer.testing import CliRunner

from monarch import doctor_gpu, gpu_checks
from monarch.actor import this_host
from monarch.gpu_checks import checks
from monarch.gpu_checks.check import Check, CheckFailed, Machine, Result, examine, expect, reason
from monarch.testing import local
from monarch.tools import cli

pytestmark = pytest.mark.torch

MACHINE = Machine("cpu", 2, "a machine", {"gpu": "no GPU"})


def passes(machine: Machine) -> str:
    return f"{machine.ranks} ranks"


def differs(machine: Machine) -> str:
    expect("ranks", 1, machine.ranks)
    return ""


def breaks(machine: Machine) -> str:
    raise ZeroDivisionError("by zero")


def ends(machine: Machine) -> str:
    os._exit(3)


def hangs(machine: Machine) -> str:
    with this_host().spawn_procs({"gpus": machine.ranks}):
        threading.Event().wait()
    return ""


def examined(*checks: Check) -> list[Result]:
    with local():
        return [examine(check, MACHINE) for check in checks]


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (differs, "ranks: wanted 2, got 1"),
        (breaks, "ZeroDivisionError: by zero"),
        (ends, "SupervisionError: Endpoint call checker.call() failed, doctor[0] has failed: the"),
    ],
)
def test_a_check_that_fails_says_what_was_wanted_and_the_next_one_runs(
    check: Any, words: str
) -> None:
    wrong, right = examined(Check("wrong", check), Check("right", passes))
    assert wrong.outcome == "failed" and wrong.words.startswith(words)
    assert wrong.details.startswith("Actor call doctor.apart failed.")
    assert (right.outcome, right.words, right.details) == ("ok", "2 ranks", "")


def test_a_check_that_hangs_is_ended_at_its_limit_and_the_next_one_runs() -> None:
    wrong, right = examined(Check("wrong", hangs, limit=7.0), Check("right", passes, limit=3600.0))
    assert (wrong.outcome, wrong.words) == ("failed", "wanted an end within 7 s, got none")
    assert right.outcome == "ok"


def test_a_check_without_what_it_needs_is_skipped_and_says_why() -> None:
    (result,) = examined(Check("needs it", breaks, ("gpu",)))
    assert result == Result("needs it", "skipped", "no GPU")


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command with these checks; returns its exit status and what it prints."""

    def run(*args: str, checks: dict[str, Any]) -> tuple[int, str]:
        listed = tuple(Check(name, check) for name, check in checks.items())
        monkeypatch.setattr(gpu_checks, "CHECKS", listed, raising=False)
        monkeypatch.setattr(gpu_checks, "survey", lambda device: MACHINE, raising=False)
        with local():
            result = CliRunner().invoke(cli.commands("doctor"), ["doctor", "--gpu", *args])
        return result.exit_code, result.output

    return run


def test_the_exit_status_is_1_if_a_check_fails_and_its_row_says_so(report: Any) -> None:
    status, said = report(checks={"first": differs, "second": passes})
    assert status == 1
    rows = [line.split() for line in said.splitlines()]
    assert [row[:2] for row in rows if row[:1] in (["first"], ["second"])] == [
        ["first", "failed"],
        ["second", "ok"],
    ]
    assert "ranks: wanted 2, got 1" in said and "1 ok 1 failed 0 skipped" in said


def test_the_exit_status_is_0_if_none_fails(report: Any) -> None:
    status, said = report("--json", checks={"only": passes})
    assert status == 0
    told = json.loads(said)
    assert told["failed"] == 0 and told["device"] == "cpu" and told["missing"] == {"gpu": "no GPU"}
    (check,) = told["checks"]
    assert (check["name"], check["outcome"], check["words"]) == ("only", "ok", "2 ranks")


def test_the_table_needs_no_library_that_a_bare_machine_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_checks, "CHECKS", (Check("only", differs),), raising=False)
    monkeypatch.setattr(gpu_checks, "survey", lambda device: MACHINE, raising=False)
    with local(), pytest.raises(SystemExit) as ended:
        doctor_gpu.main([])
    assert ended.value.code == 1
    said = capsys.readouterr()
    about, row, counts = said.out.splitlines()
    assert said.err == ""  # it is no terminal
    assert (about, counts) == ("a machine", "on cpu: 0 ok 1 failed 0 skipped")
    assert row.split()[:2] == ["only", "failed"] and row.endswith("ranks: wanted 2, got 1")


def test_a_terminal_shows_which_check_is_under_way_and_a_clean_line_afterwards(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        gpu_checks, "CHECKS", (Check("one", passes), Check("two", passes)), raising=False
    )
    monkeypatch.setattr(gpu_checks, "survey", lambda device: MACHINE, raising=False)
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(doctor_gpu, "bare", lambda stream: terminal)
    with local(), pytest.raises(SystemExit):
        doctor_gpu.main(["--json"])
    said = capsys.readouterr()
    clear = "\r\x1b[K"
    assert said.err == f"1 of 2: one{clear}2 of 2: two{clear}"
    assert json.loads(said.out)["failed"] == 0


def test_a_device_that_is_not_there_is_an_error_that_says_what_there_is() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with local(), pytest.raises(SystemExit) as ended:
        doctor_gpu.main(["--device", "cuda"])
    assert ended.value.code == (
        "error: ValueError: --device is cuda or cpu, got 'cuda'; torch finds 0 GPUs here"
    )


def test_workers_and_gpus_are_not_looked_at_together() -> None:
    for args in (["--gpu", "tcp://x:1"], ["--device", "cpu"]):
        result = CliRunner().invoke(cli.commands("doctor"), ["doctor", *args])
        assert result.exit_code == 2 and "--gpu is of this machine alone" in result.output


@pytest.mark.parametrize(
    ("got", "wanted", "tolerance", "same"),
    [
        ([1, [2.0, True]], [1, [2, True]], 0.0, True),
        ([1.0, 2.0], [1.0], 0.0, False),
        (1.004, 1.0, 0.01, True),
        (1.02, 1.0, 0.01, False),
        (1004.0, 1000.0, 0.01, True),
        ([1 + 1j], [1 + 1.001j], 0.01, True),
        (float("nan"), 1.0, 0.01, False),
        (float("inf"), 1.0, 0.01, False),
        ("a", "b", 0.0, False),
        (None, 3, 0.0, False),
    ],
)
def test_values_are_compared(got: Any, wanted: Any, tolerance: float, same: bool) -> None:
    if same:
        expect("a value", got, wanted, tolerance)
        return
    with pytest.raises(CheckFailed) as raised:
        expect("a value", got, wanted, tolerance)
    assert str(raised.value) == f"a value: wanted {wanted}, got {got}"


def test_the_reason_is_one_line_and_of_a_remote_function_the_end_of_its_traceback() -> None:
    error: Any = RuntimeError("failed on rank 1:\n  SIGABRT has ended it\n\nand a traceback")
    assert reason(error) == "RuntimeError: failed on rank 1: SIGABRT has ended it"
    error.worker_error_string = "Traceback\n  line\nmonarch.x.CheckFailed: wanted 1, got 2\n"
    assert reason(error) == "wanted 1, got 2"


def nvidia(monkeypatch: pytest.MonkeyPatch, used: int, *uuids: str) -> str:
    """What the check says where nvidia-smi tells of these GPUs, with 1,000 MiB of 80,000 in use."""
    said = "".join(f"{uuid}, 80000, 1000\n" for uuid in uuids)
    row = {"uuid": "GPU-1", "memory_bytes": 80000 << 20, "memory_used_bytes": used << 20}
    collected = SimpleNamespace(rows=lambda table: [row])
    monkeypatch.setattr(subprocess, "check_output", lambda *args, **kwargs: said)
    monkeypatch.setattr(checks, "read", lambda table: SimpleNamespace(get=lambda: collected))
    return checks.figures(MACHINE)


def test_telemetry_is_held_against_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "(80000, 1000)" in nvidia(monkeypatch, 1600, "GPU-1")
    with pytest.raises(CheckFailed, match=r"part of the memory of GPU-1 in use: wanted 0\.0125"):
        nvidia(monkeypatch, 9000, "GPU-1")
    with pytest.raises(CheckFailed, match=r"UUIDs of GPUs: wanted \['GPU-1', 'GPU-2'\], got"):
        nvidia(monkeypatch, 1000, "GPU-1", "GPU-2")


def pretend(patch: pytest.MonkeyPatch, count: int) -> None:
    """That there are GPUs, as far as the survey asks for them."""
    patch.setattr(torch.cuda, "device_count", lambda: count)
    patch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H200")


def test_the_survey_takes_each_gpu_and_says_what_one_alone_can_not_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, 8)
    found = checks.survey()
    assert (found.device, found.ranks) == ("cuda", 8)
    assert not {"gpu", "two ranks"} & found.missing.keys() and "NVIDIA H200" in found.about
    left_out = checks.survey("cpu")
    assert (left_out.device, left_out.ranks, left_out.missing["gpu"]) == ("cpu", 2, "--device cpu")
    pretend(monkeypatch, 1)
    alone = checks.survey()
    assert (alone.ranks, alone.missing["two ranks"]) == (1, "one GPU")
    with pytest.raises(ValueError, match=r"got 'tpu'; torch finds 1 GPUs here"):
        checks.survey("tpu")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_a_reduction_gives_is_known_for_the_types_that_it_takes(size: int) -> None:
    def types(kind: str) -> set[torch.dtype]:
        return {dtype for dtype in checks._TYPES if checks._wanted(size, dtype, kind)}

    integers = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
    for kind in ("band", "bor", "bxor"):
        assert types(kind) == {*integers, torch.bool}
    for kind in ("stack", "sum", "product"):
        assert types(kind) == {*checks._TYPES}
    complex_ones = {dtype for dtype in checks._TYPES if dtype.is_complex}
    assert types("max") == types("min") == {*checks._TYPES} - complex_ones
    assert types("avg") == {*checks._TYPES} - integers - {torch.bool}
    whole, part = checks._wanted(size, torch.int32, "bxor")[0]
    assert part == whole[0] == {1: [1, 2, 1], 2: [3, 3, 3], 3: [2, 1, 2]}[size]


def test_each_need_of_a_check_is_one_that_the_survey_knows() -> None:
    names = [check.name for check in checks.CHECKS]
    assert len(set(names)) == len(names)
    assert {need for check in checks.CHECKS for need in check.needs} == {
        "gpu",
        "two ranks",
        "nixl",
        "nvidia-smi",
        "pynvml",
    }
