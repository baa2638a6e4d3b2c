"""What NCCL is asked for, in which order and on which device, without a GPU.

Groups are torch's fake ones, which note each call; tensors are fakes on ``cuda``, or have no memory.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch._C._distributed_c10d import FakeProcessGroup
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers.each import for_each
from helpers.waiting import wait_until
from monarch.tensor_engine import devices
from monarch.tensor_engine.groups import groups
from monarch.tensor_engine.groups.gloo import TIMEOUT
from monarch.tensor_engine.groups.groups import Communication, Known, RankGroup
from monarch.tensor_engine.instructions import MOVE, Poison
from monarch.tensor_engine.worker import runner, worker_collectives
from monarch.tensor_engine.worker.torch_groups import TorchGroups
from monarch.tensor_engine.worker.worker_collectives import TensorLook


class Backend:
    """A group of torch's that moves nothing, and notes what it is asked for."""

    def __init__(self, size: int = 2) -> None:
        self.asked: list[str] = []
        self.tensors: list[Any] = []  # what it was to send, or to reduce
        self.options: list[Any] = []
        self.on_call: Callable[[], object] = lambda: None
        self._fake: Any = FakeProcessGroup._create_internal(0, size)

    def __getattr__(self, name: str) -> Any:
        call: Callable[..., Any] = getattr(self._fake, name)

        def ask(*arguments: Any) -> Any:
            self.on_call()
            self.asked.append(name)
            first = arguments[0][0] if arguments and isinstance(arguments[0], list) else None
            self.tensors.append(arguments[1] if first is None and arguments else first)
            self.options += [each for each in arguments if isinstance(each, dist.AllreduceOptions)]
            return call(*arguments)

        return ask


class Fetched:
    """Enough of a tensor on a GPU to be fetched."""

    is_cuda = True


class Group:
    """A group of torch, of which GPUs have this backend."""

    def __init__(self) -> None:
        self.backend = Backend()

    def _get_backend(self, device: object) -> Backend:
        return self.backend


OPS = {"sum": "SUM", "avg": "SUM", "product": "PRODUCT", "min": "MIN", "max": "MAX"}
REDUCED = {torch.float32, torch.bfloat16, torch.int64, torch.bool}
CASES = [
    (kind, dtype)
    for kind in ("stack", "sum", "avg", "product", "min", "max", "band", "bor", "bxor")
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.int16)
    # the others are refused when they are issued
    if not (kind in ("band", "bor", "bxor") and dtype.is_floating_point)
    and (kind, dtype) != ("avg", torch.bool)
]


@for_each("kind, dtype", CASES)
def test_a_reduction_is_one_call_on_the_gpu_of_the_tensor(kind: str, dtype: torch.dtype) -> None:
    backend = Backend(size=4)
    group: Any = SimpleNamespace(size=4, backend=lambda device: backend)
    with FakeTensorMode(allow_non_fake_inputs=True):
        data = torch.empty(3, 5, dtype=dtype, device="cuda:1")
        result = worker_collectives._reduce(group, data, kind, False, None)
    (moved,) = backend.tensors
    assert moved.device == result.device == torch.device("cuda:1")
    assert result.shape == ((4, 3, 5) if kind == "stack" else (3, 5))
    assert kind == "avg" or result.dtype == dtype
    if kind in OPS and dtype in REDUCED:
        assert backend.asked == ["allreduce"]
        assert backend.options[0].reduceOp == getattr(dist.ReduceOp, OPS[kind])
        assert (moved.shape, moved.dtype) == ((3, 5), dtype)
    else:  # NCCL has no reduction of bits, nor of that type; bytes are bytes to it
        assert backend.asked == ["_allgather_base"]
        assert (moved.shape, moved.dtype) == ((15 * dtype.itemsize,), torch.uint8)


@for_each("kind", ["stack", "sum", "max", "band"])
def test_what_is_scattered_is_one_exchange_of_bytes(kind: str) -> None:
    backend = Backend(size=4)
    group: Any = SimpleNamespace(size=4, backend=lambda device: backend)
    with FakeTensorMode(allow_non_fake_inputs=True):
        data = torch.empty(4, 6, dtype=torch.int32, device="cuda:1")
        result = worker_collectives._reduce(group, data, kind, True, None)
    assert backend.asked == ["alltoall_base"]
    assert backend.tensors[0].shape == (4 * 6 * 4,)
    assert result.shape == ((4, 6) if kind == "stack" else (6,))
    assert result.device == torch.device("cuda:1")


