"""Whole state dicts between processes, and between shards of other shapes."""

from __future__ import annotations

import importlib
import weakref
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import open_channel
from monarch.actor import Actor, Port, context, endpoint
from monarch.rdma import (
    BufferAccessError,
    BufferDroppedError,
    InconsistentStateError,
    RDMABuffer,
    Shard,
    SharedState,
    Split,
    empty_like,
    pull,
    push,
    share_state,
)
from monarch.rdma.memory import Memory
from monarch.rdma.states.seqlock import Versions
from monarch.rdma.states.seqlock_owner import Writes

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
            {
                "weight": np.arange(6, dtype=np.float32).reshape(2, 3) * factor,
                "bias": np.ones(2, dtype=np.float16),
            },
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
            {"matrix": self.matrix},
            shards={"matrix": Shard.of((ROWS, COLUMNS), 0, self.rank, count)},
            copy=False,
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
        mine = np.ascontiguousarray(
            -whole_matrix()[:, rank * COLUMNS // count : (rank + 1) * COLUMNS // count]
        )
        push(
            {"matrix": mine}, targets, shards={"matrix": Shard.of((ROWS, COLUMNS), 1, rank, count)}
        ).get()


def whole_matrix() -> Any:
    return np.arange(ROWS * COLUMNS, dtype=np.float64).reshape(ROWS, COLUMNS)


@pytest.mark.parametrize("copy", [True, False])
def test_a_whole_state_is_pulled(spawn: Spawn, copy: bool) -> None:
    procs = spawn(2)
    shared = procs.slice(gpus=0).spawn("trainer", Trainer, copy).share.call_one().get()
    assert len(shared.buffers) == (1 if copy else 5)
    assert shared.nbytes == 6 * 4 + 2 * 2 + 4 * 8 + 1 + 8
    assert same(
        procs.slice(gpus=1).spawn("generator", Generator).pull.call_one(shared).get(), state()
    )
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
    into = empty_like(halves)
    pull(halves, into).get()
    assert into["w"].dtype == torch.bfloat16
    assert into["w"].sum() == 3


# one rule for a whole state


def test_one_rule_says_how_all_of_a_state_is_divided(spawn: Spawn) -> None:
    whole = {
        "a": np.arange(24.0).reshape(6, 4),
        "layers": [{"b": np.arange(12)}],
        "step": np.array(3),
    }
    halves = [
        share_state(
            {
                "a": whole["a"][3 * rank : 3 * rank + 3],
                "layers": [{"b": whole["layers"][0]["b"][6 * rank : 6 * rank + 6]}],
                "step": whole["step"],
            },
            shards=Split(dim=0, rank=rank, count=2),
        )
        for rank in range(2)
    ]
    into = empty_like(halves)
    pull(halves, into).get()
    assert same(into, whole)
    third = empty_like(halves, shards=Split(dim=0, rank=1, count=3))
    pull(halves, third, shards=Split(dim=0, rank=1, count=3)).get()
    assert same(
        third,
        {
            "a": whole["a"][2:4],
            "layers": [{"b": whole["layers"][0]["b"][4:8]}],
            "step": whole["step"],
        },
    )


def test_a_rule_may_differ_by_name(spawn: Spawn) -> None:
    def rule(name: tuple[Any, ...]) -> Split | None:
        return {"columns": Split(1, 0, 2), "rows": Split(0, 0, 2)}.get(name[-1])

    parts = {"columns": np.ones((4, 2)), "rows": np.ones((2, 4)), "whole": np.ones(5)}
    shared = share_state({"layer": parts}, shards=rule)
    assert {name[-1]: entry.whole for name, entry in shared.entries.items()} == {
        "columns": (4, 4),
        "rows": (4, 4),
        "whole": (5,),
    }
    into = empty_like(shared, shards=rule)
    pull(shared, into, shards=rule).get()
    assert same(into, {"layer": parts})


@pytest.mark.parametrize(
    ("shards", "error", "text"),
    [
        (Split(0, 2, 2), ValueError, "rank 2 of 2"),
        (Split(-1, 0, 2), ValueError, "dimension"),
        (3, TypeError, "shards=3"),
        ({"v": Split(0, 0, 2)}, KeyError, "does not have"),
    ],
)
def test_a_rule_that_can_not_be_meant_is_refused(
    shards: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        share_state({"w": np.ones(4)}, shards=shards)


def test_an_empty_state_has_the_shape_and_types_of_the_shared_one() -> None:
    shared = share_state(state())
    into = empty_like(shared)
    assert isinstance(into["layers"], list)
    pull(shared, into).get()
    assert same(into, state())
    assert into["step"].dtype == np.int64
    with pytest.raises(TypeError, match="Split"):
        empty_like(shared, shards={"step": Shard((), ())})
    with pytest.raises(ValueError, match="evenly"):
        empty_like(shared, shards={("layers", 1, "bias"): Split(0, 0, 2)})


# versions


class Writer(Actor):
    """Changes what it shares in place, all values at one time."""

    def __init__(self, size: int) -> None:
        self.state = {"a": np.zeros(size), "b": np.zeros(size)}
        self.shared = share_state(self.state, copy=False)

    @endpoint
    def share(self) -> SharedState:
        return self.shared

    @endpoint
    def write(self, values: range) -> None:
        for value in values:
            with self.shared.writing():
                for array in self.state.values():
                    array[:] = value

    @endpoint
    def fail_to_write(self) -> None:
        with self.shared.writing():
            self.state["a"][:] = -1
            raise OSError("the disk is full")


class Reader(Actor):
    @endpoint
    def read_until(
        self, shared: SharedState, last: int, started: Port[None]
    ) -> tuple[bool, list[int]]:
        """Whether every pull was of one version, and the versions."""
        into = empty_like(shared)
        whole, versions = True, list[int]()
        while not versions or into["b"][-1] != last:
            (version,) = pull(shared, into).get()
            assert version is not None
            if not versions:
                started.send(None)
            versions.append(version)
            whole &= len({*into["a"].tolist(), *into["b"].tolist()}) == 1
        return whole, versions


def test_what_is_pulled_while_the_owner_writes_is_of_one_version(spawn: Spawn) -> None:
    procs = spawn(2)
    writer = procs.slice(gpus=0).spawn("writer", Writer, 20_000)
    shared = writer.share.call_one().get()
    started, receiver = open_channel()
    reading = procs.slice(gpus=1).spawn("reader", Reader).read_until.call_one(shared, 400, started)
    receiver.recv().get()
    writer.write.call_one(range(1, 401)).get()
    whole, versions = reading.get()
    assert whole
    assert all(before <= after for before, after in pairwise(versions))
    assert versions[-1] == 400


def test_a_pull_tells_which_versions_it_got(spawn: Spawn) -> None:
    first, second = (share_state({name: np.zeros(3)}) for name in "ab")
    unused = share_state({"a": np.ones(3)})
    into = {"a": np.ones(3), "b": np.ones(3)}
    assert pull([first, second, unused], into).get() == (0, 0, None)
    first.update({"a": np.full(3, 5.0)}).get()
    push({"a": np.full(3, 6.0)}, first).get()
    assert pull([first, second, unused], into).get() == (2, 0, None)
    assert into["a"][0] == 6


def test_a_write_that_failed_is_told_to_readers_until_all_has_been_written_anew(
    spawn: Spawn,
) -> None:
    writer = spawn(1).spawn("writer", Writer, 10)
    shared = writer.share.call_one().get()
    with pytest.raises(Exception, match="the disk is full"):
        writer.fail_to_write.call_one().get()
    into = empty_like(shared)
    with pytest.raises(InconsistentStateError, match="write all of it anew"):
        pull(shared, into, timeout=600).get()
    pull(shared, into, consistent=False).get()
    assert into["a"][0] == -1
    assert into["b"][0] == 0
    push({"a": np.zeros(10)}, shared).get()  # not all of it
    with pytest.raises(InconsistentStateError):
        pull(shared, into).get()
    push({"a": np.ones(10), "b": np.ones(10)}, shared).get()
    assert pull(shared, into).get() == (3,)
    assert into["a"][0] == into["b"][0] == 1


def test_a_writer_that_takes_its_time_is_waited_for_as_long_as_was_said(spawn: Spawn) -> None:
    writer = spawn(1).spawn("writer", Writer, 10)
    shared = writer.share.call_one().get()
    into = empty_like(shared)
    with shared.writing():
        with pytest.raises(InconsistentStateError, match="begun and not ended, for 2s"):
            pull(shared, into, timeout=2.0).get()
        reading = pull(shared, into)
        assert not reading.done()
    assert reading.get() == (1,)


def test_parts_that_several_push_at_one_time_make_one_whole_in_the_end(spawn: Spawn) -> None:
    trainers = spawn(2).spawn("trainers", Trainer)
    generators = spawn(3).spawn("generators", Generator)
    targets = list(trainers.share_rows.call(2).get().values())
    for _ in range(3):
        generators.push_columns.call(targets, 3).get()
    into = {"matrix": np.zeros((ROWS, COLUMNS))}
    assert pull(targets, into).get() == (9, 9)
    assert (into["matrix"] == -whole_matrix()).all()


def test_whole_states_that_several_push_at_one_time_are_all_counted(spawn: Spawn) -> None:
    shared = spawn(1).spawn("writer", Writer, 50_000).share.call_one().get()
    values = [{"a": np.full(50_000, n), "b": np.full(50_000, n)} for n in map(float, range(8))]
    for pushed in [push(value, shared) for value in values]:
        pushed.get()
    assert pull(shared, empty_like(shared)).get() == (8,)


class OfADevice(Memory):
    """Has an address that says nothing here."""

    device = "cuda:0"

    def __init__(self) -> None:
        self.content = np.zeros(4, dtype=np.uint64)
        self.address, self.nbytes, self.readonly = (
            int(self.content.ctypes.data),
            self.content.nbytes,
            False,
        )

    def read(self, offset: int, nbytes: int) -> memoryview:
        return memoryview(self.content).cast("B")[offset : offset + nbytes]

    def write(self, offset: int, data: memoryview) -> None:
        self.read(offset, data.nbytes)[:] = data


def test_writes_are_counted_in_memory_of_the_cpu_only() -> None:
    memory = OfADevice()
    versions = Versions()
    versions.buffer = RDMABuffer.of_memory(memory)
    with pytest.raises(BufferAccessError, match="no versions of a state"):
        versions.begin().get()
    assert not memory.content.any()


def test_a_state_that_is_dropped_as_a_write_begins_lets_its_memory_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = share_state({"w": np.zeros(3)})
    kept = list[weakref.ref[Any]]()

    class DroppedBefore(Writes):
        def __init__(self, memory: Memory) -> None:
            kept.append(weakref.ref(self))
            shared.drop()
            super().__init__(memory)

    monkeypatch.setattr("monarch.rdma.plane.Writes", DroppedBefore)
    with pytest.raises(BufferDroppedError):
        push({"w": np.ones(3)}, shared).get()
    assert [writes() for writes in kept] == [None]
