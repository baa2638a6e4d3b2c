"""What a failure of a test counts as: real runs of pytest with the plugin of `gate.second_try`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gate.second_try import MOST_FAILED, MOST_FLAKY
from helpers.inner_pytest import run_pytest

CONFTEST = """
from gate import second_try

def pytest_addoption(parser):
    parser.addoption("--all", action="store_true")

def pytest_configure(config):
    config.addinivalue_line("markers", "process: a process test")
    second_try.register(config)
"""
TESTS = """
import os
from pathlib import Path
import pytest

def fails_once(name):
    seen = Path(__file__).with_name(name)
    if not seen.exists():
        seen.touch()
        raise AssertionError(f"the first try of {name}")

@pytest.mark.process
def test_well(): pass
"""
FLAKY = """
@pytest.mark.process
@pytest.mark.parametrize("number", range({count}))
def test_flaky(number):
    fails_once(f"flaky {{number}}")
"""
BROKEN = """
@pytest.mark.process
@pytest.mark.parametrize("number", range({count}))
def test_broken(number):
    raise AssertionError("it fails each time")
"""
PURE = """
def test_pure():
    fails_once("pure")
"""
CRASH = """
@pytest.mark.process
def test_crash():
    seen = Path(__file__).with_name("crash")
    if not seen.exists():
        seen.touch()
        os._exit(9)
"""


WORKERS = ("-p", "xdist.plugin", "-n", "2")


def run(folder: Path, tests: str, *options: str) -> tuple[int, str]:
    return run_pytest(folder, CONFTEST, TESTS + tests, "addopts = -ra", *options)


@pytest.mark.parametrize("options", [(), WORKERS], ids=["alone", "workers"])
def test_one_that_passes_the_second_time_is_flaky_and_shown(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    status, said = run(tmp_path, FLAKY.format(count=1), *options)
    assert status == 0, said
    assert re.search(r"1 passed, 1 flaky", said), said
    assert "second try, alone: test_some.py::test_flaky[0] passed" in said
    assert "AssertionError: the first try of flaky 0" in said and "1 passed" in said


def test_one_that_fails_again_has_failed_and_both_outputs_are_shown(tmp_path: Path) -> None:
    status, said = run(tmp_path, BROKEN.format(count=1), *WORKERS)
    assert status == 1, said
    assert "1 failed, 1 passed" in said and "FAILED test_some.py::test_broken" in said
    assert said.count("AssertionError: it fails each time") >= 2
    assert "The second try, alone" in said


def test_where_the_run_has_failed_no_other_is_tried_again(tmp_path: Path) -> None:
    status, said = run(tmp_path, BROKEN.format(count=MOST_FAILED + 2), *WORKERS)
    assert status == 1, said
    assert f"{MOST_FAILED + 2} failed, 1 passed" in said
    tried = re.findall(r"second try, alone: \S+ (failed|not made)", said)
    assert tried == ["failed"] * MOST_FAILED + ["not made"] * 2
    # told at once, so that a run that is ended before its summary tells why
    first, _, _ = said.partition(" not made")
    assert first.count("AssertionError: it fails each time") >= MOST_FAILED


def test_too_many_flaky_ones_fail_the_run(tmp_path: Path) -> None:
    status, said = run(tmp_path, FLAKY.format(count=MOST_FLAKY + 1), *WORKERS)
    assert status == 1, said
    assert f"{MOST_FLAKY + 1} tests failed only once; more than {MOST_FLAKY} fail the run" in said


def test_a_test_without_processes_has_one_try(tmp_path: Path) -> None:
    status, said = run(tmp_path, PURE)
    assert status == 1 and "1 failed, 1 passed" in said and "second try" not in said, said


def test_the_first_failure_is_final_where_it_ends_the_run(tmp_path: Path) -> None:
    status, said = run(tmp_path, FLAKY.format(count=1), "-x")
    assert status == 1 and "second try" not in said, said


def test_a_worker_that_crashes_gives_its_test_a_second_try(tmp_path: Path) -> None:
    status, said = run(tmp_path, CRASH, *WORKERS)
    assert status == 0, said
    assert (
        "1 passed, 1 flaky" in said and "second try, alone: test_some.py::test_crash passed" in said
    )