def test_complex_numbers_are_summed_as_pairs_and_multiplied_after_they_were_gathered() -> None:
    backend = Backend()
    group: Any = SimpleNamespace(size=2, backend=lambda device: backend)
    with FakeTensorMode(allow_non_fake_inputs=True):
        data = torch.empty(3, dtype=torch.complex64, device="cuda:1")
        for kind in ("sum", "avg", "product"):
            assert worker_collectives._reduce(group, data, kind, False, None).dtype == data.dtype
    assert backend.asked == ["allreduce", "allreduce", "_allgather_base"]
    assert [(each.dtype, tuple(each.shape)) for each in backend.tensors[:2]] == [
        (torch.float32, (3, 2))
    ] * 2


class Cpu(Backend):
    """The group of a pair on CPUs: the other's header says whether its tensor has failed."""

    def __init__(self, failed: bool) -> None:
        super().__init__()
        self._failed = failed

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        tensors[0].fill_(self._failed)
        return self.__getattr__("recv")(tensors, peer, tag)


class Pair:
    """A group of two, as one of them sees it."""

    def __init__(self, members: tuple[int, ...], rank: int, failed: Sequence[int]) -> None:
        self.index = members.index(rank)
        self.sent = self.received = 0
        self.cpu, self.gpu = Cpu(members[1 - self.index] in failed), Backend()
        self.left_words: list[str] = []

    def backend(self, device: torch.device) -> Backend:
        assert device.type != "cpu"
        return self.gpu

    def leave(self, key: str, poison: Poison) -> None:
        self.left_words.append(key)

    def left(self, key: str) -> Poison:
        return FAILED


FAILED = Poison(1, 0, "an operation", "")


def transferred(
    routes: dict[int, tuple[int, ...]],
    rank: int,
    failed: Sequence[int] = (),
    dtype: torch.dtype = torch.float32,
) -> tuple[dict[tuple[int, ...], Pair], Any]:
    """What one rank does in a transfer, by pair, in the order of their first calls; its result."""
    pairs: dict[tuple[int, ...], Pair] = {}
    called: dict[tuple[int, ...], Pair] = {}

    def of(meeting: object, members: tuple[int, ...]) -> Pair:
        pair = pairs.setdefault(members, Pair(members, rank, failed))
        pair.gpu.on_call = lambda: called.setdefault(members, pair)
        return pair

    known = SimpleNamespace(routes={7: ("a meeting", routes)})
    data = torch.empty(3, 2, device="meta", dtype=dtype).t()
    worker: Any = SimpleNamespace(
        rank=rank,
        slots={1: FAILED if rank in failed else data},
        communication=SimpleNamespace(known=known, of=of),
        poisoned=False,
        failed=lambda site, what, error: pytest.fail(repr(error)),
    )
    look = TensorLook((2, 3), dtype, torch.device("meta"))
    worker_collectives.transfer(worker, 0, 1, 2, look, 7)
    return called | pairs, worker.slots.get(2)


START, END = "_start_coalescing", "_end_coalescing"
MIRROR = {"send": "recv", "recv": "send"}


def steps(asked: list[str]) -> list[list[str]]:
    """The calls that NCCL gets: each one call, or the calls of a group, sorted."""
    result: list[list[str]] = []
    group: list[str] | None = None
    for what in asked:
        if what == START:
            assert group is None
            group = []
        elif what == END:
            assert group
            result.append(sorted(group))
            group = None
        elif group is None:
            result.append([what])
        else:
            group.append(what)
    assert group is None
    return result


