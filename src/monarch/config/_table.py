"""The table of knobs. docs/config.md is generated from it: after a change, `python -m monarch.config > docs/config.md`.

A row whose status is not APPLIES can be set without effect. Old programs set it, so it must be accepted; the status
says why there is nothing for it to govern, or that what it governs is not written yet. Whoever makes a knob work
changes its status in the same commit.
"""

from __future__ import annotations

from typing import NamedTuple

from ._kinds import BOOL, DURATION, ENCODING, MODULES, SIZE, STR, TRANSPORT, Kind, choice, count

APPLIES = "applies"


class Knob(NamedTuple):
    """One setting. `default` is anything `configure` would take; `aliases` are other keys for the same knob."""

    name: str
    kind: Kind
    default: object
    env: str
    effect: str
    status: str = APPLIES
    aliases: tuple[str, ...] = ()

    @property
    def applies(self) -> bool:
        """Whether something reads it; if not, `status` says why."""
        return self.status == APPLIES


def _accepted(reason: str) -> str:
    return f"accepted: {reason}"


_NO_LOG_PLANE_YET = _accepted("procs share the client's output; log streams and files are not written yet")
_NIXL_CHOOSES = _accepted("nixl and UCX choose; UCX has variables of its own (`UCX_NET_DEVICES`, ...)")
_TOLD = _accepted("a death is told by the kernel or a closed link, so nothing waits for silence")

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
        "Modules imported once, in the process that forks procs. Comma separated in the environment.",
    ),
    Knob(
        "proc_nesting_limit",
        count(0),
        16,
        "MONARCH_PROC_NESTING_LIMIT",
        "How many levels of procs may own procs; those of the client are the first.",
    ),
    Knob(
        "proc_launcher_kind",
        choice("", "systemd", "native"),
        "",
        "HYPERACTOR_MESH_PROC_LAUNCHER_KIND",
        "Who starts procs.",
        _accepted("there is one launcher; `proc_spawn_method` says how it works"),
    ),
    Knob(
        "mesh_proc_spawn_max_idle",
        DURATION,
        "30s",
        "HYPERACTOR_MESH_PROC_SPAWN_MAX_IDLE",
        "Longest silence while procs are spawned.",
        _accepted("`host_spawn_ready_timeout` bounds each proc, and a death is told at once"),
    ),
    Knob(
        "actor_spawn_max_idle",
        DURATION,
        "30s",
        "HYPERACTOR_MESH_ACTOR_SPAWN_MAX_IDLE",
        "Longest silence while actors are spawned.",
        _TOLD,
    ),
    Knob(
        "proc_stop_max_idle",
        DURATION,
        "30s",
        "HYPERACTOR_MESH_PROC_STOP_MAX_IDLE",
        "Longest silence while procs stop.",
        _accepted("`cleanup_timeout` and `process_exit_timeout` bound a stop"),
    ),
    Knob(
        "cleanup_timeout",
        DURATION,
        "3s",
        "HYPERACTOR_CLEANUP_TIMEOUT",
        "How long a stopping actor gets for the message in progress and `__cleanup__`.",
    ),
    Knob(
        "stop_grace_period",
        DURATION,
        "10s",
        "HYPERACTOR_STOP_GRACE_PERIOD",
        "How long the actors of a stopping proc get, all together, before the proc ends without them.",
        _accepted("they all end at the same time, and `cleanup_timeout` bounds each"),
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
    Knob(
        "mesh_terminate_timeout",
        DURATION,
        "10s",
        "HYPERACTOR_MESH_TERMINATE_TIMEOUT",
        "Time from SIGTERM to SIGKILL.",
        _accepted("`process_exit_timeout` is that time"),
    ),
    Knob(
        "mesh_terminate_concurrency",
        count(1),
        16,
        "HYPERACTOR_MESH_TERMINATE_CONCURRENCY",
        "How many processes are ended at once.",
        _accepted("all of a host's processes are signalled together"),
    ),
)

