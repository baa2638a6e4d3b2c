"""The side of the client: what may be attached, and what is told when a worker can't be reached."""

from __future__ import annotations

import io
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

import monarch
from helpers.actors import Counter, Echo
from helpers.certificates import authority
from helpers.processes import stopped
from helpers.scripts import run_script
from helpers.waiting import PATIENCE, wait_until
from helpers.workers import SECRET, Workers, children_of, free_ports, workers
from monarch._core.calls.promise import Promise
from monarch._core.wire.link_records import VERSION
from monarch._patterns import attach_progress
from monarch.actor import (
    Actor,
    ActorError,
    Channel,
    ChannelTransport,
    Future,
    HostMesh,
    SupervisionError,
    attach,
    attach_to_workers,
    enable_transport,
    endpoint,
    start_worker_loop_forever,
    this_host,
)
from monarch.config import configured
from monarch.errors import AddressError


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MONARCH_SECRET", SECRET)
    # what is told at once has not waited for this
    with configured(mesh_attach_config_timeout="1h"):
        yield


@pytest.fixture(scope="module")
def two_workers(_booted: None) -> Iterator[Workers]:
    """Workers that no test of this file ends."""
    with pytest.MonkeyPatch.context() as patch, workers(2, tcp=True) as found:
        patch.setenv("MONARCH_SECRET", SECRET)
        # links stay when hosts are let go: no test is to make the first
        hosts = attach_to_workers(workers=found.addresses)
        hosts.spawn_procs().spawn("echo", Echo).pid.call().get(timeout=PATIENCE)
        hosts.stop().get(timeout=PATIENCE)
        yield found


def why_not(hosts: HostMesh) -> str:
    """Why hosts can't be attached; they are let go."""
    with pytest.raises(RuntimeError, match="attach failed on") as caught:
        hosts.initialized.get(timeout=PATIENCE)
    hosts.stop().get(timeout=PATIENCE)
    return str(caught.value)


# what is refused at the call


@pytest.mark.parametrize("nobody", [[], (), "tcp://host:1", None, 7, [7], [None], {"tcp://host:1"}])
def test_workers_are_a_list_of_at_least_one_address(nobody: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="worker"):
        attach_to_workers(workers=nobody)


@pytest.mark.parametrize(
    "address", ["", "bogus", "tcp://host", "tcp://host:port", "http://host:1", "ipc://relative"]
)
def test_a_malformed_address_is_refused_at_the_call(address: str) -> None:
    with pytest.raises(AddressError, match="invalid address") as caught:
        attach_to_workers(workers=["tcp://host:1", address])
    assert repr(address) in str(caught.value)


@pytest.mark.parametrize("address", ["tcp://*:2660", "tcp://host:0", "tcp://host:fd3"])
def test_an_address_to_listen_at_can_not_be_attached(address: str) -> None:
    with pytest.raises(ValueError, match="can't be reached"):
        attach_to_workers(workers=[address])


@pytest.mark.parametrize(
    "same",
    ["tcp://host:26600", "tcp://HOST:26600", "tcp://host:26600@tcp://*:1", "s<x>@tcp://host:26600"],
)
def test_an_address_may_be_given_once_however_it_is_written(same: str) -> None:
    with pytest.raises(ValueError, match="once.*tcp://host:26600"):
        attach_to_workers(workers=["tcp://host:26600", "tcp://other:1", same])


def test_a_name_is_a_text() -> None:
    with pytest.raises(TypeError, match="name"):
        # what is tested
        attach_to_workers(workers=["tcp://host:1"], name=7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"ca": "/no/such/file", "private_key": "/no/such/file"}, {"private_key": "x"}]
)
def test_certificates_that_are_none_are_refused_at_the_call(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="ca|private_key"):
        attach_to_workers(workers=["tcp://127.0.0.1:1"], **wrong)


def test_only_the_client_attaches() -> None:
    class Attaches(Actor):
        @endpoint
        def attach(self) -> None:
            attach_to_workers(workers=["tcp://host:1"])

    with this_host().spawn_procs() as procs:
        with pytest.raises(ActorError, match="for the client"):
            procs.spawn("a", Attaches).attach.call_one().get(timeout=PATIENCE)


# who can't be reached


def test_an_absent_worker_is_a_timely_error_naming_host_and_reason() -> None:
    (port,) = free_ports(1)
    begin = time.monotonic()
    with configured(mesh_attach_config_timeout="1s"):
        hosts = attach_to_workers(workers=[f"tcp://127.0.0.1:{port}"])
        text = why_not(hosts)
    assert time.monotonic() - begin > 0.9
    assert f"tcp://127.0.0.1:{port}" in text
    assert "nothing listens there" in text


