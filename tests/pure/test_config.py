"""The settings: layers, parsing, errors, and the decorators for tests.

Most tests use a `Store` of their own with a dict as its environment. Those of the public functions
use the process's one, inside a `configured` block that puts everything back.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.each import for_each
from monarch import config
from monarch.config import Encoding, configure, configured
from monarch.config._kinds import DURATION, text_of
from monarch.config._store import Store
from monarch.config._table import BY_NAME, KNOBS, Knob
from monarch.config._units import duration_text, read_duration, read_size, size_text

pytest_plugins = ["pytester"]

LINES = "tail_log_lines"
LINES_ENV = "HYPERACTOR_MESH_TAIL_LOG_LINES"
DELIVERY_ENV = "HYPERACTOR_MESSAGE_DELIVERY_TIMEOUT"
EVERY_KNOB = for_each("knob", KNOBS)


@pytest.fixture(autouse=True)
def _only_defaults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for knob in KNOBS:
        monkeypatch.delenv(knob.env, raising=False)
    with configured():
        config.clear_runtime_config()
        yield


# precedence


def test_each_layer_wins_over_those_below_it() -> None:
    environ: dict[str, str] = {}
    store = Store(environ)
    assert store.load(LINES) == 0
    store.inherit({LINES: 1}, False)
    assert store.load(LINES) == 1
    environ[LINES_ENV] = "2"
    store.configure({})
    assert store.load(LINES) == 2
    store.configure({LINES: 3})
    assert store.load(LINES) == 3


def test_clearing_configure_uncovers_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LINES_ENV, "7")
    configure(tail_log_lines=3)
    assert config.value(LINES) == 3
    config.clear_runtime_config()
    assert config.value(LINES) == 7


def test_the_environment_is_read_again_after_configure_without_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert config.value(LINES) == 0
    monkeypatch.setenv(LINES_ENV, "7")
    assert config.value(LINES) == 0
    configure()
    assert config.value(LINES) == 7


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LINES_ENV, "")
    assert config.value(LINES) == 0


def test_a_bad_variable_is_reported_when_it_is_read_and_names_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(DELIVERY_ENV, "soon")
    configure()
    assert config.value(LINES) == 0
    with pytest.raises(
        ValueError,
        match=rf"{DELIVERY_ENV} \(message_delivery_timeout\): got 'soon'.*{DELIVERY_ENV}='30s'",
    ):
        config.value("message_delivery_timeout")
    with pytest.raises(ValueError, match=DELIVERY_ENV):
        config.get_global_config()
    configure(message_delivery_timeout=1)
    assert config.value("message_delivery_timeout") == 1.0


# what children get


def test_a_child_sees_what_its_parent_had_in_force() -> None:
    parent = Store({LINES_ENV: "5"})
    parent.inherit({"prefix_with_rank": False}, False)
    parent.configure(
        {"cleanup_timeout": "90s", "default_encoding": Encoding.Json, "preload": ["numpy"]}
    )
    child = Store({})
    child.inherit(pickle.loads(pickle.dumps(parent.exported())), False)
    assert child.everything() == parent.everything()
    assert child.runtime() == {}


def test_what_is_exported_is_plain_and_leaves_defaults_out() -> None:
    parent = Store({})
    assert parent.exported() == {}
    parent.configure(
        {
            "cleanup_timeout": 90,
            "codec_max_frame_length": "1 KiB",
            "default_encoding": Encoding.Json,
        }
    )
    expected = {
        "cleanup_timeout": "1m 30s",
        "codec_max_frame_length": 1024,
        "default_encoding": "Json",
    }
    assert parent.exported() == expected


def test_a_variable_that_configure_overruled_stays_overruled_down_to_grandchildren() -> None:
    environ = {LINES_ENV: "7"}
    client, agent, proc = Store(environ), Store(environ), Store(environ)
    client.configure({LINES: 3})
    agent.inherit(client.exported(), False)
    proc.inherit(agent.exported(), False)
    assert [store.load(LINES) for store in (client, agent, proc)] == [3, 3, 3]


def test_a_variable_set_for_the_child_alone_wins_over_what_it_inherits() -> None:
    client, proc = Store({LINES_ENV: "7"}), Store({LINES_ENV: "9"})
    client.configure({LINES: 3})
    proc.inherit(client.exported(), False)
    assert proc.load(LINES) == 9


def test_what_came_from_the_parents_environment_holds_in_a_child_without_it() -> None:
    child = Store({})
    child.inherit(Store({LINES_ENV: "7"}).exported(), False)
    assert child.load(LINES) == 7


def test_inheriting_ignores_unknown_keys_and_replaces_what_was_inherited_before() -> None:
    store = Store({})
    store.inherit({LINES: 1, "of_a_later_release": object()}, False)
    store.inherit({"prefix_with_rank": False}, False)
    assert store.load(LINES) == 0
    assert store.load("prefix_with_rank") is False


def test_inheriting_keeps_configure_calls_unless_told_that_they_are_copies() -> None:
    store = Store({})
    store.configure({LINES: 3})
    store.inherit({LINES: 1}, False)
    assert store.load(LINES) == 3
    store.inherit({LINES: 1}, True)
    assert store.load(LINES) == 1


def test_an_inherited_mapping_with_a_bad_value_changes_nothing() -> None:
    store = Store({})
    store.inherit({LINES: 1}, False)
    with pytest.raises(TypeError, match=LINES):
        store.inherit({"prefix_with_rank": False, LINES: "many"}, False)
    assert store.load(LINES) == 1
    assert store.load("prefix_with_rank") is True


# configure and the getters


def test_configure_changes_all_or_nothing() -> None:
    configure(tail_log_lines=1)
    before = config.get_global_config()
    with pytest.raises(TypeError):
        configure(tail_log_lines=2, prefix_with_rank="perhaps")
    with pytest.raises(ValueError):
        configure(prefix_with_rank=False, no_such_key=1)
    assert config.get_global_config() == before


@pytest.mark.parametrize(
    ("typo", "nearest"),
    [
        ("tail_log_line", LINES),
        ("mailbox_limits", "mailbox_limit"),
        ("cleanup_time_out", "cleanup_timeout"),
    ],
)
def test_an_unknown_key_is_told_the_nearest_right_one(typo: str, nearest: str) -> None:
    with pytest.raises(
        ValueError, match=f"no configuration key '{typo}': did you mean .*{nearest}"
    ):
        configure(**{typo: 1})
    with pytest.raises(ValueError, match=nearest):
        config.value(typo)


def test_a_key_that_resembles_nothing_is_sent_to_the_list() -> None:
    with pytest.raises(
        ValueError, match=r"'xyzzy': nothing has a name like it.*python -m monarch\.config"
    ):
        configure(xyzzy=1)


@pytest.mark.parametrize(
    ("key", "bad", "told"),
    [
        (
            LINES,
            "3",
            (
                r"got '3' of type str, wanted a whole number, 0 or more, for example"
                r" configure\(tail_log_lines=100\)"
            ),
        ),
        (LINES, True, "of type bool"),
        (LINES, 2.0, "of type float"),
        (LINES, -1, "out of range"),
        (LINES, None, "of type NoneType"),
        (LINES, 2**63, "out of range"),
        ("mailbox_limit", 0, "wanted a whole number, 1 or more"),
        ("tokio_worker_threads", "4", "or None"),
        ("prefix_with_rank", 1, "got 1 of type int, wanted True or False"),
        ("mesh_admin_addr", 1729, "wanted a text"),
        (
            "cleanup_timeout",
            "30",
            r"the unit after 30 is missing.*configure\(cleanup_timeout='30s'\)",
        ),
        ("cleanup_timeout", "", "it is empty"),
        ("cleanup_timeout", "soon", "a number is missing before 'soon'"),
        ("cleanup_timeout", "-1s", "a number is missing before '-1s'"),
        ("cleanup_timeout", "3 fortnights", "'fortnights' is not a unit"),
        ("cleanup_timeout", "1.2.3s", "'1.2.3' is not a number"),
        ("cleanup_timeout", "9" * 41 + "s", "too long"),
        ("cleanup_timeout", -1, "it is negative"),
        ("cleanup_timeout", timedelta(seconds=-1), "it is negative"),
        ("cleanup_timeout", float("nan"), "292 years"),
        ("cleanup_timeout", float("inf"), "292 years"),
        ("cleanup_timeout", "1000y", "292 years"),
        ("cleanup_timeout", True, "of type bool"),
        ("cleanup_timeout", None, "of type NoneType"),
        ("cleanup_timeout", b"30s", "of type bytes"),
        ("codec_max_frame_length", 0, "less than one byte"),
        ("codec_max_frame_length", "10 gigs", "'gigs' is not a unit"),
        ("codec_max_frame_length", "1 MiB 2", "'2' follows the size"),
        ("codec_max_frame_length", "", "it is empty"),
        ("codec_max_frame_length", 1.5, "of type float"),
        ("codec_max_frame_length", "9999999 TiB", "address space"),
        ("proc_spawn_method", "thread", '"fork" or "exec"'),
        ("preload", "numpy", "wanted a list of module names"),
        ("preload", ["numpy", "not a module"], "'not a module' is not a module name"),
        ("preload", [1], "1 is not a module name"),
        ("default_encoding", "xml", r"Encoding\.Multipart"),
        ("default_transport", "carrier-pigeon", "ChannelTransport"),
        ("default_transport", 4444, "ChannelTransport"),
        ("default_transport", "invalid://10.0.0.1:4444", "ChannelTransport"),
    ],
)
def test_a_bad_value_is_told_what_was_got_what_is_wanted_and_an_example(
    key: str, bad: object, told: str
) -> None:
    with pytest.raises(TypeError, match=told) as caught:
        configure(**{key: bad})
    text = str(caught.value)
    assert text.startswith(f"{key}: got ")
    assert f"for example configure({key}=" in text
    assert len(text) < 400


def test_a_transport_that_does_not_exist_is_an_error_of_both_kinds() -> None:
    with pytest.raises(ValueError, match=r"^default_transport: got 'invalid://x'") as caught:
        configure(default_transport="invalid://x")
    assert isinstance(caught.value, TypeError)


def test_get_runtime_config_has_only_what_configure_set() -> None:
    assert config.get_runtime_config() == {}
    configure(message_delivery_timeout="90s", codec_max_frame_length="1 KiB")
    assert config.get_runtime_config() == {
        "message_delivery_timeout": "1m 30s",
        "codec_max_frame_length": 1024,
    }
    config.clear_runtime_config()
    assert config.get_runtime_config() == {}


def test_get_global_config_has_every_knob_and_is_accepted_by_configure() -> None:
    everything = config.get_global_config()
    assert list(everything) == [knob.name for knob in KNOBS]
    configure(**everything)
    assert config.get_global_config() == everything
    assert config.get_runtime_config() == everything


def test_changing_a_returned_dict_or_list_changes_no_setting() -> None:
    configure(preload=["numpy"])
    got = config.get_global_config()
    got["preload"].append("torch")
    got[LINES] = 9
    config.get_runtime_config()["preload"].clear()
    assert config.value("preload") == ("numpy",)
    assert config.value(LINES) == 0


def test_orphan_timeout_is_another_name_of_mesh_orphan_timeout() -> None:
    assert config.value("orphan_timeout") == 10.0
    configure(orphan_timeout=5)
    assert config.value("orphan_timeout") == config.value("mesh_orphan_timeout") == 5.0
    assert config.get_runtime_config() == {"mesh_orphan_timeout": "5s"}
    configure(orphan_timeout=6, mesh_orphan_timeout="6s")
    with pytest.raises(ValueError, match="mesh_orphan_timeout and orphan_timeout are one knob"):
        configure(orphan_timeout=6, mesh_orphan_timeout=7)


# configured


def test_configured_blocks_nest_and_restore() -> None:
    configure(tail_log_lines=1)
    with configured(tail_log_lines=2, prefix_with_rank=False) as outer:
        assert (outer[LINES], outer["prefix_with_rank"]) == (2, False)
        with configured(tail_log_lines=3) as inner:
            assert (inner[LINES], inner["prefix_with_rank"]) == (3, False)
            assert config.value(LINES) == 3
        assert config.value(LINES) == 2
    assert config.value(LINES) == 1
    assert config.get_runtime_config() == {LINES: 1}


def test_configured_restores_after_an_exception_and_after_a_bad_key() -> None:
    with pytest.raises(ZeroDivisionError):
        with configured(tail_log_lines=2):
            _ = 1 / 0
    with pytest.raises(ValueError):
        with configured(tail_log_lines=2, no_such_key=1):
            raise AssertionError("the body must not run")
    assert config.get_runtime_config() == {}


def test_a_block_that_meets_a_bad_variable_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(DELIVERY_ENV, "soon")
    with pytest.raises(ValueError, match=DELIVERY_ENV):
        with configured(tail_log_lines=2):
            raise AssertionError("the body must not run")
    assert config.get_runtime_config() == {}


def test_configure_and_clear_in_a_block_are_undone_with_it() -> None:
    configure(tail_log_lines=1)
    with configured(prefix_with_rank=False):
        configure(cleanup_timeout=9)
        config.clear_runtime_config()
        assert config.get_runtime_config() == {}
        configure(tail_log_lines=5)
        assert config.get_runtime_config() == {LINES: 5}
    assert config.get_runtime_config() == {LINES: 1}


def test_blocks_that_end_in_the_wrong_order_leave_nothing_behind() -> None:
    first, second = configured(tail_log_lines=1), configured(prefix_with_rank=False)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert config.get_runtime_config() == {"prefix_with_rank": False}
    second.__exit__(None, None, None)
    assert config.get_runtime_config() == {}


def test_configured_decorates_a_function() -> None:
    @configured(tail_log_lines=4)
    def inside() -> int:
        got: int = config.value(LINES)
        return got

    assert (inside(), inside(), config.value(LINES)) == (4, 4, 0)


# threads and forks


def test_no_thread_ever_sees_half_of_a_configure_call() -> None:
    done = threading.Event()
    torn: list[dict[str, Any]] = []

    def read() -> None:
        while not done.is_set():
            got = config.get_global_config()
            if got[LINES] != got["read_log_buffer"] - 100:
                torn.append(got)

    def write(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(300):
            lines = rng.randrange(1000)
            configure(tail_log_lines=lines, read_log_buffer=lines + 100)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert not torn


def test_a_value_read_after_configure_returned_is_never_an_old_one() -> None:
    done = threading.Event()
    newest = 0
    stale: list[tuple[int, int]] = []

    def read() -> None:
        while not done.is_set():
            known, got = newest, config.value(LINES)
            if got < known:
                stale.append((known, got))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    for number in range(1, 1000):
        configure(tail_log_lines=number)
        newest = number
    done.set()
    for thread in readers:
        thread.join()
    assert not stale


def test_blocks_overlapping_in_threads_leave_nothing_behind() -> None:
    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(100):
            with configured(tail_log_lines=rng.randrange(100)):
                with configured(prefix_with_rank=False):
                    time.sleep(0)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert config.get_runtime_config() == {}


def test_a_fork_while_another_thread_configures_leaves_the_child_usable() -> None:
    program = """
