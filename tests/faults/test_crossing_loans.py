"""Process groups for the same actors, lent by several threads at once."""

# mypy: disable-error-code="no-untyped-call, attr-defined"

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="process groups need torch")

import torch
import torch.distributed as dist

from helpers.effort import shortened
from monarch.actor import Actor, Channel, endpoint, send
from monarch.tensor_engine import spawn_tensor_engine

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("descriptors", "threads"),  # torch's
    pytest.mark.processes("process groups connect processes"),
]
RANKS = 2
THREADS = 4


class Member(Actor):
    @endpoint
    def total(self, group: Any, number: float) -> float:
        x = torch.full((1,), number)
        dist.all_reduce(x, group=group)
        return x.item()


def test_threads_that_call_the_same_actors_with_a_group_take_turns(spawn: Spawn) -> None:
    procs = spawn(RANKS)
    members = procs.spawn("members", Member)
    mesh = spawn_tensor_engine(procs)
    group = mesh.process_group("gpus")
    rounds = shortened(50, 15)

    def ask(number: int) -> list[list[float]]:
        if number == 0:  # one message to each rank
            port, answers = Channel[float].open()
            found = []
            for _ in range(rounds):
                send(members.total, (group, number), {}, port)
                found.append([answers.recv().get() for _ in range(RANKS)])
            return found
        if number == 1:
            call = members.total.options(timeout=3600).call
            return [call(group, number).get().values() for _ in range(rounds)]
        return [members.total.call(group, number).get().values() for _ in range(rounds)]

    with ThreadPoolExecutor(THREADS) as threads:
        for number, totals in enumerate(threads.map(ask, range(THREADS))):
            assert totals == [[RANKS * number] * RANKS] * rounds
    mesh.exit()
