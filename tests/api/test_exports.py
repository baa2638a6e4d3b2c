"""Every public name is importable from the paths that programs import it from, and what is not
there yet says so.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import prompt
from helpers.each import for_each

ACTOR_NAMES = [
    "Actor",
    "endpoint",
    "concurrent_endpoint",
    "as_endpoint",
    "Endpoint",
    "send",
    "Accumulator",
    "Future",
    "returns_future",
    "ValueMesh",
    "Channel",
    "Port",
    "PortReceiver",
    "context",
    "Context",
    "current_rank",
    "current_size",
    "current_actor_name",
    "Point",
    "Extent",
    "HostMesh",
    "ProcMesh",
    "this_host",
    "this_proc",
    "default_bootstrap_cmd",
    "get_or_spawn_controller",
    "attach_to_workers",
    "run_worker_loop_forever",
    "run_worker_loop_until_shutdown",
    "start_worker_loop_forever",
    "attach",
    "enable_transport",
    "ChannelTransport",
    "shutdown_context",
    "unhandled_fault_hook",
    "ActorError",
    "MeshFailure",
    "debug_controller",
    "config",
    "span",
    "traced",
    "get_meter",
    "ProcId",
    "Uid",
]

# Hidden in Monarch although programs need them; public here.
ALSO_PUBLIC = ["SupervisionError", "BootstrapCommand", "ActorMesh"]

CONFIG_NAMES = [
    "configure",
    "configured",
    "get_global_config",
    "get_runtime_config",
    "clear_runtime_config",
    "Encoding",
    "parametrize_config",
    "parametrize_config_pointwise",
]

JOB_NAMES = [
    "DEFAULT_JOB_PATH",
    "JobTrait",
    "JobState",
    "LocalJob",
    "ProcessJob",
    "SSHJob",
    "SlurmJob",
    "TelemetryConfig",
    "MeshAdminConfig",
    "PortForwarder",
    "job_load",
    "job_loads",
    "load_current_job",
    "set_current_job",
    "exec_command",
    "shell",
    "hosts_from_config",
]

RDMA_NAMES = [
    "RDMABuffer",
    "RDMAAction",
    "RDMATcpFallbackWarning",
    "RDMAReadTransferWarning",
    "RDMAWriteTransferWarning",
    "is_ibverbs_available",
    "is_rdma_available",
    "get_rdma_backend",
]

PRIVATE_PATHS = {
    "monarch._rust_bindings.monarch_hyperactor.supervision": ["SupervisionError", "MeshFailure"],
    "monarch._rust_bindings.monarch_hyperactor.handle": ["WouldBlockRuntime"],
    "monarch._rust_bindings.monarch_hyperactor.shape": [
        "Shape",
        "Slice",
        "Region",
        "Point",
        "Extent",
    ],
    "monarch._rust_bindings.monarch_hyperactor.host_mesh": ["BootstrapCommand"],
    "monarch._rust_bindings.monarch_hyperactor.mailbox": ["UndeliverableMessageEnvelope"],
    "monarch._rust_bindings.monarch_hyperactor.channel": ["ChannelTransport"],
    "monarch._src.actor.actor_mesh": [
        "ActorMesh",
        "Actor",
        "ActorError",
        "ValueMesh",
        "Channel",
        "Port",
        "PortReceiver",
        "context",
    ],
    "monarch._src.actor.endpoint": ["endpoint", "Endpoint"],
    "monarch._src.actor.future": ["Future"],
    "monarch._src.actor.host_mesh": ["HostMesh", "this_host", "this_proc"],
    "monarch._src.actor.proc_mesh": [
        "ProcMesh",
        "get_or_spawn_controller",
        "register_proc_mesh_spawn_callback",
        "unregister_proc_mesh_spawn_callback",
    ],
    "monarch._src.actor.mock": ["patch_actor"],
    "monarch._src.job.job": ["BatchJob", "JobState", "JobTrait", "LocalJob", "job_load"],
    "monarch._src.job.process": ["ProcessJob"],
    "monarch._src.actor.shape": ["MeshTrait"],
    "monarch._src.rdma.rdma": ["RDMABuffer", "RDMAAction", "is_rdma_available", "get_rdma_backend"],
    "monarch._rust_bindings.rdma": ["RdmaInitError"],
}


@for_each("name", ACTOR_NAMES + ALSO_PUBLIC)
def test_the_actor_package_has_the_name(name: str) -> None:
    assert hasattr(importlib.import_module("monarch.actor"), name)


@for_each("name", [*ACTOR_NAMES, *ALSO_PUBLIC])
def test_the_actor_package_lists_the_name(name: str) -> None:
    assert name in importlib.import_module("monarch.actor").__all__


def test_everything_that_the_actor_package_lists_is_there() -> None:
    actor = importlib.import_module("monarch.actor")
    assert [name for name in actor.__all__ if not hasattr(actor, name)] == []
    assert sorted(set(actor.__all__)) == sorted(actor.__all__)


def test_concurrent_exports_only_its_endpoint() -> None:
    concurrent = importlib.import_module("monarch.actor.concurrent")
    assert concurrent.__all__ == ["concurrent_endpoint"]
    assert (
        concurrent.concurrent_endpoint
        is importlib.import_module("monarch.actor").concurrent_endpoint
    )


@for_each("name", RDMA_NAMES)
def test_the_rdma_package_has_the_name(name: str) -> None:
    rdma = importlib.import_module("monarch.rdma")
    assert hasattr(rdma, name)
    assert name in rdma.__all__


@for_each("name", CONFIG_NAMES)
def test_the_config_package_has_the_name(name: str) -> None:
    assert hasattr(importlib.import_module("monarch.config"), name)


@for_each("name", JOB_NAMES)
def test_the_job_package_has_the_name(name: str) -> None:
    job = importlib.import_module("monarch.job")
    assert hasattr(job, name)
    assert name in job.__all__


def test_the_default_job_path_is_that_of_old_programs() -> None:
    assert importlib.import_module("monarch.job").DEFAULT_JOB_PATH == ".monarch/job_state.pkl"


@for_each("name", ["SPMDActor", "setup_torch_elastic_env", "setup_torch_elastic_env_async"])
def test_the_spmd_package_has_the_name(name: str) -> None:
    assert hasattr(importlib.import_module("monarch.spmd"), name)


@for_each("name", ["Extent", "Shape", "NDSlice", *CONFIG_NAMES[:5]])
def test_the_top_level_has_the_name(name: str) -> None:
    assert hasattr(importlib.import_module("monarch"), name)


@for_each("name", ["Future", "ActorFuture", "Selection", "mast_reserve"])
def test_the_top_level_has_names_that_need_no_torch(name: str) -> None:
    assert hasattr(importlib.import_module("monarch"), name)


def test_a_star_import_brings_all_that_is_there() -> None:
    namespace: dict[str, Any] = {}
    exec("from monarch import *", namespace)
    assert {"Extent", "Future", "Selection", "Shape", "configure"} <= set(namespace)
    if importlib.util.find_spec("torch") is not None:
        assert {
            "Tensor",
            "builtins",
            "grad_function",
            "reduce",
            "remote",
            "timer",
            "world_mesh",
        } <= set(namespace)
        assert namespace["builtins"].log_remote is not None


def test_helpers_for_a_cluster_of_meta_say_what_to_use_instead() -> None:
    notebook = importlib.import_module("monarch.notebook")
    for name in ("reserve_torchx", "mast_mesh", "connect", "list_mast_jobs", "cleanup"):
        with pytest.raises(NotImplementedError, match="instead"):
            getattr(notebook, name)("job")
    with pytest.raises(NotImplementedError, match=r"monarch\.job"):
        importlib.import_module("monarch").mast_reserve(hosts=2)


TENSOR_PATHS = {
    "monarch.builtins": ["log_remote", "set_logging_level_remote"],
    "monarch.builtins.random": [
        "get_rng_state_all_cuda_remote",
        "get_rng_state_remote",
        "manual_seed_all_cuda_remote",
        "manual_seed_cuda_remote",
        "random_seed_remote",
        "seed_remote",
        "set_manual_seed_remote",
        "set_rng_state_all_cuda_remote",
        "set_rng_state_remote",
    ],
    "monarch.cached_remote_function": ["remote_autograd_function"],
    "monarch.common.pipe": ["Pipe", "create_pipe", "remote_generator"],
    "monarch.memory": ["dump_memory_snapshot", "record_memory_history"],
    "monarch.opaque_module": ["OpaqueModule"],
    "monarch.opaque_object": ["OpaqueObject", "opaque_method"],
    "monarch.opaque_ref": ["OpaqueRef"],
    "monarch.profiler": ["Schedule", "profile", "record_function"],
    "monarch.python_local_mesh": ["python_local_mesh", "world_mesh"],
    "monarch.random": ["State", "get_state", "make_deterministic", "new_state", "set_state"],
    "monarch.remote_class": ["ControllerRemoteClass", "WorkerRemoteClass", "remote_method"],
    "monarch.safe_torch": ["torch"],
    "monarch.tensorboard": ["Tensorboard"],
    "monarch.timer": ["ExecutionTimer", "execution_timer_start", "execution_timer_stop"],
    "monarch.timer.execution_timer": [
        "get_execution_timer_average_ms",
        "get_latest_timer_measurement",
    ],
}


@for_each("path, name", [(path, name) for path, names in TENSOR_PATHS.items() for name in names])
def test_a_path_of_tensors_resolves(path: str, name: str) -> None:
    pytest.importorskip("torch")
    assert hasattr(importlib.import_module(path), name)


def test_the_top_level_names_are_the_same_objects() -> None:
    monarch = importlib.import_module("monarch")
    shape = importlib.import_module("monarch._rust_bindings.monarch_hyperactor.shape")
    assert monarch.Extent is importlib.import_module("monarch.actor").Extent
    assert monarch.Shape is shape.Shape
    assert monarch.NDSlice is shape.Slice
    assert monarch.configure is importlib.import_module("monarch.config").configure


@for_each("path, name", [(path, name) for path, names in PRIVATE_PATHS.items() for name in names])
def test_a_private_path_that_programs_use_resolves(path: str, name: str) -> None:
    module = importlib.import_module(path)
    value = getattr(module, name)
    for public in map(importlib.import_module, ("monarch.actor", "monarch.job")):
        if hasattr(public, name):
            assert value is getattr(public, name)


def test_a_private_path_that_does_not_exist_is_an_import_error() -> None:
    for path in (
        "monarch._src.actor.no_such_module",
        "monarch._rust_bindings.no_such_module",
        "monarch.no_such_module",
    ):
        with pytest.raises(ImportError):
            importlib.import_module(path)


def test_an_unknown_top_level_name_is_an_attribute_error() -> None:
    monarch: Any = importlib.import_module("monarch")
    with pytest.raises(AttributeError, match="no_such_name"):
        monarch.no_such_name


def test_the_module_that_starts_a_proc_can_be_found_by_name() -> None:
    assert importlib.util.find_spec("monarch._src.actor.bootstrap_main") is not None


def test_would_block_runtime_and_supervision_error_are_runtime_errors() -> None:
    handle = importlib.import_module("monarch._rust_bindings.monarch_hyperactor.handle")
    assert issubclass(handle.WouldBlockRuntime, RuntimeError)
    assert issubclass(importlib.import_module("monarch.actor").SupervisionError, RuntimeError)


def test_channel_transport_has_its_members() -> None:
    transport = importlib.import_module("monarch.actor").ChannelTransport
    for name in (
        "Unix",
        "TcpWithLocalhost",
        "TcpWithHostname",
        "MetaTlsWithHostname",
        "MetaTlsWithIpV6",
        "Tls",
        "Local",
    ):
        assert hasattr(transport, name)


def test_what_has_no_meaning_here_says_what_to_use() -> None:
    with pytest.raises(NotImplementedError, match="run `monarch debug`"):
        importlib.import_module("monarch.actor").debug_controller()


def test_a_future_can_not_be_made_by_hand() -> None:
    with pytest.raises(TypeError):
        importlib.import_module("monarch.actor").Future()


def test_identities_are_values() -> None:
    actor = importlib.import_module("monarch.actor")
    uid = actor.Uid.instance_from_value(7, label="lab")
    assert uid == actor.Uid.instance_from_value(7, label="lab")
    assert hash(uid) == hash(actor.Uid.from_string(str(uid)))
    assert actor.Uid.from_string(str(uid)) == uid
    assert uid.label == "lab"
    assert uid.is_instance
    assert uid.instance_value == 7
    assert str(uid).startswith("lab<")
    assert actor.Uid.anonymous() != actor.Uid.anonymous()
    proc = actor.ProcId(uid)
    assert proc.uid == uid
    assert proc.label == "lab"
    assert actor.ProcId.from_string(str(proc)) == proc


SLOW = [
    "torch",
    "numpy",
    "http.server",
    "http.client",
    "asyncio",
    "ssl",
    "subprocess",
    "multiprocessing",
    "cloudpickle",
    "random",
    # 2 to 4 ms each, of 30: needed for warnings and errors, by who sends the first object, or by
    # none
    "logging",
    "inspect",
    "dataclasses",
    "traceback",
    "ctypes",
    "uuid",
]
# Modules of ours; each costs some 0.15 ms at the start of every program, and again at that of its
# host agent.
MOST_MODULES = 143


def test_importing_the_public_packages_brings_in_nothing_that_is_slow() -> None:
    program = (
        f"import sys, monarch, monarch.actor, monarch.config\nprint([name for name in {SLOW} if"
        " name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


def test_importing_the_actor_package_brings_in_few_modules_of_ours() -> None:
    program = (
        "import sys, monarch.actor\nprint(*[name for name in sys.modules if name.split('.')[0] =="
        " 'monarch'])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    found = result.stdout.split()
    assert 0 < len(found) <= MOST_MODULES, "\n".join([*found, result.stderr])


@pytest.mark.parametrize(
    "typed", ["why 0", "why 0 --json", "stacks 0 --mesh a", "list 0", "logs --follow", "context ls"]
)
def test_a_command_for_a_program_that_hangs_imports_no_more_than_it_needs(
    typed: str, tmp_path: Path
) -> None:
    """Each of these takes 20 to 85 ms, of 300 from Enter to the answer."""
    costly = ["asyncio", "click", "ssl", "hashlib", "torch", "numpy", "pydantic", "rich.console"]
    program = (
        "import sys\nfrom monarch.tools import cli\ntry:\n"
        f"    cli.main({typed.split()})\nexcept SystemExit:\n    print()\n"
        f"print([name for name in {costly} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert result.stdout.splitlines()[-1:] == ["[]"], result.stdout + result.stderr


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("why 0 --seconds soon", "--seconds"),
        ("why 0 1", "unexpected"),
        ("tui --refresh-ms 1", "100"),
        ("query --output poem x", "--output"),
    ],
)
def test_values_that_fit_no_option_are_refused_by_name(
    typed: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = prompt(monkeypatch, capsys)(*typed.split())
    assert (shown.exit_code, shown.out) == (2, "")
    assert said in shown.err