import os, threading
from monarch.config import configure, get_global_config
done = threading.Event()
def churn():
    while not done.is_set():
        configure(tail_log_lines=1)
thread = threading.Thread(target=churn)
thread.start()
codes = []
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        configure(tail_log_lines=2)
        os._exit(0 if get_global_config()["tail_log_lines"] == 2 else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
done.set()
thread.join()
assert codes == [0] * 20, codes
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)


# the table


@EVERY_KNOB
def test_every_default_survives_its_own_parser(knob: Knob) -> None:
    stored = knob.kind.keep(knob.default)
    shown = knob.kind.show(stored)
    assert knob.kind.keep(shown) == stored
    assert knob.kind.show(knob.kind.keep(shown)) == shown
    hash(stored)


@EVERY_KNOB
def test_every_default_can_be_written_in_the_environment(knob: Knob) -> None:
    default = knob.kind.show(knob.kind.keep(knob.default))
    store = Store({knob.env: text_of(default)})
    assert store.everything()[knob.name] == default


@EVERY_KNOB
def test_every_example_in_an_error_text_is_right(knob: Knob) -> None:
    stored = knob.kind.keep(knob.kind.example)
    assert knob.kind.keep(knob.kind.from_text(text_of(knob.kind.example))) == stored


@EVERY_KNOB
def test_every_row_says_what_it_does_and_whether_it_applies(knob: Knob) -> None:
    assert len(knob.effect) > 20
    assert knob.effect.endswith(".") == knob.applies
    assert not knob.applies or knob.env.startswith(
        ("HYPERACTOR_", "MONARCH_", "OTEL_", "ENABLE_OTEL_", "PYSPY_")
    )


