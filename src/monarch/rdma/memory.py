"""Memory that a program hands in: where it lies, how much it is, and whether it may be written.

Two kinds. `HostMemory` has an address; `DeviceMemory` is known to torch only, which copies it.
Each keeps the memory alive, and where Python can resize it (a `bytearray`), keeps it from being
resized.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import pickle
import sys
from abc import ABC, abstractmethod
from typing import Any

from .errors import NotMemoryError, UnavailableError

_ACCEPTED = "a contiguous buffer (bytearray, memoryview, array, numpy array) or torch tensor"


class Memory(ABC):
    """A range of bytes that does not move.

    Attributes:
        address: Of the first byte, on its device.
    """

    address: int
    nbytes: int
    readonly: bool
    device: str

    @abstractmethod
    def read(self, offset: int, nbytes: int) -> memoryview:
        """Read bytes: the memory itself where it is the host's, else a copy."""

    @abstractmethod
    def write(self, offset: int, data: memoryview) -> None:
        """Set the bytes from `offset` on."""


class HostMemory(Memory):
    """Memory of the host.

    Args:
        keep: What keeps the memory alive.
    """

    __slots__ = ("_keep", "address", "nbytes", "readonly")
    device = "cpu"

    def __init__(self, address: int, nbytes: int, readonly: bool, keep: Any) -> None:
        self.address = address
        self.nbytes = nbytes
        self.readonly = readonly
        self._keep = keep

    def read(self, offset: int, nbytes: int) -> memoryview:
        array: Any = (ctypes.c_ubyte * nbytes).from_address(self.address + offset)
        # the view may outlive its asker: it can be queued in a connection
        array.owner = self
        return memoryview(array).cast("B")

    def write(self, offset: int, data: memoryview) -> None:
        self.read(offset, data.nbytes)[:] = data


