"""Tests of code that uses actors, failures included."""

import os
from collections.abc import Iterator
from queue import Queue

import pytest

import monarch.actor
from monarch.actor import Actor, MeshFailure, ProcMesh, SupervisionError, endpoint, this_host


class Worker(Actor):
    @endpoint
    def divide(self, a: int, b: int) -> float:
        return a / b

    @endpoint
    def exit(self) -> None:
        os._exit(1)


# region fixtures
@pytest.fixture
def procs() -> Iterator[ProcMesh]:
    with this_host().spawn_procs({"gpus": 2}) as procs:  # stopped, also if the test fails
        yield procs


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Queue[MeshFailure]:
    """What the test left unhandled, instead of its failure."""
    faults: Queue[MeshFailure] = Queue()
    monkeypatch.setattr(monarch.actor, "unhandled_fault_hook", faults.put)
    return faults


# endregion


# region tests
def test_an_error_is_of_the_type_that_was_raised(procs: ProcMesh) -> None:
    with pytest.raises(ZeroDivisionError):
        procs.spawn("workers", Worker).divide.call(1, 0).get(timeout=30)


def test_the_owner_hears_of_a_death(procs: ProcMesh, faults: Queue[MeshFailure]) -> None:
    workers = procs.spawn("workers", Worker)
    with pytest.raises(SupervisionError):
        workers.slice(gpus=1).exit.call_one().get(timeout=30)
    assert faults.get(timeout=30).ranks == [1]  # told on another thread: wait for it


# endregion


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
