"""Where objects of Monarch 0.7 say that they are from, and clients import them from: modules that
are private there, or public ones that are elsewhere here; with the names that stand for something.
"""

HOMES = {
    "monarch._rust_bindings": "has_tensor_engine",
    "monarch._rust_bindings.monarch_hyperactor.channel": "BindSpec ChannelTransport",
    "monarch._rust_bindings.monarch_hyperactor.config": "Encoding configure",
    "monarch._rust_bindings.monarch_hyperactor.handle": "WouldBlockRuntime",
    "monarch._rust_bindings.monarch_hyperactor.mailbox": "UndeliverableMessageEnvelope",
    "monarch._rust_bindings.monarch_hyperactor.proc": "ActorAddr ProcId Uid",
    "monarch._rust_bindings.monarch_hyperactor.proc_mesh": "HyProcMesh",
    "monarch._rust_bindings.monarch_hyperactor.selection": "Selection",
    "monarch._rust_bindings.monarch_hyperactor.shape": (
        "Extent HyPoint NDSlice Point Region Shape Slice"
    ),
    "monarch._rust_bindings.monarch_hyperactor.supervision": "MeshFailure SupervisionError",
    "monarch._src.actor.actor_mesh": (
        "Accumulator Actor ActorError ActorMesh Channel Context CreatorInstance Instance "
        "Point Port PortReceiver RankedPortReceiver ValueMesh as_endpoint attach context "
        "current_actor_name current_rank current_size enable_transport send shutdown_context"
    ),
    "monarch._src.actor.bootstrap": (
        "attach_to_workers run_worker_loop_forever run_worker_loop_until_shutdown "
        "start_worker_loop_forever"
    ),
    "monarch._src.actor.concurrent": "concurrent_endpoint",
    "monarch._src.actor.debugger.debug_controller": "debug_controller",
    "monarch._src.actor.future": "Future",
    "monarch._src.actor.host_mesh": "HostMesh default_bootstrap_cmd this_host this_proc",
    "monarch._src.actor.proc_mesh": (
        "ProcMesh get_active_proc_meshes get_or_spawn_controller "
        "register_proc_mesh_spawn_callback unregister_proc_mesh_spawn_callback"
    ),
    "monarch._src.actor.returns_future": "returns_future",
    "monarch._src.actor.shape": "MeshTrait",
    "monarch._src.actor.supervision": "unhandled_fault_hook",
    "monarch._src.actor.sync_state": "fake_sync_state",
    "monarch._src.actor.telemetry": "get_meter span traced",
    "monarch._src.gather_mount.gather_mount": "gather_mount",
    "monarch._src.job.host_mesh": "hosts_from_config",
    "monarch._src.job.job": (
        "JobTrait LocalJob exec_command job_load job_loads load_current_job set_current_job "
        "BatchJob SSHJob"
    ),
    "monarch._src.job.job_components": "MeshAdminConfig",
    "monarch._src.job.job_state": "JobState",
    "monarch._src.job.port_forward": "PortForwarder",
    "monarch._src.job.process": "ProcessJob",
    "monarch._src.job.service_identity": (
        "deserialize_service_proc_ids new_service_proc_id ranked_service_proc_id_from_env "
        "serialize_service_proc_ids service_proc_addr service_proc_addrs"
    ),
    "monarch._src.job.shell": "shell",
    "monarch._src.job.slurm": "SlurmJob",
    "monarch._src.job.telemetry_config": "TelemetryConfig",
    "monarch._src.rdma.rdma": (
        "RDMAAction RDMABuffer RDMAReadTransferWarning RDMATcpFallbackWarning "
        "RDMAWriteTransferWarning get_rdma_backend is_ibverbs_available is_rdma_available"
    ),
    "monarch._src.spmd": "setup_torch_elastic_env setup_torch_elastic_env_async",
    "monarch._src.spmd.actor": "SPMDActor",
    "monarch._src.tools.commands": (
        "apply_job context_create context_ls context_rm context_use create debug exec_on_job "
        "get_or_create info kill kill_and_confirm load_current_job server_ready shell_on_job "
        "torchx_runner"
    ),
    "monarch.common.future": "Future",
}

HOMES_WITH_TORCH = {
    "monarch._rust_bindings.monarch_hyperactor.endpoint": "ActorEndpoint Remote",
    "monarch.cached_remote_function": "remote_autograd_function",
    "monarch.common._coalescing": "coalescing compile",
    "monarch.common.borrows": "Borrow",
    "monarch.common.device_mesh": (
        "DeviceMesh RemoteProcessGroup get_active_mesh no_mesh slice_mesh to_mesh"
    ),
    "monarch.common.invocation": "DeviceException RemoteException",
    "monarch.common.opaque_ref": "OpaqueRef",
    "monarch.common.pipe": "Pipe create_pipe remote_generator",
    "monarch.common.process_group": "SingleControllerProcessGroupWrapper",
    "monarch.common.remote": "call_on_shard_and_fetch remote",
    "monarch.common.stream": "Stream get_active_stream",
    "monarch.common.tensor": "Tensor reduce reduce_",
    "monarch.common.tree": "flatten flattener",
    "monarch.fetch": "fetch_shard inspect show",
    "monarch.mesh_controller": "RemoteException spawn_tensor_engine",
    "monarch.opaque_module": "OpaqueModule",
    "monarch.opaque_object": "OpaqueObject opaque_method",
    "monarch.remote_class": "ControllerRemoteClass WorkerRemoteClass",
    "monarch.simulator.config": "set_meta",
    "monarch.simulator.interface": "Simulator",
    "monarch.world_mesh": "world_mesh",
}
