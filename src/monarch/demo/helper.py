"""The helper process of the demo: the admin interface's own, connected to a simulated program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

from .._core.plane import Hub
from ..admin.program import WatchedProgram
from ..programs import Connection, Program
from .answers import Processes
from .hub import SimulatedHub
from .world import DemoWorld


def reach(told: Mapping[str, Any]) -> WatchedProgram:
    """The program that the command line describes."""
    world, watched = _make(told)
    watched.place = _beside, (told, world.stopped, world.restarted)
    return watched


_copy: tuple[DemoWorld, WatchedProgram] | None = None


def _beside(
    told: Mapping[str, Any], stopped: Mapping[str, str], restarted: Mapping[str, float]
) -> WatchedProgram:
    """Return the program in a child of the helper, which is told only of these two."""
    global _copy
    _copy = _copy or _make(told)
    world, watched = _copy
    world.stopped.update(stopped)
    world.restarted.update(restarted)
    return watched


def _make(told: Mapping[str, Any]) -> tuple[DemoWorld, WatchedProgram]:
    world = DemoWorld(**told["simulated"])
    hub = SimulatedHub(world.client, Processes(world).answer)
    title = f"monarch demo --fault {world.fault_name}"
    host = world.hosts[0].name
    program = Program(told["pid"], title, world.since, False, host, os.getcwd())
    description = world.describe(world.hosts[0], world.began, ended=False)
    return world, WatchedProgram(Connection(cast(Hub, hub), program, description))


def main() -> None:
    """See `admin.helper`."""
    from ..admin import helper  # here: a child, which only reaches the program, needs no server

    helper.main(reach)
