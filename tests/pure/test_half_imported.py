"""What the I/O thread does while another thread imports: it waits for no import, needs nothing that
is not there yet, and what fails keeps no owner from being told.
"""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType
from typing import Any

import pytest

from monarch._core.calls.cancelled import is_cancelled
from monarch._core.calls.waiting import running_loop
from monarch._core.client import session
from monarch._core.hub.peers import Peers
from monarch._core.net.poller import guarded
from monarch._core.supervision.failure import Failure, host_lost
from monarch._core.wire.address import ProcAddress
from monarch._lazy import note, whole

ADDRESS = ProcAddress("host", "proc")


@pytest.fixture
def half_imported(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    module = ModuleType(request.param)
    spec: Any = importlib.machinery.ModuleSpec(request.param, None)
    spec._initializing = True  # as the import system says it
    module.__spec__ = spec
    monkeypatch.setitem(sys.modules, request.param, module)


@pytest.mark.parametrize("half_imported", ["logging"], indirect=True)
def test_a_note_is_dropped_while_logging_is_being_imported(half_imported: None) -> None:
    assert whole("logging") is None
    note("host", "%s is gone", "it")


@pytest.mark.parametrize("half_imported", ["logging"], indirect=True)
def test_a_handler_that_fails_while_logging_is_being_imported_does_not_end_the_loop(
    half_imported: None,
) -> None:
    guarded(lambda: 1 / 0)


@pytest.mark.parametrize("half_imported", ["asyncio.events"], indirect=True)
def test_no_loop_runs_while_asyncio_is_being_imported(half_imported: None) -> None:
    assert running_loop() is None


@pytest.mark.parametrize("half_imported", ["concurrent.futures"], indirect=True)
def test_no_error_is_of_a_module_that_is_being_imported(half_imported: None) -> None:
    assert not is_cancelled(ValueError())


@pytest.mark.parametrize("half_imported", ["IPython"], indirect=True)
def test_a_shell_that_is_being_imported_runs_no_cell(half_imported: None) -> None:
    assert session._shell() is None


def test_a_whole_module_is_found() -> None:
    assert whole("sys") is sys and whole("no.such.module") is None


class Full:
    def process_ended(self, address: ProcAddress) -> None:
        pass


class Told:
    """A request, or the hook of an owner; it raises before, or after, it knows."""

    def __init__(self, raises: bool) -> None:
        self.raises = raises
        self.told: list[ProcAddress] = []

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        if self.raises:
            raise ImportError("cannot import name 'it' from partially initialized module")
        self.told.append(address)
        return True


@pytest.mark.filterwarnings("ignore")
def test_an_owner_that_can_not_be_told_keeps_no_other_from_being_told() -> None:
    peers: Any = Peers(ADDRESS, ADDRESS)
    peers.full = Full()
    owners, requests = [Told(True), Told(False)], [Told(True), Told(False)]
    peers.peer_lost_hooks += [owner.peer_failed for owner in owners]
    peers.requests.update(enumerate(requests))
    peers.tell(ADDRESS, host_lost("host"), [0, 1])
    assert owners[1].told == requests[1].told == [ADDRESS]
    assert list(peers.requests) == [0]  # it has not heard