def test_a_table_of_attached_hosts_names_them(two_workers: Workers) -> None:
    hosts = attach_to_workers(workers=two_workers.addresses)
    assert [line.split() for line in hosts.to_table().split("\n")[1:]] == [
        ["hosts"],
        ["0", two_workers.addresses[0]],  # as both are on one machine; else its name would do
        ["1", two_workers.addresses[1]],
    ]
    one = hosts.slice(hosts=slice(1, 2))
    assert (
        "0           127.0.0.1 · gpu[0]  127.0.0.1 · gpu[1]"
        in one.spawn_procs(per_host={"gpus": 2}).to_table()
    )
    late: Future[str] = Promise().future
    waiting = attach_to_workers(workers=[late])
    assert waiting._repr_html_() is None
    Promise.of(late).resolve(two_workers.addresses[0])
    hosts.stop().get(timeout=PATIENCE)
    waiting.stop().get(timeout=PATIENCE)


def test_a_host_of_a_job_that_does_not_answer_is_told_by_its_name() -> None:
    with workers(2, tcp=True) as found:  # its own: their links would be made anew in a later test
        hosts = attach_to_workers(workers=found.addresses, name="trainers")
        hosts.initialized.get(timeout=PATIENCE)
        agents = [children_of(worker.pid)[0] for worker in found.processes]
        with stopped(agents[1]):
            here = str(hosts.stacks().get(timeout=PATIENCE))
            command = [sys.executable, "-m", "monarch.tools", "stacks", str(os.getpid())]
            elsewhere = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        told = f"host trainers[1] ({found.addresses[1]}) did not answer"
        assert told in here and told in elsewhere
        hosts.stop().get(timeout=PATIENCE)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_which_hosts_are_waited_for(
    two_workers: Workers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(attach_progress, "AFTER", 0.05)
    late = tmp_path / "late"
    hosts = attach_to_workers(workers=[*two_workers.addresses, f"ipc://{late}"])
    told = re.compile(rf"waiting for 1 of 3 hosts: ipc://{late}; \d+ s of 3600 s")
    wait_until(
        lambda: told.search(terminal.getvalue()) is not None,
        what="a line about the host that is not there",
    )
    hosts.stop().get(timeout=PATIENCE)
    wait_until(lambda: terminal.getvalue().endswith("\r\033[K"), what="the line to be cleared")


def test_a_mesh_that_is_stopped_waits_no_longer_where_another_waits_on(tmp_path: Path) -> None:
    one, two = (attach_to_workers(workers=[f"ipc://{tmp_path / 'late'}"]) for _ in range(2))
    one.stop().get(timeout=PATIENCE)
    with pytest.raises(RuntimeError, match="before they were reached"):
        one.initialized.get(timeout=PATIENCE)
    assert not two.initialized.done()
    two.stop().get(timeout=PATIENCE)
    with pytest.raises(RuntimeError, match="before (it was|they were) reached"):
        two.initialized.get(timeout=PATIENCE)


def test_where_waiting_can_not_help_a_host_is_given_up_at_once(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(closed / "worker"))
    server.listen()
    os.chmod(closed / "worker", 0)
    assert "name could not be resolved" in why_not(
        attach_to_workers(workers=["tcp://no-such-host.invalid:2660"])
    )
    if os.geteuid():  # root may connect to everything
        assert "Permission denied" in why_not(attach_to_workers(workers=[f"ipc://{closed}/worker"]))
    server.close()


def test_what_is_spawned_on_a_host_that_is_not_there_fails_too() -> None:
    with configured(mesh_attach_config_timeout="500ms"):
        hosts = attach_to_workers(workers=["ipc:///no/such/socket"])
        procs = hosts.spawn_procs()
        echo = procs.spawn("echo", Echo)
        with pytest.raises(SupervisionError, match="/no/such/socket"):
            echo.say.call(1).get(timeout=PATIENCE)
        with pytest.raises((SupervisionError, ValueError, RuntimeError), match="/no/such/socket"):
            procs.initialized.get(timeout=PATIENCE)
        assert "no such socket" in why_not(hosts)


def test_a_worker_that_comes_up_late_is_waited_for() -> None:
    (port,) = free_ports(1)
    address = f"tcp://127.0.0.1:{port}"
    hosts = attach_to_workers(workers=[address])
    answer = hosts.spawn_procs().spawn("echo", Echo).say.call(5)
    with pytest.raises(TimeoutError):
        hosts.initialized.get(timeout=0.5)
    late = start_worker_loop_forever(address=address)
    assert answer.get(timeout=PATIENCE).values() == [5]
    assert hosts.initialized.get(timeout=PATIENCE)
    hosts.shutdown().get(timeout=PATIENCE)
    late.get(timeout=PATIENCE)


def test_a_name_that_does_not_resolve_is_an_error_at_once() -> None:
    text = why_not(attach_to_workers(workers=["tcp://no-such-host.invalid:2660"]))
    assert "no-such-host.invalid" in text
    assert "resolve" in text


def test_a_worker_with_another_secret_refuses_at_once_and_both_sides_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with workers(1, tcp=True) as found:
        attached_before = attach_to_workers(workers=found.addresses)
        attached_before.initialized.get(timeout=PATIENCE)
        attached_before.stop().get(timeout=PATIENCE)
    with workers(
        1, tcp=True, env={"MONARCH_SECRET": "quite another secret, as long as it takes"}
    ) as found:
        found.wait_until_they_listen()
        text = why_not(attach_to_workers(workers=found.addresses))
        assert found.addresses[0] in text
        assert "wrong secret" in text
        wait_until(lambda: "wrong secret" in found.output(0), what="the worker's log to say so")
        assert "127.0.0.1" in found.output(0)


def test_an_attached_host_refuses_another_secret() -> None:
    another = "quite another secret, as long as it takes"
    with workers(1, tcp=True) as found:
        first = attach_to_workers(workers=found.addresses)
        first.initialized.get(timeout=PATIENCE)
        with pytest.raises(
            ValueError, match=rf"{found.addresses[0]} is attached already \(shared secret\)"
        ):
            attach_to_workers(workers=found.addresses, secret=another)
        second = attach_to_workers(workers=found.addresses)
        assert second.initialized.get(timeout=PATIENCE)
        for hosts in (first, second):
            hosts.stop().get(timeout=PATIENCE)


def test_a_secret_that_was_wrong_can_be_put_right() -> None:
    with workers(1, tcp=True) as found:
        wrong = attach_to_workers(
            workers=found.addresses, secret="quite another secret, as long as it takes"
        )
        with pytest.raises(RuntimeError, match="wrong secret"):
            wrong.initialized.get(timeout=PATIENCE)
        right = attach_to_workers(workers=found.addresses)
        assert right.initialized.get(timeout=PATIENCE)
        for hosts in (wrong, right):
            hosts.stop().get(timeout=PATIENCE)


def test_certificates_of_another_authority_are_refused_at_once_on_either_side(
    tmp_path: Path,
) -> None:
    ours, theirs = authority("ours"), authority("theirs")
    (port,) = free_ports(1)
    address = f"tcp://127.0.0.1:{port}"
    worker = start_worker_loop_forever(
        address=address, ca=ours.pem, private_key=ours.sign("worker").both
    )
    strangers = attach_to_workers(
        workers=[address], ca=theirs.pem, private_key=theirs.sign("client").both
    )
    assert "certificate" in why_not(strangers)
    trusting = attach_to_workers(
        workers=[address], ca=ours.pem, private_key=theirs.sign("client").both
    )
    assert "refused our side of TLS" in why_not(trusting)
    assert "certificate required" in why_not(attach_to_workers(workers=[address]))
    ca, key = tmp_path / "ca.pem", tmp_path / "client.pem"
    ca.write_text(ours.pem)
    key.write_text(ours.sign("client").both)
    friends = attach_to_workers(workers=[address], ca=str(ca), private_key=key)
    assert friends.spawn_procs().spawn("echo", Echo).say.call(1).get(timeout=PATIENCE).values() == [
        1
    ]
    friends.shutdown().get(timeout=PATIENCE)
    worker.get(timeout=PATIENCE)


def test_a_plain_client_of_a_worker_with_tls_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    address = f"tcp://127.0.0.1:{port}"
    worker = start_worker_loop_forever(address=address)
    monkeypatch.delenv("MONARCH_SECRET")
    monkeypatch.setenv("HOME", str(tmp_path))
    text = why_not(attach_to_workers(ca="trust_all_connections", workers=[address]))
    assert "TLS" in text
    monkeypatch.setenv("MONARCH_SECRET", SECRET)
    attach_to_workers(workers=[address]).shutdown().get(timeout=PATIENCE)
    worker.get(timeout=PATIENCE)


def echo_among_all(address: str) -> None:
    """A worker that trusts all connections serves here, is attached, echoes, and ends."""
    worker = start_worker_loop_forever(ca="trust_all_connections", address=address)
    hosts = attach_to_workers(ca="trust_all_connections", workers=[address])
    assert hosts.spawn_procs().spawn("echo", Echo).say.call(1).get(timeout=PATIENCE).values() == [1]
    hosts.shutdown().get(timeout=PATIENCE)
    worker.get(timeout=PATIENCE)


def test_trust_all_connections_of_old_programs_works_on_loopback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MONARCH_SECRET")
    monkeypatch.setenv("HOME", str(tmp_path))
    echo_among_all(f"tcp://127.0.0.1:{free_ports(1)[0]}")


def test_trust_all_connections_works_at_any_address_where_there_is_a_secret() -> None:
    own = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]
    if not own:
        pytest.skip("this machine has no address but those of loopback")
    with socket.create_server((own[0], 0)) as free:
        port = free.getsockname()[1]
    echo_among_all(f"tcp://{own[0]}:{port}")


