"""Which address a host tells others: never one that means another host to them."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from monarch import _own_address
from monarch._own_address import own_name

FIRST, SECOND, LOCAL = "tcp://10.1.0.1:26600", "tcp://10.1.0.2:26600", "tcp://127.0.0.1:26600"
CLIENTS = "8mf8sb3twcsp3"  # the program's own, which nobody dials


@pytest.fixture(autouse=True)
def debian(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host of the network 10.1, without a default route; its name means a loopback address."""
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")

    def route(family: Any, other: str = "") -> str:
        known = {"10.1": "10.1.0.1", "127.": other, "node": "127.0.1.1"}
        return known.get(other[:4], "") if family == socket.AF_INET else ""

    monkeypatch.setattr(_own_address, "_own_address", route)
    monkeypatch.setattr(_own_address, "_resolves", lambda name: name == "node1")


def test_of_several_hosts_it_is_where_this_one_was_attached() -> None:
    assert own_name(hosts=[FIRST, SECOND], here=FIRST) == "10.1.0.1"
    assert own_name("ipv4", [FIRST, SECOND], FIRST) == "10.1.0.1"
    assert own_name(hosts=["tcp://node1:1", SECOND], here="tcp://node1:1") == "node1"
    assert own_name(hosts=["tcp://[fd00::1]:1", SECOND], here="tcp://[fd00::1]:1") == "fd00::1"


def test_by_address_it_is_not_the_loopback_address_of_the_own_name() -> None:
    assert own_name("ipv4", ["tcp://node1:1", SECOND], "tcp://node1:1") == "10.1.0.1"


def test_the_programs_own_host_tells_from_where_it_reaches_the_others() -> None:
    assert own_name(hosts=[CLIENTS, SECOND], here=CLIENTS) == "10.1.0.1"


def test_an_address_that_others_can_not_dial_is_not_told() -> None:
    assert own_name(hosts=[LOCAL, SECOND], here=LOCAL) == "10.1.0.1"
    assert own_name("ipv4", [LOCAL, SECOND], LOCAL) == "10.1.0.1"


def test_hosts_that_are_all_on_one_machine_may_meet_at_its_loopback_address() -> None:
    there = "tcp://127.0.0.1:26601"
    assert own_name(hosts=[LOCAL, there], here=LOCAL) == "127.0.0.1"


def test_one_host_alone_goes_by_its_name() -> None:
    assert own_name() == "node1"
    assert own_name("ipv4") == "127.0.0.1"
    assert own_name("ipv6") == "::1"
