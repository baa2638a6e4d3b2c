"""Ten thousand simulated hosts with eighty thousand processes, and a hundred hosts that die in the
midst of calls.
"""

from __future__ import annotations

import random

import pytest

from helpers.effort import shortened
from helpers.wires import Wires, all_got
from monarch.testing import Simulation

pytestmark = pytest.mark.timeout(600)

HOSTS, DEATHS = shortened((10_000, 100), (2_500, 40))


def test_all_hosts_answer_or_are_known_to_be_lost_though_many_die_in_the_midst() -> None:
    chance = random.Random(20)
    simulation = Simulation(seed=20, hosts=HOSTS, procs_per_host=8)
    attached = simulation.attach()
    simulation.run(until=attached)
    assert len(attached.answered) == HOSTS
    everybody = simulation.cast()
    simulation.run(until=everybody)
    assert len(everybody.answered) == 8 * HOSTS
    casts = []
    for _ in range(2):
        casts += [simulation.cast(), simulation.cast(range(3, 8 * HOSTS, 40))]
        for _ in range(DEATHS // 2):
            simulation.kill_host(after=chance.uniform(0, 0.02))
        simulation.run(until=simulation.now + 0.02)
    simulation.run()
    assert all(len(cast.answered) + len(cast.lost) == 8 * HOSTS for cast in casts[::2])
    # those that have changed their parent wait for 6 s for the former one
    simulation.run(until=simulation.now + 8)
    report = simulation.report()
    print(report)
    assert (report.missing, report.twice, report.disorder) == (0, 0, 0)
    assert (report.killed, report.known) == (DEATHS, DEATHS)
    assert report.detection < 6
    assert simulation.open_casts() == 0
    assert report.memory < 200_000


def test_one_seed_is_one_run_with_a_thousand_hosts() -> None:
    logs = []
    for _ in range(2):
        chance = random.Random(3)
        simulation = Simulation(seed=3, hosts=1000, loss=0.01)
        simulation.run(until=simulation.attach())
        simulation.cast()
        for _ in range(20):
            simulation.kill_host(after=chance.uniform(0, 0.01))
        simulation.run()
        logs.append(simulation.report().log)
    assert logs[0] == logs[1]


def test_one_process_drives_ten_thousand_hosts() -> None:
    wires = Wires(1, delay=(0.0, 0.001), pieces=())
    center = wires.host("center")
    others = [wires.host(f"h{n}") for n in range(10_000)]
    for host in others:
        center.send(host.name, "hello")
    wires.run(0.1)
    assert all(host.got == {"center": ["hello"]} for host in others)
    for host in others:
        host.send("center", host.name)
    wires.run(0.2)
    assert len(all_got(center)) == 10_000
    assert center.lost == [] and len(center.pipes) == 10_000
