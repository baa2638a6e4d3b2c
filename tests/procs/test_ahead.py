"""Tests that run several at a time: a real run of pytest with the decorator of `helpers.ahead`."""

from __future__ import annotations

from pathlib import Path

from helpers.inner_pytest import run_pytest

CONFTEST = "from helpers.ahead import ran_ahead"
TESTS = """
import threading
import pytest
from helpers.ahead import several_at_a_time

both = threading.Barrier(2)

@several_at_a_time
@pytest.mark.parametrize("number", [1, 2])
def test_waits_for_the_other(number):
    both.wait(60)

@several_at_a_time
def test_fails():
    three = 3
    assert three == 4

def test_is_alone():
    assert threading.active_count() == 1
"""


def run(folder: Path, *options: str) -> str:
    return run_pytest(folder, CONFTEST, TESTS, "markers = timeout: of a plugin", *options)[1]


def test_tests_run_beside_each_other_and_each_fails_for_itself(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert "1 failed, 3 passed" in said, said
    assert "assert 3 == 4" in said and "test_some.py:16: AssertionError" in said, said


def test_one_that_is_chosen_runs_alone(tmp_path: Path) -> None:
    said = run(tmp_path, "-k", "fails or alone")
    assert "1 failed, 1 passed, 2 deselected" in said, said
