"""Memory of GPUs that processes open for each other, without a GPU: by the UUID, and closed again."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from monarch.rdma.errors import UnavailableError
from monarch.rdma.grants import registry
from monarch.rdma.memory import open_shared, share_with_process

torch: Any = pytest.importorskip("torch", reason="looks at what torch is asked for")


class OnGpu:
    """A tensor that says that it is on a GPU."""

    is_cuda = True

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)


def rebuilt(dtype: str, storage_device: int, storage_handle: bytes) -> tuple[Any, ...]:
    """Stands for torch's function, which has these parameters, and others."""
    return dtype, storage_device, storage_handle


def may_use(monkeypatch: pytest.MonkeyPatch, *uuids: str) -> None:
    """Which GPUs this process may use, in the order of their numbers."""

    def look(device: Any) -> Any:
        return SimpleNamespace(uuid=uuids[getattr(device, "index", device)])

    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(uuids))
    monkeypatch.setattr(torch.cuda, "get_device_properties", look)


def shared(monkeypatch: pytest.MonkeyPatch, device: str) -> bytes:
    """What the owner hands out, which may use three GPUs."""
    may_use(monkeypatch, "GPU-a", "GPU-b", "GPU-c")
    reductions: Any = importlib.import_module("torch.multiprocessing.reductions")
    monkeypatch.setattr(
        reductions, "reduce_tensor", lambda it: (rebuilt, ("uint8", it.device.index, b"handle"))
    )
    memory: Any = device_memory(device)
    return share_with_process(memory)


def device_memory(device: str) -> Any:
    from monarch.rdma.memory import DeviceMemory

    made = object.__new__(DeviceMemory)
    made.tensor, made.device = OnGpu(device), device
    return made


def test_the_gpu_is_found_by_its_uuid_whatever_its_number_is_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle = shared(monkeypatch, "cuda:2")
    may_use(monkeypatch, "GPU-c")
    assert open_shared(handle) == ("uint8", 0, b"handle")
    may_use(monkeypatch, "GPU-d", "GPU-a", "GPU-c")
    assert open_shared(handle) == ("uint8", 2, b"handle")


def test_a_gpu_that_this_process_may_not_use_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = shared(monkeypatch, "cuda:2")
    may_use(monkeypatch, "GPU-a")
    with pytest.raises(LookupError, match="GPU-c is none of the 1 that this process may use"):
        open_shared(handle)


def test_what_torch_can_not_share_has_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with an allocator without IPC handles, of expandable segments on an old kernel for one."""
    may_use(monkeypatch, "GPU-a")
    reductions: Any = importlib.import_module("torch.multiprocessing.reductions")

    def fail(tensor: Any) -> Any:
        raise RuntimeError("not supported")

    monkeypatch.setattr(reductions, "reduce_tensor", fail)
    with pytest.raises(UnavailableError, match="torch can't share it: RuntimeError: not supported"):
        share_with_process(device_memory("cuda:0"))


@pytest.mark.parametrize("device", ["cuda:1", "cpu"])
def test_the_end_of_a_buffer_frees_what_others_have_closed(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    noted: list[Any] = []
    region: Any = SimpleNamespace(
        info=SimpleNamespace(id=7, device=device),
        memory="the memory",
        released=SimpleNamespace(resolve=lambda _: noted.append("released")),
    )
    monkeypatch.setattr(
        torch.cuda, "ipc_collect", lambda: noted.append(("collected", region.memory))
    )
    owner: Any = registry.Registry(SimpleNamespace())
    owner._free(region)
    assert noted == ([("collected", None)] if device != "cpu" else []) + ["released"]