def test_names_and_variables_are_unique() -> None:
    assert len(BY_NAME) == sum(1 + len(knob.aliases) for knob in KNOBS)
    assert len({knob.env for knob in KNOBS}) == len(KNOBS)


@pytest.mark.parametrize(
    ("variable", "text", "key", "expected"),
    [
        (LINES_ENV, "7", LINES, 7),
        ("HYPERACTOR_PREFIX_WITH_RANK", "off", "prefix_with_rank", False),
        ("HYPERACTOR_PREFIX_WITH_RANK", " TRUE ", "prefix_with_rank", True),
        ("HYPERACTOR_CLEANUP_TIMEOUT", "1m 30s", "cleanup_timeout", 90.0),
        ("HYPERACTOR_CODEC_MAX_FRAME_LENGTH", "10737418240", "codec_max_frame_length", 10 * 2**30),
        ("MONARCH_SEND_BUFFER_LIMIT", "1.5 MiB", "send_buffer_limit", 3 * 2**19),
        ("MONARCH_PRELOAD", "numpy, os.path,", "preload", ("numpy", "os.path")),
        ("MONARCH_PROC_SPAWN_METHOD", "exec", "proc_spawn_method", "exec"),
        ("MONARCH_TOKIO_WORKER_THREADS", "none", "tokio_worker_threads", None),
        ("MONARCH_TOKIO_WORKER_THREADS", "4", "tokio_worker_threads", 4),
        ("HYPERACTOR_DEFAULT_ENCODING", "serde_multipart", "default_encoding", Encoding.Multipart),
        ("HYPERACTOR_MESH_DEFAULT_TRANSPORT", "tcp", "default_transport", "TcpWithHostname"),
    ],
)
def test_variables_are_parsed_by_type(variable: str, text: str, key: str, expected: object) -> None:
    assert Store({variable: text}).load(key) == expected


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        (LINES_ENV, "many"),
        (LINES_ENV, "-1"),
        ("HYPERACTOR_PREFIX_WITH_RANK", "maybe"),
        ("MONARCH_PRELOAD", "a b"),
    ],
)
def test_variables_that_do_not_parse_are_named(variable: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"{variable} .*got '{text}'.*for example {variable}="):
        Store({variable: text}).everything()


