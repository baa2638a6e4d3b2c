"""Random programs compute what torch computes: as they come, in a block, after one that raised,
recorded, with a second stream.
"""

# mypy: disable-error-code="no-untyped-call, attr-defined"

from __future__ import annotations

import random
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from helpers.each import for_each
from monarch import Stream, coalescing, inspect, no_mesh, remote
from monarch.tensor_engine import record

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("descriptors", "threads"),  # torch's
]

STEPS = 25
ARGUMENTS = 3


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


remote_double = remote(double, propagate=torch.empty_like)


class Program:
    """A list of steps over the tensors that there are so far."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        kinds = [
            "add",
            "scale",
            "write",
            "view",
            "write_view",
            "function",
            "constant",
            "forget",
            "borrow",
            "borrow",
        ]
        self.steps = [
            (self._random.choice(kinds), self._random.random(), self._random.random())
            for _ in range(STEPS)
        ]

    def run(self, given: list[torch.Tensor], stream: Stream | None) -> list[torch.Tensor]:
        """On distributed tensors, with a stream to lend to, or on those of this process."""
        there = list(given)
        for kind, first, second in self.steps:
            x, y = there[int(first * len(there))], there[int(second * len(there))]
            if kind == "add":
                there.append((x + y.sum()).remainder(7.0))
            elif kind == "scale":
                there.append((x * (1 + second)).remainder(5.0))
            elif kind == "write":
                x.mul_(0.5).add_(first)
            elif kind == "view":
                there.append(x[:1] if second < 0.5 else x.view(-1))
            elif kind == "write_view":
                x[-1:].fill_(second)
            elif kind == "function":
                there.append(remote_double(x) if stream is not None else double(x))
            elif kind == "constant":
                there.append(torch.tensor([first, second]))
            elif kind == "forget" and len(there) > ARGUMENTS + 1:
                del there[ARGUMENTS + int(first * (len(there) - ARGUMENTS))]
            elif kind == "borrow":
                self._write_elsewhere(x, second, stream)
        return there

    def _write_elsewhere(self, x: torch.Tensor, number: float, stream: Stream | None) -> None:
        if stream is None:
            x.add_(number)
            return
        lent, borrow = stream.borrow(x, mutable=True)
        with borrow, stream.activate():
            lent[:].add_(number)
            del lent


def _run_in_vain(run: Any, given: list[torch.Tensor]) -> None:
    """In a block that raises, as if it had never been."""
    with suppress(KeyError), coalescing():
        run(*given)
        raise KeyError


@pytest.fixture(scope="module")
def stream() -> Stream:
    return Stream("other")


@pytest.mark.parametrize("way", ["issued", "block", "raised", "recorded"])
@for_each("seed", range(6))
def test_a_random_program_computes_what_torch_computes(
    mesh: Any, stream: Stream, seed: int, way: str
) -> None:
    program = Program(seed)
    with no_mesh.activate():
        local = [torch.full((2,), float(index)) for index in range(ARGUMENTS)]
        ours_first = [each.tolist() for each in local]
        rounds = [[each.tolist() for each in program.run(local, None)] for _ in range(4)]
    given = [torch.tensor(each) for each in ours_first]

    def run(*given: torch.Tensor) -> list[torch.Tensor]:
        return program.run(list(given), stream)

    step: Any = record(run) if way == "recorded" else run
    for expected in rounds:
        if way == "raised":
            _run_in_vain(run, given)
        context: AbstractContextManager[Any] = coalescing() if way == "block" else nullcontext()
        with context:
            found = step(*given)
        values = inspect(found, gpus=1)
        with no_mesh.activate():
            for ours, theirs in zip(values, expected, strict=True):
                assert ours.tolist() == pytest.approx(theirs), f"seed {seed}"