def test_without_a_secret_the_error_names_the_address_and_the_command_that_makes_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MONARCH_SECRET")
    monkeypatch.setenv("HOME", str(tmp_path))
    text = why_not(attach_to_workers(ca="trust_all_connections", workers=["tcp://192.0.2.9:7"]))
    assert "192.0.2.9 is open to other hosts" in text
    assert "`monarch secret ~/.monarch/secret` makes a secret" in text
    with pytest.raises(OSError, match=r"open to other hosts.*monarch secret ~/\.monarch/secret"):
        start_worker_loop_forever(ca="trust_all_connections", address="tcp://*:0")


class Impostor:
    """Something else listens at the address."""

    def __init__(self, answer: bytes) -> None:
        self._sock = socket.create_server(("127.0.0.1", 0))
        self._answer = answer
        self.address = f"tcp://127.0.0.1:{self._sock.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._sock.accept()
            except OSError:
                return
            with connection:
                connection.recv(100)
                connection.sendall(self._answer)

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._thread.join(PATIENCE)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"SSH-2.0-OpenSSH_9.6\r\n"]
)
def test_something_else_that_listens_there_is_told_from_a_worker(answer: bytes) -> None:
    impostor = Impostor(answer)
    try:
        with configured(mesh_attach_config_timeout="1s"):
            text = why_not(attach_to_workers(workers=[impostor.address]))
        assert impostor.address in text
    finally:
        impostor.close()