class TransportLikeEnum(Enum):
    TcpWithLocalhost = 1


class NumberLikeNumpys:
    def __index__(self) -> int:
        return 5


class ArrayLikeNumpys:
    def __index__(self) -> int:
        raise TypeError("only integer scalar arrays can be converted to a scalar index")


@pytest.mark.parametrize("key", [LINES, "cleanup_timeout", "codec_max_frame_length"])
def test_an_array_where_a_number_belongs_is_refused_with_our_own_text(key: str) -> None:
    with pytest.raises(TypeError, match=f"{key}: got .*ArrayLikeNumpys"):
        configure(**{key: ArrayLikeNumpys()})


@pytest.mark.parametrize(
    ("key", "given_as", "shown"),
    [
        ("cleanup_timeout", timedelta(minutes=1, microseconds=5), "1m 5us"),
        ("cleanup_timeout", 0.25, "250ms"),
        ("cleanup_timeout", NumberLikeNumpys(), "5s"),
        ("cleanup_timeout", 0, "0s"),
        ("cleanup_timeout", "0", "0s"),
        (LINES, NumberLikeNumpys(), 5),
        ("tokio_worker_threads", None, None),
        ("default_encoding", "json", Encoding.Json),
        ("default_transport", TransportLikeEnum.TcpWithLocalhost, "TcpWithLocalhost"),
        ("default_transport", "unix", "Unix"),
        ("default_transport", "tcp://10.0.0.1:4444", "tcp://10.0.0.1:4444"),
        ("preload", ("numpy",), ["numpy"]),
    ],
)
def test_other_ways_to_give_a_value_are_taken(key: str, given_as: object, shown: object) -> None:
    with configured(**{key: given_as}) as merged:
        assert merged[key] == shown


