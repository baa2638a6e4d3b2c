"""Tensors on meshes: torch programs that run once, here, and compute on every rank.

One operation, from top to bottom:

=================  ====================================================================================================
`activation`       which mesh is active; hands every operation of torch that comes by to
`tensor`           the handles, and `dispatch`, which checks an operation and issues it
`plans`, `fakes`   what it does, found once by running it on fake tensors
`engine`           batches of instructions on their way to an `executor`: to `workers`, or to a model of them
`worker`           the actor that gets them, one on each process
`runner`           what runs them, one for each stream; `worker_collectives` and `functions` are its hands
`fetching`         values on their way back
=================  ====================================================================================================

Floors, each built on those below it:

========================================  =============================================================================
`engine_meshes`, `tensor_methods`         where meshes come from; methods of tensors and streams
`collectives`, `remote_functions`, ...    what programs do with tensors, beyond torch's operations
`call_arguments`, `propagation`           what goes into functions on ranks, and what is to come out
`device_mesh`, `activation`, `tensor`     what programs hold
`references`, `operand_checks`,           tensors as arguments of functions and actors; errors for tensors that do not
`mesh_groups`                             belong together; who communicates with whom
`tensor_base`, `rank_mesh`, `streams`     values, their memory, and where they are
`engine`, `workers`, `worker`, `runner`   instructions on their way, and the ranks that run them
`worker_collectives`, `programs`          what they run: moves between ranks and `borrows` between streams; recorded programs
`stream_state`, `groups`, `templates`     what it stands on there: the values of a stream, the groups of ranks
`instructions`                            the language between the two
========================================  =============================================================================

`pickling` is something else: how ordinary tensors travel in the messages of any actor.
`instruction_buffer` holds instructions back, to send them together, or for `recording`, which has
`recorder` keep and `programs` replay them.

Importing this package does not import torch: its names are looked up when they are first used. What
may not live here: anything that actors without torch need. Read `instructions`, then `tensor`.

Imports `_core.plane`, `actor`, `rdma`, `rdma.grants`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .activation import get_active_mesh as get_active_mesh
    from .activation import no_mesh as no_mesh
    from .collectives import reduce as reduce
    from .collectives import reduce_ as reduce_
    from .collectives import slice_mesh as slice_mesh
    from .collectives import to_mesh as to_mesh
    from .device_mesh import DeviceMesh as DeviceMesh
    from .engine_meshes import spawn_tensor_engine as spawn_tensor_engine
    from .errors import OperatorError as OperatorError
    from .errors import RemoteException as RemoteException
    from .errors import TensorError as TensorError
    from .fetching import distribute as distribute
    from .fetching import fetch_shard as fetch_shard
    from .fetching import inspect as inspect
    from .fetching import show as show
    from .gradients import GradientGenerator as GradientGenerator
    from .gradients import grad_function as grad_function
    from .gradients import grad_generator as grad_generator
    from .gradients import gradient_execution_order as gradient_execution_order
    from .instruction_buffer import coalescing as coalescing
    from .opaque import OpaqueRef as OpaqueRef
    from .opaque_module import OpaqueModule as OpaqueModule
    from .opaque_object import OpaqueObject as OpaqueObject
    from .opaque_object import opaque_method as opaque_method
    from .pipes import Pipe as Pipe
    from .pipes import create_pipe as create_pipe
    from .pipes import remote_generator as remote_generator
    from .process_group import RemoteProcessGroup as RemoteProcessGroup
    from .recording import record as record
    from .remote_autograd import remote_autograd_function as remote_autograd_function
    from .remote_class import ControllerRemoteClass as ControllerRemoteClass
    from .remote_class import WorkerRemoteClass as WorkerRemoteClass
    from .remote_class import remote_method as remote_method
    from .remote_functions import Remote as Remote
    from .remote_functions import call_on_shard_and_fetch as call_on_shard_and_fetch
    from .remote_functions import function_resolvers as function_resolvers
    from .remote_functions import remote as remote
    from .shard_table import Shards as Shards
    from .shard_table import shards as shards
    from .streams import Stream as Stream
    from .streams import get_active_stream as get_active_stream
    from .tensor import Tensor as Tensor

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "activation": ("get_active_mesh", "no_mesh"),
        "device_mesh": ("DeviceMesh",),
        "engine_meshes": ("spawn_tensor_engine",),
        "errors": ("OperatorError", "RemoteException", "TensorError"),
        "fetching": ("distribute", "fetch_shard", "inspect", "show"),
        "gradients": (
            "GradientGenerator", "grad_function", "grad_generator", "gradient_execution_order",
        ),
        "instruction_buffer": ("coalescing",),
        "collectives": ("reduce", "reduce_", "slice_mesh", "to_mesh"),
        "opaque": ("OpaqueRef",),
        "opaque_module": ("OpaqueModule",),
        "opaque_object": ("OpaqueObject", "opaque_method"),
        "pipes": ("Pipe", "create_pipe", "remote_generator"),
        "process_group": ("RemoteProcessGroup",),
        "recording": ("record",),
        "remote_autograd": ("remote_autograd_function",),
        "remote_class": ("ControllerRemoteClass", "WorkerRemoteClass", "remote_method"),
        "remote_functions": ("Remote", "call_on_shard_and_fetch", "function_resolvers", "remote"),
        "streams": ("Stream", "get_active_stream"),
        "shard_table": ("Shards", "shards"),
        "tensor": ("Tensor",),
    },
)  # fmt: skip
