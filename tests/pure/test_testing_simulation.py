"""The simulated cluster: what users of `monarch.testing` can count on."""

from __future__ import annotations

import random

import pytest

from monarch.config import configured
from monarch.testing import Costs, Simulation, Unanswered
from monarch.testing.__main__ import main


def checked(simulation: Simulation) -> Simulation:
    """Nothing was answered twice, nobody waits, order was kept, and records are closed."""
    # 5 s until a link is lost, 6 s in which who has lost its parent waits
    simulation.run(until=simulation.now + 12)
    report = simulation.report()
    assert (report.missing, report.twice, report.disorder) == (0, 0, 0), report
    assert simulation.open_casts() == 0, report
    return simulation


def test_all_processes_of_all_hosts_answer() -> None:
    simulation = Simulation(seed=3, hosts=50, procs_per_host=4)
    cast = simulation.cast()
    simulation.run(until=cast)
    assert sorted(cast.answered) == list(range(200))
    assert cast.seconds > 0
    checked(simulation)


def test_some_ranks_are_called_and_no_others() -> None:
    simulation = Simulation(seed=3, hosts=30, procs_per_host=4)
    casts = [simulation.cast(range(5, 100, 7)), simulation.call_one(17), simulation.cast([3])]
    simulation.run()
    assert [sorted(cast.answered) for cast in casts] == [list(range(5, 100, 7)), [17], [3]]
    checked(simulation)


def test_a_broadcast_comes_to_all_and_none_answers() -> None:
    simulation = Simulation(hosts=40)
    cast = simulation.cast(answers=False)
    checked(simulation)
    assert cast.arrived == 320
    assert cast.arrived_at > cast.started
    assert cast.answered == {}


def test_ranks_of_a_host_that_dies_are_lost_and_all_others_answer() -> None:
    simulation = Simulation(seed=5, hosts=60, procs_per_host=2, compute=(0.1, 0.2))
    simulation.run(until=simulation.attach())
    cast = simulation.cast()
    for host in (0, 1, 30):
        simulation.kill_host(host, after=0.05)
    simulation.run(until=cast)
    assert sorted(cast.lost) == [0, 1, 2, 3, 60, 61]
    assert len(cast.answered) == 114
    later = simulation.cast()
    simulation.run(until=later)
    assert sorted(later.lost) == [0, 1, 2, 3, 60, 61]
    assert later.seconds < 1
    checked(simulation)


def test_a_dead_host_that_is_dialed_for_the_first_time_does_not_keep_calls_open() -> None:
    simulation = Simulation(seed=5, hosts=60, procs_per_host=1, fanout=2)
    simulation.run(until=simulation.attach())
    simulation.kill_host(40)
    # 9 hands it to 40, with which it has had nothing to do so far
    cast = simulation.cast([3, 9, 40])
    simulation.run(until=cast)
    assert list(cast.lost) == [40]
    checked(simulation)


def test_an_agent_that_ends_is_noticed_sooner_than_a_machine_that_is_gone() -> None:
    seconds = []
    for power in (True, False):
        simulation = Simulation(seed=1, hosts=20, procs_per_host=1, compute=(0.5, 0.5))
        simulation.run(until=simulation.attach())
        cast = simulation.cast()
        simulation.kill_host(7, after=0.2, power=power)
        simulation.run(until=cast)
        assert list(cast.lost) == [7]
        seconds.append(cast.seconds)
    assert seconds[0] < seconds[1] / 2
    assert seconds[1] < 5.2


@pytest.mark.parametrize("seed", range(5))
def test_deaths_in_the_middle_of_calls_leave_no_wait(seed: int) -> None:
    simulation = Simulation(
        seed=seed, hosts=120, procs_per_host=2, compute=(0.0, 0.02), fanout=seed + 2
    )
    simulation.run(until=simulation.attach())
    for _ in range(6):
        simulation.cast()
        simulation.cast(range(0, 240, 3))
        simulation.cast(answers=False)
        for _ in range(3):
            simulation.kill_host(after=0.05)
        simulation.run(until=simulation.now + 0.1)
    simulation.run()
    assert checked(simulation).report().known == 18


def test_a_short_cut_of_the_network_loses_nothing() -> None:
    simulation = Simulation(seed=2, hosts=40)
    simulation.run(until=simulation.attach())
    cut = simulation.partition(range(10, 20))
    cast = simulation.cast()
    simulation.run(until=simulation.now + 1.5)
    assert not cast.done
    cut.heal()
    simulation.run(until=cast)
    assert not cast.lost
    assert simulation.report().known == 0
    checked(simulation)