_FAILURES = (
    Knob(
        "mesh_orphan_timeout",
        DURATION,
        "10s",
        "HYPERACTOR_MESH_ORPHAN_TIMEOUT",
        "How long what a client spawned may outlive it, on attached hosts too.",
        aliases=("orphan_timeout",),
    ),
    Knob(
        "mesh_bootstrap_enable_pdeathsig",
        BOOL,
        True,
        "HYPERACTOR_MESH_BOOTSTRAP_ENABLE_PDEATHSIG",
        "Have the kernel kill a child when its parent dies.",
        _accepted("it always does"),
    ),
    Knob(
        "fault_grace",
        DURATION,
        "5s",
        "MONARCH_FAULT_GRACE",
        "After an unhandled fault, how long the main thread gets to unwind before the process exits anyway.",
    ),
    Knob(
        "deadlock_check_interval",
        DURATION,
        "1s",
        "MONARCH_DEADLOCK_CHECK_INTERVAL",
        "How often waits between actors are looked at: those in a circle are found in one to two intervals; 0 never looks.",
    ),
    Knob(
        "heartbeat_timeout",
        DURATION,
        "10s",
        "MONARCH_HEARTBEAT_TIMEOUT",
        "How long a process that a signal has stopped, or a host agent that does not answer, may stand still before it is "
        "ended and counts as lost; 0 is no limit.",
    ),
    Knob(
        "get_actor_state_max_idle",
        DURATION,
        "30s",
        "HYPERACTOR_MESH_GET_ACTOR_STATE_MAX_IDLE",
        "Longest silence of an actor asked for its health.",
        _TOLD,
    ),
    Knob(
        "get_proc_state_max_idle",
        DURATION,
        "1m",
        "HYPERACTOR_MESH_GET_PROC_STATE_MAX_IDLE",
        "Longest silence of a host asked for its procs' health.",
        _TOLD,
    ),
    Knob(
        "supervision_watchdog_timeout",
        DURATION,
        "2m",
        "HYPERACTOR_MESH_SUPERVISION_WATCHDOG_TIMEOUT",
        "After how much silence of its owner a mesh counts as failed.",
        _TOLD,
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
        "When a message that can't be handed over counts as undeliverable. No limit on how long a call may run.",
    ),
    Knob(
        "pending_actor_delivery_timeout",
        DURATION,
        "30s",
        "MONARCH_PENDING_ACTOR_DELIVERY_TIMEOUT",
        "How long messages to an actor that is not there yet are held.",
    ),
    Knob(
        "mailbox_limit",
        count(1, example=100_000),
        100_000,
        "MONARCH_MAILBOX_LIMIT",
        "Messages that may wait for one actor before its senders are slowed.",
    ),
    Knob(
        "send_buffer_limit",
        SIZE,
        "64 MiB",
        "MONARCH_SEND_BUFFER_LIMIT",
        "Bytes a sender may have queued for one peer before the sending thread waits.",
    ),
    Knob(
        "max_cast_dimension_size",
        count(1),
        16,
        "HYPERACTOR_MESH_MAX_CAST_DIMENSION_SIZE",
        "Broadcast tree: largest dimension that is not split.",
        _accepted("a tree is split by max_cast_fanout alone, whatever the dimensions of the mesh"),
    ),
    Knob(
        "max_cast_fanout",
        count(1),
        16,
        "HYPERACTOR_MESH_MAX_CAST_FANOUT",
        "Calls to many hosts: to how many each host agent passes one on at most.",
    ),
    Knob(
        "enable_dest_actor_reordering_buffer",
        BOOL,
        True,
        "HYPERACTOR_ENABLE_DEST_ACTOR_REORDERING_BUFFER",
        "Keep the order of each sender's messages.",
        _accepted("order is a guarantee and can't be switched off"),
    ),
    Knob(
        "default_encoding",
        ENCODING,
        "Multipart",
        "HYPERACTOR_DEFAULT_ENCODING",
        "Wire format.",
        _accepted("there is one wire format"),
    ),
)

_NETWORK = (
    Knob(
        "default_transport",
        TRANSPORT,
        "Unix",
        "HYPERACTOR_MESH_DEFAULT_TRANSPORT",
        "How this process listens, as `enable_transport`.",
        _accepted("links are made by the client, and used in both directions"),
    ),
    Knob(
        "mesh_attach_config_timeout",
        DURATION,
        "10s",
        "HYPERACTOR_MESH_ATTACH_CONFIG_TIMEOUT",
        "How long a host that is not up yet is dialed for.",
    ),
    Knob(
        "channel_reconnect_timeout",
        DURATION,
        "4s",
        "HYPERACTOR_CHANNEL_RECONNECT_TIMEOUT",
        "After how long without a sign of life another host is lost; after half of it, its link is dialed anew.",
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
        'DANGER: with ca="trust_all_connections" and no secret, whoever can connect may run code here.',
    ),
    Knob(
        "mesh_admin_addr",
        STR,
        "[::]:1729",
        "HYPERACTOR_MESH_ADMIN_ADDR",
        "Where the admin HTTP server listens.",
        _accepted("the admin server is not written yet"),
    ),
    Knob(
        "tokio_worker_threads",
        count(1, optional=True),
        None,
        "MONARCH_TOKIO_WORKER_THREADS",
        "Native threads per process.",
        _accepted("there is no native runtime"),
    ),
)

