"""How long an actor was busy in each of its steps, whichever way the program drives it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from monarch._core.plane import ProcAddress
from monarch.telemetry import messages, steps
from monarch.telemetry.tables import TABLES


class Driven:
    """An actor, and a clock that moves while it works and while it waits for its next message."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sampler: Any = None) -> None:
        self.now = 1_000_000
        self.cell = SimpleNamespace(sampler=sampler)
        who = SimpleNamespace(actor_id=SimpleNamespace(uid=7), rank=SimpleNamespace(rank=0))
        here = SimpleNamespace(actor_instance=who, _cell=self.cell)
        monkeypatch.setattr(steps, "context", lambda: here)
        clock = SimpleNamespace(time_ns=lambda: 1_000 * self.now, monotonic=lambda: self.now / 1e6)
        monkeypatch.setattr(steps, "time", clock)
        monkeypatch.setattr(messages, "time", clock)

    def handle(self, *doing: int | None) -> None:
        """Handle a message: None marks a step, a number works for so long. Then wait for 1,000."""
        sampler = self.cell.sampler  # as the actor's thread reads it, before the message
        frame = SimpleNamespace(
            sender=1, target=7, meta=b"work", request=0, payload=b"", buffers=()
        )
        if sampler is not None:
            sampler.begin(SimpleNamespace(peer="h/p.0"), frame)
        for each in doing:
            if each is None:
                steps.step()
            else:
                self.now += each
        if sampler is not None:
            sampler.done(frame)
        self.now += 1_000

    def handle_four_steps(self, marked_first: bool) -> None:
        """Handle a message for each, of 5 to 8, which marks the step before its work or after."""
        for work in (5, 6, 7, 8):
            self.handle(*((None, work) if marked_first else (work, None)))

    @property
    def steps(self) -> list[tuple[int, int]]:
        """The time of each step but the first, which is seen in part, and the busy part."""
        return [(took, busy) for _, took, busy in steps.recent_steps(32)[7][1:]]


@pytest.fixture(autouse=True)
def none_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_steps", type(steps._steps)())
    monkeypatch.setattr(steps, "_last_steps", {})


def test_a_step_that_is_called_is_as_long_as_the_actor_handles_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driven = Driven(monkeypatch)
    driven.handle_four_steps(marked_first=True)
    assert driven.steps == [(1_006, 6), (1_007, 7)]


def test_work_before_the_mark_belongs_to_the_step_that_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driven = Driven(monkeypatch)
    driven.handle_four_steps(marked_first=False)
    assert driven.steps == [(1_007, 7), (1_008, 8)]


def test_all_messages_of_a_step_count(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(monkeypatch)
    for work in (5, 6, 7):
        driven.handle(2, None, work)
        driven.handle(100)
    driven.handle(None)
    assert driven.steps == [(2_108, 108), (2_107, 107)]


def test_steps_of_one_message_count_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(monkeypatch)
    driven.handle(None, 5, None, 6, None, 7, None)
    assert driven.steps == [(6, 6), (7, 7)]


def test_with_telemetry_its_looks_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "black_box", lambda: None)
    recorder: Any = SimpleNamespace(adaptive=False, samplings=set(), handled=[])
    driven = Driven(monkeypatch, messages.ActorSampler(recorder))
    driven.handle_four_steps(marked_first=True)
    assert driven.steps == [(1_006, 6), (1_007, 7)]


def test_of_the_program_itself_no_busy_part_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(monkeypatch)
    del driven.cell.sampler
    for _ in range(3):
        steps.step()
        driven.now += 10
    assert driven.steps == [(10, 10)]
    assert [row[5] for row in steps._steps] == [None, None, None]


def test_samples_stand_in_the_row_of_the_step_in_which_they_were_worked_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driven = Driven(monkeypatch)
    steps.step(7)
    driven.now += 10
    steps.step(8, total=9, samples=64)
    asked: Any = SimpleNamespace(
        service=SimpleNamespace(hub=SimpleNamespace(address=ProcAddress("h", "p.0")))
    )
    columns = list(TABLES["steps"].columns)
    first, second = (dict(zip(columns, row, strict=True)) for row in steps._step_rows(asked))
    assert (first["step"], first["duration_us"], first["samples"]) == (7, None, None)
    assert (second["step"], second["duration_us"], second["samples"]) == (8, 10, 64)


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"samples": 1.5}, TypeError, r"step\(\) takes the number of samples, got 1\.5"),
        ({"samples": True}, TypeError, "the number of samples, got True"),
        ({"samples": -1}, ValueError, "samples from 0 on, got -1"),
        ({"samples": 1 << 64}, ValueError, "a number of 64 bits"),
        ({"total": "9"}, TypeError, "the number of all steps, got '9'"),
        ({"number": 1.0}, TypeError, r"the number of the step, got 1\.0"),
    ],
)
def test_what_is_no_number_of_them_is_refused(
    given: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        steps.step(**given)
    assert not steps._steps
