"""Monarch: one Python script controls a whole cluster.

Start with `monarch.actor`. This package itself only re-exports a few names, on first use, so that
importing it is free.

Layers, lowest first; imports point downwards only: `errors`, `config` and the private helpers beside
them, which all may import; the engine `_core`; the public face `actor`; the planes and tools built
on it. The docstring of each package says what lives there, what to read first, and what it imports.

PYTEST_DONT_REWRITE: this package has a plugin of pytest's, which would complain where a program
imports both.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _guests, _public, compat
from ._public import RELEASE

if TYPE_CHECKING:
    from . import builtins as builtins
    from . import timer as timer
    from ._core.shape import Extent as Extent
    from ._core.shape import NDSlice as NDSlice
    from ._core.shape import Shape as Shape
    from ._selection import Selection as Selection
    from .actor import Future as Future
    from .config import clear_runtime_config as clear_runtime_config
    from .config import configure as configure
    from .config import configured as configured
    from .config import get_global_config as get_global_config
    from .config import get_runtime_config as get_runtime_config
    from .notebook import mast_reserve as mast_reserve
    from .python_local_mesh import world_mesh as world_mesh
    from .simulator import Simulator as Simulator
    from .simulator import set_meta as set_meta
    from .tensor_engine import DeviceMesh as DeviceMesh
    from .tensor_engine import OpaqueRef as OpaqueRef
    from .tensor_engine import RemoteProcessGroup as RemoteProcessGroup
    from .tensor_engine import Stream as Stream
    from .tensor_engine import Tensor as Tensor
    from .tensor_engine import call_on_shard_and_fetch as call_on_shard_and_fetch
    from .tensor_engine import coalescing as coalescing
    from .tensor_engine import fetch_shard as fetch_shard
    from .tensor_engine import function_resolvers as function_resolvers
    from .tensor_engine import get_active_mesh as get_active_mesh
    from .tensor_engine import get_active_stream as get_active_stream
    from .tensor_engine import grad_function as grad_function
    from .tensor_engine import grad_generator as grad_generator
    from .tensor_engine import inspect as inspect
    from .tensor_engine import no_mesh as no_mesh
    from .tensor_engine import reduce as reduce
    from .tensor_engine import reduce_ as reduce_
    from .tensor_engine import remote as remote
    from .tensor_engine import show as show
    from .tensor_engine import slice_mesh as slice_mesh
    from .tensor_engine import to_mesh as to_mesh

    ActorFuture = Future

__version__ = RELEASE

_LAZY = {
    "ActorFuture": ".actor:Future",
    "Extent": ".actor",
    "Future": ".actor",
    "NDSlice": "._core.shape",
    "Selection": "._selection",
    "Shape": "._core.shape",
    "Simulator": ".simulator",
    "clear_runtime_config": ".config",
    "configure": ".config",
    "configured": ".config",
    "get_global_config": ".config",
    "get_runtime_config": ".config",
    "mast_reserve": ".notebook",
    "set_meta": ".simulator",
    "world_mesh": ".python_local_mesh",
}
"""Where names are found, and what they are called there if it is something else."""
_OF_THE_ENGINE = frozenset({"NDSlice", "Selection", "Shape"})
"""Those that no other public module exports."""
_TENSOR_ENGINE = frozenset(
    {"DeviceMesh", "Tensor", "fetch_shard", "get_active_mesh", "inspect", "no_mesh", "show"}
    | {"reduce", "reduce_", "slice_mesh", "to_mesh", "Stream", "get_active_stream"}
    | {
        "call_on_shard_and_fetch",
        "coalescing",
        "function_resolvers",
        "OpaqueRef",
        "RemoteProcessGroup",
        "grad_function",
        "grad_generator",
        "remote",
    }
)
"""Names of `monarch.tensor_engine`, which needs torch."""
_MODULES_WITH_TORCH = frozenset({"builtins", "timer"})
_WITH_TORCH = _TENSOR_ENGINE | _MODULES_WITH_TORCH | {"Simulator", "set_meta", "world_mesh"}
_TO_COME = frozenset({"Module"})

compat.install()
_guests.install()


class _NotYet(AttributeError, NotImplementedError):
    """A name of Monarch for a feature that does not exist here yet."""


def __getattr__(name: str) -> Any:
    place = _LAZY.get(name)
    if place is not None:
        module, _, original = place.partition(":")
        source = import_module(module, __name__)
        _public.publish(__name__, vars(source), _OF_THE_ENGINE & {name})
        return getattr(source, original or name)
    if name in _TENSOR_ENGINE:
        return getattr(import_module(".tensor_engine", __name__), name)
    if name in _MODULES_WITH_TORCH:
        return import_module(f".{name}", __name__)
    # what `from monarch import *` asks for; nothing that needs torch where there is none
    if name == "__all__":
        from importlib.util import find_spec

        return sorted(
            _LAZY.keys() - _WITH_TORCH if find_spec("torch") is None else _LAZY.keys() | _WITH_TORCH
        )
    if name in _TO_COME:
        raise _NotYet(
            f"monarch.{name} is part of the distributed tensors that this version does not have yet"
        )
    raise AttributeError(f"module 'monarch' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext monarch``, in a notebook: `monarch.jupyter.magics`."""
    import_module(".jupyter.magics", __name__).load(shell)


def __dir__() -> list[str]:
    return sorted(globals().keys() | _LAZY.keys() | _WITH_TORCH)
