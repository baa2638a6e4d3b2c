"""`monarch.elastic.state`: whose shards are needed for all of a state, and when it is not all
there.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="states are those of torch")

import torch

from monarch.elastic.state import Lent, Whole, covering
from monarch.rdma import SharedState
from monarch.rdma.states.blocks import Block
from monarch.rdma.states.tensors import Entry

KEYS = ("model", "weight")


def lent(first: int, rows: int, whole: int = 6) -> Lent:
    """A rank's rows of a matrix with two columns."""
    entry = Entry("torch", "float32", 4, Block((first, 0), (rows, 2)), (whole, 2), 0, 0)
    versions: Any = None
    shared = SharedState([], {(KEYS,): entry}, frozenset(), versions) if rows else None
    return Lent({"model": {"weight": Whole((whole, 2), torch.float32), "steps": 3}}, shared)


def test_one_rank_that_has_all_of_it_is_enough() -> None:
    whole = lent(0, 6)
    assert covering([whole, lent(0, 3), lent(0, 6)]) == [whole]


def test_shards_are_put_together_and_copies_are_left_out() -> None:
    first, copy, second, third = lent(0, 2), lent(0, 2), lent(2, 2), lent(4, 2)
    assert covering([first, copy, second, third]) == [first, second, third]


def test_a_state_of_which_a_shard_is_missing_is_not_there() -> None:
    assert covering([lent(0, 2), lent(4, 2)]) == []
    assert covering([lent(0, 0)]) == []
    assert covering([]) == []


def test_a_rank_without_any_part_of_small_tensors_does_no_harm() -> None:
    first, nothing = lent(0, 1, whole=1), lent(1, 0, whole=1)
    assert covering([nothing, first]) == [nothing, first], "the first one has the outline"
    assert covering([lent(0, 0, whole=0)]) != [], "a tensor without elements is nowhere"
