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
    procs.stop().get()


@pytest.fixture
def two_ranks(request: pytest.FixtureRequest, spawn: Spawn) -> ProcMesh:
    """Two ranks, of what `spawn` gives to the test: procs in this process, or the shared ones."""
    if request.node.get_closest_marker("process"):
        procs: ProcMesh = request.getfixturevalue("pair_of_processes")
        return procs
    return spawn(2)


@pytest.fixture
def pair(two_ranks: ProcMesh) -> ProcMesh:
    """Those, unless a file has a pair of its own."""
    return two_ranks


@pytest.fixture
def mesh(pair: ProcMesh) -> Iterator[Any]:
    """Two ranks, active."""
    with pair.activate() as mesh:
        yield mesh