# the keys of Monarch 0.7

KEYS_OF_0_7 = {
    "actor_spawn_max_idle": "30s",
    "channel_net_rx_buffer_full_check_interval": "5s",
    "channel_reconnect_timeout": "1m",
    "channel_tcp_congestion": "",
    "channel_tcp_keepalive_idle": "1m",
    "cleanup_timeout": "3s",
    "codec_max_frame_length": 10737418240,
    "default_encoding": "Multipart",
    "default_transport": "Unix",
    "enable_dest_actor_reordering_buffer": True,
    "enable_file_capture": False,
    "enable_log_forwarding": False,
    "enable_otel_metrics": True,
    "enable_otel_tracing": True,
    "enable_recorder_tracing": True,
    "enable_sqlite_tracing": False,
    "enable_unawaited_python_task_traceback": False,
    "file_log_level": "",
    "force_file_log": False,
    "forwarder_flush_timeout": "5s",
    "get_actor_state_max_idle": "30s",
    "get_proc_state_max_idle": "1m",
    "host_spawn_ready_timeout": "30s",
    "max_cast_dimension_size": 16,
    "max_cast_fanout": 16,
    "mesh_admin_addr": "[::]:1729",
    "mesh_admin_config_dump_bridge_timeout": "5s",
    "mesh_admin_max_concurrent_resolves": 2,
    "mesh_admin_pyspy_bridge_timeout": "13s",
    "mesh_admin_pyspy_client_timeout": "20s",
    "mesh_admin_pyspy_max_profile_duration": "5m",
    "mesh_admin_pyspy_timeout": "10s",
    "mesh_admin_query_child_timeout": "100ms",
    "mesh_admin_resolve_actor_timeout": "200ms",
    "mesh_admin_single_host_timeout": "3s",
    "mesh_admin_tree_timeout": "10s",
    "mesh_attach_config_timeout": "1m",
    "mesh_bootstrap_enable_pdeathsig": True,
    "mesh_orphan_timeout": "1m",
    "mesh_proc_spawn_max_idle": "30s",
    "mesh_terminate_concurrency": 16,
    "mesh_terminate_timeout": "10s",
    "message_ack_every_n_messages": 1000,
    "message_ack_time_interval": "500ms",
    "message_delivery_timeout": "30s",
    "message_latency_sampling_rate": 0.01,
    "message_ttl_default": 64,
    "monarch_log_suffix": "",
    "otel_metric_export_interval": "1s",
    "pending_actor_delivery_timeout": "30s",
    "prefix_with_rank": True,
    "proc_launcher_kind": "",
    "proc_stop_max_idle": "30s",
    "process_exit_timeout": "10s",
    "process_memory_metric_interval": "5m",
    "pyspy_bin": "",
    "rdma_allow_tcp_fallback": True,
    "rdma_cq_poller_per_device": True,
    "rdma_disable_ibverbs": False,
    "rdma_host_odp": False,
    "rdma_ibverbs_target": "",
    "rdma_max_chunk_size_mb": 64,
    "rdma_max_nics_per_buffer": None,
    "rdma_min_stripe_size_kb": 512,
    "rdma_peer_device_affinity": "",
    "rdma_qp_init_timeout": "30s",
    "rdma_qps_per_cq": 64,
    "rdma_qps_per_peer": 4,
    "rdma_runtime_worker_threads": 4,
    "rdma_tcp_fallback_parallelism": 1,
    "read_log_buffer": 100,
    "scuba_log_enter_exit": False,
    "sequencer_max_locked_keys": 128,
    "server_heartbeat_interval": "1s",
    "small_write_threshold": 256,
    "split_max_buffer_age": "50ms",
    "split_max_buffer_size": 5,
    "stop_actor_timeout": "10s",
    "stop_grace_period": "10s",
    "supervision_watchdog_timeout": "2m",
    "tail_log_lines": 0,
    "terminated_snapshot_retention": 100,
    "tokio_worker_threads": None,
    "use_direct_spawn": False,
}
"""As its `get_global_config()` has them."""
OTHER_DEFAULTS = {
    "channel_reconnect_timeout": "4s",
    "mesh_admin_addr": "127.0.0.1:0",
    "mesh_admin_max_concurrent_resolves": 8,
    "mesh_orphan_timeout": "10s",
}
EVERY_KEY_OF_0_7 = for_each("key", KEYS_OF_0_7)