def by_another_name(address: str) -> str:
    return address.replace("127.0.0.1", "localhost")


def test_a_worker_given_by_two_names_is_told_to_be_one(two_workers: Workers) -> None:
    first, second = two_workers.addresses
    for _ in range(2):  # the second time both names are known to lead to one process
        hosts = attach_to_workers(workers=[first, by_another_name(first), second])
        with hosts.slice(hosts=2).spawn_procs() as procs:
            assert procs.spawn("echo", Echo).say.call_one(1).get(timeout=PATIENCE) == 1
        with pytest.raises(SupervisionError, match="by another name"):
            hosts.slice(hosts=1).spawn_procs().spawn("echo", Echo).say.call_one(1).get(
                timeout=PATIENCE
            )
        assert (
            f"localhost:{first.rpartition(':')[2]} (rank 1): it is {first} by another name"
            in why_not(hosts)
        )


def test_a_worker_that_is_attached_is_not_attached_by_another_name(two_workers: Workers) -> None:
    address = two_workers.addresses[0]
    hosts = attach_to_workers(workers=[address])
    hosts.initialized.get(timeout=PATIENCE)
    assert f"it is {address} by another name" in why_not(
        attach_to_workers(workers=[by_another_name(address)])
    )
    assert hosts.spawn_procs().spawn("echo", Echo).say.call_one(1).get(timeout=PATIENCE) == 1
    hosts.stop().get(timeout=PATIENCE)
    again = attach_to_workers(workers=[by_another_name(address)])
    assert again.spawn_procs().spawn("echo", Echo).say.call_one(1).get(timeout=PATIENCE) == 1
    again.stop().get(timeout=PATIENCE)


def test_one_host_that_can_not_be_attached_leaves_the_others_usable(two_workers: Workers) -> None:
    with configured(mesh_attach_config_timeout="500ms"):
        hosts = attach_to_workers(
            workers=[two_workers.addresses[0], "ipc:///no/such/socket", two_workers.addresses[1]]
        )
        with pytest.raises(RuntimeError, match=r"no/such/socket \(rank 1\)"):
            hosts.initialized.get(timeout=PATIENCE)
        living = hosts.slice(hosts=slice(0, 3, 2)).spawn_procs()
        assert living.spawn("echo", Echo).say.call(1).get(timeout=PATIENCE).values() == [1, 1]
        everywhere = hosts.spawn_procs()
        echo = everywhere.spawn("echo", Echo)
        assert echo.slice(hosts=0).say.call_one(2).get(timeout=PATIENCE) == 2
        assert echo.slice(hosts=2).say.call_one(2).get(timeout=PATIENCE) == 2
        with pytest.raises(SupervisionError, match="/no/such/socket"):
            echo.say.call(3).get(timeout=PATIENCE)
        hosts.stop().get(timeout=PATIENCE)


