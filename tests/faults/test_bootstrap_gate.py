"""Actors wait for the bootstrap function of their procs: however long it takes, whether or not it
succeeds.
"""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo, Recorder
from helpers.waiting import PATIENCE
from monarch.actor import Actor, ActorError, SupervisionError, endpoint, this_host, this_proc
from monarch.config import configured
from monarch.supervision import OneForOne, incarnations

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both


def waits_for(door: Path) -> Callable[[], None]:
    path = str(door)

    def bootstrap() -> None:
        end = time.monotonic() + PATIENCE
        while not os.path.exists(path) and time.monotonic() < end:
            time.sleep(0.005)

    return bootstrap


def raises_after(door: Path) -> Callable[[], None]:
    wait = waits_for(door)

    def bootstrap() -> None:
        wait()
        raise ValueError("the bootstrap failed")

    return bootstrap


class Marks(Actor):
    def __init__(self, path: str) -> None:
        with open(path, "a") as file:
            file.write("constructed\n")

    @endpoint
    def alive(self) -> bool:
        return True


def test_a_bootstrap_may_outlast_messages_held_for_absent_actors(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    with configured(pending_actor_delivery_timeout="200ms"):
        procs = spawn(1, bootstrap=waits_for(door))
        echo = procs.spawn("echo", Echo)
        call = echo.say.call_one(1)
        with pytest.raises(TimeoutError):
            call.get(timeout=0.8)
        door.touch()
        assert call.get() == 1


def test_messages_that_came_during_the_bootstrap_are_handled_in_order(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    procs = spawn(2, bootstrap=waits_for(door))
    recorder = procs.spawn("recorder", Recorder)
    for number in range(200):
        recorder.record.broadcast(number)
    recorded = recorder.recorded.call()
    door.touch()
    assert recorded.get().values() == [list(range(200))] * 2


def test_actors_are_constructed_after_the_bootstrap_and_not_before(
    spawn: Spawn, tmp_path: Path
) -> None:
    door, mark = tmp_path / "door", tmp_path / "mark"
    marks = spawn(1, bootstrap=waits_for(door)).spawn("marks", Marks, str(mark))
    alive = marks.alive.call_one()
    with pytest.raises(TimeoutError):
        alive.get(timeout=0.3)
    assert not mark.exists()
    door.touch()
    assert alive.get()
    assert mark.read_text() == "constructed\n"


def test_a_failed_bootstrap_is_what_every_call_raises_before_and_after_it(
    spawn: Spawn, faults: Faults, tmp_path: Path
) -> None:
    door, mark = tmp_path / "door", tmp_path / "mark"
    procs = spawn(1, bootstrap=raises_after(door))
    early = procs.spawn("early", Marks, str(mark))
    call = early.alive.call_one()
    door.touch()
    with pytest.raises(ActorError, match="the bootstrap failed"):
        call.get()
    late = procs.spawn("late", Marks, str(mark))
    with pytest.raises(ActorError, match="the bootstrap failed"):
        late.alive.call_one().get()
    assert not mark.exists()
    assert len(faults) == 0, "it is nobody's fault but that of the bootstrap function"


def test_procs_and_their_meshes_name_a_failed_bootstrap(spawn: Spawn, tmp_path: Path) -> None:
    door, mark = tmp_path / "door", tmp_path / "mark"
    procs = spawn(1, bootstrap=raises_after(door))
    quiet = procs.spawn("quiet", Marks, str(mark))
    door.touch()
    for initialized in (
        procs.initialized,
        quiet.initialized,
        procs.spawn("late", Marks, str(mark)).initialized,
    ):
        with pytest.raises(ActorError, match="the bootstrap failed"):
            initialized.get()
    assert not mark.exists()


def test_an_actor_that_is_stopped_during_the_bootstrap_is_never_constructed(
    spawn: Spawn, tmp_path: Path
) -> None:
    door, mark = tmp_path / "door", tmp_path / "mark"
    procs = spawn(1, bootstrap=waits_for(door))
    marks = procs.spawn("marks", Marks, str(mark))
    call = marks.alive.call_one()
    stopping = marks.stop()
    with pytest.raises(SupervisionError):
        call.get()
    door.touch()
    stopping.get()
    other = procs.spawn("other", Echo)
    assert other.say.call_one(1).get() == 1, "the gate is open"
    assert not mark.exists()


def test_procs_can_be_stopped_during_their_bootstrap(spawn: Spawn, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with configured(cleanup_timeout="500ms"):
        procs = spawn(1, bootstrap=waits_for(tmp_path / "never"))
        marks = procs.spawn("marks", Marks, str(mark))
        call = marks.alive.call_one()
        with pytest.raises(TimeoutError):
            call.get(timeout=0.2)
        procs.stop().get()
        with pytest.raises(SupervisionError):
            call.get()
    assert not mark.exists()


# what the function itself makes


class Service(Actor):
    def __init__(self, start: int) -> None:
        self.count = start

    @endpoint
    def add(self, number: int) -> int:
        self.count += number
        return self.count

    @endpoint
    def fail(self) -> None:
        raise ValueError("the service failed")


class Uses(Actor):
    @endpoint
    def service(self, number: int) -> int:
        # an int
        return WARM[0].add.call_one(number).get(timeout=PATIENCE)  # type: ignore[no-any-return]

    @endpoint
    def end_service(self) -> None:
        WARM[0].fail.broadcast()

    @endpoint
    def say(self, text: str) -> str:
        return text

    @endpoint
    def call_held_back(self, held_back: Echo) -> object:
        return held_back.say.call_one("asked").get()

    @endpoint
    def wait_for(self, what: str, uses: Uses, function: Callable[[Uses], object]) -> None:
        procs = this_host().spawn_procs(bootstrap=functools.partial(function, uses))
        echo: Any = procs.spawn("echo", Echo)
        {"procs": procs, "actor": echo}[what].initialized.get()


WARM: list[Any] = []


def warm_up() -> None:
    WARM[:] = [this_proc().spawn("service", Service, 5)]
    assert WARM[0].add.call_one(1).get() == 6


async def warm_up_async() -> None:
    WARM[:] = [this_proc().spawn("service", Service, 5)]
    assert await WARM[0].add.call_one(1) == 6


def warm_up_below() -> None:
    """On procs of its own, whose bootstrap does the same."""
    WARM[:] = [this_host().spawn_procs(bootstrap=warm_up).spawn("service", Service, 5)]
    assert WARM[0].add.call_one(1).get() == 6


@pytest.mark.processes("each process has its own globals")
@pytest.mark.parametrize(
    "function", [warm_up, warm_up_async, warm_up_below, lambda: warm_up_async()]
)
def test_a_bootstrap_spawns_calls_and_waits_and_what_it_made_lives_on(
    spawn: Spawn, function: Callable[[], object]
) -> None:
    procs = spawn(2, bootstrap=function)
    uses = procs.spawn("uses", Uses)
    assert procs.initialized.get(timeout=PATIENCE)
    assert uses.service.call(1).get(timeout=PATIENCE).values() == [7, 7]


def test_what_a_bootstrap_made_is_supervised_by_the_owner_of_the_procs(
    spawn: Spawn, faults: Faults
) -> None:
    uses = spawn(1, bootstrap=warm_up).spawn("uses", Uses)
    assert uses.service.call_one(1).get(timeout=PATIENCE) == 7
    uses.end_service.call_one().get(timeout=PATIENCE)
    faults.wait_for(1)
    assert "the service failed" in str(faults.reports())
    with pytest.raises(ActorError, match=r"service\.add"):
        uses.service.call_one(1).get(timeout=PATIENCE)


def asks_for_ever(uses: Uses) -> None:
    uses.say.call_one("?").get()


async def asks_for_ever_async(uses: Uses) -> None:
    await uses.say.call_one("?")


both = pytest.mark.parametrize("function", [asks_for_ever, asks_for_ever_async])


@both
def test_a_bootstrap_that_waits_for_whom_it_holds_back_is_a_deadlock(
    spawn: Spawn, function: Callable[[Uses], object], tmp_path: Path
) -> None:
    uses = spawn(1).spawn("uses", Uses)
    door = waits_for(tmp_path / "door")

    def bootstrap() -> object:
        door()
        return function(uses)

    with configured(deadlock_check_interval="200ms"):
        procs = spawn(1, bootstrap=bootstrap)
        waiting = uses.call_held_back.call_one(procs.spawn("echo", Echo))
        (tmp_path / "door").touch()  # "uses" has that call before the one of the function
        outcomes = [future.exception(timeout=PATIENCE) for future in (procs.initialized, waiting)]
    assert "wait for each other" in "".join(map(str, outcomes)), outcomes
    assert "bootstrap()" in "".join(map(str, outcomes))


@both
@pytest.mark.parametrize("what", ["procs", "actor"])
def test_who_waits_for_procs_whose_bootstrap_waits_for_it_is_told(
    spawn: Spawn, function: Callable[[Uses], object], what: str
) -> None:
    with configured(deadlock_check_interval="200ms"):
        uses = spawn(1).spawn("uses", Uses)
        with pytest.raises(ActorError, match="wait for each other"):
            uses.wait_for.call_one(what, uses, function).get(timeout=PATIENCE)


def test_a_proc_that_starts_again_during_its_bootstrap_holds_up_no_other(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    procs = spawn(3, restart=OneForOne(max_restarts=10), bootstrap=waits_for(door))
    workers = procs.spawn("workers", Echo)
    procs.slice(gpus=1).restart().get()
    door.touch()
    assert workers.say.call(1).get().values() == [1, 1, 1]
    assert incarnations(workers).get().values() == [0, 1, 0]
