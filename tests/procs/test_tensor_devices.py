"""GPUs of ranks, as instructions: which one each thread enters, and in which order it communicates."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from monarch import rdma
from monarch.rdma.grants import control_rpc
from monarch.tensor_engine import devices
from monarch.tensor_engine.instructions import Definition
from monarch.tensor_engine.worker import engine_transfer
from monarch.tensor_engine.worker.loans import Loan
from monarch.tensor_engine.worker.stream_rendezvous import Rendezvous
from monarch.tensor_engine.worker.templates import Template

pytestmark = pytest.mark.torch


class FakeCuda:
    """The part of ``torch.cuda`` that chooses devices, without a GPU."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.entered: list[tuple[str, int]] = []  # by which thread
        self.up = False
        self._queued: list[Any] = []

    def start(self) -> None:
        self.up = True
        for call in self._queued:
            call()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(torch.backends.cuda, "is_built", lambda: True)
        patch.setattr(torch.cuda, "is_initialized", lambda: self.up)
        patch.setattr(torch.cuda, "device_count", lambda: self.count)
        patch.setattr(torch.cuda, "_lazy_call", self._queued.append)
        patch.setattr(torch.cuda, "set_device", self._set)

    def _set(self, device: int) -> None:
        self.entered.append((threading.current_thread().name, device))


@pytest.fixture(autouse=True)
def _of_nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(devices, "_entered", devices._Entered())
    for name in devices._VISIBLE:
        monkeypatch.delenv(name, raising=False)
    yield
    devices.place(0, 1)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    cuda = FakeCuda(8)
    cuda.install(monkeypatch)
    return cuda


def on_thread(name: str, do: Any) -> None:
    thread = threading.Thread(target=do, name=name)
    thread.start()
    thread.join()


def test_each_thread_enters_the_gpu_of_its_rank_once_cuda_is_used(cuda: FakeCuda) -> None:
    devices.place(3, 8)
    devices.enter()
    devices.enter()
    assert cuda.entered == []  # a program of CPUs makes no context

    def second() -> None:
        devices.enter()
        cuda.start()
        devices.enter()

    on_thread("second", second)
    assert cuda.entered == [("second", 3)]
    devices.enter()
    devices.enter()
    on_thread("third", devices.enter)
    here = threading.current_thread().name
    assert cuda.entered == [("second", 3), (here, 3), ("third", 3)]


def test_an_operation_with_a_device_enters_it_before_it_runs(cuda: FakeCuda) -> None:
    devices.place(2, 4)
    cuda.start()

    def make(device: torch.device) -> list[tuple[str, int]]:
        return list(cuda.entered)

    def ran(device: str) -> list[tuple[str, int]]:
        args = [torch.device(device)]
        made: Any = Template(Definition("make", args, {}, ()), make).call([], ())
        return list(made)

    assert ran("cpu") == []
    assert [device for _, device in ran("cuda")] == [2]


def test_ranks_get_no_number_of_a_gpu_from_the_program() -> None:
    assert devices.of_rank(torch.device("cuda:5")) == torch.device("cuda")
    assert devices.of_rank(torch.device("cpu")) == torch.device("cpu")


