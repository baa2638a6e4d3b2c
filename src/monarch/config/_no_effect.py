"""The keys of Monarch 0.7 that have nothing to govern here, by the reason why.

Old programs set them, so they are accepted, checked as 0.7 checks them, inherited and listed.
Whoever makes one work moves it to `_table.py`.
"""

from __future__ import annotations

from ._kinds import BOOL, DURATION, ENCODING, FLOAT, STR, TRANSPORT, Kind, count

NO_EFFECT: dict[str, tuple[tuple[str, Kind, object] | tuple[str, Kind, object, str], ...]] = {
    "a death is told by the kernel or a closed link, so nothing waits for silence": (
        ("actor_spawn_max_idle", DURATION, "30s", "HYPERACTOR_MESH_ACTOR_SPAWN_MAX_IDLE"),
        ("get_actor_state_max_idle", DURATION, "30s", "HYPERACTOR_MESH_GET_ACTOR_STATE_MAX_IDLE"),
        ("get_proc_state_max_idle", DURATION, "1m", "HYPERACTOR_MESH_GET_PROC_STATE_MAX_IDLE"),
        (
            "supervision_watchdog_timeout",
            DURATION,
            "2m",
            "HYPERACTOR_MESH_SUPERVISION_WATCHDOG_TIMEOUT",
        ),
        # `host_spawn_ready_timeout` bounds each proc
        ("mesh_proc_spawn_max_idle", DURATION, "30s"),
    ),
    "`channel_reconnect_timeout` says when a host is lost": (
        ("server_heartbeat_interval", DURATION, "1s"),
    ),
    "the kernel always ends a proc when its parent dies": (
        ("mesh_bootstrap_enable_pdeathsig", BOOL, True),
    ),
    "`cleanup_timeout` and `process_exit_timeout` bound a stop, in which all procs are signalled together": (
        ("mesh_terminate_concurrency", count(), 16),
        ("mesh_terminate_timeout", DURATION, "10s"),
        ("proc_stop_max_idle", DURATION, "30s", "HYPERACTOR_MESH_PROC_STOP_MAX_IDLE"),
        ("stop_grace_period", DURATION, "10s"),
    ),
    "there is one launcher; `proc_spawn_method` says how it works": (
        ("proc_launcher_kind", STR, "", "HYPERACTOR_MESH_PROC_LAUNCHER_KIND"),
        ("use_direct_spawn", BOOL, False, "HYPERACTOR_MESH_USE_DIRECT_SPAWN"),
    ),
    "links are always acknowledged": (
        ("message_ack_every_n_messages", count(), 1000),
        ("message_ack_time_interval", DURATION, "500ms"),
    ),
    "messages take one way and are not passed around in circles": (
        ("message_ttl_default", count(maximum=255), 64),
    ),
    "a full buffer slows its sender at once: `send_buffer_limit`, `mailbox_limit`": (
        ("channel_net_rx_buffer_full_check_interval", DURATION, "5s"),
    ),
    "messages are written when they are sent, and not gathered": (
        ("small_write_threshold", count(), 256, "MONARCH_HYPERACTOR_SMALL_WRITE_THRESHOLD"),
        ("split_max_buffer_age", DURATION, "50ms"),
        ("split_max_buffer_size", count(), 5),
    ),
    "order is a guarantee, and its numbers take no locks": (
        ("enable_dest_actor_reordering_buffer", BOOL, True),
        ("sequencer_max_locked_keys", count(1), 128),
    ),
    "`max_cast_fanout` alone splits a broadcast, whatever the dimensions of the mesh": (
        ("max_cast_dimension_size", count(), 16, "HYPERACTOR_MESH_MAX_CAST_DIMENSION_SIZE"),
    ),
    "there is one wire format": (("default_encoding", ENCODING, "Multipart"),),
    "links are made by the client, and used in both directions": (
        ("default_transport", TRANSPORT, "Unix", "HYPERACTOR_MESH_DEFAULT_TRANSPORT"),
        ("forwarder_flush_timeout", DURATION, "5s"),
    ),
    "there is no native runtime": (
        (
            "enable_unawaited_python_task_traceback",
            BOOL,
            False,
            "MONARCH_HYPERACTOR_ENABLE_UNAWAITED_PYTHON_TASK_TRACEBACK",
        ),
        ("tokio_worker_threads", count(1, optional=True), None, "MONARCH_TOKIO_WORKER_THREADS"),
    ),
    "the client always shows what procs print; `ProcMesh.logging_option` says what of it": (
        ("enable_log_forwarding", BOOL, False, "HYPERACTOR_MESH_ENABLE_LOG_FORWARDING"),
        ("read_log_buffer", count(), 100),
    ),
    "`enable_file_capture` alone says whether there are files": (("force_file_log", BOOL, False),),
    "nothing is written to files of traces, or to Meta's stores": (
        ("enable_recorder_tracing", BOOL, True, "ENABLE_RECORDER_TRACING"),
        ("enable_sqlite_tracing", BOOL, False, "ENABLE_SQLITE_TRACING"),
        ("message_latency_sampling_rate", FLOAT, 0.01),
        ("process_memory_metric_interval", DURATION, "5m"),
        ("scuba_log_enter_exit", BOOL, False, "SCUBA_LOG_ENTER_EXIT"),
    ),
    "a host agent answers for all processes of its host; `mesh_admin_single_host_timeout` bounds that": (
        ("mesh_admin_pyspy_bridge_timeout", DURATION, "13s"),
        ("mesh_admin_pyspy_client_timeout", DURATION, "20s"),
        ("mesh_admin_query_child_timeout", DURATION, "100ms"),
        ("mesh_admin_resolve_actor_timeout", DURATION, "200ms"),
    ),
    "a mesh that was stopped is forgotten; what has failed is known as long as its owner lives": (
        ("terminated_snapshot_retention", count(), 100),
    ),
    "nixl and UCX choose the devices; UCX has variables of its own (`UCX_NET_DEVICES`, ...)": (
        ("rdma_cq_poller_per_device", BOOL, True, "MONARCH_RDMA_CQ_POLLER_PER_DEVICE"),
        ("rdma_host_odp", BOOL, False, "MONARCH_RDMA_HOST_ODP"),
        ("rdma_ibverbs_target", STR, "", "MONARCH_RDMA_IBVERBS_TARGET"),
        (
            "rdma_max_nics_per_buffer",
            count(1, optional=True),
            None,
            "MONARCH_RDMA_MAX_NICS_PER_BUFFER",
        ),
        ("rdma_min_stripe_size_kb", count(1), 512, "MONARCH_RDMA_MIN_STRIPE_SIZE_KB"),
        ("rdma_peer_device_affinity", STR, "", "MONARCH_RDMA_PEER_DEVICE_AFFINITY"),
        ("rdma_qps_per_cq", count(1), 64, "MONARCH_RDMA_QPS_PER_CQ"),
        ("rdma_qps_per_peer", count(1), 4, "MONARCH_RDMA_QPS_PER_PEER"),
    ),
    "several chunks are always under way, on threads that come and go with the work": (
        ("rdma_runtime_worker_threads", count(), 4, "MONARCH_RDMA_RUNTIME_WORKER_THREADS"),
        ("rdma_tcp_fallback_parallelism", count(), 1, "MONARCH_RDMA_TCP_FALLBACK_PARALLELISM"),
    ),
}
"""Reason to rows: name, kind, default, and the environment variable where it is not ``HYPERACTOR_``
and the name.
"""
