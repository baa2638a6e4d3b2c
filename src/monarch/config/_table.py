"""The table of knobs: their names, kinds, defaults, and what they do.

`_store` looks knobs up here. docs/config.md is generated from it: after a change, run
`python -m monarch.config > docs/config.md`.
"""

from __future__ import annotations

from .._namedtuple import NamedTuple
from ._kinds import BOOL, DURATION, DURATION_OR_NONE, MODULES, SIZE, STR, Kind, choice, count
from ._no_effect import NO_EFFECT


class Knob(NamedTuple):
    """One setting.

    `default` is anything `configure` would take; `aliases` are other keys for the same knob.
    """

    name: str
    kind: Kind
    default: object
    env: str
    effect: str
    applies: bool = True  # whether something reads it; if not, `effect` says why
    aliases: tuple[str, ...] = ()


_SPAWN_AND_STOP = (
    Knob(
        "host_spawn_ready_timeout",
        DURATION,
        "30s",
        "HYPERACTOR_HOST_SPAWN_READY_TIMEOUT",
        "How long a new proc may take to report ready; 0 is no limit.",
    ),
    Knob(
        "proc_spawn_method",
        choice("fork", "exec"),
        "fork",
        "MONARCH_PROC_SPAWN_METHOD",
        "Fork procs from a process that has everything imported, or start an interpreter for each.",
    ),
    Knob(
        "preload",
        MODULES,
        [],
        "MONARCH_PRELOAD",
        "Modules imported once, in the process that forks procs. Comma separated in the"
        " environment.",
    ),
    Knob(
        "seed",
        count(optional=True),
        None,
        "MONARCH_SEED",
        "What the random numbers of procs derive from, with the name of their mesh, their rank and"
        " how often they were started; None for others in each run.",
    ),
    Knob(
        "proc_nesting_limit",
        count(0),
        16,
        "MONARCH_PROC_NESTING_LIMIT",
        "How many levels of procs may own procs; those of the client are the first.",
    ),
    Knob(
        "cleanup_timeout",
        DURATION,
        "3s",
        "HYPERACTOR_CLEANUP_TIMEOUT",
        "How long a stopping actor gets for the message in progress and `__cleanup__`.",
    ),
    Knob(
        "end_process_groups",
        BOOL,
        True,
        "MONARCH_END_PROCESS_GROUPS",
        "End what a proc has started, and left behind, with it: its process group gets SIGTERM, and"
        " SIGKILL 1 s later.",
    ),
    Knob(
        "process_exit_timeout",
        DURATION,
        "10s",
        "HYPERACTOR_PROCESS_EXIT_TIMEOUT",
        "How long a process that was asked to end gets before it is killed.",
    ),
    Knob(
        "stop_actor_timeout",
        DURATION,
        "10s",
        "HYPERACTOR_STOP_ACTOR_TIMEOUT",
        "How long an ending actor waits for each mesh that it owns to stop.",
    ),
)

_FAILURES = (
    Knob(
        "mesh_orphan_timeout",
        DURATION_OR_NONE,
        "10s",
        "HYPERACTOR_MESH_ORPHAN_TIMEOUT",
        "How long what a client spawned may outlive it, on attached hosts too; None is no limit.",
        aliases=("orphan_timeout",),
    ),
    Knob(
        "fault_grace",
        DURATION,
        "5s",
        "MONARCH_FAULT_GRACE",
        "After an unhandled fault, how long the main thread gets to unwind before the process exits"
        " anyway.",
    ),
    Knob(
        "deadlock_check_interval",
        DURATION,
        "1s",
        "MONARCH_DEADLOCK_CHECK_INTERVAL",
        "How often waits between actors are looked at: those in a circle are found in one to two"
        " intervals; 0 never looks.",
    ),
    Knob(
        "heartbeat_timeout",
        DURATION,
        "10s",
        "MONARCH_HEARTBEAT_TIMEOUT",
        "How long a process that a signal has stopped, or a host agent that does not answer, may"
        " stand still before it is ended and counts as lost; 0 is no limit.",
    ),
    Knob(
        "worker_idle_limit",
        DURATION,
        "0s",
        "MONARCH_WORKER_IDLE_LIMIT",
        "When a worker to which no client is attached ends by itself, as if a client had shut it"
        " down; 0 is never.",
    ),
    Knob(
        "sigterm_warns",
        BOOL,
        False,
        "MONARCH_SIGTERM_WARNS",
        "SIGTERM ends the processes of a host only if no client is attached: for schedulers that"
        " send it to all of them, as a warning, some time before they end the host.",
    ),
)

