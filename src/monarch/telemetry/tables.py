"""The tables of telemetry, as plain data: what each column is called, and its type.

Types: ``u64``, ``i64``, ``u32``, ``i32``, ``f64``, ``bool``, ``str``; with ``?`` where a value may
be missing. Times are microseconds since 1970, ids are those of `ids`. The first columns of a table,
up to the blank line, are those of Monarch 0.7, under its names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._namedtuple import NamedTuple

STATE, EVENTS = "state", "events"
"""What a table holds: how things are at the moment of the question; or what has happened, each row
with its `timestamp_us`.
"""


class Table(NamedTuple):
    """A table.

    Attributes:
        about: One line for people.
        kind: `STATE` or `EVENTS`; of the latter a time range can be asked for.
        columns: Their types by their names, in order.
    """

    about: str
    kind: str
    columns: dict[str, str]


def _table(about: str, kind: str, columns: str) -> Table:
    return Table(
        about,
        kind,
        dict(column.split() for column in columns.replace("\n", ",").split(",") if column.strip()),
    )


TABLES: dict[str, Table] = {
    "actors": _table(
        "Actors, and the client; those of processes that have ended, too, as long as their owner"
        " lives.",
        STATE,
        """id u64, timestamp_us i64, mesh_id u64, rank u64, full_name str, display_name str?

        name str, class str?, proc_id u64, pid i64, status str, endpoint str?, queue_depth u64, handled u64, incarnation u64,
        since_us i64?
        """,
    ),
    "meshes": _table(
        "Meshes of hosts, procs and actors.",
        STATE,
        """id u64, timestamp_us i64, class str, given_name str, full_name str, shape_json str, parent_mesh_id u64?, parent_view_json str?

        owner_id u64?
        """,
    ),
    "hosts": _table(
        "Hosts: one row for each host agent.",
        STATE,
        """id u64, timestamp_us i64, address str, machine str, pid i64, cpus u64, load_1m f64?, memory_bytes u64?,
        memory_available_bytes u64?, swap_used_bytes u64?, cpu_seconds f64?, rx_bytes u64?, tx_bytes u64?, started_us i64?
        """,
    ),
    "host_history": _table(
        "Load and memory of each host, by ten seconds for ten minutes, from when somebody first asks.",
        EVENTS,
        "timestamp_us i64, host_id u64, load_1m f64?, memory_used_bytes u64?, swap_used_bytes u64?,"
        " cpu_seconds f64?, rx_bytes u64?, tx_bytes u64?",
    ),
    "procs": _table(
        "Processes that run actors, as their host agent sees them; also those that have ended.",
        STATE,
        """id u64, timestamp_us i64, mesh_id u64, mesh str, rank u64, size u64, coordinates_json str, host_id u64, pid i64, state str,
        reason str?, exit_code i64?, signal i64?, cpu_seconds f64?, rss_bytes u64?, vm_bytes u64?, threads u64?, descriptors u64?,
        os_state str?
        """,
    ),
    "gpus": _table(
        "GPUs of each host: NVIDIA's by NVML, AMD's by the kernel's driver.",
        STATE,
        """host_id u64, timestamp_us i64, vendor str, gpu u32, uuid str, name str, memory_bytes u64?, memory_used_bytes u64?,
        busy_percent f64?, celsius f64?, watts f64?, processes u32
        """,
    ),
    "gpu_processes": _table(
        "Which process uses which GPU; those of other programs as well, which have no `proc_id`.",
        STATE,
        "host_id u64, timestamp_us i64, vendor str, gpu u32, uuid str, pid i64, proc_id u64?,"
        " memory_used_bytes u64?",
    ),
    "statistics": _table(
        "What each process has counted since it started; see `ProcMesh.statistics`.",
        STATE,
        """proc_id u64, timestamp_us i64, pid i64, messages_sent u64, messages_received u64, bytes_sent u64, bytes_received u64,
        send_calls u64, receive_calls u64, io_thread_wakeups u64, connections_open u64, bytes_queued u64, messages_queued u64,
        calls_unanswered u64, actors u64
        """,
    ),
    "waits": _table(
        "Who waits for whom right now: a row for each actor that owes an answer.",
        STATE,
        """actor_id u64?, proc_id u64, endpoint str?, since_us i64?, waits_for str, for_actor_id u64?, for_mesh_id u64?, for_proc_id u64?
        """,
    ),
    "handled": _table(
        "How many messages each actor has handled, by endpoint, and how many of these have raised:"
        " exact.",
        STATE,
        "actor_id u64, proc_id u64, actor str, rank u64, endpoint str, count u64, failed u64",
    ),
    "history": _table(
        "How many messages each actor handled: by the second for ten minutes, by ten seconds for"
        " six hours. With telemetry on.",
        EVENTS,
        "timestamp_us i64, actor_id u64, proc_id u64, seconds u64, handled u64, queue_depth u64",
    ),
    "actor_status_events": _table(
        "The life of each actor.",
        EVENTS,
        "id u64, timestamp_us i64, actor_id u64, new_status str, reason str?",
    ),
    "sent_messages": _table(
        "Calls as they were sent: one row for each, however many receive it. Sampled.",
        EVENTS,
        """id u64, timestamp_us i64, sender_actor_id u64, actor_mesh_id u64, view_json str, shape_json str

        endpoint str?, bytes u64?, sample_weight u64, call u64?
        """,
    ),
    "messages": _table(
        "Messages as they were received: one row for each receiver. Sampled.",
        EVENTS,
        """id u64, timestamp_us i64, from_actor_id u64, to_actor_id u64, endpoint str?, port_index u64?

        bytes u64, duration_us i64?, sample_weight u64, call u64?
        """,
    ),
    "message_status_events": _table(
        "What became of those messages: queued, active, complete, failed.",
        EVENTS,
        """id u64, timestamp_us i64, message_id u64, status str

        sample_weight u64
        """,
    ),
    "spans": _table(
        "Spans of programs, and steps.",
        EVENTS,
        """process_id u64, id u64, name str, target str, level str, fields_json str, timestamp_us i64, parent_id u64?, thread_name str,
        file str?, line u32?

        actor_id u64?, duration_us i64?
        """,
    ),
    "span_events": _table(
        "When each span was entered, left and closed.",
        EVENTS,
        "process_id u64, id u64, timestamp_us i64, event_type str",
    ),
    "events": _table(
        "Records of Python's `logging`.",
        EVENTS,
        """name str, target str, level str, fields_json str, timestamp_us i64, parent_span u64?, thread_id u64, thread_name str,
        module_path str?, file str?, line u32?
        """,
    ),
    "metric_gauges": _table(
        "Gauges.",
        STATE,
        """name str, timestamp_us i64, start_timestamp_us i64?, scope_name str, unit str, attributes_json str, resource_attributes_json str,
        value_f64 f64?, value_i64 i64?, value_u64 u64?
        """,
    ),
    "metric_sums": _table(
        "Counters.",
        STATE,
        """name str, timestamp_us i64, start_timestamp_us i64, scope_name str, unit str, attributes_json str, resource_attributes_json str,
        temporality str, is_monotonic bool, sum_f64 f64?, sum_i64 i64?, sum_u64 u64?
        """,
    ),
    "metric_histograms": _table(
        "Histograms.",
        STATE,
        """name str, timestamp_us i64, start_timestamp_us i64, scope_name str, unit str, attributes_json str, resource_attributes_json str,
        temporality str, count u64, sum_f64 f64?, sum_i64 i64?, sum_u64 u64?, min_f64 f64?, min_i64 i64?, min_u64 u64?, max_f64 f64?,
        max_i64 i64?, max_u64 u64?, bounds_json str, bucket_counts_json str
        """,
    ),
    "steps": _table(
        "Steps of training: each call of `monarch.telemetry.step`.",
        EVENTS,
        "timestamp_us i64, proc_id u64, actor_id u64?, rank u64?, step i64, duration_us i64?",
    ),
    "torch_events": _table(
        "What torch.profiler has seen in the last profile that asked for it: operations, kernels.",
        EVENTS,
        "timestamp_us i64, proc_id u64, thread str, name str, category str, duration_us i64",
    ),
    "logs": _table(
        "Lines that processes have printed, as the files of logs have them.",
        EVENTS,
        """timestamp_us i64, host str, mesh str, rank u64?, stream str, level str?, logger str?,
        location str?, actor str?, endpoint str?, incarnation u64?, job str?,
        text str
        """,
    ),
    "stacks": _table(
        "What each thread runs right now: a row for each frame, the innermost first; one without,"
        " of a process that can't be seen.",
        STATE,
        """mesh str, rank u64, pid i64, host str, how str, note str?, thread str, actor str?, endpoint str?, waits_for str?, depth u32?,
        function str?, file str?, line u32?
        """,
    ),
    # one snapshot each time it is asked for
    "snapshots": _table("The moment of the question.", STATE, "snapshot_id str, snapshot_ts i64"),
    "nodes": _table("", STATE, "snapshot_id str, node_id str, node_kind str, as_of i64"),
    "children": _table(
        "",
        STATE,
        "snapshot_id str, parent_id str, child_id str, child_sort_key i64, is_system bool,"
        " is_stopped bool",
    ),
    "root_nodes": _table(
        "", STATE, "snapshot_id str, node_id str, num_hosts i64, started_at i64, started_by str"
    ),
    "host_nodes": _table("", STATE, "snapshot_id str, node_id str, addr str, host_num_procs i64"),
    "proc_nodes": _table(
        "",
        STATE,
        """snapshot_id str, node_id str, proc_name str, num_actors i64, stopped_retention_cap i64, is_poisoned bool,
        failed_actor_count i64
        """,
    ),
    "actor_nodes": _table(
        "",
        STATE,
        """snapshot_id str, node_id str, actor_status str, actor_type str, instance_id str, messages_processed i64, created_at i64?,
        last_message_handler str?, total_processing_time_us i64, queue_depth i64, is_system bool
        """,
    ),
    "actor_failures": _table(
        "",
        STATE,
        """snapshot_id str, node_id str, failure_error_message str, failure_root_cause_actor str, failure_root_cause_name str?,
        failure_occurred_at i64?, failure_is_propagated bool
        """,
    ),
    "actor_inbound_orderings": _table(
        "",
        STATE,
        """snapshot_id str, node_id str, enabled bool, snapshot_complete bool, skipped_session_count i64, known_session_count i64,
        returned_buffered_session_count i64, returned_buffered_message_count i64, returned_max_buffered_count i64
        """,
    ),
    "ordering_sessions": _table(
        "",
        STATE,
        """snapshot_id str, node_id str, session_id str, sender str, last_released_seq i64, expected_next_seq i64, buffered_count i64,
        oldest_buffered_seq i64?, newest_buffered_seq i64?
        """,
    ),
    "actor_executions": _table(
        "", STATE, "snapshot_id str, node_id str, active_count i64, complete bool, truncated bool"
    ),
    "active_handlers": _table(
        "", STATE, "snapshot_id str, node_id str, name str, active_count i64, oldest_since i64?"
    ),
    "resolution_errors": _table(
        "", STATE, "snapshot_id str, node_id str, error_code str, error_message str"
    ),
    "pyspy_dumps": _table(
        "",
        EVENTS,
        """dump_id str, timestamp_us i64, pid i32, binary str, proc_ref str, capture_mode str, warnings_json str
        """,
    ),
    "pyspy_stack_traces": _table(
        "",
        STATE,
        "dump_id str, pid i32, thread_id u64, thread_name str?, os_thread_id u64?, active bool,"
        " owns_gil bool",
    ),
    "pyspy_frames": _table(
        "",
        STATE,
        """dump_id str, thread_id u64, frame_depth i32, name str, filename str, module str?, short_filename str?, line i32, is_entry bool
        """,
    ),
    "pyspy_local_variables": _table(
        "",
        STATE,
        "dump_id str, thread_id u64, frame_depth i32, name str, addr u64, arg bool, repr str?",
    ),
}
"""All tables by their names."""

EMPTY = {
    "ordering_sessions": (
        "messages of a sender come in order, over one connection, so there are no such sessions"
    ),
    "resolution_errors": "who does not answer is named with each answer",
    "pyspy_local_variables": "values of variables are not recorded; `monarch debug` shows them",
}
"""Tables of Monarch 0.7 that nothing fills, and why."""

ON_REQUEST = frozenset(name for name in TABLES if name.startswith("pyspy_"))
"""Tables for which processes are stopped for a moment, so that they are filled for queries that
read them, and for nothing else.
"""


def number_of(row: Mapping[str, Any], name: str) -> int | float:
    """The number of a metric's row, in whichever column has it; 0 if none has.

    The columns are ``NAME_i64``, ``NAME_u64`` and ``NAME_f64``.
    """
    found = (row[f"{name}_{kind}"] for kind in ("i64", "u64", "f64"))
    return next((number for number in found if number is not None), 0)