# what can be attached


def test_workers_are_given_as_any_sequence_and_as_futures(two_workers: Workers) -> None:
    port, receiver = Channel[str].open()
    late: Future[str] = receiver.recv()
    hosts = attach_to_workers(workers=(two_workers.addresses[0], late))
    assert hosts.sizes == {"hosts": 2}
    with pytest.raises(TimeoutError):
        hosts.initialized.get(timeout=0.2)
    port.send(two_workers.addresses[1])
    assert hosts.initialized.get(timeout=PATIENCE)
    assert hosts.spawn_procs().spawn("echo", Echo).say.call(1).get(timeout=PATIENCE).values() == [
        1,
        1,
    ]
    hosts.stop().get(timeout=PATIENCE)


def test_a_future_of_an_address_that_fails_or_is_malformed_fails_the_attachment(
    two_workers: Workers,
) -> None:
    port, receiver = Channel[str].open()
    for what in ("no node was free", "invalid address"):
        late: Future[str] = receiver.recv()
        hosts = attach_to_workers(workers=[two_workers.addresses[0], late])
        if what == "no node was free":
            port.exception(KeyError(what))
        else:
            port.send("nonsense")
        with pytest.raises(Exception, match=what):
            hosts.initialized.get(timeout=PATIENCE)
        with pytest.raises(Exception, match=what):
            hosts.spawn_procs()


def test_a_mesh_of_hosts_compares_hashes_and_shows_itself(two_workers: Workers) -> None:
    hosts = attach_to_workers(workers=two_workers.addresses, name="trainers")
    assert "trainers" in repr(hosts)
    assert "hosts: 2" in repr(hosts)
    assert hosts != this_host()
    assert hosts == hosts.slice(hosts=slice(0, 2))
    assert hosts.slice(hosts=0) != hosts.slice(hosts=1)
    assert len({hosts, hosts.slice(hosts=slice(0, 2)), hosts.slice(hosts=0)}) == 2
    assert hosts != None  # noqa: E711  # what is tested
    assert hosts.stream_logs is False
    assert hosts.is_fake_in_process is False
    assert len(hosts) == 2
    hosts.stop().get(timeout=PATIENCE)


def test_a_pickled_mesh_of_hosts_is_a_reference_to_the_same_hosts(two_workers: Workers) -> None:
    hosts = attach_to_workers(workers=two_workers.addresses)
    for dumps in (pickle.dumps, cloudpickle.dumps):
        again = pickle.loads(dumps(hosts))
        assert again == hosts
        assert again.initialized.get(timeout=PATIENCE) is True
        with again.spawn_procs({"n": 2}) as procs:
            assert (
                len(set(procs.spawn("echo", Echo).pid.call().get(timeout=PATIENCE).values())) == 4
            )
        with pytest.raises(RuntimeError, match="reference"):
            again.shutdown()
    hosts.stop().get(timeout=PATIENCE)


def test_one_program_attaches_overlapping_sets_of_hosts_and_lets_them_go_one_by_one(
    two_workers: Workers,
) -> None:
    one = attach_to_workers(workers=two_workers.addresses)
    two = attach_to_workers(workers=two_workers.addresses[1:])
    counters = [hosts.spawn_procs().spawn("c", Counter) for hosts in (one, two)]
    for counter in counters:
        counter.add.call(1).get(timeout=PATIENCE)
    one.stop().get(timeout=PATIENCE)
    assert counters[1].add.call(1).get(timeout=PATIENCE).values() == [2]
    with pytest.raises(SupervisionError, match="stopped"):
        counters[0].add.call(1).get(timeout=PATIENCE)
    again = attach_to_workers(workers=two_workers.addresses)
    two.stop().get(timeout=PATIENCE)
    assert again.spawn_procs().spawn("c", Counter).add.call(1).get(timeout=PATIENCE).values() == [
        1,
        1,
    ]
    again.stop().get(timeout=PATIENCE)


def test_a_host_that_was_attached_twice_and_shut_down_once_is_listed_no_more() -> None:
    from monarch._core.client.client import client

    (port,) = free_ports(1)
    address = f"tcp://127.0.0.1:{port}"
    for _ in range(2):  # what has attached the first worker has no say about the second
        worker = start_worker_loop_forever(address=address)
        one, two = (attach_to_workers(workers=[address]) for _ in range(2))
        assert one.initialized.get(timeout=PATIENCE) and two.initialized.get(timeout=PATIENCE)
        one.shutdown().get(timeout=PATIENCE)
        worker.get(timeout=PATIENCE)
        assert address not in client().hosts.names
        assert address not in [agent.host for agent in client().agents]
        worker = start_worker_loop_forever(address=address)
        three = attach_to_workers(workers=[address])
        two.stop().get(timeout=PATIENCE)
        assert three.spawn_procs().spawn("echo", Echo).say.call(5).get(
            timeout=PATIENCE
        ).values() == [5]
        three.shutdown().get(timeout=PATIENCE)
        worker.get(timeout=PATIENCE)