@EVERY_KEY_OF_0_7
def test_a_key_of_0_7_has_its_default_and_takes_it(key: str) -> None:
    shown = config.get_global_config()[key]
    assert getattr(shown, "name", shown) == OTHER_DEFAULTS.get(key, KEYS_OF_0_7[key])
    configure(**{key: KEYS_OF_0_7[key]})
    assert key in config.get_runtime_config()
    config.parametrize_config(**{key: [KEYS_OF_0_7[key]]})


@EVERY_KEY_OF_0_7
def test_a_key_of_0_7_is_read_from_the_environment(key: str) -> None:
    knob = BY_NAME[key]
    example = knob.kind.show(knob.kind.keep(knob.kind.example))
    assert Store({knob.env: text_of(example)}).everything()[key] == example


@EVERY_KEY_OF_0_7
def test_a_value_of_another_type_is_a_type_error_as_in_0_7(key: str) -> None:
    for wrong in (object(), [1]):
        with pytest.raises(TypeError, match=f"{key}: got "):
            configure(**{key: wrong})


def test_the_first_line_of_a_program_for_0_7_may_configure_its_links() -> None:
    configure(
        message_ack_time_interval="100ms",
        message_ack_every_n_messages=1,
        message_ttl_default=255,
        small_write_threshold=0,
        split_max_buffer_age="1s",
        split_max_buffer_size=0,
        message_latency_sampling_rate=1,
        channel_net_rx_buffer_full_check_interval="1s",
        pyspy_bin="/usr/bin/py-spy",
        default_encoding=Encoding.Json,
        mesh_orphan_timeout=None,
    )
    assert config.get_runtime_config()["message_latency_sampling_rate"] == 1.0
    assert config.get_global_config()["mesh_orphan_timeout"] is None
    assert config.value("mesh_orphan_timeout") > 1e9


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("max_cast_fanout", 0),
        ("message_ttl_default", 256),
        ("message_ttl_default", -1),
        ("rdma_max_nics_per_buffer", 0),
        ("rdma_min_stripe_size_kb", 0),
        ("rdma_qps_per_cq", 0),
        ("rdma_qps_per_peer", 0),
        ("sequencer_max_locked_keys", 0),
        ("tokio_worker_threads", 0),
        (LINES, 2**64),
    ],
)
def test_a_number_that_0_7_refuses_is_a_type_error_and_a_value_error(key: str, number: int) -> None:
    for kind in (TypeError, ValueError):
        with pytest.raises(kind, match=f"{key}: got {number} of type int .*out of range"):
            configure(**{key: number})


