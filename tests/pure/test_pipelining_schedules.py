"""Who does what when in a pipeline; no tensors, no processes."""

from __future__ import annotations

from itertools import product

import pytest

pytest.importorskip("torch", reason="the package of pipelines needs torch")

from monarch.parallel.pipelining import SCHEDULES, Action, schedule

SIZES = list(product(sorted(SCHEDULES), (1, 2, 4), (1, 3, 8)))


def place(actions: list[Action], stage: int, part: str, micro_batch: int) -> int:
    """Where in the order a stage does a part of the work, which it does once."""
    places = [
        index
        for index, action in enumerate(actions)
        if (action.stage, action.micro_batch) == (stage, micro_batch) and part in action.kind
    ]
    assert len(places) == 1
    return places[0]


@pytest.mark.parametrize(("name", "stages", "micro_batches"), SIZES)
def test_everything_is_done_once_and_after_what_it_needs(
    name: str, stages: int, micro_batches: int
) -> None:
    actions = schedule(name, stages, micro_batches)
    for stage, micro_batch in product(range(stages), range(micro_batches)):
        forward, backward, weights = (place(actions, stage, part, micro_batch) for part in "FBW")
        assert forward < backward <= weights
        if stage:
            assert place(actions, stage - 1, "F", micro_batch) < forward
            assert backward < place(actions, stage - 1, "B", micro_batch)


@pytest.mark.parametrize(("name", "stages", "micro_batches"), SIZES)
def test_no_stage_keeps_more_micro_batches_than_there_are_stages(
    name: str, stages: int, micro_batches: int
) -> None:
    under_way = dict.fromkeys(range(stages), 0)
    for action in schedule(name, stages, micro_batches):
        under_way[action.stage] += ("F" in action.kind) - ("W" in action.kind)
        assert 0 <= under_way[action.stage] <= stages


def test_a_plain_schedule_of_two_stages_is_as_in_the_books() -> None:
    done = [
        (action.kind, action.micro_batch) for action in schedule("1f1b", 2, 3) if action.stage == 0
    ]
    assert done == [("F", 0), ("F", 1), ("BW", 0), ("F", 2), ("BW", 1), ("BW", 2)]


def test_gradients_of_parameters_fill_the_gaps() -> None:
    def end(name: str) -> int:
        return max(action.start + {"BW": 2}.get(action.kind, 1) for action in schedule(name, 4, 8))

    work = 3 * 8  # steps that each stage needs at least
    assert work <= end("dora-dfs") < end("1f1b")


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="1f1b, dora-dfs, got 'fastest'"):
        schedule("fastest", 2, 2)
