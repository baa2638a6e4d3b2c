"""Import paths of Monarch 0.7 that are private there and used by programs all the same.

One table: alias module, then where its names are found here. Nothing is imported before a program
asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

_SHAPE = "monarch._core.shape"
_ACTOR = "monarch.actor"
_JOB = "monarch.job"
_HOST_MESH = "monarch._core.mesh.host_mesh"
_RDMA = "monarch.rdma"
_TENSORS = "monarch.tensor_engine"

ALIASES: dict[str, Sequence[str]] = {
    "monarch._rust_bindings.monarch_hyperactor.channel": [_ACTOR, "monarch.actor.transports"],
    "monarch._rust_bindings.monarch_hyperactor.config": ["monarch.config"],
    "monarch._rust_bindings.monarch_hyperactor.handle": ["monarch._core.calls.future"],
    "monarch._rust_bindings.monarch_hyperactor.host_mesh": [_ACTOR],
    "monarch._rust_bindings.monarch_hyperactor.mailbox": ["monarch._core.actors.cell", _ACTOR],
    "monarch._rust_bindings.monarch_hyperactor.proc": [_ACTOR],
    "monarch._rust_bindings.monarch_hyperactor.pytokio": [_ACTOR],
    "monarch._rust_bindings.monarch_hyperactor.shape": [_SHAPE],
    "monarch._rust_bindings.monarch_hyperactor.supervision": [_ACTOR],
    "monarch._rust_bindings.rdma": [_RDMA],
    "monarch._src.actor.actor_mesh": [_ACTOR, "monarch._core.actors.context"],
    "monarch._src.actor.allocator": [_ACTOR],
    "monarch._src.actor.bootstrap": [_ACTOR],
    "monarch._src.actor.bootstrap_main": ["monarch._core.processes.proc"],
    "monarch._src.actor.endpoint": [_ACTOR],
    "monarch._src.actor.future": [_ACTOR],
    "monarch._src.actor.host_mesh": [_ACTOR],
    "monarch._src.actor.mock": [_ACTOR, "monarch.simulator.mocking"],
    "monarch._src.actor.proc_mesh": [_ACTOR, _HOST_MESH],
    "monarch._src.actor.shape": [_SHAPE],
    "monarch._src.job.job": [_JOB, "monarch.job.local"],
    "monarch._src.job.kubernetes": ["monarch.job.kubernetes"],
    "monarch._src.job.process": [_JOB],
    "monarch._src.job.service_identity": ["monarch.job.service_identity"],
    "monarch._src.job.spmd": ["monarch.job.spmd"],
    "monarch._src.rdma": [_RDMA],
    "monarch._src.rdma.rdma": [_RDMA],
    "monarch.actor_mesh": [_ACTOR, "monarch._core.actors.context"],
    "monarch.bootstrap_main": ["monarch._core.processes.proc"],
    "monarch.cached_remote_function": [_TENSORS],
    "monarch.common._coalescing": [_TENSORS],
    "monarch.common.borrows": ["monarch.tensor_engine.borrows"],
    "monarch.common.device_mesh": [_TENSORS],
    "monarch.common.invocation": [_TENSORS],
    "monarch.common.opaque_ref": [_TENSORS],
    "monarch.common.pipe": [_TENSORS],
    "monarch.common.remote": [_TENSORS],
    "monarch.common.stream": [_TENSORS],
    "monarch.common.tensor": [_TENSORS],
    "monarch.common.tree": ["monarch.tensor_engine.trees"],
    "monarch.fetch": [_TENSORS],
    "monarch.gradient": [_TENSORS],
    "monarch.gradient_generator": [_TENSORS],
    "monarch.mesh_controller": [_TENSORS],
    "monarch.opaque_module": [_TENSORS],
    "monarch.opaque_object": [_TENSORS],
    "monarch.opaque_ref": [_TENSORS],
    "monarch.proc_mesh": [_ACTOR, _HOST_MESH],
    "monarch.remote_class": [_TENSORS],
    "monarch.simulator.config": ["monarch.simulator"],
    "monarch.simulator.interface": ["monarch.simulator"],
    "monarch.world_mesh": ["monarch.python_local_mesh"],
}
"""Alias to the modules whose names it has, searched in order."""

RENAMED = {
    "ActorAddr": ("monarch._core.actors.context", "ActorId"),
    "DeviceException": (_TENSORS, "RemoteException"),
    "EndpointProperty": ("monarch._core.actors.endpoint", "EndpointDefinition"),
    "RdmaInitError": (_RDMA, "RDMAError"),
    "WouldBlockRuntime": ("monarch.errors", "DeadlockError"),
    "compile": (_TENSORS, "record"),
    "get_actor_class": ("monarch._core.mesh.mock", "resolve"),
    "get_tensor_engine_factory": ("monarch.actor.mocking", "tensor_engine_factory"),
    "reload_config_from_env": ("monarch.config", "configure"),
    "reset_config_to_defaults": ("monarch.config", "clear_runtime_config"),
}
"""Names that are called otherwise here."""

_ALLOCATED = (
    "hosts are not allocated here: this_host() is this machine, attach_to_workers(workers=[...])"
    " takes others into use"
)
_NO_TASKS = (
    "there is no native runtime here: monarch.actor.returns_future makes a Future of an async"
    " function"
)
INSTEAD = {
    "AllocHandle": _ALLOCATED,
    "AllocSpec": _ALLOCATED,
    "LocalAllocator": _ALLOCATED,
    "ProcessAllocator": _ALLOCATED,
    "RemoteAllocator": _ALLOCATED,
    "SimAllocator": _ALLOCATED,
    "StaticRemoteAllocInitializer": _ALLOCATED,
    "TorchXRemoteAllocInitializer": _ALLOCATED,
    "PythonTask": _NO_TASKS,
    "Shared": _NO_TASKS,
}
"""Names that nothing here stands for, and what to write instead."""

PACKAGES = frozenset(alias.rpartition(".")[0] for alias in ALIASES) | {
    "monarch._src",
    "monarch._rust_bindings",
}


class _AliasFinder:
    """Finds and loads the modules of the table.

    (The base classes of `importlib.abc` cost 8 ms to import.)
    """

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader: Any = self
        if name in PACKAGES:
            return ModuleSpec(name, loader, is_package=True)
        return ModuleSpec(name, loader) if name in ALIASES else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        targets = ALIASES.get(module.__name__, ())

        def find(name: str) -> Any:
            if name in RENAMED and targets:
                source, actual = RENAMED[name]
                return getattr(import_module(source), actual)
            for target in () if name.startswith("__") else targets:
                found = getattr(import_module(target), name, None)
                if found is not None:
                    return found
            if name in INSTEAD:
                raise ImportError(f"{module.__name__}.{name}: {INSTEAD[name]}")
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        # PEP 562, for a module made by hand
        module.__getattr__ = find  # type: ignore[method-assign]

    def get_source(self, name: str) -> str:
        # what `python -m monarch._src.actor.bootstrap_main` runs
        return (
            "from monarch._core.processes.proc import main\nmain()\n"
            if name.endswith("bootstrap_main")
            else ""
        )

    def get_code(self, name: str) -> CodeType:
        return compile(self.get_source(name), f"<alias {name}>", "exec")

    def is_package(self, name: str) -> bool:
        return name in PACKAGES


def bootstrap_module() -> str:
    """Return the module by which programs know that a process becomes a proc; an alias."""
    return "monarch._src.actor.bootstrap_main"


def install() -> None:
    """Make the aliases importable."""
    if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        sys.meta_path.append(_AliasFinder())
