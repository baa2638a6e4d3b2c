"""The published inside of the engine: all that `rdma`, `tensor_engine` and others may import.

Public names (`Actor`, `Future`, `context`, ...) come from the actor API. docs/planes.md says what
each name here is for, and how a plane is written. Nothing of the core imports this module, so
programs without planes do not pay for it. What it imports of the core is what it publishes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import extension as extension
from .actors.base_cell import BaseCell as Owner
from .actors.cell import actors_of
from .actors.context import NotYet, current_hub, running
from .actors.deaths import await_cause
from .actors.endpoint import describe_class
from .actors.log import set_level
from .actors.pulse import begun_by, handled_by, status_of
from .actors.request import Gather, StopCall, StreamCall
from .calls.delivered_failures import loss
from .calls.failed_call import FailedCall, Reply, is_of_network
from .calls.future import when_done
from .calls.message import SETTLE, TRACE, UPDATE_CLASS, encode_meta
from .calls.pending import PendingCall, PendingOperation, debugged, notice, operation_of, subscribe
from .calls.promise import Promise, after, completed, map_future
from .calls.rebuild import read_value
from .calls.remote_error import read_answer, refusal, supervision_error
from .calls.waiting import block, running_loop
from .client.client import client
from .client.faults import before_the_end
from .hub.black_box import BoxContent, content_of
from .hub.contracts import Hub
from .hub.control import ask_one, send_record
from .hub.control_records import DescribeHost, HostDescription, HostedProc, KillProcs, ShowOutput
from .hub.control_service import ControlRequest, ControlService, handles
from .hub.life import black_box, life_events
from .hub.prints import Note
from .hub.statistics import statistics_of
from .mesh.actor_mesh import check_names
from .mesh.bootstrap import python_bootstrap_cmd
from .mesh.owned import OwnedActors, OwnedProcs
from .mesh.proc_mesh import flush_logs
from .mesh.shaped import ShapedMesh, names_of
from .net.unix import MEETING, hosts_here, path_of
from .processes.output import Output, OutputSink, Source
from .shape import Shape, Slice
from .shape.ndslice import row_major_strides
from .supervision.failure import STOPPED, Failure
from .wire import pickling
from .wire.address import SYSTEM, ProcAddress, random_uid
from .wire.frame import CANCELLED, DEAD, ERROR, EXPLICIT, VALUE, Frame
from .wire.pickling import OUT_OF_BAND_SIZE
from .wire.reducers import Dumped, Loan, OnlyLentError, Reducer

if TYPE_CHECKING:
    from .net.peer_credentials import Who, check_same_user, user_at, who_at
    from .processes.black_boxes import DeadProc
    from .wire.channel import parse_channel
    from .wire.picklers import is_importable

# what few processes need: a look at a thousand imports this module in each of them, at once
_LATER = {
    "DeadProc": "processes.black_boxes",
    "is_importable": "wire.picklers",
    **dict.fromkeys(("check_same_user", "user_at", "Who", "who_at"), "net.peer_credentials"),
    "parse_channel": "wire.channel",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LATER[name]}", __package__), name)
