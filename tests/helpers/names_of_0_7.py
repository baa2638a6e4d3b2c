"""The public names of Monarch 0.7, module by module, with the private ones that programs import;
and what becomes of each.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable

WITHOUT_TORCH = {
    "monarch": (
        "ActorFuture Extent Future NDSlice Selection Shape clear_runtime_config configure"
        " configured get_global_config get_runtime_config mast_reserve"
    ),
    "monarch.actor": (
        "Accumulator Actor ActorError Channel ChannelTransport Context Endpoint Extent Future"
        " HostMesh MeshFailure Point Port PortReceiver ProcId ProcMesh Uid ValueMesh as_endpoint"
        " attach attach_to_workers concurrent_endpoint config context current_actor_name"
        " current_rank current_size debug_controller default_bootstrap_cmd enable_transport"
        " endpoint get_meter get_or_spawn_controller returns_future run_worker_loop_forever"
        " run_worker_loop_until_shutdown send shutdown_context span start_worker_loop_forever"
        " this_host this_proc traced unhandled_fault_hook"
    ),
    "monarch.actor.concurrent": "concurrent_endpoint",
    "monarch.config": (
        "Encoding clear_runtime_config configure configured get_global_config get_runtime_config"
        " parametrize_config parametrize_config_pointwise"
    ),
    "monarch.experimental.thread_timeout": "ThreadTimeout ThreadTimeoutError",
    "monarch.job": (
        "DEFAULT_JOB_PATH JobState JobTrait LocalJob MeshAdminConfig PortForwarder ProcessJob"
        " SERVICE_PROC_IDS_ENV SERVICE_PROC_RANK_ENV SlurmJob TelemetryConfig"
        " deserialize_service_proc_ids exec_command hosts_from_config job_load job_loads"
        " load_current_job new_service_proc_id ranked_service_proc_id_from_env"
        " serialize_service_proc_ids service_proc_addr service_proc_addrs set_current_job shell"
    ),
    "monarch.job.kubernetes": "ImageSpec KubeConfig KubernetesJob",
    "monarch.job.spmd": "SPMDJob StoreJob serve",
    "monarch.notebook": "cleanup connect list_mast_jobs mast_mesh reserve_torchx",
    "monarch.rdma": (
        "RDMAAction RDMABuffer RDMAReadTransferWarning RDMATcpFallbackWarning"
        " RDMAWriteTransferWarning get_rdma_backend is_ibverbs_available is_rdma_available"
    ),
    "monarch.spmd": "SPMDActor setup_torch_elastic_env setup_torch_elastic_env_async",
    "monarch.tools.cli": "get_parser main",
    "monarch.tools.commands": (
        "bounce create get_or_create info kill kill_and_confirm server_ready stop torchx_runner"
    ),
    "monarch.tools.config": "Config NOT_SET Workspace",
    "monarch.tools.config.defaults": "component_fn config",
    "monarch.tools.config.environment": "CondaEnvironment",
    "monarch.tools.config.workspace": "Workspace",
    "monarch.tools.mesh_spec": (
        "MeshSpec ServerSpec mesh_spec_from_metadata mesh_spec_from_str tag_as_metadata"
    ),
    "monarch.tools.network": "AddrType get_ipaddr get_sockaddr",
    "monarch.tools.utils": "MONARCH_HOME conda",
    "monarch._rust_bindings.monarch_hyperactor.channel": "BindSpec ChannelTransport",
    "monarch._rust_bindings.monarch_hyperactor.config": (
        "Encoding clear_runtime_config configure get_global_config get_runtime_config"
        " reload_config_from_env reset_config_to_defaults"
    ),
    "monarch._rust_bindings.monarch_hyperactor.handle": "WouldBlockRuntime",
    "monarch._rust_bindings.monarch_hyperactor.host_mesh": "BootstrapCommand",
    "monarch._rust_bindings.monarch_hyperactor.mailbox": "UndeliverableMessageEnvelope",
    "monarch._rust_bindings.monarch_hyperactor.proc": "ActorAddr ProcId Uid",
    "monarch._rust_bindings.monarch_hyperactor.pytokio": "PythonTask Shared",
    "monarch._rust_bindings.monarch_hyperactor.shape": "Extent Point Region Shape Slice",
    "monarch._rust_bindings.monarch_hyperactor.supervision": "MeshFailure SupervisionError",
    "monarch._rust_bindings.rdma": "RdmaInitError",
    "monarch.actor_mesh": (
        "Accumulator Actor ActorError ActorMesh Channel Context Port PortReceiver ValueMesh"
        " as_endpoint context current_rank send"
    ),
    "monarch.proc_mesh": (
        "ProcMesh get_or_spawn_controller register_proc_mesh_spawn_callback"
        " unregister_proc_mesh_spawn_callback"
    ),
    "monarch._src.actor.actor_mesh": (
        "Accumulator Actor ActorError ActorMesh Channel Context Port PortReceiver ValueMesh"
        " as_endpoint context current_rank send"
    ),
    "monarch._src.actor.allocator": "LocalAllocator ProcessAllocator RemoteAllocator",
    "monarch._src.actor.endpoint": "Endpoint EndpointProperty endpoint",
    "monarch._src.actor.future": "Future",
    "monarch._src.actor.host_mesh": "HostMesh this_host this_proc",
    "monarch._src.actor.proc_mesh": (
        "ProcMesh get_or_spawn_controller register_proc_mesh_spawn_callback"
        " unregister_proc_mesh_spawn_callback"
    ),
    "monarch._src.actor.shape": "MeshTrait NDSlice Shape",
    "monarch._src.job.job": "BatchJob JobState JobTrait LocalJob job_load",
    "monarch._src.job.kubernetes": "ImageSpec KubeConfig KubernetesJob",
    "monarch._src.job.process": "ProcessJob",
    "monarch._src.job.service_identity": (
        "allocate_service_proc_ids new_service_proc_id service_proc_addr"
    ),
    "monarch._src.rdma.rdma": "RDMAAction RDMABuffer",
}
"""Modules that need no torch, and their names."""

WITH_TORCH = {
    "monarch": (
        "OpaqueRef RemoteProcessGroup Simulator Stream Tensor builtins call_on_shard_and_fetch"
        " coalescing fetch_shard function_resolvers get_active_mesh get_active_stream grad_function"
        " grad_generator inspect no_mesh reduce reduce_ remote set_meta show slice_mesh timer"
        " to_mesh world_mesh"
    ),
    "monarch.builtins": "log_remote set_logging_level_remote",
    "monarch.builtins.log": "log_remote set_logging_level_remote",
    "monarch.builtins.random": (
        "get_rng_state_all_cuda_remote get_rng_state_remote manual_seed_all_cuda_remote"
        " manual_seed_cuda_remote random_seed_remote seed_remote set_manual_seed_remote"
        " set_rng_state_all_cuda_remote set_rng_state_remote"
    ),
    "monarch.cached_remote_function": "remote_autograd_function",
    "monarch.common._coalescing": "coalescing compile",
    "monarch.common.device_mesh": "DeviceMesh get_active_mesh no_mesh slice_mesh to_mesh",
    "monarch.common.invocation": "DeviceException RemoteException",
    "monarch.common.opaque_ref": "OpaqueRef",
    "monarch.common.pipe": "Pipe create_pipe remote_generator",
    "monarch.common.remote": "call_on_shard_and_fetch remote",
    "monarch.common.stream": "Stream get_active_stream",
    "monarch.common.tensor": "Tensor reduce reduce_",
    "monarch.common.tree": "flatten flattener",
    "monarch.fetch": "call_on_shard_and_fetch fetch_shard inspect show",
    "monarch.gradient": "GradientGenerator",
    "monarch.gradient_generator": "grad_function grad_generator gradient_execution_order",
    "monarch.memory": "dump_memory_snapshot record_memory_history",
    "monarch.mesh_controller": "RemoteException spawn_tensor_engine",
    "monarch.opaque_module": "OpaqueModule",
    "monarch.opaque_object": "OpaqueObject opaque_method",
    "monarch.opaque_ref": "OpaqueRef",
    "monarch.parallel": "PipelineParallelism get_parameter_udf",
    "monarch.parallel.pipelining": "",
    "monarch.parallel.pipelining.runtime": "PipelineParallelism get_parameter_udf",
    "monarch.profiler": "Schedule profile record_function",
    "monarch.python_local_mesh": "python_local_mesh",
    "monarch.random": "State get_state make_deterministic new_state set_state",
    "monarch.remote_class": "ControllerRemoteClass WorkerRemoteClass remote_method",
    "monarch.safe_torch": "torch",
    "monarch.simulator.communication_model": (
        "NetworkConfig estimate_collective_time_us estimate_send_time_us tensor_size_bytes"
    ),
    "monarch.simulator.config": "set_meta",
    "monarch.simulator.interface": "Simulator",
    "monarch.simulator.ir": (
        "BorrowInfo Command DataEvent IRGraph SendTensorInfo StorageCreationEvent"
        " StorageDeletionEvent TensorAccessEvent TensorCreationEvent TensorDeletionEvent"
        " TensorMutationEvent"
    ),
    "monarch.simulator.simulator": "Simulator SimulatorBackendMode SimulatorTraceMode set_meta",
    "monarch.simulator.utils": "file_path_with_iter",
    "monarch.tensorboard": "Tensorboard",
    "monarch.timer": "ExecutionTimer execution_timer_start execution_timer_stop",
    "monarch.timer.execution_timer": "get_execution_timer_average_ms get_latest_timer_measurement",
    "monarch.world_mesh": "world_mesh",
    "monarch._src.actor.mock": (
        "get_actor_class get_tensor_engine_factory patch_actor patch_tensor_engine"
    ),
}
"""Modules whose names need torch."""

REFUSED = {
    "monarch._src.actor.allocator": "attach_to_workers",
    "monarch._rust_bindings.monarch_hyperactor.pytokio": "returns_future",
}
"""Modules without a counterpart here: importing a name from them fails with an error that has this
text.
"""


def outcomes(modules: dict[str, str]) -> dict[str, str]:
    """Import each module in a process in which nothing of monarch has been imported; "" or what
    went wrong.

    What they need of torch and the standard library is imported once, for the sake of time.
    """
    for needed in _in_child(lambda: _needed(modules)).split():
        importlib.import_module(needed)
    return {
        module: _in_child(lambda: _outcome(module, names.split()))  # noqa: B023
        for module, names in modules.items()
    }


def _in_child(function: Callable[[], str]) -> str:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        with os.fdopen(write, "w") as answer:
            answer.write(function())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    status = os.waitpid(pid, 0)[1]
    return f"the process died with status {status}" if status else text


def _needed(modules: dict[str, str]) -> str:
    for module, names in modules.items():
        _outcome(module, names.split())
    return " ".join(
        name for name in sys.modules if name.split(".")[0] in (*sys.stdlib_module_names, "torch")
    )


def _outcome(module: str, names: list[str]) -> str:
    try:
        namespace: dict[str, object] = {}
        for name in names:
            _import(module, name, namespace)
        importlib.import_module(module)
    except BaseException:
        return traceback.format_exc()[-3000:]
    return ""


def _import(module: str, name: str, namespace: dict[str, object]) -> None:
    way_out = REFUSED.get(module)
    try:
        exec(f"from {module} import {name}", namespace)
    except ImportError as error:
        if way_out is None or way_out not in str(error):
            raise
    else:
        if way_out is not None:
            raise AssertionError(f"{module}.{name} was to be refused, and is {namespace[name]!r}")


def main() -> None:
    """Print the outcomes of all modules as JSON."""
    gc.disable()  # there is little garbage, and much of torch to look through for some
    every = {"without torch": outcomes(WITHOUT_TORCH)}
    if importlib.util.find_spec("torch") is not None:
        every["with torch"] = outcomes(WITH_TORCH)
    assert "monarch" not in sys.modules
    print(json.dumps(every))


if __name__ == "__main__":
    main()
