"""What a service does when its replicas, its owner or its callers die."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.scripts import program, run_script
from helpers.waiting import wait_until
from helpers.workers import workers
from monarch.actor import (
    Actor,
    ActorError,
    DeadlockError,
    SupervisionError,
    attach_to_workers,
    current_rank,
    endpoint,
    this_host,
)
from monarch.service import Service
from monarch.why import why

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

LIMIT = 60  # seconds for what takes milliseconds, on a machine that does other things


@pytest.fixture(autouse=True)
def _hosts(spawn: Spawn) -> None:
    """`this_host()` is one of the kind that `spawn` would use."""


class Replica(Actor):
    """Fails to start while `broken` is there, does not get ready while `slow` is, is unwell while
    `ill` is.
    """

    def __init__(self, folder: str = "") -> None:
        self.folder = Path(folder)
        while folder and (self.folder / "slow").exists():
            time.sleep(0.005)
        if folder and (self.folder / "broken").exists():
            raise OSError("broken")

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def wait_for(self, path: str) -> int:
        """Return when this file is there; another one says that this has begun."""
        Path(f"{path}.{os.getpid()}").touch()
        while not os.path.exists(path):
            time.sleep(0.005)
        return os.getpid()

    @endpoint
    def take(self, data: bytes) -> None:
        pass

    @endpoint
    def is_well(self) -> bool:
        return not (self.folder / f"ill.{os.getpid()}").exists()

    @endpoint
    def pid_of_rank(self) -> tuple[int, int]:
        return current_rank().rank, os.getpid()


class Sleeper(Actor):
    @endpoint
    async def sleep(self, begun: str) -> None:
        Path(f"{begun}.{os.getpid()}").touch()
        await asyncio.sleep(10 * LIMIT)


class Owner(Actor):
    """Owns a service, or holds calls to one."""

    @endpoint
    def make(self) -> Service[Replica]:
        self.service = Service(this_host(), Replica, name="owned")
        return self.service

    @endpoint
    def hold(self, service: Service[Sleeper], begun: str) -> None:
        self.held = [service.sleep.call_one(begun) for _ in range(2)]

    @endpoint
    def ask(self, service: Service[Replica]) -> int:
        pid: int = service.pid.call_one().get()
        return pid

    @endpoint
    def die(self) -> None:
        os._exit(1)


def restarts(service: Service[Any]) -> int:
    return sum(each.restarts for each in service.status().get(timeout=LIMIT))


def pids_of(service: Service[Replica]) -> set[int]:
    """The processes of all replicas that take calls; empty where one of them has died meanwhile."""
    try:
        return set(service.pid.call().get(timeout=LIMIT).values())
    except SupervisionError:
        return set()


def another(service: Service[Replica], old: int) -> int:
    """The process of the only replica, once it is not the old one."""
    found = [old]

    def is_new() -> bool:
        found[0] = service.pid.options(retries=99).call_one().get(timeout=LIMIT)
        return found[0] != old

    wait_until(is_new, what="another replica")
    return found[0]


def test_a_replica_that_dies_is_replaced_under_the_same_handle() -> None:
    with Service(this_host(), Replica, replicas=2, name="lives") as service:
        service.scale(2).get(timeout=LIMIT)
        victim, survivor = sorted(pids_of(service))
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: restarts(service) == 1, what="a restart")
        wait_until(lambda: len(pids_of(service)) == 2, what="two replicas")
        now = pids_of(service)
        assert survivor in now and victim not in now


def test_a_call_that_may_not_be_repeated_says_that_its_outcome_is_unknown(tmp_path: Path) -> None:
    with Service(this_host(), Replica, name="once") as service:
        pid = service.pid.call_one().get(timeout=LIMIT)
        held = service.wait_for.call_one(str(tmp_path / "door"))
        wait_until(lambda: any(tmp_path.iterdir()), what="the call to begin")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(
            SupervisionError, match="(?s)SIGKILL.*is not known.*idempotent"
        ) as caught:
            held.get(timeout=LIMIT)
        assert caught.value.failure is not None and caught.value.failure.signal == signal.SIGKILL
        another(service, pid)


def test_unanswered_calls_that_may_be_repeated_are_answered_by_others(tmp_path: Path) -> None:
    door = tmp_path / "door"
    with Service(
        this_host(), Replica, replicas=2, name="again", idempotent=["wait_for"]
    ) as service:
        service.scale(2).get(timeout=LIMIT)
        held = [service.wait_for.call_one(str(door)) for _ in range(20)]
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, what="both to have begun")
        victim = int(next(tmp_path.iterdir()).suffix[1:])
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: restarts(service) == 1, what="a restart")
        door.touch()
        assert victim not in [each.get(timeout=LIMIT) for each in held]
        assert set(service.outstanding().values()) == {0}


def test_a_call_whose_time_was_up_does_not_hear_of_the_loss_of_who_was_late(tmp_path: Path) -> None:
    door = tmp_path / "door"
    with Service(this_host(), Replica, replicas=2, name="late", in_flight=1) as service:
        service.scale(2).get(timeout=LIMIT)
        held = service.wait_for.call_one(str(door))
        wait_until(lambda: any(tmp_path.iterdir()), what="the call to begin")
        victim = service.pid.call_one().get(timeout=LIMIT)  # the other one
        late = service.wait_for.options(timeout=0.5, retries=1).call_one(str(door))
        router = service._router()
        wait_until(lambda: router.retried == 1, what="it to wait again")
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: restarts(service) == 1, what="a restart")
        wait_until(lambda: late.done(), what="the end of its time, or the other one")
        assert router.retried == 1
        door.touch()
        held.get(timeout=LIMIT)


def test_a_service_that_can_not_start_says_why_and_may_be_asked_again(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    with Service(this_host(), Replica, (str(tmp_path),), name="broken", max_restarts=1) as service:
        with pytest.raises(
            SupervisionError, match="(?s)has no replica: .*failed too often.*OSError: broken"
        ):
            service.pid.call_one().get(timeout=LIMIT)
        (status,) = service.status().get(timeout=LIMIT)
        assert (status.state, status.restarts) == ("given up", 1)
        (tmp_path / "broken").unlink()
        service.scale(1).get(timeout=LIMIT)
        assert service.pid.call_one().get(timeout=LIMIT) > 0


@pytest.mark.processes("time that passes, by the clock of the machine")
def test_a_call_without_a_replica_waits_for_no_longer_than_its_patience(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    with Service(
        this_host(), Replica, (str(tmp_path),), name="patient", max_restarts=1000, patience=0.1
    ) as service:
        with pytest.raises(SupervisionError, match=r"has no replica: none was ready within 0\.1s"):
            service.pid.call_one().get(timeout=LIMIT)
        with pytest.raises(SupervisionError, match="has no replica: none is ready"):
            service.pid.call().get(timeout=LIMIT)


def test_a_replica_that_fails_its_health_check_is_replaced(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "health": "is_well",
        "health_interval": 0.05,
        "health_timeout": LIMIT,
    }
    with Service(this_host(), Replica, (str(tmp_path),), name="checked", **options) as service:
        first = service.pid.call_one().get(timeout=LIMIT)
        (tmp_path / f"ill.{first}").touch()
        wait_until(lambda: restarts(service) == 1, what="a restart")
        assert "said that it is not well" in service.status().get(timeout=LIMIT)[0].last_failure
        another(service, first)


def test_the_calls_of_a_replica_that_hangs_end_and_it_is_replaced(tmp_path: Path) -> None:
    options: dict[str, Any] = {"health": "is_well", "health_interval": 0.05, "health_timeout": 1.0}
    with Service(
        this_host(), Replica, (str(tmp_path),), name="hung", max_restarts=1000, **options
    ) as service:
        pid = service.pid.options(retries=99).call_one().get(timeout=LIMIT)
        held = service.wait_for.call_one(str(tmp_path / "door"))
        with pytest.raises(
            SupervisionError, match="its health check is_well did not answer within 1s"
        ):
            held.get(timeout=LIMIT)
        another(service, pid)


def test_a_replica_that_hangs_behind_a_full_mailbox_is_replaced(tmp_path: Path) -> None:
    options: dict[str, Any] = {"health": "is_well", "health_interval": 0.5, "health_timeout": 0.5}
    with Service(
        this_host(), Replica, (str(tmp_path),), name="full", max_restarts=1000, **options
    ) as service:
        held = service.wait_for.options(retries=0).call_one(str(tmp_path / "door"))
        wait_until(lambda: any(tmp_path.iterdir()), what="the call to begin")
        for _ in range(12):
            # waits for room, which only the end of that replica gives
            service.take.broadcast(bytes(10 << 20))
        with pytest.raises(
            SupervisionError, match=r"its health check is_well did not answer within 0\.5s"
        ):
            held.get(timeout=LIMIT)


def test_a_replica_that_dies_while_it_drains_is_not_replaced(tmp_path: Path) -> None:
    door = tmp_path / "door"
    with Service(this_host(), Replica, replicas=3, name="leaving", route="round robin") as service:
        service.scale(3).get(timeout=LIMIT)
        victim = service.pid.call().get(timeout=LIMIT).values()[1]
        held = [service.wait_for.call_one(str(door)) for _ in range(3)]
        wait_until(lambda: len(list(tmp_path.iterdir())) == 3, what="all to have begun")
        smaller = service.scale(1)
        wait_until(
            lambda: service.status().get(timeout=LIMIT)[1].state == "draining", what="the drain"
        )
        os.kill(victim, signal.SIGKILL)
        wait_until(
            lambda: service.status().get(timeout=LIMIT)[1].last_failure,
            what="the keeper to hear of it",
        )
        assert restarts(service) == 0
        door.touch()
        smaller.get(timeout=LIMIT)
        assert [each.name for each in service.status().get(timeout=LIMIT)] == ["leaving-0"]
        with pytest.raises(SupervisionError, match="SIGKILL"):
            [each.get(timeout=LIMIT) for each in held]


def test_a_scale_acts_during_an_earlier_one_but_not_after_the_stop(
    tmp_path: Path,
) -> None:
    service = Service(this_host(), Replica, (str(tmp_path),), name="undecided")
    service.scale(1).get(timeout=LIMIT)
    held = service.wait_for.call_one(str(tmp_path / "door"))
    (tmp_path / "slow").touch()
    larger = service.scale(2)
    smaller = service.scale(1, drain=0)
    smaller.get(timeout=LIMIT)
    larger.get(timeout=LIMIT)
    assert [each.state for each in service.status().get(timeout=LIMIT)] == ["ready"]
    stopped = service.stop()
    with pytest.raises(ActorError, match="undecided is being stopped"):
        service.scale(2).get(timeout=LIMIT)
    (tmp_path / "door").touch()
    held.get(timeout=LIMIT)
    stopped.get(timeout=LIMIT)


def test_the_death_of_one_rank_replaces_the_whole_replica() -> None:
    with Service(this_host(), Replica, procs_per_replica={"gpus": 2}, name="whole") as service:
        service.scale(1).get(timeout=LIMIT)
        before = dict(service.pid_of_rank.call().get(timeout=LIMIT).values())
        os.kill(before[1], signal.SIGKILL)
        another(service, before[0])
        after = dict(service.pid_of_rank.call().get(timeout=LIMIT).values())
        assert set(after.values()).isdisjoint(before.values())


@pytest.mark.processes("several processes that look at a service")
def test_a_service_ends_with_its_owner_and_says_so_elsewhere(spawn: Spawn, faults: Faults) -> None:
    owner = spawn().spawn("owner", Owner)
    service = owner.make.call_one().get(timeout=LIMIT)
    pid = service.pid.call_one().get(timeout=LIMIT)
    owner.die.broadcast()
    faults.wait_for(1)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the replica to end")
    with pytest.raises(SupervisionError, match="owned.pid"):
        service.pid.options(retries=5).call_one().get(timeout=LIMIT)


@pytest.mark.processes("several processes that look at a service")
def test_a_caller_that_dies_holds_up_no_drain(spawn: Spawn, faults: Faults, tmp_path: Path) -> None:
    with Service(this_host(), Sleeper, replicas=2, name="drained") as service:
        service.scale(2).get(timeout=LIMIT)
        caller = spawn().spawn("caller", Owner)
        caller.hold.call_one(service, str(tmp_path / "begun")).get(timeout=LIMIT)
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, what="both to have begun")
        smaller = service.scale(1, drain=9 * LIMIT)
        assert not smaller.done()
        caller.die.broadcast()
        faults.wait_for(1)
        smaller.get(timeout=LIMIT)
        service.scale(1).get(timeout=LIMIT)


def test_a_drain_takes_no_longer_than_it_may(tmp_path: Path) -> None:
    with Service(this_host(), Sleeper, name="limited") as service:
        held = service.sleep.call_one(str(tmp_path / "begun"))
        wait_until(lambda: any(tmp_path.iterdir()), what="the call to begin")
        service.stop(drain=0.05).get(timeout=LIMIT)
        with pytest.raises(SupervisionError, match="the service has become smaller"):
            held.get(timeout=LIMIT)


@pytest.mark.processes("several processes that look at a service")
def test_why_says_that_a_call_has_no_replica(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    asker = spawn().spawn("asker", Owner)
    with Service(
        this_host(), Replica, (str(tmp_path),), name="absent", max_restarts=1000
    ) as service:
        asked = asker.ask.call_one(service)

        def says_so() -> bool:
            found = why(seconds=0.1)
            waits = [
                each
                for each in found.classes
                if "absent.pid(), which waits for a replica" in each.reason
            ]
            if not waits or "none is ready" not in found.sentence:
                return False
            assert "asker" in [each.mesh for each in found.blamed]
            return found.status != "fine"

        # the replica is being made now and then, which is work
        wait_until(says_so, what="the verdict", timeout=60)
    with pytest.raises(SupervisionError, match="absent.pid.* has no replica"):
        asked.get(timeout=LIMIT)


@pytest.mark.processes("a host that is killed")
def test_replicas_of_a_host_that_is_lost_come_up_on_the_other() -> None:
    with workers(2) as found:
        hosts = attach_to_workers(workers=found.addresses)
        with Service(hosts, Replica, replicas=4, name="wide") as service:
            service.scale(4).get(timeout=LIMIT)
            here, there = (set(found.procs(index)) & pids_of(service) for index in (0, 1))
            assert len(here) == len(there) == 2, "half of them on each host"
            found.kill_agent(1)
            wait_until(
                lambda: restarts(service) == 2 and len(pids_of(service)) == 4,
                what="two other replicas",
            )
            assert here < pids_of(service) <= set(found.procs(0))
            assert service.pid.call_one().get(timeout=LIMIT) in pids_of(service)
        hosts.stop().get(timeout=LIMIT)


class Circular(Actor):
    @endpoint
    def ask(self, service: Service[Circular], others: int) -> None:
        if others:
            service.ask.call_one(service, others - 1).get()


def test_a_replica_that_waits_for_itself_is_told() -> None:
    with Service(this_host(), Circular, name="circle") as service:
        with pytest.raises(DeadlockError, match="circle-0"):
            service.ask.call_one(service, 1).get(timeout=LIMIT)


WITHOUT_A_REPLICA = """
    import os
    from monarch.actor import Actor, Channel, endpoint, this_host
    from monarch.service import Service

    class Replica(Actor):
        def __init__(self, door):
            if os.path.exists(door):
                print("again", flush=True)
                Channel.open()[1].recv().get()
            open(door, "w").close()

        @endpoint
        def die(self):
            os._exit(1)

    if __name__ == "__main__":
        service = Service(this_host(), Replica, ("door",), patience=3600, idempotent=True)
        waiting = [service.die.call_one() for _ in range(3)]
        while not service.status().get()[0].restarts:
            pass
        raise RuntimeError("mine")
"""


@pytest.mark.processes("a program ends")
def test_a_program_ends_as_it_says_while_a_service_has_no_replica() -> None:
    result = run_script(program(WITHOUT_A_REPLICA))
    assert result.exit_code == 1, str(result)
    assert "RuntimeError: mine" in result.stderr, str(result)
    assert "internal error" not in result.stderr, str(result)
    assert result.left_behind == [], str(result)