# the rest of the API for hosts


def test_enable_transport_accepts_what_it_is_and_refuses_what_comes_too_late() -> None:
    enable_transport(ChannelTransport.Unix)  # the same: accepted at any time
    enable_transport("ipc")
    with pytest.raises(RuntimeError, match="before anything else"):
        enable_transport("tcp")
    with pytest.raises(ValueError, match="BindSpec|carrier pigeon"):
        enable_transport("carrier pigeon")
    with pytest.raises(AddressError):
        enable_transport("tcp://nonsense")


def test_enable_transport_before_anything_else() -> None:
    result = run_script("""
        import pytest
        from monarch.actor import ChannelTransport, enable_transport, this_host
        enable_transport("tcp")
        enable_transport(ChannelTransport.TcpWithHostname)
        for other in ("ipc", "tls", "tcp://127.0.0.1:7", ChannelTransport.Local):
            with pytest.raises(RuntimeError, match="can't change"):
                enable_transport(other)
        this_host().spawn_procs().initialized.get()
        enable_transport("tcp")
        print("fine")
        """)
    assert result.stdout == "fine\n", str(result)
    assert result.exit_code == 0


def test_attach_comes_before_anything_else() -> None:
    with pytest.raises(RuntimeError, match="before anything else"):
        attach("tcp://127.0.0.1:2660")
    with pytest.raises(AddressError):
        attach("nonsense")


VIA = """
    import os, sys
    import pytest
    from monarch.actor import Actor, attach, attach_to_workers, endpoint, this_host

    class Pid(Actor):
        @endpoint
        def pid(self):
            return os.getpid()

        @endpoint
        def others(self, other):
            return other.pid.call().get().values()

        @endpoint
        def fail(self):
            raise ValueError("on purpose")

    addresses = os.environ["ADDRESSES"].split()
    attach(addresses[0])
    attach(addresses[0])  # the same again
    with pytest.raises(RuntimeError, match="can't change"):
        attach(addresses[1])
"""


@pytest.mark.parametrize("tcp", [False, True])
def test_a_client_that_reaches_one_worker_only_uses_all_hosts_through_it(tcp: bool) -> None:
    script = (
        VIA
        + """
    hosts = attach_to_workers(workers=addresses)
    assert hosts.initialized.get()
    far = hosts.spawn_procs({"n": 2}).spawn("far", Pid)
    pids = far.pid.call().get().values()
    assert len(set(pids)) == 6
    near = this_host().spawn_procs().spawn("near", Pid)
    assert near.others.call_one(far).get() == pids
    mine = near.pid.call_one().get()
    assert far.others.call(near.flatten("n")).get().values() == [[mine]] * 6
    assert far.slice(hosts=1, n=0).others.call_one(far.slice(n=1)).get() == pids[1::2]
    with pytest.raises(ValueError, match="on purpose"):
        far.slice(hosts=2).fail.call().get()
    hosts.stop().get()
    again = attach_to_workers(workers=addresses[1:])
    assert len(again.spawn_procs().spawn("far", Pid).pid.call().get().values()) == 2
    again.stop().get()
    print("fine")
    """
    )
    with workers(3, tcp=tcp) as found:
        result = run_script(script, env={"ADDRESSES": " ".join(found.addresses)})
        assert result.stdout == "fine\n", str(result)
        assert result.exit_code == 0, str(result)
        for index in range(3):
            # bound now
            wait_until(lambda index=index: not found.procs(index), what="the end of the procs")  # type: ignore[misc]


def test_workers_that_come_up_late_are_waited_for_also_through_a_worker() -> None:
    script = (
        VIA
        + """
    from monarch.actor import start_worker_loop_forever
    hosts = attach_to_workers(workers=addresses)
    late = [start_worker_loop_forever(address=address) for address in addresses]
    assert len(hosts.spawn_procs().spawn("far", Pid).pid.call().get().values()) == 2
    hosts.shutdown().get()
    for worker in late:
        worker.get()
    print("fine")
    """
    )
    addresses = [f"tcp://127.0.0.1:{port}" for port in free_ports(2)]
    result = run_script(script, env={"ADDRESSES": " ".join(addresses)})
    assert result.stdout == "fine\n", str(result)


