"""Tensors on meshes: torch programs that run once, here, and compute on every rank.

One operation, from top to bottom:

==============  =======================================================================================================
`tensors`       handles and the active mesh: each operation of torch comes by here, is checked, and issued
`planning`      what an operation does, found once by running it on fake tensors
`controller`    batches of instructions on their way to an executor: to workers, or to a model of them
`instructions`  the language between the two
`worker`        the ranks, which run them
`groups`        ranks that communicate
==============  =======================================================================================================

What programs do beyond torch's operations: `functions`, and objects and modules, on the ranks;
`recording`, what is replayed; `autograd`, backward passes in pieces.

`pickling` is something else: how ordinary tensors travel in the messages of any actor.

Importing this package does not import torch: its names are looked up when they are first used. What
may not live here: anything that actors without torch need. Read `instructions`, then
`tensors`.

Imports `_core.plane`, `tensor_engine.autograd`, `tensor_engine.recording`, `tensor_engine.functions`,
`tensor_engine.tensors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .autograd.gradients import GradientGenerator as GradientGenerator
    from .autograd.gradients import grad_function as grad_function
    from .autograd.gradients import grad_generator as grad_generator
    from .autograd.gradients import gradient_execution_order as gradient_execution_order
    from .autograd.remote_autograd import remote_autograd_function as remote_autograd_function
    from .errors import OperatorError as OperatorError
    from .errors import RemoteException as RemoteException
    from .errors import TensorError as TensorError
    from .functions.opaque import OpaqueRef as OpaqueRef
    from .functions.opaque_module import OpaqueModule as OpaqueModule
    from .functions.opaque_object import OpaqueObject as OpaqueObject
    from .functions.opaque_object import opaque_method as opaque_method
    from .functions.pipes import Pipe as Pipe
    from .functions.pipes import create_pipe as create_pipe
    from .functions.pipes import remote_generator as remote_generator
    from .functions.remote_class import ControllerRemoteClass as ControllerRemoteClass
    from .functions.remote_class import WorkerRemoteClass as WorkerRemoteClass
    from .functions.remote_class import remote_method as remote_method
    from .functions.remote_functions import Remote as Remote
    from .functions.remote_functions import call_on_shard_and_fetch as call_on_shard_and_fetch
    from .functions.remote_functions import function_resolvers as function_resolvers
    from .functions.remote_functions import remote as remote
    from .recording.instruction_buffer import coalescing as coalescing
    from .recording.recording import record as record
    from .tensors.activation import get_active_mesh as get_active_mesh
    from .tensors.activation import no_mesh as no_mesh
    from .tensors.collectives import reduce as reduce
    from .tensors.collectives import reduce_ as reduce_
    from .tensors.collectives import slice_mesh as slice_mesh
    from .tensors.collectives import to_mesh as to_mesh
    from .tensors.device_mesh import DeviceMesh as DeviceMesh
    from .tensors.engine_meshes import spawn_tensor_engine as spawn_tensor_engine
    from .tensors.fetching import distribute as distribute
    from .tensors.fetching import fetch_shard as fetch_shard
    from .tensors.fetching import inspect as inspect
    from .tensors.fetching import show as show
    from .tensors.process_group import RemoteProcessGroup as RemoteProcessGroup
    from .tensors.shard_table import Shards as Shards
    from .tensors.shard_table import shards as shards
    from .tensors.streams import Stream as Stream
    from .tensors.streams import get_active_stream as get_active_stream
    from .tensors.tensor import Tensor as Tensor

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "tensors.activation": ("get_active_mesh", "no_mesh"),
        "tensors.device_mesh": ("DeviceMesh",),
        "tensors.engine_meshes": ("spawn_tensor_engine",),
        "errors": ("OperatorError", "RemoteException", "TensorError"),
        "tensors.fetching": ("distribute", "fetch_shard", "inspect", "show"),
        "autograd.gradients": ("GradientGenerator", "grad_function", "grad_generator",
            "gradient_execution_order"),
        "recording.instruction_buffer": ("coalescing",),
        "tensors.collectives": ("reduce", "reduce_", "slice_mesh", "to_mesh"),
        "functions.opaque": ("OpaqueRef",), "functions.opaque_module": ("OpaqueModule",),
        "functions.opaque_object": ("OpaqueObject", "opaque_method"),
        "functions.pipes": ("Pipe", "create_pipe", "remote_generator"),
        "tensors.process_group": ("RemoteProcessGroup",),
        "recording.recording": ("record",),
        "autograd.remote_autograd": ("remote_autograd_function",),
        "functions.remote_class": ("ControllerRemoteClass", "WorkerRemoteClass", "remote_method"),
        "functions.remote_functions": ("Remote", "call_on_shard_and_fetch", "function_resolvers", "remote"),
        "tensors.streams": ("Stream", "get_active_stream"),
        "tensors.shard_table": ("Shards", "shards"),
        "tensors.tensor": ("Tensor",),
    },
)  # fmt: skip