def test_a_process_that_was_given_one_gpu_has_that_one(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda.count = 1
    cuda.start()
    devices.place(3, 8)
    for name, value in [
        ("CUDA_VISIBLE_DEVICES", "MIG-8"),
        ("HIP_VISIBLE_DEVICES", "5"),
        ("ROCR_VISIBLE_DEVICES", "5"),
    ]:
        monkeypatch.setattr(devices, "_entered", devices._Entered())
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            devices.enter()
    assert [device for _, device in cuda.entered] == [0, 0, 0]


@pytest.mark.parametrize("visible", ["", "0,1"])
def test_fewer_gpus_than_ranks_are_an_error(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    cuda.count = 2 if visible else 1
    cuda.start()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    devices.place(2, 4)
    with pytest.raises(RuntimeError, match=r"process 2 of 4 on this host has no GPU of its own"):
        devices.enter()


class OnGpu(torch.Tensor):
    """A tensor that says that it is on a GPU, and notes who uses its memory."""

    is_cuda = True
    device = torch.device("cuda:1")
    noted: Any = None

    def record_stream(self, stream: Any) -> None:
        self.noted.append(("memory is used by", stream))


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What GPUs are told; each thread has a stream, that of its name."""
    noted: list[Any] = []

    class Event:
        def record(self, stream: Any) -> None:
            noted.append(("recorded on", stream))

        def wait(self, stream: Any) -> None:
            noted.append(("waited for by", stream))

    class Entered:
        def __init__(self, device: torch.device) -> None:
            noted.append(("on", device))

        def __enter__(self) -> None: ...
        def __exit__(self, *raised: object) -> None: ...

    class Stream(str):
        def synchronize(self) -> None:
            noted.append(("synchronized", self))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", Entered)
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda device: Stream(threading.current_thread().name)
    )
    return noted


def on_gpu(noted: list[Any]) -> Any:
    value = torch.ones(1).as_subclass(OnGpu)
    value.noted = noted
    return value


def test_a_value_of_another_stream_is_waited_for_and_kept(noted: list[Any]) -> None:
    value, rendezvous = on_gpu(noted), Rendezvous()
    on_thread("origin", lambda: rendezvous.give(1, value))
    on_thread("borrower", lambda: rendezvous.take(1))
    assert noted == [
        ("on", torch.device("cuda:1")),
        ("recorded on", "origin"),
        ("waited for by", "borrower"),
        ("memory is used by", "borrower"),
    ]


def test_streams_wait_for_each_other_around_the_loan_to_an_actor(noted: list[Any]) -> None:
    lent, made, loan = on_gpu(noted), on_gpu(noted), Loan()
    on_thread("worker", lambda: loan.open(None, True, [lent, torch.ones(1), 3]))
    on_thread("actor", loan.wait_for_queue)
    there = [
        ("on", torch.device("cuda:1")),
        ("recorded on", "worker"),
        ("waited for by", "actor"),
        ("memory is used by", "actor"),
    ]
    assert noted == there
    noted.clear()
    on_thread("actor", lambda: loan._handled({"made": made, "more": [1]}, None))
    on_thread("worker", loan.wait_for_queue)
    recorded = [("on", torch.device("cuda:1")), ("recorded on", "actor")]
    waited = [("waited for by", "worker"), ("memory is used by", "worker")]
    assert noted == [*recorded * 2, *waited * 2]  # what was lent, and what came of it


def test_a_copy_is_there_before_another_engine_hears_of_it(
    noted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rdma, "RDMABuffer", lambda copy: noted.append("offered"))
    worker: Any = SimpleNamespace(
        uid="an engine",
        rank=0,
        slots={1: on_gpu(noted)},
        failed=lambda *_: pytest.fail("failed"),
        communication=SimpleNamespace(await_gpu=lambda: noted.append("looked for ends")),
    )
    engine_transfer.export(worker, 0, 1, 7, {0: 2})
    engine_transfer.offers().end("an engine")
    here = threading.current_thread().name
    assert noted == ["looked for ends", ("synchronized", here), "offered", "offered"]


def test_memory_is_free_before_another_engine_writes_to_it(
    noted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def done(what: str) -> Any:
        return SimpleNamespace(get=lambda: noted.append(what))

    offered = SimpleNamespace(
        read_into=lambda result, timeout: done("read"), drop=lambda: noted.append("dropped")
    )
    asked = SimpleNamespace(get=lambda: offered)
    monkeypatch.setattr(control_rpc, "ask", lambda *_: asked)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: on_gpu(noted))
    worker: Any = SimpleNamespace(
        rank=0,
        slots={},
        poisoned=False,
        failed=lambda *_: pytest.fail("failed"),
        communication=SimpleNamespace(await_gpu=lambda: noted.append("looked for ends")),
    )
    source = engine_transfer.ShardSource("an engine", 7, {0: None})  # type: ignore[dict-item]
    engine_transfer.import_(worker, 0, 1, (1,), torch.float32, "cuda", source)
    here = threading.current_thread().name
    assert noted == ["looked for ends", ("synchronized", here), "read", "dropped"]
