"""Flags of torch that are a process's, and change what an operation computes.

Those of the controller hold for what it issues: a template says which of them were not as torch has
them when it starts, and a rank sets those while it runs the operation, and takes them back after.
So what an endpoint or a function has set on a rank holds there for all that the controller left
alone, and neither recordings nor streams have to know that a flag was changed in between.

What only a GPU reads is looked at once a tensor of one was seen: reading a flag costs 20 to 160 ns,
for each operation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

Settings = tuple[tuple[str, Any], ...]
"""Names and values of the flags that are not as torch has them when it starts."""


class Flag(NamedTuple):
    """One flag: what it is when torch starts, and the functions that read and set it."""

    default: Any
    get: Callable[[], Any]
    set: Callable[[Any], object]


def _put_deterministic(on: bool) -> None:
    _set_deterministic(on, warn_only=_get_warn_only())


def _put_warn_only(on: bool) -> None:
    _set_deterministic(_get_deterministic(), warn_only=on)


def _flags(*table: tuple[str, Any, str, str]) -> dict[str, Flag]:
    """Those of a table that this version of torch has: name, default, what is after _get_, _set_."""
    found = {}
    for name, default, getter, setter in table:
        get = getattr(torch._C, f"_get_{getter}", None)
        put = getattr(torch._C, f"_set_{setter}", None)
        if get is not None and put is not None:
            found[name] = Flag(default, get, put)
            if type(get()) is tuple:  # of newer versions: whether to, and whether in parts
                found[name] = Flag((default, True), get, partial(_put_all, put))
    return found


def _put_all(put: Callable[..., object], values: tuple[Any, ...]) -> None:
    put(*values)


def _precisions(**defaults: str) -> dict[str, Flag]:
    """What float32 is computed in, by backend and operation.

    All other ways of torch to say so, old and new, end in these.
    """
    if not hasattr(torch._C, "_get_fp32_precision_getter"):  # before torch 2.9
        return {}
    get, put = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
    return {
        name: Flag(default, partial(get, *name.split("_")), partial(put, *name.split("_")))
        for name, default in defaults.items()
    }


_set_deterministic = torch._C._set_deterministic_algorithms
_get_deterministic = torch._C._get_deterministic_algorithms
_get_warn_only = torch._C._get_deterministic_algorithms_warn_only
_ANYWHERE = {
    "default_dtype": Flag(torch.float32, torch.get_default_dtype, torch._C._set_default_dtype),
    "deterministic": Flag(False, _get_deterministic, _put_deterministic),
    "deterministic_warn_only": Flag(False, _get_warn_only, _put_warn_only),
    **_flags(
        ("fill_uninitialized_memory", True, *["deterministic_fill_uninitialized_memory"] * 2),
        ("mkldnn_enabled", True, *["mkldnn_enabled"] * 2),
        ("mkldnn_deterministic", False, *["mkldnn_deterministic"] * 2),
        ("nnpack_enabled", True, *["nnpack_enabled"] * 2),
        ("cpu_fp16_reduction", False, *["cpu_allow_fp16_reduced_precision_reduction"] * 2),
    ),
    **(
        _precisions(mkldnn_matmul="none", mkldnn_conv="none", mkldnn_rnn="none")
        or _flags(("matmul_precision", "highest", *["float32_matmul_precision"] * 2))
    ),
}
_ON_GPUS = {
    **_flags(
        ("cudnn_enabled", True, *["cudnn_enabled"] * 2),
        ("cudnn_benchmark", False, *["cudnn_benchmark"] * 2),
        ("cudnn_deterministic", False, *["cudnn_deterministic"] * 2),
        ("fp16_reduction", True, *["cublas_allow_fp16_reduced_precision_reduction"] * 2),
        ("bf16_reduction", True, *["cublas_allow_bf16_reduced_precision_reduction"] * 2),
        ("fp16_accumulation", False, *["cublas_allow_fp16_accumulation"] * 2),
        ("flash_sdp", True, "flash_sdp_enabled", "sdp_use_flash"),
        ("mem_efficient_sdp", True, "mem_efficient_sdp_enabled", "sdp_use_mem_efficient"),
        ("math_sdp", True, "math_sdp_enabled", "sdp_use_math"),
        ("cudnn_sdp", True, "cudnn_sdp_enabled", "sdp_use_cudnn"),
        ("math_sdp_reduction", False, *["math_sdp_allow_fp16_bf16_reduction"] * 2),
    ),
    **(
        _precisions(cuda_matmul="none", cuda_conv="tf32", cuda_rnn="tf32")
        or _flags(("cudnn_tf32", True, *["cudnn_allow_tf32"] * 2))
    ),
}
FLAGS = _ANYWHERE | _ON_GPUS

_read = [flag.get for flag in _ANYWHERE.values()]
_last: tuple[list[Any], Settings] = ([], ())  # of one reading, for whatever thread comes next


def read_all() -> None:
    """From now on, read what only GPUs look at, too."""
    global _read
    _read = [flag.get for flag in FLAGS.values()]


def current() -> Settings:
    """Those of this process, now."""
    global _last
    values = [read() for read in _read]
    before, settings = _last
    if values != before:
        settings = tuple(
            [
                (name, value)
                for (name, flag), value in zip(FLAGS.items(), values, strict=False)
                if value != flag.default
            ]
        )
        _last = values, settings
    return settings


class Scope:
    """The settings of operations while they run, in one process.

    Operations of the same settings run side by side, on the threads of several streams; one of
    other settings waits until none of them runs.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._running = 0
        self._settings: Settings = ()
        self._before: list[tuple[Flag, Any]] = []

    def around(
        self, function: Callable[..., Any], settings: Settings, shared: bool = False
    ) -> Callable[..., Any]:
        """The same function, which runs with these settings.

        Args:
            function: An operation.
            settings: Its settings.
            shared: Whether the controller is in this process: what it did not set when it issued
                the operation may be set now.
        """
        held = {name: flag.default for name, flag in FLAGS.items()} if shared else {}
        held |= dict(settings)

        def scoped(*args: Any, **kwargs: Any) -> Any:
            self._enter(settings, held)
            try:
                return function(*args, **kwargs)
            finally:
                self._leave()

        return scoped

    def _enter(self, settings: Settings, held: dict[str, Any]) -> None:
        with self._free:
            while self._running and self._settings != settings:
                self._free.wait()
            if not self._running:
                self._settings = settings
                try:
                    for name, value in held.items():
                        self._set(FLAGS[name], value)
                except BaseException:
                    self._set_back()
                    raise
            self._running += 1

    def _leave(self) -> None:
        with self._free:
            self._running -= 1
            if not self._running:
                self._set_back()
                self._free.notify_all()

    def _set(self, flag: Flag, value: Any) -> None:
        before = flag.get()
        if before != value:
            flag.set(value)
            self._before.append((flag, before))

    def _set_back(self) -> None:
        while self._before:
            flag, before = self._before.pop()
            flag.set(before)


scope = Scope()
"""That of this process."""