_DEBUGGER = (
    Knob(
        "debug_on_error",
        BOOL,
        False,
        "MONARCH_DEBUG_ON_ERROR",
        "Keep an endpoint that raised at its frame until somebody has looked with `monarch debug`;"
        " its caller waits meanwhile.",
    ),
    Knob(
        "debug_on_error_timeout",
        DURATION,
        "10min",
        "MONARCH_DEBUG_ON_ERROR_TIMEOUT",
        "How long such an endpoint is kept while nobody is attached; then its error goes to the"
        " caller.",
    ),
    Knob(
        "debug_adapter",
        BOOL,
        False,
        "MONARCH_DEBUG_ADAPTER",
        "Editors can attach to each rank by the Debug Adapter Protocol, at ports of the client that"
        " are open to its user only, and ask for a token; it says where both are.",
    ),
)

_MESSAGES = (
    Knob(
        "codec_max_frame_length",
        SIZE,
        "10 GiB",
        "HYPERACTOR_CODEC_MAX_FRAME_LENGTH",
        "Largest message; the call that would send a larger one raises.",
    ),
    Knob(
        "message_delivery_timeout",
        DURATION,
        "30s",
        "HYPERACTOR_MESSAGE_DELIVERY_TIMEOUT",
        "When a message that can't be handed over counts as undeliverable. No limit on how long a"
        " call may run.",
    ),
    Knob(
        "pending_actor_delivery_timeout",
        DURATION,
        "30s",
        "HYPERACTOR_PENDING_ACTOR_DELIVERY_TIMEOUT",
        "How long messages to an actor that is not there yet are held.",
    ),
    Knob(
        "mailbox_limit",
        count(1, example=100_000),
        100_000,
        "MONARCH_MAILBOX_LIMIT",
        "Messages that may wait for one actor, or on one port, before its senders are slowed.",
    ),
    Knob(
        "mailbox_bytes_limit",
        SIZE,
        "64 MiB",
        "MONARCH_MAILBOX_BYTES_LIMIT",
        "Bytes of messages that may wait for one actor, or on one port, before its senders are"
        " slowed.",
    ),
    Knob(
        "send_buffer_limit",
        SIZE,
        "64 MiB",
        "MONARCH_SEND_BUFFER_LIMIT",
        "Bytes a sender may have queued for one peer before the sending thread waits.",
    ),
    Knob(
        "max_cast_fanout",
        count(1),
        16,
        "HYPERACTOR_MESH_MAX_CAST_FANOUT",
        "Calls to many hosts: to how many each host agent passes one on at most.",
    ),
)

_NETWORK = (
    Knob(
        "mesh_attach_config_timeout",
        DURATION,
        "1m",
        "HYPERACTOR_MESH_ATTACH_CONFIG_TIMEOUT",
        "How long a host that is not up yet is dialed for.",
    ),
    Knob(
        "channel_reconnect_timeout",
        DURATION,
        "4s",
        "HYPERACTOR_CHANNEL_RECONNECT_TIMEOUT",
        "After how long without a sign of life another host is lost; after half of it, its link is"
        " dialed anew.",
    ),
    Knob(
        "channel_tcp_keepalive_idle",
        DURATION,
        "1m",
        "HYPERACTOR_CHANNEL_TCP_KEEPALIVE_IDLE",
        "When the kernel starts to probe a silent TCP link.",
    ),
    Knob(
        "channel_tcp_congestion",
        STR,
        "",
        "HYPERACTOR_CHANNEL_TCP_CONGESTION",
        'TCP congestion control, for example "bbr"; empty is the system\'s.',
    ),
    Knob(
        "allow_unauthenticated_tcp",
        BOOL,
        False,
        "MONARCH_ALLOW_UNAUTHENTICATED_TCP",
        'DANGER: with ca="trust_all_connections" and no secret, whoever can connect may run code'
        " here.",
    ),
)

