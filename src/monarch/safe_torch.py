"""Imports torch on a thread that ends at once.

It is for programs in which the main thread must not be the first to load it.

``from monarch.safe_torch import torch``. Where torch is loaded already, nothing happens.
"""

from __future__ import annotations

import importlib
import sys
import threading
from contextlib import suppress


def _load() -> None:
    with suppress(Exception):  # it is raised below, on the thread that wants it
        importlib.import_module("torch")


if "torch" not in sys.modules:
    _thread = threading.Thread(target=_load, name="import-torch")
    _thread.start()
    _thread.join()  # ends with the import

import torch  # noqa: E402  # loaded above

__all__ = ["torch"]
