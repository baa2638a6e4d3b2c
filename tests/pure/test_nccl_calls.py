"""What NCCL is asked for, without a GPU: by stand-ins for its groups, and tensors without memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
import torch.distributed.distributed_c10d as c10d

from monarch.tensor_engine import worker_collectives
from monarch.tensor_engine.torch_groups import TorchGroups


class Backend:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: object) -> Any:
            self.asked.append(name)
            return SimpleNamespace(wait=lambda: None)

        return ask


class Group:
    """A group of torch, of which GPUs have this backend."""

    def __init__(self) -> None:
        self.backend = Backend()

    def _get_backend(self, device: object) -> Backend:
        return self.backend


def test_reductions_of_bits_are_gathered_and_folded_as_nccl_has_none() -> None:
    backend = Backend()
    group: Any = SimpleNamespace(size=2, backend=lambda device: backend)
    data = torch.zeros(4, dtype=torch.int64, device="meta")
    for kind in ("band", "bor", "bxor"):
        assert worker_collectives._reduce(group, data, kind, False, None).shape == (4,)
    assert backend.asked == ["_allgather_base"] * 3
    worker_collectives._reduce(group, data, "max", False, None)
    assert backend.asked[3:] == ["allreduce"]


def test_the_end_of_a_rank_aborts_the_communicators_that_it_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both, other = Group(), Group()
    world: Any = c10d._world
    monkeypatch.setitem(world.pg_group_ranks, both, {0: 0, 1: 1})
    monkeypatch.setitem(world.pg_group_ranks, other, {0: 0, 2: 1})
    groups = TorchGroups("an engine")
    groups._groups = {1: both, 2: other, 3: RuntimeError("it could not be made")}
    groups.note_end(1)
    assert both.backend.asked == ["abort"]
    assert other.backend.asked == []
