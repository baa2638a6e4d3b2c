"""The guests of the engine: who fills which point of `_core/extension.py`, in every process.

Nothing named here is imported before its point is used. `tests/api/test_guests.py` holds that each
exists and takes what its point gives.
"""

from __future__ import annotations

from ._core import extension

_OWN_RECORDS = """
    _kept_store _patterns.controllers control debugger.protocol environments.enter logs.keep logs.options
    programs stacks.capture stacks.host stacks.py_spy sync.host sync.reload sync.update
    telemetry.at_fault telemetry.collect telemetry.watch tensor_engine.worker.engine_transfer why.pace
"""
"""Modules of this package that have control records, and their handlers as `HANDLERS`."""

GUESTS: dict[str, extension.Place | dict[str, extension.Place]] = {
    # calls and messages
    "repeat": "monarch._patterns.retrying:kind_for",
    "rref": "monarch.tensor_engine.functions.endpoints:rref",
    "sampler": "monarch.telemetry.messages:start",
    "exporter": "monarch.telemetry.otlp:start",
    "span": "monarch.telemetry.spans:span",
    "traced": "monarch.telemetry.spans:traced",
    "get_meter": "monarch.telemetry.metrics:get_meter",
    "reducers": {
        "functools": "monarch._patterns.stdlib_reducers:OF_FUNCTOOLS",
        "torch": "monarch.tensor_engine.pickling:REDUCERS",
        "weakref": "monarch._patterns.stdlib_reducers:OF_WEAKREF",
    },
    "control": {
        "monarch.rdma.grants.records": "monarch.rdma.buffers.buffer:HANDLERS",
        "monarch.service.records": "monarch.service.router:HANDLERS",
        **{f"monarch.{name}": f"monarch.{name}:HANDLERS" for name in _OWN_RECORDS.split()},
    },
    # the debugger
    "keep_raised": "monarch.debugger.debuggee:keep",
    "stop_here": "monarch.debugger.debuggee:stop",
    "source_lines": "monarch.debugger.sources:fetch",
    "debug_offer": "monarch.debugger.protocol:Offered",
    # output, terminals, notebooks
    "output_view": "monarch.logs.view:LogView",
    "log_options": "monarch.logs.options:set_options",
    "kept_logs": "monarch.logs.keep:keep_logs_of_program",
    "draw": "monarch._patterns.grid:draw",
    "html": "monarch.jupyter.html:shown",
    "progress": "monarch._patterns.attach_progress:AttachProgress",
    # methods of meshes
    "device_mesh": "monarch.tensor_engine.tensors.engine_meshes:device_mesh_of",
    "stacks": "monarch.stacks.gather:of_hosts",
    "sync": "monarch.sync.push:sync_to",
    "mirror": "monarch.environments.mirror:mirror_to",
    "update_class": "monarch.sync.update:update_class",
    "take_class": "monarch.sync.update:take_class",
    # the client
    "client_context": "monarch.actor:_client_context",
    "fault_hook": "monarch.actor:_fault_hook",
    "keep_report": "monarch._engine_log:keep_report",
    "engine_log": "monarch._engine_log:write_to_file",
    "bootstrap_module": "monarch.compat:bootstrap_module",
}


def install() -> None:
    """Tell the engine of them."""
    extension.announce(GUESTS)