def test_a_foreign_variable_named_like_a_key_without_effect_is_ignored() -> None:
    store = Store({"SCUBA_LOG_ENTER_EXIT": "verbose", "MONARCH_RDMA_MAX_NICS_PER_BUFFER": "all"})
    assert store.everything()["scuba_log_enter_exit"] is False
    assert store.load("rdma_max_nics_per_buffer") is None
    store.exported()


@pytest.mark.parametrize(("text", "seconds"), [("60000", 60.0), ("250ms", 0.25), ("2s", 2.0)])
def test_the_interval_of_exports_is_in_milliseconds_as_opentelemetry_has_it(
    text: str, seconds: float
) -> None:
    assert (
        Store({"OTEL_METRIC_EXPORT_INTERVAL": text}).load("otel_metric_export_interval") == seconds
    )


# durations and sizes


@pytest.mark.parametrize(
    ("text", "normal", "seconds"),
    [
        ("90s", "1m 30s", 90.0),
        ("1h 30m", "1h 30m", 5400.0),
        ("1h30m", "1h 30m", 5400.0),
        ("250ms", "250ms", 0.25),
        ("1.5 s", "1s 500ms", 1.5),
        (".5s", "500ms", 0.5),
        ("2 minutes 5 seconds", "2m 5s", 125.0),
        ("5 µs 7nsec", "5us 7ns", 5.007e-06),
        ("1000000us", "1s", 1.0),
        ("48H", "2days", 172800.0),
        ("1w", "7days", 604800.0),
        ("1M", "1month", 2630016.0),
        ("14 months", "1year 2months 43m 12s", 14 * 2630016.0),
        ("0s", "0s", 0.0),
    ],
)
def test_durations_are_normalised_on_reading(text: str, normal: str, seconds: float) -> None:
    with configured(message_delivery_timeout=text) as merged:
        assert merged["message_delivery_timeout"] == normal
        assert config.value("message_delivery_timeout") == seconds


@given(st.integers(0, 2**63 - 1))
def test_a_shown_duration_reads_back_exactly(nanoseconds: int) -> None:
    assert read_duration(duration_text(nanoseconds)) == nanoseconds


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_unreadable(text: str) -> None:
    try:
        assert DURATION.keep(text) >= 0
    except ValueError:
        pass


@given(st.integers(1, 2**63 - 1))
def test_a_shown_size_reads_back_exactly(size: int) -> None:
    assert read_size(size_text(size)) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10 GiB", 10 * 2**30),
        ("64MiB", 2**26),
        ("1.5 MB", 1_500_000),
        ("4096", 4096),
        ("7 b", 7),
        ("2tib", 2**41),
    ],
)
def test_sizes_take_binary_and_decimal_units(text: str, size: int) -> None:
    with configured(send_buffer_limit=text) as merged:
        assert merged["send_buffer_limit"] == size == config.value("send_buffer_limit")


# decorators for tests


def cases_of(test: Any) -> list[dict[str, object]]:
    (mark,) = test.pytestmark
    assert mark.args[0] == "_config_overrides"
    cases: list[dict[str, object]] = mark.args[1]
    return cases


def test_parametrize_config_makes_the_cross_product_in_a_stable_order() -> None:
    @config.parametrize_config(prefix_with_rank={True, False}, proc_spawn_method=["fork", "exec"])
    def decorated() -> None: ...

    ranks_and_methods = [tuple(case.values()) for case in cases_of(decorated)]
    assert ranks_and_methods == [(False, "fork"), (False, "exec"), (True, "fork"), (True, "exec")]


def test_parametrize_config_pointwise_pairs_values_up() -> None:
    @config.parametrize_config_pointwise(tail_log_lines=[1, 2], prefix_with_rank=[True, False])
    def decorated() -> None: ...

    assert cases_of(decorated) == [
        {LINES: 1, "prefix_with_rank": True},
        {LINES: 2, "prefix_with_rank": False},
    ]