_LOGS = (
    Knob(
        "tail_log_lines",
        count(example=100),
        0,
        "HYPERACTOR_MESH_TAIL_LOG_LINES",
        "How many of the last lines that a dead proc printed its failure report shows; never fewer than 10.",
    ),
    Knob(
        "prefix_with_rank",
        BOOL,
        True,
        "HYPERACTOR_PREFIX_WITH_RANK",
        "Begin each line of a proc's output that is passed on or reported with the proc's rank.",
    ),
    Knob(
        "enable_log_forwarding",
        BOOL,
        False,
        "HYPERACTOR_MESH_ENABLE_LOG_FORWARDING",
        "Send the output of procs to the client; `logging_option(stream_to_client=True)` needs it.",
        _NO_LOG_PLANE_YET,
    ),
    Knob(
        "enable_file_capture",
        BOOL,
        False,
        "HYPERACTOR_MESH_ENABLE_FILE_CAPTURE",
        "Write the output of procs to files, one pair per host.",
        _NO_LOG_PLANE_YET,
    ),
    Knob(
        "read_log_buffer",
        count(1, example=100),
        100,
        "HYPERACTOR_READ_LOG_BUFFER",
        "Lines read from a proc's output at a time.",
        _NO_LOG_PLANE_YET,
    ),
    Knob(
        "force_file_log",
        BOOL,
        False,
        "HYPERACTOR_FORCE_FILE_LOG",
        "Capture to files also where it would be off.",
        _NO_LOG_PLANE_YET,
    ),
    Knob(
        "file_log_level",
        STR,
        "",
        "MONARCH_FILE_LOG",
        "Lowest level of the internal log file.",
        _accepted("the internal log file is not written yet"),
    ),
    Knob(
        "monarch_log_suffix",
        STR,
        "",
        "MONARCH_LOG_SUFFIX",
        "Added to the name of the internal log file.",
        _accepted("the internal log file is not written yet"),
    ),
)


def _rdma(name: str, kind: Kind, default: object, effect: str, status: str = APPLIES) -> Knob:
    return Knob(name, kind, default, f"MONARCH_{name.upper()}", effect, status)


_RDMA = (
    _rdma("rdma_allow_tcp_fallback", BOOL, True, "Move bytes in messages where no faster path is open."),
    _rdma("rdma_disable_ibverbs", BOOL, False, "Never use RDMA devices."),
    _rdma("rdma_max_chunk_size_mb", count(1), 64, "Path `messages`: most MiB per chunk; it takes 4 if it may."),
    _rdma(
        "rdma_paths",
        STR,
        "",
        "The paths that transfers may take, for example `vm,messages`; empty is all. docs/rdma.md has the list.",
    ),
    _rdma(
        "rdma_lease_grace",
        DURATION,
        "5m",
        "How long the memory of a buffer stays for handles that are on their way in messages, when no process has one.",
    ),
    _rdma(
        "rdma_tcp_fallback_parallelism",
        count(1),
        1,
        "TCP fallback: connections per transfer.",
        _accepted("several chunks are always under way, over the one connection that there is"),
    ),
    _rdma(
        "rdma_runtime_worker_threads",
        count(1),
        4,
        "Threads of the RDMA runtime, fixed at its first use.",
        _accepted("threads come and go with the work"),
    ),
    _rdma(
        "rdma_ibverbs_target",
        STR,
        "",
        "The device to use: `cpu:<numa>`, `gpu:<ordinal>` or `nic:<name>`.",
        _NIXL_CHOOSES,
    ),
    _rdma(
        "rdma_peer_device_affinity",
        STR,
        "",
        "Which devices pair up: `any`, `match_name` or `groups:a,b|c,d`.",
        _NIXL_CHOOSES,
    ),
    _rdma("rdma_qp_init_timeout", DURATION, "30s", "Path `nixl`: how long an owner may take to open it."),
    _rdma(
        "rdma_max_nics_per_buffer",
        count(1, optional=True),
        None,
        "Most devices that share one transfer.",
        _NIXL_CHOOSES,
    ),
    _rdma(
        "rdma_min_stripe_size_kb",
        count(),
        512,
        "Smallest share of a transfer, in KiB, worth a device of its own.",
        _NIXL_CHOOSES,
    ),
    _rdma("rdma_qps_per_cq", count(1), 64, "Queue pairs per completion queue.", _NIXL_CHOOSES),
    _rdma("rdma_qps_per_peer", count(1), 4, "Queue pairs per peer device.", _NIXL_CHOOSES),
    _rdma(
        "rdma_cq_poller_per_device", BOOL, True, "One polling thread per device instead of one for all.", _NIXL_CHOOSES
    ),
    _rdma("rdma_host_odp", BOOL, False, "Register host memory on demand.", _NIXL_CHOOSES),
)

KNOBS: tuple[Knob, ...] = (*_SPAWN_AND_STOP, *_FAILURES, *_MESSAGES, *_NETWORK, *_LOGS, *_RDMA)
BY_NAME: dict[str, Knob] = {name: knob for knob in KNOBS for name in (knob.name, *knob.aliases)}