_LOGS = (
    Knob(
        "log_format",
        choice("text", "json"),
        "text",
        "MONARCH_LOG_FORMAT",
        "How the client prints the output of procs: as lines for people, or each line as a JSON"
        " object, for machines.",
    ),
    Knob(
        "enable_file_capture",
        BOOL,
        False,
        "HYPERACTOR_MESH_ENABLE_FILE_CAPTURE",
        "Keep what procs print in files below `.monarch/logs`, also in programs that use no job;"
        " jobs always do.",
    ),
    Knob(
        "log_file_size",
        SIZE,
        "32 MiB",
        "MONARCH_LOG_FILE_SIZE",
        "Size after which a log file of a rank is put aside, and a new one begun.",
    ),
    Knob(
        "log_file_count",
        count(0, 1000),
        4,
        "MONARCH_LOG_FILE_COUNT",
        "How many log files of each kind (text, JSON) a rank has, with the current one; 0 for no"
        " files at all.",
    ),
    Knob(
        "tail_log_lines",
        count(example=100),
        0,
        "HYPERACTOR_MESH_TAIL_LOG_LINES",
        "How many of the last lines that a dead proc printed its failure report shows; never fewer"
        " than 10.",
    ),
    Knob(
        "prefix_with_rank",
        BOOL,
        True,
        "HYPERACTOR_PREFIX_WITH_RANK",
        "Begin each line of a proc's output that is passed on or reported with the proc's rank.",
    ),
    Knob(
        "file_log_level",
        STR,
        "",
        "MONARCH_FILE_LOG",
        "What the engine did and why is written to `.monarch/engine`, a file per process: `debug`,"
        " `info`, `warning` or `error`; empty is no file. Read when a process starts.",
    ),
    Knob(
        "monarch_log_suffix",
        STR,
        "",
        "MONARCH_LOG_SUFFIX",
        "What the names of these files end with, before `.log`.",
    ),
)


_TELEMETRY = (
    Knob(
        "telemetry",
        choice("off", "sampled", "all"),
        "off",
        "MONARCH_TELEMETRY",
        "Which messages each process remembers for telemetry: none; some, of an actor that has more"
        " than 256 in a second; or all. For actors that are spawned later.",
    ),
    Knob(
        "telemetry_memory",
        SIZE,
        "8 MiB",
        "MONARCH_TELEMETRY_MEMORY",
        "About how much memory a process uses for that; what is oldest goes first.",
    ),
    Knob(
        "enable_otel_metrics",
        BOOL,
        True,
        "ENABLE_OTEL_METRICS",
        "Send metrics to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names, if that is set.",
    ),
    Knob("enable_otel_tracing", BOOL, True, "ENABLE_OTEL_TRACING", "Send spans to that collector."),
    Knob(
        "otel_metric_export_interval",
        # OpenTelemetry's own variable of this name has milliseconds
        DURATION._replace(from_text=lambda text: f"{text}ms" if text.strip().isdigit() else text),
        "1s",
        "OTEL_METRIC_EXPORT_INTERVAL",
        "How often metrics, spans and records of `logging` are sent there; in the variable, a"
        " number alone is milliseconds.",
    ),
)