def test_a_decorated_test_runs_inside_its_settings() -> None:
    @config.parametrize_config(tail_log_lines=[4])
    def decorated(fixture: int) -> tuple[int, int]:
        return config.value(LINES), fixture

    run: Any = decorated
    assert run(_config_overrides={LINES: 4}, fixture=8) == (4, 8)
    assert config.value(LINES) == 0


def test_a_decorated_async_test_runs_inside_its_settings_to_its_end() -> None:
    @config.parametrize_config(tail_log_lines=[4])
    async def decorated() -> int:
        await asyncio.sleep(0)
        got: int = config.value(LINES)
        return got

    run: Any = decorated
    assert inspect.iscoroutinefunction(run)
    assert asyncio.run(run(_config_overrides={LINES: 4})) == 4
    assert config.value(LINES) == 0


def test_the_decorators_refuse_misuse_at_the_decorator() -> None:
    with pytest.raises(ValueError, match="needs at least one key"):
        config.parametrize_config()
    with pytest.raises(ValueError, match="needs at least one key"):
        config.parametrize_config_pointwise()
    with pytest.raises(ValueError, match="tail_log_lines has 2, prefix_with_rank has 1"):
        config.parametrize_config_pointwise(tail_log_lines=[1, 2], prefix_with_rank=[True])
    with pytest.raises(ValueError, match="did you mean tail_log_lines"):
        config.parametrize_config(tail_log_line=[1])
    with pytest.raises(TypeError, match="prefix_with_rank"):
        config.parametrize_config(prefix_with_rank=["x"])
    with pytest.raises(TypeError, match=r"write \['fork'\]"):
        config.parametrize_config(proc_spawn_method="fork")


def test_two_decorators_on_one_test_are_refused() -> None:
    @config.parametrize_config(prefix_with_rank=[True])
    def decorated() -> None: ...

    with pytest.raises(ValueError, match="one decorator"):
        config.parametrize_config(tail_log_lines=[1])(decorated)


def test_pytest_runs_decorated_functions_and_methods(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from monarch import config

        @pytest.fixture
        def base():
            return 10

        @config.parametrize_config(tail_log_lines={11, 12}, prefix_with_rank={True, False})
        def test_function(base):
            assert config.value("tail_log_lines") > base

        class TestClass:
            @config.parametrize_config_pointwise(tail_log_lines=[1, 2], read_log_buffer=[2, 3])
            @pytest.mark.parametrize("extra", [0, 1])
            def test_method(self, base, extra):
                assert config.value("read_log_buffer") == config.value("tail_log_lines") + 1
        """)
    # pytest-asyncio, where installed, warns about a setting that this empty project lacks; our
    # plugin would end what this very process has started
    result = pytester.runpytest_inprocess("-v", "-p", "no:asyncio", "-p", "no:monarch")
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines(["*test_function?tail_log_lines=11-prefix_with_rank=false?*"])


# the rest


DOCS = Path(__file__).parents[2] / "docs"


@cache
def markdown() -> str:
    command = [sys.executable, str(DOCS / "config_page.py")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_reference_page_is_up_to_date() -> None:
    assert (DOCS / "config.md").read_text() == markdown(), (
        "run: python docs/config_page.py > docs/config.md"
    )


def test_the_example_on_the_reference_page_runs() -> None:
    example = markdown().split("```python\n")[1].split("```")[0]
    exec(example, {})
    assert config.get_runtime_config() == {
        "message_delivery_timeout": "1m 30s",
        "preload": ["numpy"],
    }


def test_importing_it_imports_nothing_slow_and_nothing_above_its_layer() -> None:
    program = """
import sys, typing, enum, contextlib, os, warnings, importlib.machinery
sys.path.append(sys.argv[1])
before = set(sys.modules)
from monarch import config
config.value("cleanup_timeout"), config.configure(cleanup_timeout="2s")
print(*sorted(name for name in set(sys.modules) - before if not name.startswith("monarch.config")))
"""
    command = [sys.executable, "-S", "-c", program, os.fspath(Path(config.__file__).parents[2])]
    loaded = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    lowest = {
        "monarch",
        "monarch._core",
        "monarch._core.extension",  # the points, which are there in every process
        "monarch._guests",
        "monarch.compat",
        "monarch._lazy",
        "monarch._namedtuple",
        "monarch._public",
    }
    assert set(loaded) <= {
        *lowest,
        "__future__",
        "threading",
        "_weakrefset",
        "operator",
        "_operator",
        *(("annotationlib", "ast", "_ast") if sys.version_info >= (3, 14) else ()),
    }
