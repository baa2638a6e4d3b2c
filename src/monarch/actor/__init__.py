"""The actor API: the names of the engine below `monarch._core`, and of the patterns built on it.

Imports `_core.actors`, `_core.calls`, `_core.client`, `_core.mesh`, `_core.shape`,
`_core.supervision`, `_patterns`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._core import extension as _extension
from .._core.actors.actor import Actor
from .._core.actors.adverbs import Endpoint
from .._core.actors.context import Context, context, current_actor_name, current_rank, current_size
from .._core.actors.endpoint import concurrent_endpoint, endpoint
from .._core.actors.ports import Channel, Port, PortReceiver
from .._core.calls.future import Future
from .._core.client import client as _client
from .._core.client.faults import Hook as _Hook
from .._core.client.faults import default_hook as _default_hook
from .._core.mesh.actor_mesh import ActorMesh
from .._core.mesh.bootstrap import BootstrapCommand, default_bootstrap_cmd
from .._core.mesh.host_mesh import HostMesh, this_host
from .._core.mesh.proc_mesh import ProcMesh, this_proc
from .._core.shape import Extent, Point, ValueMesh
from .._core.supervision.failure import MeshFailure
from .._lazy import lazy_names as _lazy_names
from .._public import publish as _publish
from ..errors import ActorError, DeadlockError, SupervisionError
from . import config

if _TYPE_CHECKING:
    from .._patterns.accumulator import Accumulator
    from .._patterns.attaching import attach, attach_to_workers
    from .._patterns.controllers import get_or_spawn_controller
    from .._patterns.endpoints import as_endpoint, send
    from .._patterns.ids import ProcId, Uid
    from .._patterns.later import debug_controller, get_meter, span, traced
    from .._patterns.mocking import patch_actor
    from .._patterns.pools import pool
    from .._patterns.returns_future import returns_future
    from .._patterns.transports import ChannelTransport, enable_transport
    from .._patterns.worker import (
        run_worker_loop_forever,
        run_worker_loop_until_shutdown,
        start_worker_loop_forever,
    )

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "._patterns.accumulator": ("Accumulator",),
        "._patterns.attaching": ("attach", "attach_to_workers"),
        "._patterns.controllers": ("get_or_spawn_controller",),
        "._patterns.endpoints": ("as_endpoint", "send"),
        "._patterns.ids": ("ProcId", "Uid"),
        "._patterns.later": ("debug_controller", "get_meter", "span", "traced"),
        "._patterns.mocking": ("patch_actor",),
        "._patterns.pools": ("pool",),
        "._patterns.returns_future": ("returns_future",),
        "._patterns.transports": ("ChannelTransport", "enable_transport"),
        "._patterns.worker": (
            "run_worker_loop_forever",
            "run_worker_loop_until_shutdown",
            "start_worker_loop_forever",
        ),
    },
)

unhandled_fault_hook: _Hook = _default_hook
shutdown_context = _client.shutdown_context
_extension.in_every_proc.append(__name__)
_client.install()
_client_context = _client.client_context


def _fault_hook() -> _Hook:
    return unhandled_fault_hook  # looked up at each fault: programs assign to it


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
