"""A cell of a notebook waits on the thread of its event loop: what the engine goes on with must not
need that loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo
from monarch.supervision import OneForOne
from monarch.telemetry import read

if TYPE_CHECKING:
    from conftest import Spawn

LIMIT = 60
pytestmark = pytest.mark.filterwarnings("ignore:Blocking get")  # that is what a cell does


def in_a_loop(cell: Callable[[], Any]) -> Any:
    async def run() -> Any:
        return cell()

    return asyncio.run(run())


def ready() -> None: ...


@pytest.mark.processes("telemetry of several processes")
def test_telemetry_is_read_while_the_loop_stands(spawn: Spawn) -> None:
    spawn(1, name="in_loops")
    found = in_a_loop(lambda: read("procs").get(timeout=LIMIT))
    assert "in_loops" in {row["mesh"] for row in found.rows("procs")}


def test_procs_with_a_bootstrap_function_come_up_while_the_loop_stands(spawn: Spawn) -> None:
    echo = in_a_loop(lambda: spawn(1, bootstrap=ready).spawn("echo", Echo))
    assert in_a_loop(lambda: echo.say.call_one(3).get(timeout=LIMIT)) == 3
    assert (
        in_a_loop(
            lambda: spawn(1, bootstrap=ready).spawn("echo", Echo).say.call_one(4).get(timeout=LIMIT)
        )
        == 4
    )


def test_procs_are_restarted_while_the_loop_stands(spawn: Spawn) -> None:
    procs = spawn(1, restart=OneForOne(max_restarts=5, within=3600))
    echo = procs.spawn("echo", Echo)
    before = echo.pid.call_one().get(timeout=LIMIT)
    in_a_loop(lambda: procs.restart().get(timeout=LIMIT))
    assert echo.pid.call_one().get(timeout=LIMIT) != before