def test_a_cut_shorter_than_the_timeout_loses_nothing_however_long_that_is() -> None:
    """The second call overtakes the first, which is on its way over the cut."""
    with configured(channel_reconnect_timeout="30s", mesh_orphan_timeout="10s"):
        simulation = Simulation(hosts=3, procs_per_host=1, fanout=1)
    simulation.run(until=simulation.attach())
    cut = simulation.partition([0], [1])
    casts = [simulation.cast(), simulation.call_one(2)]
    simulation.run(until=simulation.now + 25)
    cut.heal()
    for cast in casts:
        simulation.run(until=cast)
        assert not cast.lost
    checked(simulation)


def test_hosts_behind_a_long_cut_are_lost_and_find_that_their_client_is_gone() -> None:
    simulation = Simulation(seed=2, hosts=40, procs_per_host=1)
    simulation.run(until=simulation.attach())
    cut = simulation.partition(range(10, 20))
    cast = simulation.cast()
    simulation.run(until=cast)
    assert sorted(cast.lost) == list(range(10, 20))
    simulation.run(until=simulation.now + 15)
    cut.heal()
    assert simulation.hosts_without_client() == 10
    checked(simulation)


def pausing(seed: int, longest: float, kills: int = 0) -> Simulation:
    """Calls, while some hosts and the client stand still for a while."""
    chance = random.Random(seed)
    hosts = chance.choice([3, 8, 20, 40])
    simulation = Simulation(
        seed=seed,
        hosts=hosts,
        procs_per_host=2,
        compute=(0, chance.choice([0, 1.0, 5.0])),
        fanout=chance.choice([2, 3, 16]),
    )
    simulation.attach()
    for host in chance.sample(range(hosts), min(hosts, chance.randint(1, 8))):
        simulation.pause_host(host, chance.uniform(0.1, longest), after=chance.uniform(0, 6))
    if chance.random() < 0.5:
        simulation.pause_client(chance.uniform(0.1, longest), after=chance.uniform(0, 6))
    for _ in range(kills):
        simulation.kill_host(after=chance.uniform(0, 6), power=chance.random() < 0.5)
    for _ in range(chance.randint(1, 10)):
        simulation.run(until=simulation.now + chance.uniform(0, 1.0))
        simulation.cast(chance.sample(range(2 * hosts), chance.randint(1, hosts)))
    simulation.run()
    simulation.run(until=6 + longest)  # all are awake
    return checked(simulation)


@pytest.mark.parametrize("seed", range(8))
def test_pauses_of_less_than_three_quarters_of_the_timeout_lose_no_process(seed: int) -> None:
    simulation = pausing(seed, longest=2.9)
    assert simulation.report().known == 0
    assert simulation.hosts_without_client() == 0


# the last two: a host is attached again that had let go
@pytest.mark.parametrize("seed", [*range(6), 1023, 1092])
def test_long_pauses_and_deaths_leave_no_wait(seed: int) -> None:
    pausing(seed, longest=12, kills=2)


def test_a_host_that_stands_still_for_long_is_lost_and_finds_that_its_client_is_gone() -> None:
    simulation = Simulation(seed=1, hosts=10, procs_per_host=1)
    simulation.run(until=simulation.attach())
    simulation.pause_host(4, 20)
    cast = simulation.cast()
    simulation.run(until=cast)
    assert list(cast.lost) == [4]
    assert 3 <= cast.seconds <= 5
    simulation.run(until=40)
    assert simulation.hosts_without_client() == 1
    checked(simulation)


def test_a_process_that_stood_still_blames_no_other_for_it() -> None:
    simulation = Simulation(seed=2, hosts=10, procs_per_host=1)
    simulation.run(until=simulation.attach())
    for host in range(10):
        simulation.pause_host(host, 30)
    simulation.pause_client(30)
    cast = simulation.cast()
    simulation.run(until=cast)
    assert sorted(cast.answered) == list(range(10))
    assert cast.seconds > 30
    checked(simulation)


def test_hosts_notice_that_the_client_is_gone_within_the_bound() -> None:
    simulation = Simulation(seed=2, hosts=100)
    simulation.run(until=simulation.attach())
    simulation.kill_client()
    simulation.run(until=simulation.now + 10.5)
    assert simulation.hosts_without_client() == 100


def test_lost_packets_only_cost_time() -> None:
    simulation = Simulation(seed=4, hosts=60, loss=0.05)
    for _ in range(5):
        simulation.run(until=simulation.cast())
    report = checked(simulation).report()
    assert report.known == 0
    assert report.answers == 60 + 5 * 480


