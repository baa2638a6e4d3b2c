"""The actor API: the names of the engine below `monarch._core`, and what is built on these.

Read `pools` and `controllers`: what an actor can be used for. `attaching` uses hosts on which a
`worker` lets clients in; `retrying` repeats calls; `activities` says what actors do; `ids` are
identities to make and compare; `later` leads to planes.

Imports `_core.actors`, `_core.calls`, `_core.client`, `_core.hub`, `_core.mesh`,
`_core.net`, `_core.processes`, `_core.shape`, `_core.supervision`, `_core.wire`.
"""

from __future__ import annotations

from functools import partial as _partial
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from .._core.actors import adverbs as _adverbs
from .._core.actors.actor import Actor
from .._core.actors.adverbs import Endpoint, send
from .._core.actors.context import Context, context, current_actor_name, current_rank, current_size
from .._core.actors.endpoint import concurrent_endpoint, endpoint
from .._core.actors.ports import Channel, Port, PortReceiver
from .._core.calls.future import Future
from .._core.calls.returns_future import returns_future
from .._core.client import attached as _attached
from .._core.client import client as _client
from .._core.client import greeting as _greeting
from .._core.client.faults import Hook as _Hook
from .._core.client.faults import default_hook as _default_hook
from .._core.mesh import actor_mesh as _actor_mesh
from .._core.mesh import proc_mesh as _proc_mesh
from .._core.mesh import shaped as _shaped
from .._core.mesh.actor_mesh import ActorMesh, as_endpoint
from .._core.mesh.bootstrap import BootstrapCommand, default_bootstrap_cmd
from .._core.mesh.host_mesh import HostMesh, this_host
from .._core.mesh.proc_mesh import ProcMesh, this_proc
from .._core.processes import output as _output
from .._core.shape import Extent, Point, ValueMesh
from .._core.supervision.failure import MeshFailure
from .._core.wire.reducers import register_reducers as _register_reducers
from .._lazy import lazy_names as _lazy_names
from .._public import publish as _publish
from ..errors import ActorError, DeadlockError, SupervisionError
from . import config

if _TYPE_CHECKING:
    from .accumulator import Accumulator
    from .attaching import attach, attach_to_workers
    from .controllers import get_or_spawn_controller
    from .ids import ProcId, Uid
    from .later import debug_controller, get_meter, span, traced
    from .mocking import patch_actor
    from .pools import pool
    from .transports import ChannelTransport, enable_transport
    from .worker import (
        run_worker_loop_forever,
        run_worker_loop_until_shutdown,
        start_worker_loop_forever,
    )

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "accumulator": ("Accumulator",),
        "attaching": ("attach", "attach_to_workers"),
        "controllers": ("get_or_spawn_controller",),
        "ids": ("ProcId", "Uid"),
        "later": ("debug_controller", "get_meter", "span", "traced"),
        "mocking": ("patch_actor",),
        "pools": ("pool",),
        "transports": ("ChannelTransport", "enable_transport"),
        "worker": (
            "run_worker_loop_forever",
            "run_worker_loop_until_shutdown",
            "start_worker_loop_forever",
        ),
    },
)

unhandled_fault_hook: _Hook = _default_hook
shutdown_context = _client.shutdown_context
_client.proc_mesh_maker = _proc_mesh.client_proc_mesh
_client.hook_finder = lambda: unhandled_fault_hook  # looked up at each fault: programs assign to it
_client.install()
_attached.show_progress = lambda *args: _import_module(
    "monarch.actor.attach_progress"
).AttachProgress(*args)
_greeting.make_default = lambda: _import_module("monarch.logs.keep").keep_logs_of_program()


def _stdlib_reducers(package: str) -> _Any:
    return _import_module("monarch.actor.stdlib_reducers").REDUCERS[package]


for _package in ("functools", "weakref"):
    _register_reducers(_package, _partial(_stdlib_reducers, _package))
# sideways, so by name
_register_reducers("torch", lambda: _import_module("monarch.tensor_engine.pickling").REDUCERS)
_adverbs._kind_for = lambda *args: _import_module("monarch.actor.retrying").kind_for(*args)
_adverbs._rref = lambda *args: _import_module("monarch.tensor_engine.endpoints").rref(*args)
_proc_mesh._set_logging = lambda *options: _import_module("monarch.logs.options").set_options(
    *options
)
_output.make_view = lambda write: _import_module("monarch.logs.view").LogView(write)
_proc_mesh._device_mesh_of = lambda procs: _import_module(
    "monarch.tensor_engine.engine_meshes"
).device_mesh_of(procs)
_shaped.draw = lambda *args: _import_module("monarch.actor.grid").draw(*args)
_proc_mesh.sync_to = lambda *args: _import_module("monarch.sync.push").sync_to(*args)
_actor_mesh.update_class = lambda *args: _import_module("monarch.sync.update").update_class(*args)
_proc_mesh.stacks_of = lambda *args: _import_module("monarch.stacks.gather").of_hosts(*args)

__all__ = [
    "Accumulator", "Actor", "ActorError", "ActorMesh", "BootstrapCommand", "Channel", "ChannelTransport", "Context",
    "DeadlockError", "Endpoint", "Extent", "Future", "HostMesh", "MeshFailure", "Point", "Port", "PortReceiver",
    "ProcId", "ProcMesh", "SupervisionError", "Uid", "ValueMesh", "as_endpoint", "attach", "attach_to_workers",
    "concurrent_endpoint", "config", "context", "current_actor_name", "current_rank", "current_size",
    "debug_controller", "default_bootstrap_cmd", "enable_transport", "endpoint", "get_meter", "get_or_spawn_controller",
    "patch_actor", "pool", "returns_future", "run_worker_loop_forever", "run_worker_loop_until_shutdown", "send",
    "shutdown_context", "span", "start_worker_loop_forever", "this_host", "this_proc", "traced", "unhandled_fault_hook",
]  # fmt: skip

_publish(__name__, globals(), __all__)
