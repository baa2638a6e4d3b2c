"""What may come of a call of `add`, and whether it did.

A call is planned when it is sent, judged when it is collected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chaos.members import Answer, Stamp, checksum
from chaos.model import ALIVE, GOING, GONE, Instance, Proc, View, World
from chaos.outcome import DEAD, VALUE, Outcome

ADVERBS = ("call", "call_one", "choose", "stream", "broadcast")


class Violation(Exception):
    """The package did what it must not."""


@dataclass
class Sent:
    """One call of `add`, and what the model says of each rank it went to.

    Attributes:
        by_owner: The caller owns the mesh, so that it knows which ranks are gone.
        counters: What each rank will answer; unknown for `choose`.
        at_first: The state of each rank when it was sent.
    """

    what: str
    view: View
    adverb: str
    stamp: Stamp
    by: int
    payload: Any
    by_owner: bool
    counters: dict[Instance, int]
    at_first: dict[Instance, str]

    @property
    def arguments(self) -> tuple[Stamp, int, Any]:
        return self.stamp, self.by, self.payload

    def judge(self, outcomes: Sequence[Outcome]) -> None:
        """Raises:
        Violation: An outcome is not among those that the model allows.
        """
        for outcome in outcomes:
            if outcome.kind not in (VALUE, DEAD):
                raise Violation(
                    f"{self.what}: a value or a SupervisionError was due, it came: {outcome}"
                )
        if self.adverb == "stream":
            self._judge_stream(outcomes)
        else:
            (outcome,) = outcomes
            if outcome.kind == DEAD:
                self._judge_refusal(outcome)
            elif self.adverb == "choose":
                self._judge_choice(outcome.value)
            elif self.adverb != "broadcast":
                self._judge_values(
                    [outcome.value] if self.adverb == "call_one" else outcome.value.values()
                )

    def _judge_values(self, values: Sequence[Any]) -> None:
        instances = self.view.instances
        if len(values) != len(instances):
            raise Violation(
                f"{self.what}: {len(instances)} values were due, {len(values)} came: {values}"
            )
        for instance, value in zip(instances, values, strict=True):
            self._judge_answer(instance, value)

    def _judge_answer(self, instance: Instance, answer: Any) -> None:
        instance.seen = True
        if self.at_first[instance] == GONE:
            raise Violation(
                f"{self.what}: {instance} was gone when it was called, and answered {answer}"
            )
        expected = Answer(
            instance.rank, self.counters[instance], checksum(self.payload), instance.proc.pid
        )
        if expected.pid == 0:
            expected = expected._replace(pid=answer.pid)
        if answer != expected:
            raise Violation(
                f"{self.what}: {instance} should have answered {expected}, and answered {answer}"
            )
        # what was chosen is chance, and later steps must not depend on that
        if self.adverb != "choose":
            instance.proc.pid = answer.pid

    def _judge_refusal(self, outcome: Outcome) -> None:
        instances = self.view.instances
        if all(instance.state == ALIVE for instance in instances):
            raise Violation(f"{self.what}: every rank lives, but: {outcome.value}")
        if (
            self.adverb == "choose"
            and self.by_owner
            and not any(i.state == GOING for i in instances)
        ):
            living = [str(instance) for instance in instances if instance.state == ALIVE]
            if living and all(self.at_first[i] == i.state for i in instances):
                raise Violation(
                    f"{self.what}: {living} could have been chosen, but: {outcome.value}"
                )

    def _judge_choice(self, answer: Answer) -> None:
        (chosen,) = (instance for instance in self.view.instances if instance.rank == answer.rank)
        chosen.counters[self.stamp.sender] += self.by
        self.counters[chosen] = chosen.counters[self.stamp.sender]
        self._judge_answer(chosen, answer)
        chosen.sent[self.stamp.sender] = self.stamp.numbers[chosen.rank]

    def _judge_stream(self, outcomes: Sequence[Outcome]) -> None:
        instances = {instance.rank: instance for instance in self.view.instances}
        if len(outcomes) != len(instances):
            raise Violation(f"{self.what}: {len(instances)} answers were due, {len(outcomes)} came")
        for outcome in outcomes:
            if outcome.kind == VALUE:
                instance = instances.pop(outcome.value.rank, None)
                if instance is None:
                    raise Violation(
                        f"{self.what}: rank {outcome.value.rank} answered twice, or was not called"
                    )
                self._judge_answer(instance, outcome.value)
        silent = [str(instance) for instance in instances.values() if instance.state == ALIVE]
        if silent:
            raise Violation(f"{self.what}: {silent} live, and got an error: {outcomes}")


def plan(
    world: World,
    sender: Instance | Proc | str,
    view: View,
    adverb: str,
    by: int,
    payload: Any,
    by_owner: bool,
) -> Sent:
    """Note in the model that this is sent now.

    A chosen rank is noted when it has answered: wait for that at once.
    """
    instances = view.instances
    name = str(sender)
    stamp = Stamp(name, world.numbers(name, instances))
    if adverb != "choose":
        world.sent(name, instances)
        for instance in instances:
            instance.counters[name] += by
    size = 0 if payload is None else len(payload)
    what = f"{name}: {view}.add.{adverb}(by={by}, size={size})"
    counters = {instance: instance.counters[name] for instance in instances}
    return Sent(
        what, view, adverb, stamp, by, payload, by_owner, counters, {i: i.state for i in instances}
    )
