"""The steps of the tutorial of reinforcement learning, each tried by itself."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # where `examples` is

from examples.rl.generator import Generator
from examples.rl.model import imitate, learned, make_policy
from examples.rl.plan import Plan
from examples.rl.roles import PRELOAD
from examples.rl.rollouts import Buffer, Rollouts, RolloutState
from examples.rl.tasks import task
from examples.rl.trainer import Training
from examples.rl.verifier import Sandbox, Verifier

from monarch.actor import this_host, this_proc
from monarch.config import configure
from monarch.elastic import ElasticGroup, StateBoard, StatePublisher
from monarch.service import Service


def main() -> None:
    configure(preload=PRELOAD)
    # region check
    asked = task(0)
    right = asked.answer.decode().rstrip("\n")
    sandbox = Sandbox()
    assert sandbox.check(asked, [right, "?"]) == [1.0, 0.0]
    hangs = replace(asked, checker="def check(prompt, answer):\n    while True: pass")
    assert sandbox.check(hangs, [right]) is None
    sandbox.end()
    # endregion

    # region generate
    plan = Plan(steps=3, imitation=10, groups=4, generators=1)
    base = imitate(plan)
    board = this_proc().spawn("board", StateBoard)
    procs = this_host().spawn_procs()
    generator = procs.spawn("generator", Generator, plan, base, board)
    first, second = (
        generator.generate.call_one(b"3+8=", seeds=[1, 2], least=-1).get() for _ in range(2)
    )
    assert first == second
    # endregion

    # region follow
    waits = generator.generate.call_one(b"3+8=", seeds=[1], least=1)
    trained = learned(make_policy(plan, base))
    publisher = StatePublisher(board, trained)
    with publisher.writing():  # the first step
        for each in trained.values():
            each.detach().mul_(0.9)
    assert set(waits.get()[0].versions) == {1}
    # endregion

    # region fill
    buffer = Buffer(this_host().spawn_procs(), 20, consume=True, max_age=plan.max_age)
    service = partial(Service, this_host(), replicas=1, idempotent=True)
    writers = service(Generator, (plan, base, board))
    judges = service(Verifier)
    rollouts = this_proc().spawn(
        "rollouts", Rollouts, plan, RolloutState(), writers, judges, buffer
    )
    rollouts.mind.broadcast()
    rollouts.progress.call_one(0, []).get()
    groups = buffer.sample(plan.groups, 0, order="oldest", batch=0).get()
    assert [len(group.rewards) for group in groups] == [plan.answers] * plan.groups
    # endregion

    # region train
    training = partial(Training, plan, base, buffer, board, rollouts)
    group = ElasticGroup(this_host(), training, ranks=2)
    assert [report.step for report in group.run()] == [0, 1, 2]
    # endregion

    procs.stop().get()
    rollouts.stop().get()
    writers.stop(drain=0).get()
    judges.stop(drain=0).get()


if __name__ == "__main__":
    main()