@for_each("seed", range(60))
def test_each_send_meets_a_receive_in_the_order_of_its_communicator(seed: int) -> None:
    """As NCCL wants it: of one communicator, what one member does next the other does the mirror of."""
    chance, ranks = random.Random(seed), range(5)
    routes: dict[int, tuple[int, ...]] = defaultdict(tuple)
    if seed == 0:
        routes |= {0: (1,), 1: (0,)}  # a swap
    elif seed == 1:
        routes |= {rank: ((rank + 1) % 5,) for rank in ranks}
    else:
        for receiver in chance.sample(ranks, chance.randint(1, 5)):
            routes[chance.choice(ranks)] += (receiver,)
    failed = chance.sample(ranks, chance.randint(1, 3)) if seed >= 30 else []
    done = {rank: transferred(dict(routes), rank, failed)[0] for rank in ranks}
    met = 0
    for rank in ranks:
        # a communicator is made by its first call, which waits for the other member: so all ranks
        # go through them in one order
        made = [members for members, pair in done[rank].items() if pair.gpu.asked]
        assert made == sorted(made)
        for members, pair in done[rank].items():
            (peer,) = set(members) - {rank}
            others = done[peer][members]
            asked = steps(pair.gpu.asked)
            assert asked == [
                sorted(MIRROR[what] for what in step) for step in steps(others.gpu.asked)
            ]
            assert sorted(pair.cpu.asked) == sorted(MIRROR[what] for what in others.cpu.asked)
            met += sum(map(len, asked))
    wanted = [
        (sender, peer)
        for sender in routes
        for peer in routes[sender]
        if peer != sender and sender not in failed
    ]
    assert met == 2 * len(wanted)


@for_each("failed", [(), (0,), (1,), (0, 1)])
def test_a_swap_is_one_group_of_what_has_not_failed(failed: tuple[int, ...]) -> None:
    for rank in (0, 1):
        pairs, result = transferred({0: (1,), 1: (0,)}, rank, failed)
        pair = pairs[0, 1]
        assert (
            pair.gpu.asked
            == {
                (): [START, "send", "recv", END],
                (rank,): ["recv"],
                (1 - rank,): ["send"],
                (0, 1): [],
            }[failed]
        )
        assert pair.left_words == ([f"transfer/{rank}/1"] if rank in failed else [])
        assert (result is FAILED) == (1 - rank in failed)
        assert result is FAILED or result.shape == (2, 3)


def test_a_swap_that_fails_half_way_leaves_no_open_group_behind() -> None:
    pair = Pair((0, 1), 0, ())

    def refuse(*arguments: Any) -> None:
        raise RuntimeError("the communicator was aborted")

    gpu: Any = pair.gpu
    gpu.recv = refuse
    data = torch.empty(3, device="meta")
    group, look = cast(RankGroup, pair), TensorLook((3,), data.dtype, data.device)
    with pytest.raises(RuntimeError, match="was aborted"):
        worker_collectives._move(group, look, send=data, recv=data)
    assert pair.gpu.asked == [START, "send", END]


@for_each("dtype", [torch.int16, torch.complex64, torch.bool])
def test_what_is_moved_is_bytes_as_nccl_does_not_know_all_types(dtype: torch.dtype) -> None:
    for rank in (0, 1):
        pairs, result = transferred({0: (1,)}, rank, dtype=dtype)
        ((moved,),) = [pair.gpu.tensors for pair in pairs.values()]
        assert (moved.dtype, moved.shape) == (torch.uint8, (6 * dtype.itemsize,))
        assert rank == 0 or (result.dtype, result.shape) == (dtype, (2, 3))


