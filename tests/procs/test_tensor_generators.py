"""Operations that draw random numbers from a generator of the program."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from monarch import coalescing, inspect
from monarch.tensor_engine import record

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(generator: torch.Generator) -> list[Any]:
    return [
        torch.randn(2, generator=generator),
        torch.randn(3, generator=generator),
        torch.randint(0, 1000, (3,), generator=generator),
        torch.empty(3).uniform_(2, 3, generator=generator),
        torch.randperm(50, generator=generator),
        torch.randn(2, generator=generator),
    ]


def lists(tensors: list[Any], **coordinates: Any) -> list[Any]:
    return [tensor.tolist() for tensor in inspect(tensors, **coordinates)]


def test_the_first_operation_after_seeding_draws_what_it_draws_locally(pair: Any) -> None:
    local = torch.randn(4, generator=seeded()).tolist()
    with pair.activate():
        assert inspect(torch.randn(4, generator=seeded())).tolist() == local


def test_no_two_operations_draw_the_same_numbers(mesh: Any) -> None:
    first, second, *_, last = lists(draw(seeded()))
    assert len({*first, *second, *last}) == 7


def test_all_ranks_draw_the_same(mesh: Any) -> None:
    drawn = draw(seeded())
    assert lists(drawn, gpus=0) == lists(drawn, gpus=1)


def test_a_generator_that_is_seeded_again_draws_the_same_again(mesh: Any) -> None:
    generator = seeded()
    first = lists(draw(generator))
    assert lists(draw(generator)) != first
    assert lists(draw(generator.manual_seed(3))) == first
    assert lists(draw(seeded())) == first


def test_the_state_of_a_generator_can_be_saved_and_set(mesh: Any) -> None:
    generator = seeded()
    torch.rand(1, generator=generator)
    state = generator.get_state()
    first = lists(draw(generator))
    generator.set_state(state)
    assert lists(draw(generator)) == first


def test_blocks_that_are_sent_together_draw_the_same(mesh: Any) -> None:
    with coalescing():
        drawn = draw(seeded())
    assert lists(drawn) == lists(draw(seeded()))


def test_generators_can_not_be_recorded(mesh: Any) -> None:
    generator = seeded()

    @record
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(1, generator=generator)

    with pytest.raises(NotImplementedError, match=r"rand.*generator=.*manual_seed"):
        noisy(torch.ones(1))
