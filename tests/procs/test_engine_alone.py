"""The engine without its guests, and with some of another package: real programs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from api.test_layering import LAYERS, SOURCE, SOURCES, module_name, package_of
from helpers.scripts import run_script
from monarch import _guests

pytestmark = pytest.mark.processes("about a copy of the package, and a package beside it")

ENGINE = LAYERS["monarch._core.plane"]
THE_REST = {"monarch", "monarch._guests", "monarch.compat"}  # of the package itself

BARE = """
from monarch._core.actors.actor import Actor
from monarch._core.actors.endpoint import endpoint
from monarch._core.client import client
from monarch._core.mesh.host_mesh import this_host
from monarch.errors import ActorError

class Counter(Actor):
    def __init__(self):
        self.count = 0

    @endpoint
    def add(self, by):
        print("adds", by)
        self.count += by
        return self.count

    @endpoint
    def fail(self):
        raise ValueError("as asked")

def told(action):
    try:
        action()
    except NotImplementedError as error:
        return str(error)
    raise AssertionError("it did that")

if __name__ == "__main__":
    client.install()
    hosts = this_host()
    procs = hosts.spawn_procs({"gpus": 2})
    counters = procs.spawn("counters", Counter)
    assert list(counters.add.call(2).get().values()) == [2, 2]
    assert counters.slice(gpus=1).add.call_one(3).get() == 5
    try:
        counters.slice(gpus=0).fail.call_one().get()
    except ActorError as error:
        assert "as asked" in str(error)
    assert procs.host_mesh.extent == hosts.extent
    assert counters._repr_html_() is None
    needs = {
        "repeat": lambda: counters.add.options(retries=1),
        "rref": lambda: counters.add.rref(1),
        "stacks": hosts.stacks,
        "draw": procs.to_table,
        "log_options": procs.logging_option,
        "device_mesh": procs.activate,
        "update_class": lambda: counters.update_class(Counter),
    }
    for point, action in needs.items():
        text = told(action)
        assert f"the point {point!r}" in text and "not installed" in text, text
    procs.stop().get()
    print("all of it")
"""


def test_the_engine_works_without_guests_and_says_what_they_would_add(tmp_path: Path) -> None:
    guests = {place.partition(":")[0] for place in places()} - THE_REST
    copy = tmp_path / "monarch"
    for path in SOURCES:
        name = module_name(path)
        if name not in guests and (LAYERS[package_of(name)] <= ENGINE or name in THE_REST):
            to = copy / path.relative_to(SOURCE)
            to.parent.mkdir(parents=True, exist_ok=True)
            for each in (path, *path.parent.glob("*.txt"), *path.parent.glob("*.pem")):
                shutil.copy(each, to.parent)
    assert not (copy / "actor").exists()
    result = run_script(BARE, env={"PYTHONPATH": str(tmp_path)})
    assert result.exit_code == 0, result
    assert "[counters 0] adds 2" in result.stdout and "all of it" in result.stdout


def places() -> list[str]:
    return [
        place
        for found in _guests.GUESTS.values()
        for place in ([found] if isinstance(found, str) else found.values())
    ]


PLANE = """
import os
from typing import NamedTuple
from monarch._core.plane import handles

class GetParent(NamedTuple):
    pass

@handles(GetParent)
def get_parent(service, request, record):
    request.answer(os.getppid())

HANDLERS = (get_parent,)

def progress(*args):
    raise NotImplementedError("never used here")
"""

ASK = """
import os
from monarch._core.plane import Promise, ask_one, current_hub, read_answer
from monarch.actor import Actor, context, this_host
from outside_plane import GetParent

if __name__ == "__main__":
    this_host().spawn_procs({"gpus": 1}).spawn("idle", Actor).initialized.get()
    promise = Promise("the parent of the agent")
    agent = current_hub().address.agent
    ask_one(current_hub(), agent, GetParent(), lambda reply: promise.resolve(reply, read_answer))
    assert promise.future.get() == os.getpid()
    print("answered")
"""


def test_an_agent_finds_a_plane_of_another_package_by_its_entry_points(tmp_path: Path) -> None:
    (tmp_path / "outside_plane.py").write_text(PLANE)
    about = tmp_path / "outside_plane-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-plane\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[monarch.guests]\ncontrol.outside_plane = outside_plane:HANDLERS\n"
    )
    result = run_script(ASK, env={"PYTHONPATH": str(tmp_path)})
    assert result.exit_code == 0, result
    assert "answered" in result.stdout
