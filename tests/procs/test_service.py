"""`monarch.service`: replicas behind one handle."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from monarch.actor import (
    Actor,
    ActorError,
    SupervisionError,
    current_rank,
    endpoint,
    get_meter,
    this_host,
)
from monarch.service import Service, batched, router

if TYPE_CHECKING:
    from conftest import Spawn

LIMIT = 60  # seconds for what takes milliseconds, on a machine that does other things


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < end, "in vain"
        time.sleep(0.005)
    return found


def knows(name: str) -> bool:
    """Whether this process keeps a service in mind."""
    return name in [each.name for each in router._routers.values()]


class Block:
    """Data that is sent beside the pickle, as that of arrays is."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Block, (pickle.PickleBuffer(self.data),)


class Replica(Actor):
    def __init__(self, greeting: str = "hello") -> None:
        self.greeting = greeting
        self.seen: list[str] = []

    @endpoint
    def greet(self, name: str) -> str:
        self.seen.append(name)
        return f"{self.greeting} {name}"

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def wait_for(self, path: str) -> int:
        """Return when this file is there; another one says that it has begun."""
        Path(f"{path}.{os.getpid()}").touch()
        until(lambda: os.path.exists(path))
        return os.getpid()

    @endpoint
    def peek(self, block: Block) -> int:
        first: int = block.data[0]
        return first

    @endpoint
    def refuse(self) -> None:
        raise KeyError("no")

    @endpoint
    def history(self) -> list[str]:
        return self.seen


class Ranks(Actor):
    @endpoint
    def rank(self) -> tuple[int, dict[str, int]]:
        return os.getpid(), dict(current_rank())

    @endpoint
    def refuse_on_1(self) -> int:
        if current_rank()["gpus"] == 1:
            raise KeyError("rank 1")
        return 0


class Caller(Actor):
    """Has got the handle of a service."""

    def __init__(self, service: Service[Replica]) -> None:
        self.service = service

    @endpoint
    def greet(self, name: str) -> str:
        answer: str = self.service.greet.call_one(name).get(timeout=LIMIT)
        return answer

    @endpoint
    def pid_for(self, session: str) -> int:
        pid: int = self.service.pid.options(session=session).call_one().get(timeout=LIMIT)
        return pid

    @endpoint
    def knows(self, name: str) -> bool:
        return knows(name)

    @endpoint
    def stop_it(self) -> None:
        self.service.stop()


@pytest.fixture(autouse=True)
def _hosts(spawn: Spawn) -> None:
    """`this_host()` is one of the kind that `spawn` would use."""


@pytest.fixture
def two(_hosts: None) -> Iterator[Service[Replica]]:
    """Two replicas."""
    with Service(this_host(), Replica, ("hi",), replicas=2, name="pair", in_flight=1) as service:
        service.scale(2).get(timeout=LIMIT)
        yield service


def test_a_call_goes_to_one_replica_and_gives_its_value(two: Service[Replica]) -> None:
    assert two.greet.call_one("you").get(timeout=LIMIT) == "hi you"
    assert two.greet.call_one(name="me").get(timeout=LIMIT) == "hi me"


def test_the_typed_handle_is_the_service(two: Service[Replica]) -> None:
    assert two.typed.pid.call_one().get() in two.pid.call().get().values()
    assert list(two.typed.pid.call().get().extent) == ["replica"]


def test_a_call_to_all_has_a_value_of_each_replica(two: Service[Replica]) -> None:
    pids = two.pid.call().get(timeout=LIMIT)
    assert pids.sizes == {"replica": 2}
    assert len(set(pids.values())) == 2


def test_idle_replicas_are_called_in_turn(two: Service[Replica]) -> None:
    pids = [two.pid.call_one().get(timeout=LIMIT) for _ in range(6)]
    assert pids[:2] * 3 == pids and pids[0] != pids[1]


def test_a_replica_that_is_busy_gets_less(two: Service[Replica], tmp_path: Path) -> None:
    door = tmp_path / "door"
    held = two.wait_for.call_one(str(door))
    try:
        others = {two.pid.call_one().get(timeout=LIMIT) for _ in range(6)}
        assert sorted(two.outstanding().values()) == [0, 1]
    finally:
        door.touch()
    assert others.isdisjoint({held.get(timeout=LIMIT)}) and len(others) == 1


def test_calls_wait_for_whichever_replica_is_done_first(
    two: Service[Replica], tmp_path: Path
) -> None:
    door = tmp_path / "door"
    held = two.wait_for.call_one(str(door))
    try:
        # one at a time: `in_flight` of this service
        others = [two.pid.call_one() for _ in range(20)]
        pids = {each.get(timeout=LIMIT) for each in others}
    finally:
        door.touch()
    assert len(pids) == 1 and held.get(timeout=LIMIT) not in pids


