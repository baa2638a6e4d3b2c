"""The side of the worker: where it listens, how it is started, how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.actors import Echo
from helpers.scripts import run_script
from helpers.waiting import PATIENCE, is_alive, wait_gone, wait_until
from helpers.workers import SECRET, Workers, children_of, free_ports, workers
from monarch.actor import (
    HostMesh,
    SupervisionError,
    attach_to_workers,
    run_worker_loop_forever,
    run_worker_loop_until_shutdown,
    start_worker_loop_forever,
)
from monarch.config import configured
from monarch.errors import AddressError

FUNCTIONS = [run_worker_loop_forever, run_worker_loop_until_shutdown, start_worker_loop_forever]


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONARCH_SECRET", SECRET)


def use_and_shut_down(*addresses: str) -> list[int]:
    """Attach, spawn, call, shut down; the process ids that answered."""
    hosts = attach_to_workers(workers=addresses)
    assert hosts.initialized.get(timeout=PATIENCE) is True
    pids = hosts.spawn_procs().spawn("echo", Echo).pid.call().get(timeout=PATIENCE).values()
    hosts.shutdown().get(timeout=PATIENCE)
    assert not any(is_alive(pid) for pid in pids)
    return pids


def start(address: str, **popen: Any) -> subprocess.Popen[bytes]:
    code = (
        "import sys; from monarch.actor import run_worker_loop_forever as f; f(address=sys.argv[1])"
    )
    return subprocess.Popen([sys.executable, "-c", code, address], stderr=subprocess.PIPE, **popen)


def ended(process: subprocess.Popen[bytes]) -> str:
    """Waits for the exit with status 0; what it wrote to stderr."""
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr.decode()
    return stderr.decode()


# addresses


@pytest.mark.slow
def test_every_form_of_address_is_listened_on_and_dialed(tmp_path: Path) -> None:
    ports = free_ports(6)
    forms = {
        f"tcp://127.0.0.1:{ports[0]}": f"tcp://127.0.0.1:{ports[0]}",
        f"tcp://*:{ports[1]}": f"tcp://localhost:{ports[1]}",
        f"tcp://localhost:{ports[2]}@tcp://127.0.0.1:{ports[2]}": f"tcp://localhost:{ports[2]}",
        f"service<2Vx>@tcp://127.0.0.1:{ports[3]}": f"service<2Vx>@tcp://127.0.0.1:{ports[3]}",
        f"tcp://0.0.0.0:{ports[4]}": f"tcp://127.0.0.1:{ports[4]}",
        f"metatls://localhost:{ports[5]}": f"metatls://localhost:{ports[5]}",
        f"ipc://{tmp_path}/w": f"ipc://{tmp_path}/w",
        f"inproc://{os.getpid()}": f"inproc://{os.getpid()}",
    }
    processes = [start(address) for address in forms]
    use_and_shut_down(*forms.values())
    for process in processes:
        assert ended(process) == ""


def test_a_worker_may_be_dialed_under_the_whole_text_that_it_was_started_with(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    address = f"tcp://localhost:{port}@tcp://0.0.0.0:{port}"
    process = start(address)
    use_and_shut_down(address)
    ended(process)


def test_a_socket_that_was_inherited_is_listened_on() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        process = start(f"tcp://127.0.0.1:fd{sock.fileno()}", pass_fds=[sock.fileno()])
    use_and_shut_down(f"tcp://127.0.0.1:{port}")
    ended(process)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    "address",
    ["", "bogus", "tcp://", "tcp://host", "tcp://host:port", "tcp://host:99999", "ftp://host:1", "ipc://relative", "tcp://::1:7", "inproc://x"],
)  # fmt: skip
def test_a_malformed_address_is_refused_at_the_call(function: Any, address: str) -> None:
    with pytest.raises(AddressError, match="Wanted one of") as caught:
        function(address=address)
    assert repr(address) in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_address_that_is_no_text_is_refused_at_the_call(function: Any) -> None:
    with pytest.raises(AddressError, match="7"):
        function(address=7)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_port_that_is_taken_is_an_error_at_the_call(function: Any) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        address = f"tcp://127.0.0.1:{sock.getsockname()[1]}"
        with pytest.raises(OSError, match="in use") as caught:
            function(address=address)
    assert address in str(caught.value)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    "place",
    [
        "tcp://192.0.2.1:2660",
        "ipc:///no/such/folder/w",
        "tcp://127.0.0.1:fd0",
        "tcp://no-such-host.invalid:2660",
    ],
)
def test_a_place_where_no_worker_can_listen_is_an_error_at_the_call(
    function: Any, place: str
) -> None:
    with pytest.raises(OSError) as caught:
        function(address=place)
    assert str(caught.value).startswith(f"cannot listen on {place}: ")
    assert str(caught.value).count("cannot listen") == 1


def test_a_knob_that_keeps_a_worker_from_listening_is_named_with_the_address() -> None:
    with configured(channel_tcp_congestion="cannot listen on"), pytest.raises(OSError) as caught:
        start_worker_loop_forever(address="tcp://127.0.0.1:0")
    assert str(caught.value).startswith(
        "cannot listen on tcp://127.0.0.1:0: channel_tcp_congestion: "
    )


def test_a_unix_socket_on_which_another_worker_listens_is_taken(tmp_path: Path) -> None:
    with workers(1) as found:
        hosts = attach_to_workers(workers=found.addresses)
        hosts.initialized.get(timeout=PATIENCE)
        with pytest.raises(OSError, match="cannot listen"):
            start_worker_loop_forever(address=found.addresses[0])
        hosts.shutdown().get(timeout=PATIENCE)


def test_a_unix_socket_that_a_killed_worker_left_behind_is_used_again() -> None:
    with workers(1) as found:
        attach_to_workers(workers=found.addresses).initialized.get(timeout=PATIENCE)
        found.kill_agent(0)
        found.processes[0].wait(PATIENCE)
        process = start(found.addresses[0])
        use_and_shut_down(*found.addresses)
        ended(process)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    "wrong", [{"ca": "/no/such/file", "private_key": "/no/such/file"}, {"ca": "/dev/null"}]
)
def test_certificates_that_are_none_are_refused_at_the_call(
    function: Any, wrong: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match="ca"):
        function(address="tcp://127.0.0.1:0", **wrong)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_tcp_without_secret_and_certificates_is_refused_at_the_call(
    function: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MONARCH_SECRET")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ValueError, match="monarch secret"):
        function(address="tcp://127.0.0.1:0")
    with pytest.raises(ValueError, match="monarch secret"):
        attach_to_workers(workers=["tcp://127.0.0.1:2660"])


def test_addresses_and_all_else_are_given_by_keyword() -> None:
    with pytest.raises(TypeError):
        start_worker_loop_forever("tcp://127.0.0.1:0")  # type: ignore[call-arg]  # what is tested


# the three loops


def test_start_worker_loop_forever_listens_on_return_until_the_shutdown(
    tmp_path: Path,
) -> None:
    future = start_worker_loop_forever(address=f"ipc://{tmp_path}/w")
    assert not future.done()
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(f"{tmp_path}/w")
    use_and_shut_down(f"ipc://{tmp_path}/w")
    assert future.get(timeout=PATIENCE) is None
    assert not Path(tmp_path, "w").exists()


def test_the_future_of_a_worker_raises_when_its_agent_is_killed(tmp_path: Path) -> None:
    before = set(children_of(os.getpid()))
    future = start_worker_loop_forever(address=f"ipc://{tmp_path}/w")
    (agent,) = set(children_of(os.getpid())) - before
    os.kill(agent, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="signal 9") as caught:
        future.get(timeout=PATIENCE)
    assert str(tmp_path) in str(caught.value)


def test_run_worker_loop_until_shutdown_returns() -> None:
    (port,) = free_ports(1)
    code = """
        import sys
        from monarch.actor import run_worker_loop_until_shutdown
        run_worker_loop_until_shutdown(address=sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:%d")
        print("and on it goes")
    """
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(line.strip() for line in (code % port).splitlines())],
        stdout=subprocess.PIPE,
    )
    use_and_shut_down(f"tcp://127.0.0.1:{port}")
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out.decode() == "and on it goes\n"


def test_run_worker_loop_forever_exits_with_0_and_runs_exit_functions(
    tmp_path: Path,
) -> None:
    code = (
        "import atexit, sys; from monarch.actor import run_worker_loop_forever as f;"
        f" atexit.register(print, 'bye');f(address='ipc://{tmp_path}/w'); print('never')"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    use_and_shut_down(f"ipc://{tmp_path}/w")
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, b"bye\n")


def test_a_program_may_be_worker_and_client_at_once() -> None:
    result = run_script("""
        import os, tempfile
        from monarch.actor import Actor, attach_to_workers, endpoint, start_worker_loop_forever, this_host

        class Pid(Actor):
            @endpoint
            def pid(self):
                return os.getpid()

        folder = tempfile.mkdtemp()
        ended = start_worker_loop_forever(address=f"ipc://{folder}/w")
        hosts = attach_to_workers(workers=[f"ipc://{folder}/w"])
        far = hosts.spawn_procs().spawn("p", Pid).pid.call().get().values()
        near = this_host().spawn_procs().spawn("p", Pid).pid.call_one().get()
        assert near not in far
        hosts.shutdown().get()
        ended.get()
        os.rmdir(folder)
        print("done")
        """)
    assert result.exit_code == 0, str(result)
    assert result.stdout == "done\n"
    assert not result.left_behind


def test_a_worker_ends_with_the_process_that_started_it() -> None:
    with workers(1) as found:
        hosts = attach_to_workers(workers=found.addresses)
        (pid,) = hosts.spawn_procs().spawn("echo", Echo).pid.call().get(timeout=PATIENCE).values()
        agent = found.agent(0)
        hosts.stop().get(timeout=PATIENCE)
        found.processes[0].kill()
        wait_gone(agent)
        wait_gone(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_ends_at_once_when_asked_to_by_a_signal(number: signal.Signals) -> None:
    with workers(1) as found:
        hosts = attach_to_workers(workers=found.addresses)
        hosts.initialized.get(timeout=PATIENCE)
        agent = found.agent(0)
        hosts.stop().get(timeout=PATIENCE)
        found.processes[0].send_signal(number)
        assert found.processes[0].wait(PATIENCE) in (-number, 130, 1)
        wait_gone(agent)


# several clients, and one after the other

CLIENT = """
import os, sys
from monarch.actor import Actor, attach_to_workers, endpoint
class Pid(Actor):
    @endpoint
    def pid(self):
        return os.getpid()
hosts = attach_to_workers(workers=sys.argv[1:])
pid = hosts.spawn_procs().spawn("pid", Pid)
print(*pid.pid.call().get().values(), flush=True)
for line in sys.stdin:
    if line == "call\\n":
        print(*pid.pid.call().get().values(), flush=True)
    elif line == "stop\\n":
        hosts.stop().get()
        print("stopped", flush=True)
    elif line == "leave\\n":
        break
"""


class Client:
    """A client in a program of its own, which does as it is told."""

    def __init__(self, addresses: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, *addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pids = [int(word) for word in self._line().split()]

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def tell(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self._line()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def two_workers() -> Iterator[Workers]:
    with workers(2) as found:
        yield found


def test_clients_at_the_same_time_do_not_disturb_each_other(two_workers: Workers) -> None:
    clients = [Client(two_workers.addresses) for _ in range(3)]
    try:
        assert len({pid for client in clients for pid in client.pids}) == 6
        assert clients[0].tell("stop") == "stopped\n"
        assert not any(is_alive(pid) for pid in clients[0].pids)
        assert clients[1].tell("leave") == ""
        clients[1].process.wait(PATIENCE)
        for pid in clients[1].pids:
            wait_gone(pid)
        assert [int(word) for word in clients[2].tell("call").split()] == clients[2].pids
        late = Client(two_workers.addresses)
        clients.append(late)
        assert [int(word) for word in late.tell("call").split()] == late.pids
        clients[2].process.kill()
        for pid in clients[2].pids:
            wait_gone(pid)
        assert [int(word) for word in late.tell("call").split()] == late.pids
    finally:
        for client in clients:
            client.end()


OTHER_NAME = """
import sys
from pathlib import Path
import cloudpickle
from monarch.actor import Actor, attach_to_workers, endpoint
class Greeter(Actor):
    @endpoint
    def greet(self, data):
        return len(data)
greeter = attach_to_workers(workers=[sys.argv[1]]).spawn_procs().spawn("greeter", Greeter)
greeter.greet.call(b"").get()
Path(sys.argv[2]).write_bytes(cloudpickle.dumps(greeter))
print("there", flush=True)
sys.stdin.read()
"""


BY_EITHER_NAME = """
import sys
from pathlib import Path
import cloudpickle
from monarch.actor import Actor, attach_to_workers, endpoint
class Asks(Actor):
    @endpoint
    def ask(self, greeter, data):
        return greeter.greet.call_one(data).get()
    @endpoint
    def say(self, data):
        return data
if __name__ == "__main__":
    data = b"x" * (1 << 20)
    reference, *addresses = sys.argv[1:]
    theirs = cloudpickle.loads(Path(reference).read_bytes())
    hosts = attach_to_workers(workers=addresses)
    asks = hosts.spawn_procs().spawn("asks", Asks)
    mine = hosts.slice(hosts=0).spawn_procs().spawn("mine", Asks)
    for _ in range(4):
        assert theirs.greet.call_one(data).get() == len(data)
        assert asks.ask.call(theirs, data).get().values() == [len(data)] * 2
        assert mine.say.call_one(data).get() == data
    hosts.stop().get()
    print("done", flush=True)
"""


def test_clients_with_different_names_for_a_worker_share_its_actors(
    tmp_path: Path,
) -> None:
    """Both its actors and the second program call there by either name, in turn, more than fits
    into a window.

    That one is a program of its own, since its agent must have been started with the secret.
    """
    reference = tmp_path / "reference"
    with workers(2, tcp=True) as found:
        name = found.addresses[0].replace("127.0.0.1", "localhost")
        script = [sys.executable, "-c", OTHER_NAME, name, str(reference)]
        with subprocess.Popen(
            script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "there\n"
            second = subprocess.run(
                [sys.executable, "-c", BY_EITHER_NAME, str(reference), *found.addresses],
                env={**os.environ, "MONARCH_SEND_BUFFER_LIMIT": "1MiB"},
                capture_output=True, text=True, timeout=100, check=False,
            )  # fmt: skip
            assert second.stdout == "done\n", second.stderr


def test_a_worker_that_one_client_shuts_down_is_gone_for_all_and_the_others_are_told(
    two_workers: Workers,
) -> None:
    client = Client(two_workers.addresses)
    try:
        hosts = attach_to_workers(workers=two_workers.addresses)
        hosts.initialized.get(timeout=PATIENCE)
        hosts.shutdown().get(timeout=PATIENCE)
        for process in two_workers.processes:
            assert process.wait(PATIENCE) == 0
        assert client.process.wait(PATIENCE) == 1  # an unhandled failure
    finally:
        client.end()


def test_a_worker_serves_one_client_after_the_other_and_keeps_nothing_of_them(
    two_workers: Workers,
) -> None:
    def descriptors() -> list[int]:
        return [len(os.listdir(f"/proc/{two_workers.agent(index)}/fd")) for index in range(2)]

    counts: list[list[int]] = []
    for _ in range(4):
        client = Client(two_workers.addresses)
        client.tell("leave")
        client.process.wait(PATIENCE)
        client.end()
        for index in range(2):
            # bound now
            wait_until(
                lambda index=index: not two_workers.procs(index),  # type: ignore[misc]
                what="the end of the procs",
            )
        counts.append(descriptors())
    wait_until(
        lambda: descriptors() <= counts[0], what=f"descriptors as after the first client: {counts}"
    )


# stopped, shut down, attached again


def attached(found: Workers) -> HostMesh:
    hosts = attach_to_workers(workers=found.addresses, name="those")
    hosts.initialized.get(timeout=PATIENCE)
    return hosts


def test_hosts_that_were_stopped_are_attached_again(two_workers: Workers) -> None:
    agents: list[int] = []
    for _ in range(3):
        hosts = attached(two_workers)
        agents = agents or [two_workers.agent(index) for index in range(2)]
        pids = (
            hosts.spawn_procs({"n": 2})
            .spawn("echo", Echo)
            .pid.call()
            .get(timeout=PATIENCE)
            .values()
        )
        assert len(set(pids)) == 4
        hosts.stop().get(timeout=PATIENCE)
        assert not any(is_alive(pid) for pid in pids)
    assert [two_workers.agent(index) for index in range(2)] == agents


def test_hosts_that_ended_and_are_attached_again_are_let_go_without_waiting_for_them(
    two_workers: Workers,
) -> None:
    attached(two_workers).shutdown().get(timeout=PATIENCE)
    for process in two_workers.processes:
        process.wait(PATIENCE)
    again = attach_to_workers(workers=two_workers.addresses)
    procs = again.spawn_procs()
    again.stop().get(timeout=PATIENCE)
    for future in (again.initialized, procs.initialized):
        with pytest.raises((RuntimeError, SupervisionError)):
            future.get(timeout=PATIENCE)


def test_stopping_one_of_two_attachments_leaves_what_the_other_has_spawned(
    two_workers: Workers,
) -> None:
    one, two = attached(two_workers), attached(two_workers)
    gone = one.spawn_procs().spawn("echo", Echo).pid.call().get(timeout=PATIENCE).values()
    echo = two.spawn_procs().spawn("echo", Echo)
    kept = echo.pid.call().get(timeout=PATIENCE).values()
    one.stop().get(timeout=PATIENCE)
    assert not any(is_alive(pid) for pid in gone)
    assert echo.pid.call().get(timeout=PATIENCE).values() == kept
    more = two.spawn_procs().spawn("echo", Echo)
    assert len(more.pid.call().get(timeout=PATIENCE).values()) == 2
    two.stop().get(timeout=PATIENCE)


def test_a_worker_that_was_started_again_at_its_address_is_attached_again(
    two_workers: Workers,
) -> None:
    hosts = attached(two_workers)
    before = hosts.spawn_procs().spawn("echo", Echo).pid.call().get(timeout=PATIENCE).values()
    hosts.shutdown().get(timeout=PATIENCE)
    for process in two_workers.processes:
        assert process.wait(PATIENCE) == 0
    again = [start(address) for address in two_workers.addresses]
    after = use_and_shut_down(*two_workers.addresses)
    assert not set(before) & set(after)
    for process in again:
        ended(process)


@pytest.mark.parametrize("how", ["shutdown", "stop"])
def test_a_mesh_of_hosts_that_was_let_go_says_so_on_each_use(
    two_workers: Workers, how: str
) -> None:
    hosts = attached(two_workers)
    part = hosts.slice(hosts=0)
    getattr(hosts, how)().get(timeout=PATIENCE)
    word = "shut down" if how == "shutdown" else "stopped"
    for use in (
        hosts.spawn_procs,
        hosts.shutdown,
        hosts.stop,
        lambda: hosts.with_python_executable(sys.executable),
    ):
        with pytest.raises(RuntimeError, match=f"already been {word}") as caught:
            use()
        assert "those" in str(caught.value)
    with pytest.raises(RuntimeError, match=f"already been {word}"):
        part.spawn_procs()


@pytest.mark.parametrize("how", ["shutdown", "stop"])
def test_slices_and_references_of_hosts_can_be_neither_shut_down_nor_stopped(
    two_workers: Workers, how: str
) -> None:
    hosts = attached(two_workers)
    references = [hosts.slice(hosts=0), hosts.slice(hosts=slice(0, 2)), hosts.rename(hosts="h")]
    with hosts.spawn_procs() as procs:
        references.append(procs.host_mesh)
        references.append(
            procs.spawn("echo", Echo).slice(hosts=0).say.call_one(hosts).get(timeout=PATIENCE)
        )
    for reference in references:
        with pytest.raises(RuntimeError, match="reference instead of owned"):
            getattr(reference, how)()
    hosts.stop().get(timeout=PATIENCE)


def test_an_async_with_block_shuts_the_hosts_down_once(two_workers: Workers) -> None:
    async def main() -> None:
        async with attach_to_workers(workers=two_workers.addresses) as hosts:
            async with hosts:
                assert len((await hosts.spawn_procs().spawn("echo", Echo).pid.call()).values()) == 2
        with pytest.raises(RuntimeError, match="shut down"):
            async with hosts:
                pass

    asyncio.run(main())
    for process in two_workers.processes:
        assert process.wait(PATIENCE) == 0


def test_shutdown_and_stop_act_although_their_futures_are_not_read(two_workers: Workers) -> None:
    hosts = attached(two_workers)
    pids = hosts.spawn_procs().spawn("echo", Echo).pid.call().get(timeout=PATIENCE).values()
    hosts.stop()
    for pid in pids:
        wait_gone(pid)
    attached(two_workers).shutdown()
    for process in two_workers.processes:
        assert process.wait(PATIENCE) == 0


def test_shutdown_lets_the_actors_clean_up(two_workers: Workers) -> None:
    from helpers.actors import Cleaner, open_channel

    port, receiver = open_channel()
    hosts = attached(two_workers)
    cleaners = hosts.spawn_procs().spawn("cleaner", Cleaner, "cleaned", port)
    cleaners.ready.call().get(timeout=PATIENCE)
    hosts.shutdown().get(timeout=PATIENCE)
    assert [receiver.recv().get(timeout=PATIENCE)[0] for _ in range(2)] == ["cleaned"] * 2


def test_shutdown_waits_for_a_stuck_endpoint_no_longer_than_the_grace(
    two_workers: Workers,
) -> None:
    from helpers.actors import Gate, open_channel
    from monarch.config import configured

    with configured(cleanup_timeout="300ms"):
        hosts = attached(two_workers)
        gate = hosts.spawn_procs().spawn("gate", Gate)
        port, receiver = open_channel()
        stuck = gate.wait_for_file.call("/never", port)
        for _ in range(2):
            receiver.recv().get(timeout=PATIENCE)
        hosts.shutdown().get(timeout=PATIENCE)
        with pytest.raises(Exception, match="shut down|stopped"):
            stuck.get(timeout=PATIENCE)


def test_a_worker_says_nothing_on_its_own(two_workers: Workers) -> None:
    attached(two_workers).shutdown().get(timeout=PATIENCE)
    assert [re.sub(r"\s", "", two_workers.output(index)) for index in range(2)] == ["", ""]