def test_a_client_that_goes_through_a_worker_dials_no_other() -> None:
    script = (
        VIA
        + """
    hosts = attach_to_workers(workers=addresses)
    hosts.spawn_procs().spawn("far", Pid).pid.call().get()
    ports = [int(address.rpartition(":")[2]) for address in addresses]
    agent, = open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split()
    import psutil
    print(sorted(ports.index(c.raddr.port) for c in psutil.Process(int(agent)).net_connections() if c.raddr))
    hosts.stop().get()
    """
    )
    with workers(3, tcp=True) as found:
        result = run_script(script, env={"ADDRESSES": " ".join(found.addresses)})
        assert result.stdout == "[0]\n", str(result)


def test_a_clients_procs_on_other_hosts_end_with_it_also_through_a_worker() -> None:
    script = (
        VIA
        + """
    hosts = attach_to_workers(workers=addresses)
    hosts.spawn_procs().spawn("far", Pid).pid.call().get()
    os._exit(3)
    """
    )
    with workers(2) as found:
        found.wait_until_they_listen()
        result = run_script(script, env={"ADDRESSES": " ".join(found.addresses)})
        assert result.exit_code == 3, str(result)
        for index in range(2):
            # bound now
            wait_until(lambda index=index: not found.procs(index), what="the end of the procs")  # type: ignore[misc]


def test_shutdown_context_ends_what_runs_on_attached_hosts_and_leaves_the_workers() -> None:
    script = """
    import os
    from monarch.actor import Actor, attach_to_workers, endpoint, shutdown_context, SupervisionError
    class Pid(Actor):
        @endpoint
        def pid(self):
            return os.getpid()
        def __cleanup__(self, error):
            print("cleaned up")
    for turn in range(2):
        hosts = attach_to_workers(workers=os.environ["ADDRESSES"].split())
        far = hosts.spawn_procs(name="far").spawn("pid", Pid)
        pids = far.pid.call().get().values()
        shutdown_context(host_timeout=5).get()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
        for use in (lambda: far.pid.call().get(), lambda: hosts.spawn_procs().initialized.get()):
            try:
                use()
            except (SupervisionError, RuntimeError) as error:
                assert "shut down" in str(error) or "stopped" in str(error), error
            else:
                raise AssertionError("the context was shut down")
        getattr(hosts, ["stop", "shutdown"][turn])().get()
    """
    with workers(2) as found:
        found.wait_until_they_listen()
        result = run_script(script, env={"ADDRESSES": " ".join(found.addresses)})
        assert result.exit_code == 0, str(result)
        assert sorted(result.stdout.splitlines()) == [
            f"[far {rank}] cleaned up" for rank in (0, 0, 1, 1)
        ]
        assert all(process.poll() is None for process in found.processes)


def test_a_script_that_just_ends_stops_its_procs_with_complete_output() -> None:
    script = """
    import os
    from monarch.actor import Actor, attach_to_workers, current_rank, endpoint
    class Says(Actor):
        @endpoint
        def say(self):
            print(f"rank {current_rank().rank} says so")
        def __cleanup__(self, error):
            print("cleaned up")
    far = attach_to_workers(workers=os.environ["ADDRESSES"].split()).spawn_procs({"n": 2}, name="far").spawn("s", Says)
    far.say.broadcast()
    """
    with workers(2) as found:
        found.wait_until_they_listen()
        result = run_script(script, env={"ADDRESSES": " ".join(found.addresses)})
        assert result.exit_code == 0, str(result)
        said = [f"[far {rank}] rank {rank} says so" for rank in range(4)]
        assert sorted(result.stdout.splitlines()) == sorted(
            [*said, *(f"[far {rank}] cleaned up" for rank in range(4))]
        )
        assert result.stderr == ""
        for index in range(2):
            # bound now
            wait_until(lambda index=index: not found.procs(index), what="the end of the procs")  # type: ignore[misc]


def test_a_script_that_ends_before_its_host_has_answered_says_what_is_lost() -> None:
    script = """
    import os
    from monarch.actor import Actor, attach_to_workers, endpoint
    class Says(Actor):
        @endpoint
        def say(self):
            print("said")
    attach_to_workers(workers=os.environ["ADDRESSES"].split()).spawn_procs(name="far").spawn("s", Says).say.broadcast()
    """
    with workers(2) as found:
        found.wait_until_they_listen()
        with stopped(found.processes[1].pid), stopped(found.agent(1)):
            result = run_script(script, env={"ADDRESSES": " ".join(found.addresses)})
        (said,) = result.stderr.splitlines()
        assert said.endswith(f"what it sent there is lost: {found.addresses[1]}")


