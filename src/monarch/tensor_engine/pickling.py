"""How torch's tensors travel in messages: the memory of a storage goes out of band, as it is.

torch's own pickling writes each storage with `torch.save` into bytes inside the pickle: copy after
copy of the data, and tensors that shared a storage no longer do. Here a storage is reduced to a
protocol-5 buffer over its memory, and the receiver's storage is built on top of the memory that
arrived. So the only copies are those of the message itself:

    ======================================  =========================================================
    on one host, 256 KiB or more            one, into the shared-memory segment, for all receivers
    on one host, less                       through the socket
    from a GPU                              one more before that, to the memory of the host
    ======================================  =========================================================

What arrives is on the CPU, writable and the receiver's own; it keeps the message's memory alive. A
storage travels whole and once per message, so views of one storage are views of one storage at the
receiver: send ``big[0].clone()`` where the rest of `big` shall stay at home. What differs from a
tensor made in place: its storage can't be resized (nor can that of `torch.from_numpy`), only
copied.

All of it hangs on storages: torch's reducers describe every kind of tensor (quantized, sparse,
nested, conjugated, subclasses) by way of storages, so they all come along. Plain strided tensors
and Parameters have a shorter way here, for its speed. As in torch's own pickling, the history of a
tensor stays behind: what required a gradient arrives as a leaf that does.
"""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

import torch
from torch.nn import Parameter

from .._core.plane import OUT_OF_BAND_SIZE, Reducer

_ALIGNMENT = 16  # of the largest dtype, and of what malloc gives
_WITH_STORAGE = frozenset({"cpu", "cuda", "xpu", "mps"})
_SPARSE = frozenset(
    {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
)

_here: Any = torch._C._DisableTorchDispatch
"""In such a block operations make tensors of this process, even while a mesh is active."""

# Storages are `Any` where their methods are called: torch has no types for most of those.


def _reduce_untyped_storage(storage: Any) -> Any:
    size = storage.nbytes()
    if not size:
        return torch.UntypedStorage, (0,)
    if storage.device.type == "meta":
        return NotImplemented
    storage = storage.cpu()
    address = storage.data_ptr()
    if not address:
        raise pickle.PicklingError(
            f"a torch storage of {size} bytes has no memory behind it, so its tensors can't be"
            " sent; was it made by a fake or functional tensor?"
        )
    if size < OUT_OF_BAND_SIZE:
        return _rebuild_untyped_storage, (bytearray(ctypes.string_at(address, size)),)
    memory: Any = (ctypes.c_ubyte * size).from_address(address)
    memory.owner = storage  # a copy from a GPU has no other
    return _rebuild_untyped_storage, (pickle.PickleBuffer(memory),)


def _rebuild_untyped_storage(memory: bytearray | memoryview) -> torch.UntypedStorage:
    with _here():
        data = torch.frombuffer(memory, dtype=torch.uint8)
        if data.data_ptr() % _ALIGNMENT:  # a buffer starts anywhere inside of its frame
            data = data.clone()
        return data.untyped_storage()


def _reduce_typed_storage(storage: torch.TypedStorage) -> Any:
    return _rebuild_typed_storage, (storage._untyped_storage, storage.dtype)


def _rebuild_typed_storage(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    make: Any = torch.TypedStorage
    # else it warns: deprecated
    typed: torch.TypedStorage = make(wrap_storage=storage, dtype=dtype, _internal=True)
    return typed


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    if _is_plain(tensor):
        return _rebuild_tensor, _parts(tensor)
    if tensor.layout in _SPARSE and not tensor.__dict__:
        return _reduce_sparse(tensor)
    return NotImplemented


def _reduce_parameter(parameter: Parameter) -> Any:
    return (_rebuild_parameter, _parts(parameter)) if _is_plain(parameter) else NotImplemented


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether storage, type and geometry describe the tensor fully.

    If not, torch pickles it.
    """
    return (
        tensor.layout is torch.strided
        and tensor.device.type in _WITH_STORAGE
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor._backward_hooks
        and not tensor.__dict__
    )


def _parts(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        tensor.untyped_storage(), tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(),
        tensor.requires_grad,
    )  # fmt: skip


def _rebuild_tensor(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
) -> torch.Tensor:
    with _here():
        tensor = torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, size, stride)
        return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_parameter(*parts: Any) -> Parameter:
    tensor = _rebuild_tensor(*parts)
    return Parameter(tensor, tensor.requires_grad)


def _reduce_sparse(tensor: torch.Tensor) -> Any:
    """Rebuild without torch's own way, which keeps each in a list until the next `torch.load`."""
    with _here():
        return _sparse_parts(tensor.detach(), tensor.requires_grad)


def _sparse_parts(tensor: torch.Tensor, requires_grad: bool) -> Any:
    size = tuple(tensor.shape)
    if tensor.layout is torch.sparse_coo:
        parts = tensor._indices(), tensor._values()
        return _rebuild_coo, (*parts, size, tensor.is_coalesced(), requires_grad)
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        indices = tensor.crow_indices(), tensor.col_indices()
    else:
        indices = tensor.ccol_indices(), tensor.row_indices()
    return _rebuild_compressed, (*indices, tensor.values(), size, tensor.layout, requires_grad)


def _rebuild_coo(
    indices: torch.Tensor,
    values: torch.Tensor,
    size: tuple[int, ...],
    is_coalesced: bool,
    requires_grad: bool,
) -> torch.Tensor:
    with _here():
        return torch.sparse_coo_tensor(
            indices, values, size, requires_grad=requires_grad, check_invariants=False,
            is_coalesced=is_coalesced,
        )  # fmt: skip


def _rebuild_compressed(
    compressed: torch.Tensor,
    plain: torch.Tensor,
    values: torch.Tensor,
    size: tuple[int, ...],
    layout: torch.layout,
    requires_grad: bool,
) -> torch.Tensor:
    with _here():
        return torch.sparse_compressed_tensor(
            compressed, plain, values, size, layout=layout, requires_grad=requires_grad,
            check_invariants=False,
        )  # fmt: skip


REDUCERS: dict[type, Reducer] = {
    torch.Tensor: _reduce_tensor,
    Parameter: _reduce_parameter,
    torch.UntypedStorage: _reduce_untyped_storage,
    torch.TypedStorage: _reduce_typed_storage,
}
"""At the point `reducers`: exactly these types.

Subclasses go torch's own way, and their storages come by here.
"""
