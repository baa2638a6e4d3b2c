"""`Meta`: the shape, strides, dtype and device of a tensor, found by running on fake tensors.

It is all that a controller knows of its tensors; `tensor`, `plans` and `propagation` use it, and so
does the simulator. There is one `Meta` for each combination, so that comparing two is comparing
identities. Running on fakes takes some 100 µs; `plans` does it once per kind of operation.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_impls import op_implementations_dict
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from ..instructions import Layout
from . import settings, without_dynamo

_lock = threading.RLock()  # fakes are not made for several threads
_metas: weakref.WeakValueDictionary[tuple[Any, ...], Meta] = weakref.WeakValueDictionary()
_INSTEAD = (
    "its result depends on values, which only the workers have. Fetch them with"
    " monarch.inspect(tensor) or fetch_shard(tensor).get(), or do this in a remote function"
)

_READING = "item(), float(), bool(), `if`, numpy() and the like, of a distributed tensor"


class Meta:
    """The metadata of a tensor, without its values.

    Made by `interned` only: equal ones are identical.
    """

    __slots__ = ("__weakref__", "device", "dtype", "offset", "shape", "stride")

    def __init__(
        self,
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        offset: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.shape, self.stride, self.offset = shape, stride, offset
        self.dtype, self.device = dtype, device
        if device.type != "cpu":
            settings.read_all()

    @property
    def geometry(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """The geometry: equal for views of the same memory that read it in the same way."""
        return self.shape, self.stride, self.offset

    def fake(self) -> Any:
        """A fake tensor like this, with a storage of its own; within `faking`."""
        if not self.offset:
            return torch.empty_strided(
                self.shape, self.stride, dtype=self.dtype, device=self.device
            )
        reach = Layout(*self.geometry, self.dtype).reach
        base = torch.empty(reach, dtype=self.dtype, device=self.device)
        return base.as_strided(self.shape, self.stride, self.offset)


def meta_of(tensor: torch.Tensor) -> Meta:
    """Raises NotImplementedError: it is not strided."""
    if tensor.layout is not torch.strided:
        raise NotImplementedError(
            f"distributed tensors are strided, this would be {tensor.layout}. Use dense ones, or a"
            " remote function that makes and uses it"
        )
    return interned(
        (tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device)
    )


def contiguous(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Meta:
    """The metadata of a contiguous tensor."""
    stride, step = [], 1
    for length in reversed(shape):
        stride.append(step)
        step *= max(length, 1)
    return interned((tuple(shape), tuple(reversed(stride)), 0, dtype, device))


def interned(key: Any) -> Meta:
    """The metadata with these attributes: shape, stride, offset, dtype, device."""
    meta = _metas.get(key)
    return meta if meta is not None else _metas.setdefault(key, Meta(*key))


without_dynamo.install()
# torch has no form of it for fakes
op_implementations_dict[torch.ops.aten._pin_memory.default] = lambda mode, func, tensor, *_, **__: (
    meta_of(tensor).fake()
)
_mode = FakeTensorMode()
_torch_logger = logging.getLogger("torch._subclasses.fake_tensor")


def _is_not_ours(record: logging.LogRecord) -> bool:
    """A filter that lets torch log shape errors, but not those on fake tensors.

    It logs each, with its traceback, although it raises it as well.
    """
    return not _faking.on


class _Faking(threading.local):
    on = False


_faking = _Faking()
_torch_fakes: Any = fake_tensor
_start_gpu: Any = getattr(_torch_fakes, "init_gpu_context", None)
# some releases of torch make a tensor on a GPU before the first fake of one
_torch_fakes.init_gpu_context = lambda device: None if _faking.on else _start_gpu(device)
_torch_logger.addFilter(_is_not_ours)


@contextmanager
def faking() -> Iterator[None]:
    """A context in which operations make fakes.

    Errors that only say that values are missing say what to do instead.
    """
    with _lock:
        try:
            with _mode:
                _faking.on = True
                yield
        except DataDependentOutputException as error:
            raise ValueNotHereError(error.func) from None
        except DynamicOutputShapeException as error:
            raise ShapeNotHereError(error.func) from None
        except UnsupportedOperatorException as error:
            raise NotImplementedError(
                f"{error.func}: what it makes can't be known here, as torch has no form of it for"
                " fake tensors. Call it in a remote function"
            ) from None
        finally:
            _faking.on = False


def is_faking() -> bool:
    """Return whether this thread is in `faking`."""
    return _faking.on


class ValueNotHereError(DataDependentOutputException):
    """A value was asked of a distributed tensor; its values are on the workers."""

    def __str__(self) -> str:
        reads = self.func is torch.ops.aten._local_scalar_dense.default
        return f"{_READING if reads else self.func}: {_INSTEAD}"


class ShapeNotHereError(DynamicOutputShapeException):
    """The shape of a result depends on values, which are on the workers."""

    def __str__(self) -> str:
        return f"{self.func}: {_INSTEAD}"


def storage_of(fake: Any) -> int:
    """Equal for fakes that share memory."""
    return int(fake.untyped_storage()._cdata)


__all__ = ["FakeTensor", "Meta", "faking", "meta_of", "storage_of"]
