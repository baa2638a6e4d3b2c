"""Large arguments: a torch tensor, a numpy array or a bytearray of so many MiB.

The runner picks the best type that *both* environments have, so that they always move the same object.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

PAGE = 4096
FILL = 1


def make(kind: str, mib: int) -> Any:
    """A payload of `mib` MiB, every byte 1."""
    size = mib << 20
    if kind == "torch":
        torch = import_module("torch")
        return torch.full((size,), FILL, dtype=torch.uint8)
    if kind == "numpy":
        numpy = import_module("numpy")
        return numpy.full(size, FILL, dtype=numpy.uint8)
    return bytearray([FILL]) * size


def touch(payload: Any) -> int:
    """Read one byte of each page and return their sum.

    A receiver that maps memory and never looks at it has not received anything yet; this makes it pay.
    """
    pages = payload[::PAGE]
    return sum(pages) if isinstance(pages, bytes | bytearray) else int(pages.sum())


def check(payload: Any, mib: int) -> None:
    """Fail unless every page of `payload` arrived."""
    got, wanted = touch(payload), (mib << 20) // PAGE * FILL
    if got != wanted or len(payload) != mib << 20:
        raise AssertionError(f"payload of {mib} MiB came back wrong: length {len(payload)}, sum {got}, wanted {wanted}")