def test_a_broadcast_that_fails_on_another_host_at_the_end_of_a_script_is_reported() -> None:
    script = """
    import os
    from monarch.actor import Actor, attach_to_workers, endpoint
    class Fails(Actor):
        @endpoint
        def fail(self):
            raise ValueError("on purpose")
    attach_to_workers(workers=os.environ["ADDRESSES"].split()).spawn_procs(name="far").spawn("f", Fails).fail.broadcast()
    """
    with workers(2) as found:
        found.wait_until_they_listen()
        result = run_script(script, env={"ADDRESSES": " ".join(found.addresses)})
        assert result.exit_code == 1, str(result)
        assert "on purpose" in result.stderr


def test_two_threads_attach_the_same_hosts_at_once(two_workers: Workers) -> None:
    found: list[HostMesh] = []

    def use() -> None:
        hosts = attach_to_workers(workers=two_workers.addresses)
        hosts.spawn_procs().spawn("echo", Echo).pid.call().get(timeout=PATIENCE)
        found.append(hosts)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(found) == 4
    for hosts in found:
        hosts.stop().get(timeout=PATIENCE)
    assert os.getpid()


def test_a_worker_of_another_protocol_version_is_told_from_an_absent_one(
    tmp_path: Path,
) -> None:
    package = Path(monarch.__file__).parent
    shutil.copytree(
        package, tmp_path / "src" / "monarch", ignore=shutil.ignore_patterns("__pycache__")
    )
    records = tmp_path / "src" / "monarch" / "_core" / "wire" / "link_records.py"
    records.write_text(
        records.read_text().replace(f"\nVERSION = {VERSION}\n", f"\nVERSION = {VERSION + 1}\n")
    )
    with workers(1, env={"PYTHONPATH": str(tmp_path / "src")}) as found:
        found.wait_until_they_listen()
        text = why_not(attach_to_workers(workers=found.addresses))
        assert f"version {VERSION}" in text
        assert f"version {VERSION + 1}" in text
        assert found.addresses[0] in text


def test_ctrl_c_ends_the_wait_for_hosts_at_once() -> None:
    script = """
    import os
    from monarch.actor import attach_to_workers
    from monarch.config import configure
    configure(mesh_attach_config_timeout="1h")
    hosts = attach_to_workers(workers=["ipc:///no/such/socket"])
    hosts.spawn_procs()
    print("waiting", flush=True)
    hosts.initialized.get()
    """
    result = run_script(script, signal_after=("waiting", signal.SIGINT))
    assert result.after_signal is not None, str(result)
    assert "KeyboardInterrupt" in result.stderr
    assert not result.left_behind


def test_a_client_that_lets_go_of_hosts_it_has_not_reached_waits_for_nothing() -> None:
    hosts = attach_to_workers(workers=["ipc:///no/such/socket"])
    procs = hosts.spawn_procs()
    hosts.stop().get(timeout=PATIENCE)
    for future in (hosts.initialized, procs.initialized):
        with pytest.raises((RuntimeError, SupervisionError)):
            future.get(timeout=PATIENCE)


def test_hosts_whose_addresses_are_not_known_yet_are_let_go_at_once(two_workers: Workers) -> None:
    port, receiver = Channel[str].open()
    hosts = attach_to_workers(workers=[two_workers.addresses[0], receiver.recv()])
    hosts.stop().get(timeout=PATIENCE)
    port.send(two_workers.addresses[1])
    with pytest.raises(RuntimeError, match="stopped before"):
        hosts.initialized.get(timeout=PATIENCE)
    with pytest.raises(RuntimeError, match="already been stopped"):
        hosts.spawn_procs()


def test_requests_to_a_worker_that_comes_up_after_detach_leave_nothing() -> None:
    (port,) = free_ports(1)
    address = f"tcp://127.0.0.1:{port}"
    hosts = attach_to_workers(workers=[address])
    hosts.spawn_procs().spawn("echo", Echo)
    hosts.stop().get(timeout=PATIENCE)
    late = start_worker_loop_forever(address=address)
    again = attach_to_workers(workers=[address])
    (pid,) = again.spawn_procs().spawn("echo", Echo).pid.call().get(timeout=PATIENCE).values()
    spawner = psutil.Process(pid).parent()
    assert spawner is not None
    wait_until(
        lambda: [child.pid for child in spawner.children()] == [pid],
        what="what nobody wants any more to end",
    )
    again.shutdown().get(timeout=PATIENCE)
    late.get(timeout=PATIENCE)


def test_clients_that_come_and_go_leave_no_threads_or_descriptors(
    two_workers: Workers,
) -> None:
    for _ in range(10):
        hosts = attach_to_workers(workers=two_workers.addresses)
        assert hosts.spawn_procs().spawn("echo", Echo).say.call(1).get(
            timeout=PATIENCE
        ).values() == [1, 1]
        hosts.stop().get(timeout=PATIENCE)
