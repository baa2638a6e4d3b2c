"""The order in which the stages of a pipeline work on micro-batches. Nothing here knows of tensors.

A schedule comes from playing it through: time goes in steps, and whenever a stage has nothing to do
it takes the first thing of its order of preference that is ready. A stage's ready steps depend on
the steps that its neighbours have finished.

======  ========================================  =====
kind    the stage computes                        steps
======  ========================================  =====
``F``   its output                                1
``B``   the gradient of its input                 1
``W``   the gradients of its parameters           1
``BW``  both in one                               2
======  ========================================  =====
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_STEPS = {"F": 1, "B": 1, "W": 1, "BW": 2}


class Action(NamedTuple):
    """A stage's action on a micro-batch.

    Attributes:
        start: When, in steps, if all take as long as the table says.
        stage: Which, from the first, 0.
        kind: See above.
        micro_batch: Which, from 0.
    """

    start: int
    stage: int
    kind: str
    micro_batch: int


class _Stage:
    """How far a stage is, in a game of `stages` stages.

    Attributes:
        done: By kind: the micro-batches that it has begun; all of them in order.
        ends: By kind and micro-batch: when it has finished.
    """

    def __init__(self, number: int, stages: int) -> None:
        self.number = number
        self.stages = stages
        self.done = {"F": 0, "B": 0, "W": 0}
        self.ends: dict[tuple[str, int], int] = {}
        self.free_at = 0

    def begin(self, kind: str, now: int) -> Action:
        """Do the next one of a kind."""
        micro_batch = self.done[kind[0]]
        self.free_at = now + _STEPS[kind]
        for part in kind:
            self.done[part] += 1
            self.ends[part, micro_batch] = self.free_at
        return Action(now, self.number, kind, micro_batch)

    def has(self, kind: str, micro_batch: int, now: int) -> bool:
        """Return whether the action is finished."""
        return self.ends.get((kind, micro_batch), now + 1) <= now


Choice = Callable[[_Stage, bool, bool], str]


def _one_forward_one_backward(stage: _Stage, forward: bool, backward: bool) -> str:
    """Do a backward pass as soon as it can be done.

    At most as many micro-batches are under way as there are stages from here to the end.
    """
    if backward:
        return "BW"
    return (
        "F" if forward and stage.done["F"] - stage.done["B"] < stage.stages - stage.number else ""
    )


def _zero_bubble(stage: _Stage, forward: bool, backward: bool) -> str:
    """Choose the next action: first those that others wait for.

    Gradients of parameters, for which none wait, fill the gaps.
    """
    if backward:
        return "B"
    if forward and stage.done["F"] - stage.done["W"] < stage.stages:
        return "F"
    return "W" if stage.done["W"] < stage.done["B"] else ""


SCHEDULES: dict[str, Choice] = {"1f1b": _one_forward_one_backward, "dora-dfs": _zero_bubble}
"""What a stage does next, if anything: from how far it is, and whether a forward and a backward
pass are ready.
"""


def schedule(name: str, stages: int, micro_batches: int) -> list[Action]:
    """Return the actions of one batch, in the order in which they begin.

    Args:
        name: ``"1f1b"`` or ``"dora-dfs"``.
        stages: Number of stages.
        micro_batches: Number of micro-batches in a batch.

    Raises:
        ValueError: There is no such schedule.
    """
    if name not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {name!r}")
    line = [_Stage(number, stages) for number in range(stages)]
    actions: list[Action] = []
    now = 0
    while any(stage.done["W"] < micro_batches for stage in line):
        for stage in line:
            if stage.free_at <= now:
                kind = SCHEDULES[name](stage, *_ready(line, stage, micro_batches, now))
                if kind:
                    actions.append(stage.begin(kind, now))
        now += 1
    return actions


def _ready(line: list[_Stage], stage: _Stage, micro_batches: int, now: int) -> tuple[bool, bool]:
    """Return whether the next forward and the next backward pass of a stage can begin."""
    forward, backward = stage.done["F"], stage.done["B"]
    is_last = stage.number == len(line) - 1
    return (
        forward < micro_batches
        and (stage.number == 0 or line[stage.number - 1].has("F", forward, now)),
        stage.has("F", backward, now)
        and (is_last or line[stage.number + 1].has("B", backward, now)),
    )
