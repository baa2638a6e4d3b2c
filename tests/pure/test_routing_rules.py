"""Rules of gateways that random schedules hardly reach: one event at a time."""

from __future__ import annotations

from helpers.gateways import PATIENCE, World, unanswered
from monarch._core.supervision.failure import client_lost
from monarch._core.wire.address import AGENT, ProcAddress
from monarch._core.wire.frame import EXPLICIT, STANDING

CLIENT = "c0"
SCRIPT = ProcAddress(CLIENT, "p0")


def a_client_of(workers: int) -> World:
    """A client that watches over workers, which stand in a chain below it."""
    world = World(seed=0, fanout=1)
    names = [f"tcp://w{number}" for number in range(workers)]
    for name in (*names, CLIENT):
        world.host(name)
    for name in names:
        world.hosts[name].procs.append(AGENT)
    targets = [ProcAddress(name, AGENT) for name in names]
    world.hosts[CLIENT].call("p0", targets, 1, request=1, flags=STANDING)
    world.run(5)
    assert not unanswered(world)
    return world


def test_hosts_that_are_no_longer_watched_over_forget_the_cast_that_did() -> None:
    world = a_client_of(2)
    assert [host.gateway.casts for host in world.hosts.values()] == [1, 1, 1]

    world.hosts[CLIENT].gateway.withdraw(SCRIPT, ["tcp://w0", "tcp://w1"])
    world.run(10)

    assert [host.gateway.casts for host in world.hosts.values()] == [0, 0, 0]


def test_a_cast_that_waits_for_answers_goes_on_when_its_hosts_are_withdrawn() -> None:
    world = a_client_of(2)
    targets = [ProcAddress(name, "p0") for name in ("tcp://w0", "tcp://w1")]
    world.hosts[CLIENT].call("p0", targets, 2, request=2)

    world.hosts[CLIENT].gateway.withdraw(SCRIPT, ["tcp://w0", "tcp://w1"])
    world.run(10)

    assert world.hosts[CLIENT].answers[2] == {0: ["reply"], 1: ["reply"]}


def test_who_has_talked_to_a_process_hears_of_its_end_after_another_host_was_lost() -> None:
    world = a_client_of(2)
    asked = world.hosts["tcp://w0"]
    for caller in (CLIENT, "tcp://w1"):
        world.hosts[caller].call("p1", [ProcAddress("tcp://w0", "p0")], 2)
    world.run(10)

    world.kill("tcp://w1")
    world.run(20)
    assert ("p0", ProcAddress("tcp://w1", AGENT)) in asked.told
    asked.end("p0")
    world.run(30)

    assert ("p1", ProcAddress("tcp://w0", "p0")) in world.hosts[CLIENT].told


def test_what_waits_for_a_client_to_dial_asks_by_the_way_that_its_next_cast_has_come() -> None:
    world = a_client_of(3)
    last, link = world.hosts["tcp://w2"], world.links[frozenset(("tcp://w1", "tcp://w2"))]
    link.lost = True
    link.notice("tcp://w2")  # the other end does not know yet, so no way is looked for

    last.call("p0", [SCRIPT], 7)
    world.run(6)
    assert not world.hosts[CLIENT].got
    others = [ProcAddress(name, "p1") for name in ("tcp://w0", "tcp://w2")]
    world.hosts[CLIENT].call("p1", others, 8)
    world.run(6 + PATIENCE / 2)

    assert world.hosts[CLIENT].got == {("p0", ProcAddress("tcp://w2", "p0")): [7]}


