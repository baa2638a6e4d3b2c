"""Fixtures of tests with distributed tensors. torch is imported by those who use them, as it may
not be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from monarch.actor import ProcMesh


@pytest.fixture(scope="module")
def pair(_booted: None) -> Iterator[ProcMesh]:
    """Two ranks that the tests of a file share."""
    import torch

    from monarch import inspect
    from monarch.actor import this_host

    procs = this_host().spawn_procs(per_host={"gpus": 2})
    with procs.activate():
        inspect(torch.ones(1))
    yield procs
    procs.stop().get(timeout=30)


@pytest.fixture
def mesh(pair: ProcMesh, _process_test: None) -> Iterator[Any]:
    """Two ranks, active."""
    with pair.activate() as mesh:
        yield mesh