def test_a_call_that_has_not_begun_can_be_taken_back(two: Service[Replica], tmp_path: Path) -> None:
    door = tmp_path / "door"
    held = [two.wait_for.call_one(str(door)) for _ in range(2)]
    until(lambda: len(list(tmp_path.glob("door.*"))) == 2)  # one at each replica
    in_a_mailbox = two.greet.options(session="any").call_one("sent")
    unsent = two.greet.call_one("unsent")
    try:
        assert unsent.cancel() and in_a_mailbox.cancel()
        assert unsent.cancelled(), "at once: nobody else knew of it"
    finally:
        door.touch()
    for call in (unsent, in_a_mailbox):
        with pytest.raises(CancelledError, match="was cancelled before it had begun"):
            call.get(timeout=LIMIT)
        assert call.cancelled() and not call.cancel()
    assert len({each.get(timeout=LIMIT) for each in held}) == 2
    assert not {"sent", "unsent"} & {
        name for seen in two.history.call().get(timeout=LIMIT).values() for name in seen
    }
    assert set(two.outstanding().values()) == {0}


def test_a_call_that_waits_has_its_arguments_as_they_were(
    two: Service[Replica], tmp_path: Path
) -> None:
    door = tmp_path / "door"
    try:
        held = [two.wait_for.call_one(str(door)) for _ in range(2)]
        data = bytearray(b"1" * (1 << 20))
        waits = two.peek.call_one(Block(data))
        data[0] = 0
    finally:
        door.touch()
    assert waits.get(timeout=LIMIT) == ord("1")
    assert len({each.get(timeout=LIMIT) for each in held}) == 2


def test_calls_of_a_session_go_to_one_replica_from_all_callers(
    two: Service[Replica], spawn: Spawn
) -> None:
    caller = spawn().spawn("caller", Caller, two)
    sessions = [f"user {number}" for number in range(12)]
    pids = {each: two.pid.options(session=each).call_one().get(timeout=LIMIT) for each in sessions}
    assert len(set(pids.values())) == 2
    for session in sessions[:3]:
        assert caller.pid_for.call_one(session).get(timeout=LIMIT) == pids[session]


def test_a_handle_works_where_it_is_sent_and_stops_nothing_there(
    two: Service[Replica], spawn: Spawn
) -> None:
    caller = spawn().spawn("caller", Caller, two)
    assert caller.greet.call_one("there").get(timeout=LIMIT) == "hi there"
    with pytest.raises(NotImplementedError, match="only who has made it"):
        caller.stop_it.call_one().get(timeout=LIMIT)


def test_what_an_endpoint_raises_is_raised_at_the_caller(two: Service[Replica]) -> None:
    for call in (two.refuse.call_one, two.refuse.options(retries=3).call_one, two.refuse.call):
        with pytest.raises(KeyError) as caught:
            call().get(timeout=LIMIT)
        assert isinstance(caught.value, ActorError)


def test_futures_of_a_service_can_be_awaited(two: Service[Replica]) -> None:
    async def main() -> list[str]:
        return list(await asyncio.gather(*(two.greet.call_one(name) for name in "abc")))

    assert asyncio.run(main()) == ["hi a", "hi b", "hi c"]


def test_a_call_may_have_a_time_limit_and_then_ask_elsewhere(
    two: Service[Replica], tmp_path: Path
) -> None:
    door = tmp_path / "door"
    try:
        held = two.wait_for.options(timeout=0.05, retries=1).call_one(str(door))
        with pytest.raises(TimeoutError, match="within 0.05s.*Attempts made: 2"):
            held.get(timeout=LIMIT)
        until(lambda: len(list(tmp_path.iterdir())) == 2)  # both were asked
    finally:
        door.touch()
    until(lambda: sum(two.outstanding().values()) == 0)


def test_a_call_has_its_time_also_while_it_waits_and_no_room_after_it(
    two: Service[Replica], tmp_path: Path
) -> None:
    door = tmp_path / "door"
    try:
        held = [two.wait_for.call_one(str(door)) for _ in range(2)]
        with pytest.raises(TimeoutError, match="within 0.05s.*Attempts made: 0"):
            two.pid.options(timeout=0.05).call_one().get(timeout=LIMIT)
        for each in held:
            assert not each.done()
    finally:
        door.touch()
    assert len({each.get(timeout=LIMIT) for each in held}) == 2
    door.unlink()
    try:
        late = [two.wait_for.options(timeout=0.05).call_one(str(door)) for _ in range(2)]
        for each in late:
            with pytest.raises(TimeoutError, match="within 0.05s"):
                each.get(timeout=LIMIT)
        next_one = two.pid.call_one()
        # it has been sent, though both are at work
        until(lambda: sum(two.outstanding().values()) == 3)
    finally:
        door.touch()
    assert next_one.get(timeout=LIMIT) > 0
    until(lambda: sum(two.outstanding().values()) == 0)
    assert [each.late for each in two._router()._replicas] == [0, 0]