class DeviceMemory(Memory):
    """Memory of a GPU.

    Args:
        tensor: A flat tensor of bytes.
    """

    __slots__ = ("address", "device", "nbytes", "readonly", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.address = int(tensor.data_ptr())
        self.nbytes = int(tensor.numel())
        self.readonly = False
        self.device = str(tensor.device)

    def read(self, offset: int, nbytes: int) -> memoryview:
        copy = self.tensor[offset : offset + nbytes].cpu()
        return HostMemory(copy.data_ptr(), nbytes, False, copy).read(0, nbytes)

    def write(self, offset: int, data: memoryview) -> None:
        self.tensor[offset : offset + data.nbytes].copy_(_tensor_over(data))
        synchronize(self.tensor)


def as_tensor(memory: Memory, start: int, nbytes: int) -> Any:
    """A part of a memory as a tensor of bytes, not copied."""
    if isinstance(memory, DeviceMemory):
        return memory.tensor[start : start + nbytes]
    return _tensor_over(memory.read(start, nbytes))


def _tensor_over(data: memoryview) -> Any:
    torch = sys.modules["torch"]  # who has a tensor has imported it
    return torch.frombuffer(bytearray(data) if data.readonly else data, dtype=torch.uint8)


def synchronize(tensor: Any) -> None:
    """Wait until the work that this thread queued on the tensor's device is done."""
    if tensor.is_cuda:
        sys.modules["torch"].cuda.current_stream(tensor.device).synchronize()


def share_with_process(memory: Memory) -> bytes:
    """Return a pickle of the GPU's UUID, and of torch's CUDA IPC handle.

    One other process can `open_shared` the memory by it.

    Raises:
        UnavailableError: It can't be opened elsewhere.
    """
    if not isinstance(memory, DeviceMemory) or not memory.tensor.is_cuda:
        raise UnavailableError(f"torch shares no memory of {memory.device}")
    reductions = importlib.import_module("torch.multiprocessing.reductions")
    try:
        return pickle.dumps((_uuid(memory.tensor.device), reductions.reduce_tensor(memory.tensor)))
    except Exception as error:  # an allocator or a device without IPC
        raise UnavailableError(f"torch can't share it: {type(error).__name__}: {error}") from None


def open_shared(shared: bytes) -> Any:
    """Open the memory of another process's GPU.

    Its owner and this process may number GPUs in different ways.

    Returns:
        The tensor.

    Raises:
        LookupError: This process may not use that GPU.
        Exception: What torch raises.
    """
    uuid, (rebuild, arguments) = pickle.loads(shared)
    count: int = sys.modules["torch"].cuda.device_count()
    found = [number for number in range(count) if _uuid(number) == uuid]
    if not found:
        raise LookupError(f"GPU {uuid} is none of the {count} that this process may use")
    return rebuild(
        **inspect.signature(rebuild).bind(*arguments).arguments | {"storage_device": found[0]}
    )


def _uuid(device: Any) -> str:
    return str(sys.modules["torch"].cuda.get_device_properties(device).uuid)


def memory_of(data: Any, use: str) -> Memory:
    """The memory behind `data`, which is not copied.

    Args:
        data: An object with the buffer protocol, a numpy array, or a tensor.
        use: What it is for, in errors: ``"RDMABuffer(data)"``.

    Raises:
        TypeError, ValueError: It is not memory, not contiguous, or empty.
    """
    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(data, torch.Tensor)
    memory = _of_tensor(torch, data, use) if is_tensor else _of_buffer(data, use)
    if not memory.nbytes:
        raise ValueError(f"{use}: the memory is empty; expected at least one byte")
    return memory


def _of_buffer(data: Any, use: str) -> HostMemory:
    try:
        view = memoryview(data)
    except TypeError:
        raise NotMemoryError(f"{use}: got {type(data).__name__}, expected {_ACCEPTED}") from None
    except (ValueError, BufferError):
        # a type of numbers that the buffer protocol has no letter for
        return _of_array(data, use)
    if "O" in view.format:
        raise NotMemoryError(
            f"{use}: an array of Python objects holds pointers, which mean nothing elsewhere"
        )
    if not view.c_contiguous:
        _refuse_strided(data, view.shape, view.strides, use, ".copy()")
    return HostMemory(_address(view), view.nbytes, view.readonly, view)


def _of_array(data: Any, use: str) -> HostMemory:
    """An array of a type that Python's buffer protocol lacks, such as numpy's ``datetime64``."""
    interface = getattr(data, "__array_interface__", None)
    if interface is None or "O" in interface["typestr"]:
        raise NotMemoryError(
            f"{use}: got {type(data).__name__} without usable memory, expected {_ACCEPTED}"
        )
    if interface.get("strides") is not None:
        _refuse_strided(data, interface["shape"], interface["strides"], use, ".copy()")
    address, readonly = interface["data"]
    return HostMemory(address, int(data.nbytes), readonly, data)


def _of_tensor(torch: Any, tensor: Any, use: str) -> Memory:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise NotMemoryError(
            f"{use}: got a tensor of layout {tensor.layout}, expected a plain, dense one"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(
            f"{use}: this view is conjugated or negated only when it is read: use"
            " tensor.resolve_conj().resolve_neg()"
        )
    if not tensor.is_contiguous():
        _refuse_strided(tensor, tuple(tensor.shape), tensor.stride(), use, ".contiguous()")
    nbytes = tensor.numel() * tensor.element_size()
    if nbytes and not tensor.data_ptr():
        raise NotMemoryError(
            f"{use}: the tensor has no memory behind it (meta, fake or functional)"
        )
    storage = tensor.untyped_storage()  # not the tensor: its storage can be exchanged
    if tensor.device.type == "cpu":
        return HostMemory(tensor.data_ptr(), nbytes, False, storage)
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return DeviceMemory(
        flat.set_(storage, tensor.storage_offset() * tensor.element_size(), (nbytes,), (1,))
    )


def _refuse_strided(data: Any, shape: Any, strides: Any, use: str, fix: str) -> None:
    raise ValueError(
        f"{use}: got a {type(data).__name__} of shape {tuple(shape)} with strides {tuple(strides)},"
        " which only supports contiguous memory. Copy it first, and keep the copy: data ="
        f" data{fix}"
    )


class _PyBuffer(ctypes.Structure):
    """The structure filled by `PyObject_GetBuffer`: see the C API, ``Py_buffer``."""

    _fields_ = (
        ("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    )  # fmt: skip


_SIMPLE = 0


def _address(view: memoryview) -> int:
    """The address of a view's bytes.

    `ctypes` tells that of writable memory only, the C API of any.
    """
    buffer = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), _SIMPLE)
    try:
        return int(buffer.buf or 0)
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
