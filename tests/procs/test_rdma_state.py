"""Whole state dicts between processes, and between shards of other shapes."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from monarch.actor import Actor, context, endpoint
from monarch.rdma import BufferDroppedError, Shard, SharedState, pull, push, share_state

np = pytest.importorskip("numpy", reason="shares arrays; numpy is not installed")

if TYPE_CHECKING:
    from conftest import Spawn

ROWS, COLUMNS = 8, 12


@pytest.fixture(scope="module", autouse=True)
def _torch_has_its_threads() -> None:
    with suppress(ImportError):
        importlib.import_module("torch").ones(1 << 20).sum()


def state(factor: float = 1) -> dict[str, Any]:
    return {
        "layers": [
            {"weight": np.arange(6, dtype=np.float32).reshape(2, 3) * factor, "bias": np.ones(2, dtype=np.float16)},
            {"weight": np.arange(4, dtype=np.float64) * factor, "bias": np.ones(1, dtype=np.int8)},
        ],
        "step": np.array(7 * factor, dtype=np.int64),
    }


def empty() -> dict[str, Any]:
    return {
        "layers": [
            {"weight": np.zeros((2, 3), dtype=np.float32), "bias": np.zeros(2, dtype=np.float16)},
            {"weight": np.zeros(4), "bias": np.zeros(1, dtype=np.int8)},
        ],
        "step": np.array(0, dtype=np.int64),
    }


def same(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return all(same(one, other) for one, other in zip(first, second, strict=True))
    return bool((first == second).all())


class Trainer(Actor):
    """Has a state, or a row-wise shard of a matrix."""

    def __init__(self, copy: bool = True) -> None:
        self.state = state()
        self.shared = share_state(self.state, copy=copy)
        self.rank = context().actor_instance.rank.rank

    @endpoint
    def share(self) -> SharedState:
        return self.shared

    @endpoint
    def current(self) -> Any:
        return self.state

    @endpoint
    def train(self, factor: float) -> None:
        self.shared.update(state(factor)).get()

    @endpoint
    def share_rows(self, count: int) -> SharedState:
        rows = whole_matrix().reshape(count, -1, COLUMNS)[self.rank]
        self.matrix = np.ascontiguousarray(rows)
        self.rows = share_state(
            {"matrix": self.matrix}, shards={"matrix": Shard.of((ROWS, COLUMNS), 0, self.rank, count)}, copy=False
        )
        return self.rows

    @endpoint
    def my_rows(self) -> Any:
        return self.matrix


class Generator(Actor):
    @endpoint
    def pull(self, shared: SharedState) -> Any:
        into = empty()
        pull(shared, into).get()
        return into

    @endpoint
    def pull_columns(self, sources: list[SharedState], count: int) -> Any:
        rank = context().actor_instance.rank.rank
        into = {"matrix": np.zeros((ROWS, COLUMNS // count))}
        pull(sources, into, shards={"matrix": Shard.of((ROWS, COLUMNS), 1, rank, count)}).get()
        return into["matrix"]

    @endpoint
    def push_columns(self, targets: list[SharedState], count: int) -> None:
        rank = context().actor_instance.rank.rank
        mine = np.ascontiguousarray(-whole_matrix()[:, rank * COLUMNS // count : (rank + 1) * COLUMNS // count])
        push({"matrix": mine}, targets, shards={"matrix": Shard.of((ROWS, COLUMNS), 1, rank, count)}).get()


def whole_matrix() -> Any:
    return np.arange(ROWS * COLUMNS, dtype=np.float64).reshape(ROWS, COLUMNS)


@pytest.mark.parametrize("copy", [True, False])
def test_a_whole_state_is_pulled(spawn: Spawn, copy: bool) -> None:
    procs = spawn(2)
    shared = procs.slice(gpus=0).spawn("trainer", Trainer, copy).share.call_one().get()
    assert len(shared.buffers) == (1 if copy else 5)
    assert shared.nbytes == 6 * 4 + 2 * 2 + 4 * 8 + 1 + 8
    assert same(procs.slice(gpus=1).spawn("generator", Generator).pull.call_one(shared).get(), state())
    into = empty()
    pull(shared, into).get()
    assert same(into, state())


def test_a_copy_stays_as_it_is_until_it_is_updated(spawn: Spawn) -> None:
    trainer = spawn(1).spawn("trainer", Trainer)
    shared = trainer.share.call_one().get()
    trainer.train.call_one(3).get()
    into = empty()
    pull(shared, into).get()
    assert same(into, state(3))
    assert same(trainer.current.call_one().get(), state())


def test_a_whole_state_is_pushed(spawn: Spawn) -> None:
    trainer = spawn(1).spawn("trainer", Trainer, False)
    push(state(5), trainer.share.call_one().get()).get()
    assert same(trainer.current.call_one().get(), state(5))


def test_a_part_of_a_state_can_be_pulled(spawn: Spawn) -> None:
    trainer = spawn(1).spawn("trainer", Trainer)
    step = np.array(0, dtype=np.int64)
    pull(trainer.share.call_one().get(), {"step": step}).get()
    assert step == 7


def test_columns_are_pulled_from_those_who_have_rows(spawn: Spawn) -> None:
    trainers = spawn(4).spawn("trainers", Trainer)
    generators = spawn(3).spawn("generators", Generator)
    sources = trainers.share_rows.call(4).get().values()
    columns = generators.pull_columns.call(list(sources), 3).get().values()
    assert (np.concatenate(list(columns), axis=1) == whole_matrix()).all()


def test_columns_are_pushed_to_those_who_have_rows(spawn: Spawn) -> None:
    trainers = spawn(2).spawn("trainers", Trainer)
    generators = spawn(3).spawn("generators", Generator)
    targets = trainers.share_rows.call(2).get().values()
    generators.push_columns.call(list(targets), 3).get()
    rows = trainers.my_rows.call().get().values()
    assert (np.concatenate(list(rows)) == -whole_matrix()).all()


def test_what_does_not_fit_is_refused_by_name(spawn: Spawn) -> None:
    shared = share_state(state())
    with pytest.raises(KeyError, match="state\\['unknown'\\]"):
        pull(shared, {"unknown": np.zeros(1)})
    with pytest.raises(ValueError, match=r"\['step'\] is float32.*int64"):
        pull(shared, {"step": np.array(0, dtype=np.float32)})
    with pytest.raises(ValueError, match="shape"):
        pull(shared, {"step": np.zeros(2, dtype=np.int64)})
    with pytest.raises(TypeError, match=r"state\['lr'\]"):
        share_state({"lr": 0.1})
    with pytest.raises(ValueError, match="no part"):
        share_state({"w": np.zeros(3)}, shards={"w": Shard((2,), (4,))})
    with pytest.raises(KeyError, match="shards name"):
        share_state({"w": np.zeros(3)}, shards={"v": Shard((0,), (3,))})
    with pytest.raises(ValueError, match="evenly"):
        Shard.of((10, 10), 0, 0, 3)
    half = share_state({"w": np.zeros(2)}, shards={"w": Shard((0,), (4,))})
    with pytest.raises(ValueError, match=r"no source has the elements \[2:4\]"):
        pull(half, {"w": np.zeros(4)})


def test_a_push_of_nothing_in_common_does_nothing() -> None:
    half = share_state({"w": np.zeros(2)}, shards={"w": Shard((0,), (4,))})
    push({"w": np.ones(2)}, half, shards={"w": Shard((2,), (4,))}).get()


def test_a_dropped_state_is_gone() -> None:
    shared = share_state(state())
    shared.drop()
    with pytest.raises(BufferDroppedError):
        pull(shared, empty()).get()


def test_tensors_and_arrays_of_one_type_go_together(spawn: Spawn) -> None:
    torch = pytest.importorskip("torch", reason="shares tensors; torch is not installed")
    model = torch.nn.Linear(3, 2)
    shared = share_state(model.state_dict())
    other = torch.nn.Linear(3, 2)
    pull(shared, other.state_dict()).get()
    assert torch.equal(model.weight, other.weight)
    as_array = {"weight": np.zeros((2, 3), dtype=np.float32)}
    pull(shared, as_array).get()
    assert (as_array["weight"] == model.weight.detach().numpy()).all()
    halves = share_state({"w": torch.ones(3, dtype=torch.bfloat16)})
    into = torch.zeros(3, dtype=torch.bfloat16)
    pull(halves, {"w": into}).get()
    assert into.sum() == 3
