"""A dozen random endings; ``python -m tests.endings`` makes more of them."""

from __future__ import annotations

import random
import signal

import pytest

from endings.cases import WAYS, Case, draw
from endings.sandbox import why_not
from endings.verdict import violations
from helpers.ahead import several_at_a_time

pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"no sandbox: {why_not()}")
SEED = random.randrange(2**32)
STOPPED = [name for name, way in WAYS.items() if ("agent", signal.SIGSTOP) in way.signals]


@several_at_a_time
@pytest.mark.parametrize("number", range(12))
def test_a_random_ending_leaves_nothing_and_has_its_own_status(number: int) -> None:
    case = draw(SEED, number)
    found = violations(case)
    assert not found, "\n".join([f"seed {SEED}, number {number}: {case}", *found])


@several_at_a_time
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("moment", [0.0, 0.003, 0.01, 0.03, 0.1])
def test_a_script_may_end_while_the_first_call_of_a_daemon_starts(
    moment: float, threads: int
) -> None:
    assert violations(Case("end", moment, threads)) == []


@several_at_a_time
@pytest.mark.parametrize("name", STOPPED)
def test_a_client_that_is_killed_while_its_agent_stands_still_leaves_nothing(name: str) -> None:
    assert violations(Case(name, 1.5, 1)) == []


@several_at_a_time
@pytest.mark.parametrize("moment", [0.25, 0.3, 0.35, 0.4, 0.5])
def test_a_client_that_is_killed_while_its_agent_boots_leaves_no_folder(moment: float) -> None:
    assert violations(Case("SIGKILL", moment, 1)) == []