def history(seed: int) -> str:
    simulation = Simulation(seed=seed, hosts=80, loss=0.01, compute=(0.0, 0.01))
    simulation.run(until=simulation.attach())
    simulation.cast()
    for _ in range(5):
        simulation.kill_host(after=0.005)
    simulation.run()
    return simulation.report().log


def test_a_seed_gives_one_run_and_another_seed_another_one() -> None:
    assert history(1) == history(1)
    assert history(1) != history(2)


def test_busy_gateways_take_their_time() -> None:
    seconds = []
    for costs in (Costs(), Costs(arrival=1e-3, departure=1e-3, proc=1e-3, reply=1e-3)):
        simulation = Simulation(hosts=20, costs=costs)
        cast = simulation.cast()
        simulation.run(until=cast)
        seconds.append(cast.seconds)
    assert seconds[1] > seconds[0] + 0.015


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"hosts": 0}, "hosts must be at least 1, got 0"),
        ({"procs_per_host": -1}, "procs_per_host must be at least 1, got -1"),
        ({"fanout": 0}, "fanout must be at least 1, got 0"),
        ({"delay": (2, 1)}, r"delay must be \(shortest, longest\) in seconds, got \(2, 1\)"),
        ({"loss": 1.0}, "loss is a probability below 1, got 1.0"),
        ({"answer_bytes": -5}, "answer_bytes must not be negative, got -5"),
    ],
)
def test_senseless_arguments_are_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Simulation(**arguments)  # type: ignore[arg-type]  # that is the point


def test_ranks_and_hosts_that_are_not_there_are_refused() -> None:
    simulation = Simulation(hosts=2, procs_per_host=2)
    with pytest.raises(ValueError, match="ranks are 0 to 3, got 4"):
        simulation.cast([1, 4])
    with pytest.raises(ValueError, match="got none"):
        simulation.cast([])
    with pytest.raises(ValueError, match="hosts are numbered 0 to 1, got 2"):
        simulation.kill_host(2)
    simulation.kill_host()
    simulation.kill_host()
    with pytest.raises(ValueError, match="no host is left"):
        simulation.kill_host()


def test_pauses_that_can_not_be_are_refused() -> None:
    simulation = Simulation(hosts=3)
    with pytest.raises(ValueError, match="hosts are numbered 0 to 2, got 3"):
        simulation.pause_host(3, 1)
    with pytest.raises(ValueError, match="got -1 and 0"):
        simulation.pause_client(-1)


def test_who_waits_in_vain_is_told_so() -> None:
    simulation = Simulation(hosts=2, compute=(10_000.0, 10_000.0))
    with pytest.raises(Unanswered, match=r"seed 0"):
        simulation.run(until=simulation.attach())


def test_it_runs_from_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hosts", "30", "--kill", "2", "--seed", "7"]) == 0
    assert "the client knows of 2" in capsys.readouterr().out
    assert main(["--hosts", "3", "--kill", "4"]) == 2
    assert "--kill must be 0 to 3, got 4" in capsys.readouterr().err


def test_a_cut_of_two_seconds_is_mended_soon_whenever_it_began() -> None:
    """Half of the time that a link has: the worst of 1,500 such cases took 1.06 s. 293 is that
    one.
    """
    for seed in (293, 1415, *range(40)):
        chance = random.Random(seed)
        simulation = Simulation(
            seed=seed, hosts=2, procs_per_host=1, loss=chance.choice([0, 0, 0.05, 0.2])
        )
        simulation.run(until=simulation.attach())
        simulation.run(until=simulation.now + chance.uniform(0, 5))
        far = (
            simulation.partition([chance.choice([0, 1])])
            if chance.random() < 0.5
            else simulation.partition([0], [1])
        )
        cast = simulation.cast() if chance.random() < 0.5 else None
        simulation.run(until=simulation.now + 2.0)
        far.heal()
        healed = simulation.now
        cast = cast or simulation.cast()
        simulation.run(until=cast)
        assert not cast.lost, seed
        assert simulation.now - healed < 1.5, seed


def test_handshakes_that_take_long_on_a_busy_host_do_not_hold_each_other_up() -> None:
    """A dial is begun beside one that nobody has answered, not beside a handshake: with both, 31 of
    60 links were lost.
    """
    for seed in range(30):
        simulation = Simulation(seed=seed, hosts=2, procs_per_host=1, costs=Costs(handshake=0.9))
        simulation.run(until=simulation.attach())
        simulation.run(until=simulation.now + random.Random(seed).uniform(0, 5))
        cut = simulation.partition([0])
        simulation.run(until=simulation.now + 2.0)
        cut.heal()
        cast = simulation.cast()
        simulation.run(until=cast)
        assert not cast.lost, seed
        assert cast.seconds < 0.9 + 0.6, seed
