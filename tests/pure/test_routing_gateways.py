"""Gateways over random schedules: whatever gets lost and when, order is kept, everybody is
answered, nothing is left.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from functools import partial

import pytest

from helpers.gateways import PATIENCE, World, unanswered, untold
from monarch._core.wire.address import AGENT, ProcAddress
from monarch._core.wire.frame import EXPLICIT, STANDING

if "MONARCH_TEST_SEED" in os.environ:  # one that has failed
    SEEDS = [int(os.environ["MONARCH_TEST_SEED"])]
else:
    SEEDS = list(range(int(os.environ.get("MONARCH_TEST_SEEDS", "6"))))


class Traffic:
    """Clients, and processes of workers, that talk to each other in every way at random times."""

    def __init__(self, seed: int, workers: int = 25, clients: int = 2, messages: int = 60) -> None:
        self.world = world = World(seed, fanout=seed % 4 + 1)
        self.random = world.random
        self.workers = [f"tcp://w{i}" for i in range(workers)]
        self.clients = [f"c{i}" for i in range(clients)]
        self.sent: dict[tuple[ProcAddress, ProcAddress], list[int]] = defaultdict(list)
        self.requests = itertools.count(1)
        self.numbers = itertools.count(1)
        for name in self.workers:
            world.host(name).procs.append(AGENT)
        for name in self.clients:
            world.host(name)
            world.hosts[name].large = seed % 2 == 0
            self.call(name, "p0", [ProcAddress(worker, AGENT) for worker in self.workers], STANDING)
        self.everywhere = [
            ProcAddress(worker, proc) for worker in self.workers for proc in ("p0", "p1")
        ]
        for _ in range(messages):
            world.after(1 + self.random.random() * 10, self.say_something)

    def call(
        self, host: str, proc: str, targets: list[ProcAddress], flags: int = 0, answer: bool = True
    ) -> None:
        number, source = next(self.numbers), ProcAddress(host, proc)
        request = next(self.requests) if answer else 0
        gone = {who for name, who in self.world.hosts[host].told if name == proc}
        for target in targets:
            if target not in gone and target.agent not in gone:
                self.sent[source, target].append(number)
        self.world.hosts[host].call(proc, targets, number, request=request, flags=flags)

    def say_something(self) -> None:
        chance = self.random
        name = chance.choice(self.clients * 5 + self.workers)
        host = self.world.hosts[name]
        proc = chance.choice(["p0", "p1"])
        if not host.alive or proc in host.ended:
            return
        kind = chance.choice(["all", "slice", "slice", "one", "broadcast", "explicit", "few"])
        targets = [target for target in self.everywhere if target.host != name]
        if kind in ("slice", "explicit"):
            start = chance.randrange(len(targets) - 2)
            targets = targets[
                start : start + chance.randrange(2, len(targets) - start + 1) : chance.choice(
                    [1, 2, 3]
                )
            ]
        elif kind == "few":
            targets = chance.sample(targets, 5)
        elif kind == "one":
            targets = [chance.choice(targets)]
        self.call(
            name, proc, targets, EXPLICIT if kind == "explicit" else 0, answer=kind != "broadcast"
        )

    def check(self) -> None:
        world = self.world
        assert unanswered(world) == []
        assert untold(world) == []
        for host in world.hosts.values():
            for (proc, source), numbers in host.got.items():
                assert numbers == sorted(set(numbers)), (
                    f"{source} to {proc}@{host.name}: twice, or out of order"
                )
            for request, answers in host.answers.items():
                twice = [rank for rank, came in answers.items() if came.count("reply") > 1]
                assert not twice, (
                    f"request {request} of {host.name}: ranks {twice} have answered twice"
                )
        for (source, target), numbers in self.sent.items():
            sender, receiver = world.hosts[source.host], world.hosts[target.host]
            gone = {who for _, who in sender.told}
            if not sender.alive or not receiver.alive or source.host in receiver.gone_hosts:
                continue
            if (
                target in gone
                or target.agent in gone
                or target.proc in receiver.ended
                or source.proc in sender.ended
            ):
                continue
            assert receiver.got.get((target.proc, source), []) == numbers, f"{source} to {target}"
        for host in world.hosts.values():
            if host.alive:
                standing = [client for client in self.clients if world.hosts[client].alive]
                assert host.gateway.casts <= (1 if host.name in self.clients else len(standing)), (
                    f"{host.name} leaks"
                )
        for client in self.clients:
            told = {who.host for _, who in world.hosts[client].told if who.proc == AGENT}
            for worker in self.workers:
                if not world.hosts[client].alive and world.hosts[worker].alive:
                    assert client in world.hosts[worker].gone_hosts, (
                        f"{worker} has not heard of the end of {client}"
                    )
                if world.hosts[client].alive and not world.hosts[worker].alive:
                    assert worker in told, f"{client} has not heard of the end of {worker}"


@pytest.mark.parametrize("seed", SEEDS)
def test_all_arrives_in_order_where_nothing_is_lost(seed: int) -> None:
    traffic = Traffic(seed)
    traffic.world.run(200)
    traffic.check()
    assert not any(host.told or host.gone_hosts for host in traffic.world.hosts.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_hosts_may_be_lost_at_any_moment(seed: int) -> None:
    traffic = Traffic(seed)
    for name in traffic.random.sample(traffic.workers, 5):
        traffic.world.after(traffic.random.random() * 12, partial(traffic.world.kill, name))
    traffic.world.run(300)
    traffic.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_hosts_may_be_lost_in_bursts(seed: int) -> None:
    traffic = Traffic(seed)
    start = traffic.random.randrange(20)
    at = traffic.random.random() * 12
    for name in traffic.workers[start : start + 5]:
        traffic.world.after(at, partial(traffic.world.kill, name))
    traffic.world.run(300)
    traffic.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_may_be_lost_at_any_moment(seed: int) -> None:
    traffic = Traffic(seed)
    at = traffic.random.random() * 12
    traffic.world.after(at, lambda: traffic.world.kill(traffic.clients[0]))
    traffic.world.after(
        at + 0.1, lambda: traffic.world.kill(traffic.random.choice(traffic.workers))
    )
    traffic.world.run(300)
    traffic.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_links_may_be_lost_between_hosts_that_live(seed: int) -> None:
    traffic = Traffic(seed)
    world = traffic.world

    def lose_one() -> None:
        if world.links:
            world.lose_link(*traffic.random.choice(sorted(map(sorted, world.links))))

    for _ in range(4):
        world.after(traffic.random.random() * 12, lose_one)
    world.run(300)
    traffic.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_processes_may_end_at_any_moment(seed: int) -> None:
    traffic = Traffic(seed)
    for target in traffic.random.sample(traffic.everywhere, 12):
        host = traffic.world.hosts[target.host]
        traffic.world.after(traffic.random.random() * 12, partial(host.end, target.proc))
    for client in traffic.clients:
        host = traffic.world.hosts[client]
        traffic.world.after(traffic.random.random() * 12, partial(host.end, "p1"))
    traffic.world.run(300)
    traffic.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_hosts_that_lose_each_other_for_long_hold_up_only_the_first_call(seed: int) -> None:
    world = World(seed, fanout=1)  # a chain: each host hands casts to the next
    workers = [f"tcp://w{i}" for i in range(6)]
    for name in workers:
        world.host(name).procs.append(AGENT)
    client = world.host("client")
    client.call(
        "p0", [ProcAddress(worker, AGENT) for worker in workers], 1, request=1, flags=STANDING
    )
    world.run(10)
    cut = world.random.randrange(len(workers) - 1)
    world.cut.add(frozenset(workers[cut : cut + 2]))
    world.lose_link(*workers[cut : cut + 2])
    targets = [ProcAddress(worker, "p0") for worker in workers]
    client.call("p0", targets, 2, request=2)
    world.run(10 + 2 * PATIENCE)
    assert sorted(client.answers[2]) == list(range(len(workers)))
    for number in range(3, 13):
        client.call("p0", targets, number, request=number)
        world.run(world.now + 1.5)
        assert client.answers[number] == {rank: ["reply"] for rank in range(len(workers))}
    assert client.told == []
    for worker in workers:
        assert world.hosts[worker].got["p0", ProcAddress("client", "p0")] == list(range(2, 13))