def test_a_host_with_two_names_answers_once_and_those_below_get_the_call() -> None:
    world = World(seed=0, fanout=1)
    names = ["tcp://w0", "tcp://w1", "tcp://again", "tcp://w2"]
    for name in (CLIENT, "tcp://w0", "tcp://w1", "tcp://w2"):
        world.host(name)
    world.hosts["tcp://again"] = twice = world.hosts["tcp://w0"]
    twice.gateway.names.add("tcp://again")

    world.hosts[CLIENT].call("p0", [ProcAddress(name, "p0") for name in names], 1, request=1)
    world.run(10)

    answers = world.hosts[CLIENT].answers[1]
    assert answers == {0: ["reply"], 1: ["reply"], 2: ["gone"], 3: ["reply"]}
    assert ("p0", ProcAddress("tcp://again", AGENT)) in world.hosts[CLIENT].told
    assert twice.got == {("p0", SCRIPT): [1]}, "once"


def test_hosts_forget_the_casts_of_a_host_that_leaves() -> None:
    world = a_client_of(2)
    world.hosts[CLIENT].gateway.close()
    world.run(10)
    assert [host.gateway.casts for host in world.hosts.values()] == [0, 0, 0]
    assert all(CLIENT in world.hosts[name].gone_hosts for name in ("tcp://w0", "tcp://w1"))


def test_workers_call_one_by_one_where_an_answer_comes_through_a_port() -> None:
    """Only its own link tells a worker that a host has ended, as it has no standing cast."""
    world = a_client_of(3)
    targets = [ProcAddress(name, "p1") for name in ("tcp://w1", "tcp://w2")]
    for caller, flags, casts in (
        ("tcp://w0", 0, 1),
        ("tcp://w0", EXPLICIT, 0),
        (CLIENT, EXPLICIT, 1),
    ):
        gateway = world.hosts[caller].gateway
        before = gateway.casts
        world.hosts[caller].call("p0", targets, 3, request=casts + flags, flags=flags)
        assert gateway.casts - before == casts
        world.run(world.now + 5)


def test_what_waits_for_a_client_to_dial_is_dropped_when_that_is_gone() -> None:
    world = a_client_of(3)
    last, link = world.hosts["tcp://w2"], world.links[frozenset(("tcp://w1", "tcp://w2"))]
    link.lost = True
    link.notice("tcp://w2")
    last.call("p0", [SCRIPT], 7)
    last.gateway.host_gone(CLIENT, client_lost(CLIENT))
    others = [ProcAddress(name, "p1") for name in ("tcp://w0", "tcp://w2")]
    world.hosts[CLIENT].call("p1", others, 8)
    world.run(6 + PATIENCE / 2)
    assert not world.hosts[CLIENT].got


def test_an_end_told_by_way_of_a_cast_that_is_over_reaches_the_caller() -> None:
    world = a_client_of(1)
    client, worker = world.hosts[CLIENT], world.hosts["tcp://w0"]
    client.call("p0", [ProcAddress("tcp://w0", "p0")], 2)
    world.run(10)
    client.gateway.withdraw(SCRIPT, ["tcp://w0"])
    assert (client.gateway.casts, worker.gateway.casts) == (0, 1)
    worker.end("p0")
    world.run(20)
    assert client.told == [("p0", ProcAddress("tcp://w0", "p0"))]
    assert worker.gateway.casts == 0


def test_an_end_told_by_way_of_a_host_that_has_forgotten_the_cast_reaches_the_caller() -> None:
    world = a_client_of(2)
    client, between, last = (world.hosts[name] for name in (CLIENT, "tcp://w0", "tcp://w1"))
    agents = [ProcAddress(name, AGENT) for name in ("tcp://w0", "tcp://w1")]
    client.call("p1", agents, 1, request=2, flags=STANDING)  # so w0 goes on watching the client
    client.call("p0", [ProcAddress("tcp://w1", "p0")], 2)
    world.run(10)
    client.gateway.withdraw(SCRIPT, ["tcp://w0", "tcp://w1"])
    while between.gateway.casts > 1:
        world.run(world.now + 0.001)
    assert last.gateway.casts == 2
    last.end("p0")
    world.run(20)
    assert client.told == [("p0", ProcAddress("tcp://w1", "p0"))]