_ADMIN = (
    Knob(
        "mesh_admin_addr",
        STR,
        "127.0.0.1:0",
        "HYPERACTOR_MESH_ADMIN_ADDR",
        "Where the admin interface listens, unless `MeshAdminConfig` says so; port 0 is any that is"
        " free. An address of other machines needs HYPERACTOR_TLS_CERT and HYPERACTOR_TLS_KEY.",
    ),
    Knob(
        "mesh_admin_max_concurrent_resolves",
        count(1),
        8,
        "HYPERACTOR_MESH_ADMIN_MAX_CONCURRENT_RESOLVES",
        "How many requests of the admin interface ask the program at a time; others wait for their"
        " turn.",
    ),
    Knob(
        "mesh_admin_single_host_timeout",
        DURATION,
        "3s",
        "HYPERACTOR_MESH_ADMIN_SINGLE_HOST_TIMEOUT",
        "How long the admin interface waits for a host; one that takes longer is named as silent.",
    ),
    Knob(
        "mesh_admin_tree_timeout",
        DURATION,
        "10s",
        "HYPERACTOR_MESH_ADMIN_TREE_TIMEOUT",
        "How long a request for the tree, or a node of it, may take, its time in the queue"
        " included.",
    ),
    Knob(
        "mesh_admin_config_dump_bridge_timeout",
        DURATION,
        "5s",
        "HYPERACTOR_MESH_ADMIN_CONFIG_DUMP_BRIDGE_TIMEOUT",
        "How long a request for the configuration of a process may take.",
    ),
    Knob(
        "mesh_admin_pyspy_timeout",
        DURATION,
        "10s",
        "HYPERACTOR_MESH_ADMIN_PYSPY_TIMEOUT",
        "How long py-spy may look at a process for a dump.",
    ),
    Knob(
        "mesh_admin_pyspy_max_profile_duration",
        DURATION,
        "5m",
        "HYPERACTOR_MESH_ADMIN_PYSPY_MAX_PROFILE_DURATION",
        "The longest profile that the admin interface takes.",
    ),
    Knob(
        "pyspy_bin",
        STR,
        "",
        "PYSPY_BIN",
        "The program py-spy, if it is not on the path, or installed as a package.",
    ),
)


def _rdma(name: str, kind: Kind, default: object, effect: str) -> Knob:
    return Knob(name, kind, default, f"MONARCH_{name.upper()}", effect)


_RDMA = (
    _rdma(
        "rdma_allow_tcp_fallback",
        BOOL,
        True,
        "Move bytes in messages where no faster path is open.",
    ),
    _rdma("rdma_disable_ibverbs", BOOL, False, "Never use RDMA devices."),
    _rdma(
        "rdma_max_chunk_size_mb",
        count(1),
        64,
        "Path `messages`: most MiB per chunk; it takes 4 if it may.",
    ),
    _rdma(
        "rdma_paths",
        STR,
        "",
        "The paths that transfers may take, for example `vm,messages`; empty is all. docs/rdma.md"
        " has the list.",
    ),
    _rdma(
        "rdma_lease_grace",
        DURATION,
        "5m",
        "How long the memory of a buffer stays for handles that are on their way in messages, when"
        " no process has one.",
    ),
    _rdma(
        "rdma_qp_init_timeout",
        DURATION,
        "30s",
        "Path `nixl`: how long an owner may take to open it.",
    ),
)

_WITHOUT_EFFECT = tuple(
    Knob(
        name, kind, default, env[0] if env else f"HYPERACTOR_{name.upper()}", reason, applies=False
    )
    for reason, rows in NO_EFFECT.items()
    for name, kind, default, *env in rows
)

KNOBS: tuple[Knob, ...] = (
    *_SPAWN_AND_STOP,
    *_FAILURES,
    *_DEBUGGER,
    *_MESSAGES,
    *_NETWORK,
    *_LOGS,
    *_TELEMETRY,
    *_ADMIN,
    *_RDMA,
    *_WITHOUT_EFFECT,
)
BY_NAME: dict[str, Knob] = {name: knob for knob in KNOBS for name in (knob.name, *knob.aliases)}
