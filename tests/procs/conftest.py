"""Fixtures of tests with distributed tensors. torch is imported by those who use them, as it may
not be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Spawn
    from monarch.actor import ProcMesh


@pytest.fixture(scope="module")
def pair_of_processes(_booted: None) -> Iterator[ProcMesh]:
    """Two ranks that the tests of a file with the mark `processes` share."""
    import torch

    from monarch import inspect
    from monarch.actor import this_host

    procs = this_host().spawn_procs(per_host={"gpus": 2})
    with procs.activate():
        inspect(torch.ones(1))
    yield procs
    procs.stop().get(timeout=30)


@pytest.fixture
def pair(request: pytest.FixtureRequest, spawn: Spawn) -> ProcMesh:
    """Two ranks, of what `spawn` gives to the test: procs in this process, or the shared ones."""
    if request.node.get_closest_marker("process"):
        procs: ProcMesh = request.getfixturevalue("pair_of_processes")
        return procs
    return spawn(2)


@pytest.fixture
def mesh(pair: ProcMesh) -> Iterator[Any]:
    """Two ranks, active."""
    with pair.activate() as mesh:
        yield mesh


@pytest.hookimpl(trylast=True)  # after the mark `process` is put on
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ranks that a file shares are there before what a test leaves behind is looked at."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("process"):
            found = item._fixtureinfo.name2fixturedefs.get("pair", ())
            if found and found[-1].baseid == "tests/procs":  # others have one of their own
                # a new list: the variants of a test share theirs
                item.fixturenames = ["pair_of_processes", *item.fixturenames]