def test_a_group_has_a_communicator_of_its_own_once_a_gpu_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []

    class Nccl(Backend):
        Options = SimpleNamespace

        def __init__(self, store: Any, index: int, size: int, options: Any) -> None:
            super().__init__(size)
            made.append((index, size, options._timeout))

    monkeypatch.setattr(dist, "ProcessGroupNCCL", Nccl, raising=False)
    group: Any = object.__new__(RankGroup)
    shut: list[str] = []
    group.cpu, group._gpu, group._store = object(), None, torch._C._distributed_c10d.HashStore()
    group.index, group.size = 1, 4
    group._connections = SimpleNamespace(shut_down=lambda: shut.append("connections"))
    assert group.backend(torch.device("cpu")) is group.cpu
    assert made == []
    communicator = group.backend(torch.device("cuda"))
    assert group.backend(torch.device("cuda:0")) is communicator
    assert made == [(1, 4, TIMEOUT)]
    group.break_off(TypeError("of all members alike"))
    assert (communicator.asked, shut) == ([], [])
    group.break_off(RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed by peer"))
    assert (communicator.asked, shut) == (["abort"], ["connections"])


class Kernel:
    """What is asked of a GPU: it is done when a rank has sent its part, or is aborted."""

    def __init__(self, store: Any, sent: bool = False) -> None:
        self.backend = Backend()
        self.sent = sent
        self.looks = 0
        group: Any = object.__new__(RankGroup)
        group._gpu, group._met, group.members = self.backend, store, (0, 1, 4)
        self.communication = Communication(0, "", Known())
        self.communication._groups[group.members, ""] = group

    def record(self) -> None:
        assert self.looks == 0

    def query(self) -> bool:
        self.looks += 1
        return self.sent or bool(self.backend.asked)


@pytest.mark.parametrize("ended", [4, 1])
def test_a_kernel_that_waits_for_a_rank_that_has_ended_is_aborted(
    monkeypatch: pytest.MonkeyPatch, ended: int
) -> None:
    store = torch._C._distributed_c10d.HashStore()
    kernel = Kernel(store)
    monkeypatch.setattr(torch.cuda, "Event", lambda: kernel)
    monkeypatch.setattr(groups, "_DOES_WITHOUT", 0.01)
    store.set(f"ended/{ended}", "")
    store.set("ended", "")
    waiting: Any = object.__new__(runner.Runner)
    waiting.communication, waiting.slots, waiting.rank = kernel.communication, {7: Fetched()}, 0
    with pytest.raises(RuntimeError, match=f"rank {ended} has ended, for which the GPU waits"):
        waiting.fetch((7,), wanted=0)
    assert kernel.backend.asked == ["abort"]
    assert kernel.looks > 1, "it may do without the rank"


@pytest.mark.parametrize("ended", [None, 2, 1])
def test_a_kernel_that_needs_no_rank_that_has_ended_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, ended: int | None
) -> None:
    store = torch._C._distributed_c10d.HashStore()
    kernel = Kernel(store)
    monkeypatch.setattr(torch.cuda, "Event", lambda: kernel)
    monkeypatch.setattr(groups, "_DOES_WITHOUT", 0.0 if ended == 2 else 600.0)
    if ended is not None:
        store.set(f"ended/{ended}", "")
        store.set("ended", "")
    waiting = threading.Thread(target=kernel.communication.await_gpu, daemon=True)
    waiting.start()
    wait_until(lambda: kernel.looks > 5, what="it looks")
    assert waiting.is_alive()
    kernel.sent = True
    waiting.join(60)
    assert not waiting.is_alive()
    assert kernel.backend.asked == []


def test_nothing_is_asked_of_a_gpu_without_a_communicator(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(None)
    next(iter(kernel.communication._groups.values()))._gpu = None
    monkeypatch.delattr(torch.cuda, "Event")
    kernel.communication.await_gpu()


def test_a_thread_is_on_its_gpu_before_it_moves_data(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    monkeypatch.setattr(devices, "enter", lambda: noted.append("on its gpu"))
    moves = {name: lambda *_, name=name: noted.append(name) for name in worker_collectives.MOVERS}
    monkeypatch.setattr(runner, "MOVERS", moves)
    stream: Any = object.__new__(runner.Runner)
    for name in moves:
        stream.control((MOVE, 0, name, ()))
    assert noted == [each for name in moves for each in ("on its gpu", name)]


def test_the_end_of_a_rank_aborts_the_communicators_that_it_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both, other = Group(), Group()
    world: Any = c10d._world
    monkeypatch.setitem(world.pg_group_ranks, both, {0: 0, 1: 1})
    monkeypatch.setitem(world.pg_group_ranks, other, {0: 0, 2: 1})
    of_torch = TorchGroups("an engine")
    of_torch._groups = {1: both, 2: other, 3: RuntimeError("it could not be made")}
    of_torch.note_end(1)
    assert both.backend.asked == ["abort"]
    assert other.backend.asked == []