def test_a_broadcast_that_can_not_be_sent_counts_nowhere(
    two: Service[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(two._router().hub, "_largest", 1000)
        with pytest.raises(ValueError, match="over the limit"):
            two.greet.broadcast("you" * 1000)
    assert set(two.outstanding().values()) == {0}


@pytest.mark.processes("several processes that look at a service")
def test_a_process_has_a_service_in_mind_from_before_it_asks_until_that_ends(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, known = router.Router.ask, []

    def look_and_ask(self: router.Router) -> None:
        known.append(knows(self.name) and not router._making.locked())
        ask(self)

    monkeypatch.setattr(router.Router, "ask", look_and_ask)
    with Service(this_host(), Replica, name="remembered") as service:
        assert known[0]  # what changes while the keeper is asked is heard of
        caller = spawn().spawn("caller", Caller, service)
        assert caller.greet.call_one("you").get(timeout=LIMIT) == "hello you"
        assert caller.knows.call_one("remembered").get(timeout=LIMIT)
    until(
        lambda: (
            not caller.knows.call_one("remembered").get(timeout=LIMIT) and not knows("remembered")
        )
    )


def test_a_broadcast_reaches_all(two: Service[Replica]) -> None:
    two.greet.broadcast("all of you")
    assert [seen[-1] for seen in two.history.call().get(timeout=LIMIT).values()] == [
        "all of you"
    ] * 2


def test_misuse_is_refused_at_the_call(two: Service[Replica]) -> None:
    with pytest.raises(TypeError, match="missing a required argument"):
        two.greet.call_one()
    with pytest.raises(
        AttributeError, match="has no endpoint 'wave'; its endpoints are: greet, history"
    ):
        two.wave
    with pytest.raises(TypeError, match="is remote"):
        two.greet("you")
    with pytest.raises(
        AttributeError, match="no adverb 'stream'; they are call_one, for one replica, and call"
    ):
        two.greet.stream("you")
    with pytest.raises(
        ValueError, match="timeout must be a number of seconds, from 0 to .*, got '1'"
    ):
        two.greet.options(timeout="1")
    with pytest.raises(ValueError, match="route is 'least loaded' or 'round robin', got 'random'"):
        Service(this_host(), Replica, route="random")
    with pytest.raises(ValueError, match="replicas must be at least 1, got 0"):
        Service(this_host(), Replica, replicas=0)
    with pytest.raises(TypeError, match="too many positional"):
        Service(this_host(), Replica, (1, 2, 3))
    with pytest.raises(ValueError, match="no endpoint 'wave'"):
        Service(this_host(), Replica, idempotent=["wave"])
    with pytest.raises(ValueError, match="batched, and each rank"):
        Service(this_host(), Doubler, procs_per_replica={"gpus": 2})


def test_a_process_counts_what_it_asks_of_a_service(two: Service[Replica]) -> None:
    def calls() -> float:
        counter = next(
            each
            for each in get_meter("monarch.service").instruments()
            if each.name == "service.calls"
        )
        return float(counter.values()[(("service", "pair"),)])

    before = calls()
    for _ in range(3):
        two.pid.call_one().get(timeout=LIMIT)
    assert calls() == before + 3


def test_a_replica_of_several_ranks_runs_each_call_on_all() -> None:
    with Service(this_host(), Ranks, procs_per_replica={"gpus": 2}) as service:
        _, where = service.rank.call_one().get(timeout=LIMIT)
        assert where == {"gpus": 0}  # the value of the first rank
        everywhere = service.rank.call().get(timeout=LIMIT)
        assert everywhere.sizes == {"replica": 1, "gpus": 2}
        assert [found["gpus"] for _, found in everywhere.values()] == [0, 1]
        with pytest.raises(KeyError, match="rank 1"):
            service.refuse_on_1.call_one().get(timeout=LIMIT)


def test_a_service_gets_larger_and_smaller_while_it_runs(tmp_path: Path) -> None:
    door = tmp_path / "door"
    with Service(this_host(), Replica, name="scaled", route="round robin") as service:
        first = service.pid.call_one().get(timeout=LIMIT)
        service.scale(2).get(timeout=LIMIT)
        assert len(service.pid.call().get(timeout=LIMIT)) == 2
        held = [service.wait_for.call_one(str(door)) for _ in range(4)]  # two at each
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        smaller = service.scale(1)
        until(lambda: service.status().get(timeout=LIMIT)[1].state == "draining")
        until(lambda: len(service._router()._replicas) == 1)  # this process has heard of it
        assert service.outstanding() == {"scaled-0": 2, "scaled-1": 2}
        assert router.held()["scaled"] == 4  # of both, for `monarch why`
        later = service.pid.call_one()  # to the one that stays
        assert not smaller.done()
        door.touch()
        smaller.get(timeout=LIMIT)
        assert sorted(
            len([each for each in held if each.get(timeout=LIMIT) == pid])
            for pid in {h.get() for h in held}
        ) == [2, 2]
        assert later.get(timeout=LIMIT) == first
        assert [each.name for each in service.status().get(timeout=LIMIT)] == ["scaled-0"]
        assert service.pid.call().get(timeout=LIMIT).values() == [first]


def test_a_stopped_service_has_answered_what_it_had_and_refuses_the_rest(tmp_path: Path) -> None:
    door = tmp_path / "door"
    service = Service(this_host(), Replica, name="ending")
    pid = service.pid.call_one().get(timeout=LIMIT)
    held = service.wait_for.call_one(str(door))
    until(lambda: list(tmp_path.iterdir()))
    stopped = service.stop()
    door.touch()
    stopped.get(timeout=LIMIT)
    assert held.get(timeout=LIMIT) == pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(SupervisionError, match="has no replica: it has ended"):
        service.pid.call_one().get(timeout=LIMIT)


class Doubler(Actor):
    """Doubles numbers, in batches; remembers how many were in each."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    @batched(max_size=4, max_wait=LIMIT)
    async def double(self, numbers: list[int]) -> list[int]:
        self.batches.append(len(numbers))
        return [2 * number for number in numbers]

    @batched(max_size=3, max_wait=0.01)
    async def picky(self, numbers: list[int]) -> list[Any]:
        if 13 in numbers:
            raise RuntimeError("13")
        if 0 in numbers:
            return []
        if 17 in numbers:
            return [StopIteration("17")] * len(numbers)
        if 19 in numbers:
            raise asyncio.CancelledError
        return [ValueError("odd") if number % 2 else number for number in numbers]

    @endpoint
    async def seen(self) -> list[int]:
        return self.batches


def test_items_are_handled_in_batches() -> None:
    with Service(this_host(), Doubler) as service:
        answers = [service.double.call_one(number) for number in range(8)]
        assert [each.get(timeout=LIMIT) for each in answers] == [0, 2, 4, 6, 8, 10, 12, 14]
        assert service.seen.call_one().get(timeout=LIMIT) == [4, 4]

        assert service.picky.call_one(2).get(timeout=LIMIT) == 2  # alone, once `max_wait` is over
        odd = [service.picky.call_one(number) for number in (4, 5, 6)]
        assert (odd[0].get(timeout=LIMIT), odd[2].get(timeout=LIMIT)) == (4, 6)
        with pytest.raises(ValueError, match="odd"):
            odd[1].get(timeout=LIMIT)
        for each in [service.picky.call_one(13) for _ in range(3)]:
            with pytest.raises(RuntimeError, match="13"):
                each.get(timeout=LIMIT)
        with pytest.raises(
            TypeError, match="a batch of 1 items has as many results, in a list; got 0"
        ):
            service.picky.call_one(0).get(timeout=LIMIT)
        with pytest.raises(RuntimeError, match="StopIteration"):
            service.picky.call_one(17).get(timeout=LIMIT)
        for each in [service.picky.call_one(number) for number in (19, 19, 19, 2)]:
            with suppress(ActorError):  # the last one is in the next batch, or was in the queue
                assert each.get(timeout=LIMIT) == 2
        assert service.picky.call_one(2).get(timeout=LIMIT) == 2


def test_what_can_not_be_batched_is_refused() -> None:
    with pytest.raises(ValueError, match="max_size must be at least 1, got 0"):
        batched(max_size=0)
    with pytest.raises(TypeError, match="write `async def double`"):

        @batched(max_size=2)  # type: ignore[arg-type]
        def double(self: Any, items: list[int]) -> list[int]:
            return items

    with pytest.raises(TypeError, match=r"takes one list, `async def two\(self, items\)`"):

        @batched(max_size=2)  # type: ignore[arg-type]
        async def two(self: Any, items: list[int], more: int) -> list[int]:
            return items
