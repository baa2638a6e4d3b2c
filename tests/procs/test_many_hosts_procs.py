"""Procs on attached hosts: how they start, what they find there, what they print, how they come
back.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Counter, Echo
from helpers.mocked import Fake, Original, OtherFake, Real, Replacement, Spawns
from helpers.scripts import run_script
from helpers.waiting import is_alive, wait_gone, wait_until
from helpers.workers import Cluster, workers
from monarch.actor import (
    Actor,
    ActorError,
    BootstrapCommand,
    HostMesh,
    SupervisionError,
    default_bootstrap_cmd,
    endpoint,
    patch_actor,
    this_host,
)
from monarch.config import configured
from monarch.supervision import AllForOne, OneForOne, incarnations

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults


class Looker(Actor):
    """Looks around in its process."""

    def __init__(self) -> None:
        self.attribute = getattr(os, "set_by_bootstrap", None)

    @endpoint
    def environment(self, name: str) -> str | None:
        return os.environ.get(name)

    @endpoint
    def directory(self) -> str:
        return os.getcwd()

    @endpoint
    def found(self) -> Any:
        return self.attribute

    @endpoint
    def executable(self) -> tuple[str, str]:
        return sys.executable, sys.prefix

    @endpoint
    def knob(self, name: str) -> Any:
        from monarch.config import get_global_config

        return get_global_config()[name]

    @endpoint
    def path(self) -> list[str]:
        return sys.path

    @endpoint
    def affinity(self) -> set[int]:
        return os.sched_getaffinity(0)


@pytest.fixture(params=["fork", "exec"])
def method(request: pytest.FixtureRequest) -> Iterator[str]:
    with configured(proc_spawn_method=request.param):
        yield request.param


# the environment is that of the host


def test_procs_have_the_environment_of_their_worker_and_not_that_of_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from monarch.actor import attach_to_workers

    monkeypatch.setenv("OF_THE_CLIENT", "yes")
    with workers(1, env={"OF_THE_WORKER": "yes"}) as found:
        monkeypatch.setenv("OF_THE_CLIENT_LATER", "yes")
        hosts = attach_to_workers(workers=found.addresses)
        for how in ("fork", "exec"):
            with configured(proc_spawn_method=how):
                looker = hosts.spawn_procs().spawn("l", Looker)
            names = ("OF_THE_WORKER", "OF_THE_CLIENT_LATER")
            got = [looker.environment.call(name).get().values()[0] for name in names]
            assert got == ["yes", None], how
        hosts.shutdown().get()


@pytest.mark.processes("the environment of a process")
def test_bootstrap_commands_change_the_environment_of_each_rank(
    spawn_far: Spawn, method: str
) -> None:
    procs = spawn_far(
        2,
        bootstrap_command=lambda point: default_bootstrap_cmd().with_env(
            {"WHO": f"{point['hosts']}.{point['gpus']}", "HOME": None}
        ),
    )
    looker = procs.spawn("l", Looker)
    assert looker.environment.call("WHO").get().values() == [
        "0.0",
        "0.1",
        "1.0",
        "1.1",
        "2.0",
        "2.1",
    ]
    assert looker.environment.call("HOME").get().values() == [None] * 6


def test_a_command_that_is_no_proc_is_an_error_that_comes_soon(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs(
        bootstrap_command=BootstrapCommand("/bin/false"), name="nothing"
    )
    with pytest.raises(ValueError, match="nothing"):
        procs.initialized.get()
    with pytest.raises(SupervisionError):
        procs.spawn("e", Echo).say.call(1).get()
    procs.stop().get()


def test_a_command_that_fails_on_one_host_leaves_the_procs_of_the_others(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs(
        bootstrap_command=lambda point: (
            BootstrapCommand("/bin/false") if point["hosts"] == 1 else default_bootstrap_cmd()
        )
    )
    with pytest.raises(ValueError, match="exit_code"):
        procs.initialized.get()
    echo = procs.spawn("e", Echo)
    assert echo.slice(hosts=0).say.call_one(1).get() == 1
    assert echo.slice(hosts=2).say.call_one(1).get() == 1
    with pytest.raises(SupervisionError):
        echo.say.call(1).get()
    procs.stop().get()


@pytest.mark.processes("the working directory of a process")
def test_a_working_directory_that_the_host_does_not_have_is_no_hindrance(
    spawn_far: Spawn, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    with configured():
        looker = spawn_far(1).spawn("l", Looker)
        # it is there on this machine
        assert looker.directory.call().get().values() == [str(gone)] * 3
        real = os.getcwd
        monkeypatch.setattr(os, "getcwd", lambda: "/only/on/the/client")
        elsewhere = spawn_far(1).spawn("l", Looker)
        monkeypatch.setattr(os, "getcwd", real)
        for directory in elsewhere.directory.call().get().values():
            assert os.path.isdir(directory)


def test_another_interpreter_is_used_on_every_host_and_inherited(
    cluster: Cluster, tmp_path: Path
) -> None:
    python = tmp_path / "another_python"
    python.write_text(f'#!/bin/sh\nexport STARTED_BY=another_python\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)

    class Spawner(Actor):
        @endpoint
        def spawn(self) -> str | None:
            with this_host().spawn_procs() as procs:
                return procs.spawn("l", Looker).environment.call_one("STARTED_BY").get()

    hosts = cluster.hosts.with_python_executable(str(python))
    with hosts.slice(hosts=slice(0, 2)).spawn_procs() as procs:
        assert (
            procs.spawn("l", Looker).environment.call("STARTED_BY").get().values()
            == ["another_python"] * 2
        )
        assert procs.spawn("s", Spawner).spawn.call().get().values() == ["another_python"] * 2


def test_an_interpreter_that_a_host_does_not_have_is_an_error_when_procs_are_spawned(
    cluster: Cluster,
) -> None:
    procs = cluster.hosts.with_python_executable("/no/such/python").spawn_procs()
    with pytest.raises(ValueError, match="/no/such/python"):
        procs.initialized.get()
    procs.stop().get()


@pytest.mark.processes("the CPUs of a process")
def test_procs_are_bound_to_cpus_of_their_host(spawn_far: Spawn) -> None:
    cpu = min(os.sched_getaffinity(0))
    looker = spawn_far(2, proc_bind=[{"cpus": str(cpu)}, {}]).spawn("l", Looker)
    sets = looker.affinity.call().get()
    assert sets.slice(gpus=0).values() == [{cpu}] * 3


# a function that runs first


@pytest.mark.processes("how processes are started")
def test_the_bootstrap_function_runs_on_every_proc_before_any_actor(
    spawn_far: Spawn, method: str
) -> None:
    def bootstrap() -> None:
        os.set_by_bootstrap = os.getpid()  # type: ignore[attr-defined]  # what is tested

    looker = spawn_far(2, bootstrap=bootstrap).spawn("l", Looker)
    assert len(set(looker.found.call().get().values())) == 6


def test_an_async_bootstrap_function_runs_too(spawn_far: Spawn) -> None:
    async def bootstrap() -> None:
        os.set_by_bootstrap = 7  # type: ignore[attr-defined]  # what is tested

    assert (
        spawn_far(1, bootstrap=bootstrap).spawn("l", Looker).found.call().get().values() == [7] * 3
    )


def test_a_bootstrap_that_raises_on_one_host_fails_uses_of_the_procs(
    far_hosts: HostMesh,
) -> None:
    def bootstrap() -> None:
        from monarch.actor import current_rank

        if current_rank()["hosts"] == 1:
            raise OSError("no GPU here")

    procs = far_hosts.spawn_procs(bootstrap=bootstrap, name="boots")
    with pytest.raises(ActorError, match="no GPU here"):
        procs.initialized.get()
    with pytest.raises(ActorError, match="no GPU here"):
        procs.spawn("e", Echo).say.call(1).get()
    procs.stop().get()


# what is there


@pytest.mark.processes("the configuration of a process")
def test_the_configuration_of_the_client_is_in_force_on_the_hosts(spawn_far: Spawn) -> None:
    with configured(mailbox_limit=77):
        looker = spawn_far(1).spawn("l", Looker)
    assert looker.knob.call("mailbox_limit").get().values() == [77] * 3
    later = spawn_far(1).spawn("l", Looker)
    assert later.knob.call("mailbox_limit").get().values() != [77] * 3


def test_modules_next_to_the_script_are_found_where_they_are_shared(tmp_path: Path) -> None:
    script = """
    import os
    from monarch.actor import attach_to_workers
    from my_actors import Mine

    hosts = attach_to_workers(workers=os.environ["ADDRESSES"].split())
    print(hosts.spawn_procs().spawn("m", Mine).mine.call().get().values())
    """
    module = """
    from monarch.actor import Actor, endpoint
    class Mine(Actor):
        @endpoint
        def mine(self):
            return "mine"
    """
    with workers(2) as found:
        result = run_script(
            script, files={"my_actors.py": module}, env={"ADDRESSES": " ".join(found.addresses)}
        )
    assert result.stdout == "['mine', 'mine']\n", str(result)


def test_mocks_are_spawned_on_other_hosts_and_by_actors_there(spawn_far: Spawn) -> None:
    procs = spawn_far(1)
    with patch_actor(Real, OtherFake), patch_actor(Real, Fake):
        assert procs.spawn("r", Real, 3).who.call().get().values() == ["fake 3"] * 3
    assert procs.spawn("r", Real, 3).who.call().get().values() == ["real 3"] * 3
    with patch_actor(Original, Replacement):
        meanwhile = spawn_far(1)
    spawned = meanwhile.spawn("s", Spawns).who.call().get().values()
    assert spawned == ["replacement"] * 3


# output


PRINTS = """
    import os, sys, logging
    from monarch.actor import Actor, attach_to_workers, current_rank, endpoint, this_host

    class Prints(Actor):
        @endpoint
        def print_lines(self, count):
            rank = current_rank().rank
            for number in range(count):
                print(f"<{rank} {number} {str(rank) * 300}>")

        @endpoint
        def complain(self):
            print("to stderr", file=sys.stderr)
            logging.getLogger("mine").warning("a warning")

        @endpoint
        def die(self):
            print("last words", flush=True)
            os._exit(3)

    hosts = attach_to_workers(workers=os.environ["ADDRESSES"].split())
"""


def test_output_of_other_hosts_arrives_in_lines_with_mesh_and_rank() -> None:
    script = (
        PRINTS
        + """
    far = hosts.spawn_procs({"n": 2}, name="far").spawn("p", Prints)
    near = this_host().spawn_procs({"n": 2}, name="near").spawn("p", Prints)
    calls = [far.print_lines.call(100), near.print_lines.call(100)]
    for call in calls:
        call.get()
    far.complain.call().get()
    """
    )
    with workers(2) as found:
        result = run_script(script, env={"ADDRESSES": " ".join(found.addresses)})
        assert result.exit_code == 0, str(result)
        assert [found.output(index) for index in range(2)] == ["", ""]  # it belongs to the client
    lines = result.stdout.splitlines()
    for mesh, ranks in (("far", 4), ("near", 2)):
        for rank in range(ranks):
            said = [line for line in lines if line.startswith(f"[{mesh} {rank}] <")]
            assert said == [
                f"[{mesh} {rank}] <{rank} {number} {str(rank) * 300}>" for number in range(100)
            ]
    assert len(lines) == 600
    for rank in range(4):
        assert f"[far {rank}] to stderr" in result.stderr.splitlines()
    assert result.stderr.count("a warning") == 4


def test_each_client_sees_the_output_of_its_own_procs() -> None:
    script = (
        PRINTS
        + """
    mine = hosts.spawn_procs(name=os.environ["NAME"]).spawn("p", Prints)
    mine.print_lines.call(3).get()
    """
    )
    with workers(1) as found:
        found.wait_until_they_listen()
        results = [
            run_script(script, env={"ADDRESSES": found.addresses[0], "NAME": name})
            for name in ("one", "two")
        ]
    assert [result.stdout.count("<0 ") for result in results] == [3, 3], "\n".join(
        map(str, results)
    )


def test_a_failure_report_has_the_last_output_of_a_remote_process() -> None:
    script = (
        PRINTS
        + """
    far = hosts.spawn_procs(name="far").spawn("p", Prints)
    far.slice(hosts=1).die.broadcast()
    far.print_lines.call(1).get()
    import time
    time.sleep(20)
    """
    )
    with workers(2) as found:
        result = run_script(script, env={"ADDRESSES": " ".join(found.addresses)})
    assert result.exit_code == 1, str(result)
    assert "last words" in result.stdout
    assert "exit" in result.stderr
    assert result.stderr.count("Unhandled monarch error") == 1


# procs that end, and those that start again


def test_an_owner_hears_of_a_killed_remote_proc_whose_neighbours_live(
    spawn_far: Spawn, faults: Faults
) -> None:
    procs = spawn_far({"gpus": 2})
    echo = procs.spawn("echo", Echo)
    pids = echo.pid.call().get()
    os.kill(pids[{"hosts": 1, "gpus": 0}], signal.SIGKILL)
    (failure,) = faults.wait_for(1)
    assert failure.mesh_name == "echo"
    assert list(failure.ranks) == [2]
    assert failure.signal == signal.SIGKILL
    for _ in range(3):  # each time anew
        with pytest.raises(SupervisionError, match=r"echo\[2\]"):
            echo.say.call(1).get()
        answers = [future.exception() for future in echo.say.stream(1)]
        assert [type(error) for error in answers if error is not None] == [SupervisionError]
        with pytest.raises(SupervisionError, match=r"echo\[2\]"):
            echo.slice(hosts=1, gpus=0).say.call_one(1).get()
    assert echo.slice(gpus=1).say.call(2).get().values() == [2, 2, 2]
    more = procs.slice(gpus=1).spawn("more", Echo)
    assert more.say.call(3).get().values() == [3, 3, 3]
    assert len(faults) == 1


def wait_for_life(mesh: Any, rank: int, number: int) -> None:
    def reached() -> bool:
        try:
            return incarnations(mesh).get().values()[rank] == number
        except SupervisionError:  # it is just being replaced
            return False

    wait_until(reached, what=f"incarnation {number} of rank {rank}")


@pytest.mark.parametrize("strategy", [OneForOne, AllForOne])
def test_a_killed_proc_of_another_host_starts_again_with_its_actors(
    spawn_far: Spawn, strategy: Any
) -> None:
    procs = spawn_far(1, restart=strategy())
    counters, echo = procs.spawn("c", Counter, 5), procs.spawn("e", Echo)
    counters.add.call(1).get()
    before = echo.pid.call().get().values()
    os.kill(before[1], signal.SIGKILL)
    wait_for_life(echo, rank=1, number=1)
    after = echo.pid.call().get().values()
    changed = [a != b for a, b in zip(before, after, strict=True)]
    assert changed == ([False, True, False] if strategy is OneForOne else [True] * 3)
    expected = [6, 5, 6] if strategy is OneForOne else [5, 5, 5]
    assert counters.get.call().get().values() == expected
    os.kill(after[1], signal.SIGKILL)
    wait_for_life(echo, rank=1, number=2)
    assert echo.say.call(1).get().values() == [1, 1, 1]


@pytest.mark.processes("what is on its way to a process that ends")
def test_what_is_asked_while_all_ranks_start_again_is_answered_or_fails(spawn_far: Spawn) -> None:
    procs = spawn_far(1, restart=AllForOne(max_restarts=20))
    counters, echo = procs.spawn("c", Counter, 5), procs.spawn("e", Echo)
    counters.add.call(1).get()
    for life in range(1, 9):
        os.kill(echo.pid.call().get().values()[1], signal.SIGKILL)
        found = [0]
        while found != [life] * 3:
            with suppress(SupervisionError):  # it was on its way to a rank that ended
                found = incarnations(echo).get().values()


def test_calls_from_anywhere_are_held_for_a_rank_that_starts_again(spawn_far: Spawn) -> None:
    class Asks(Actor):
        @endpoint
        def ask(self, other: Any) -> list[int]:
            # a mesh
            return other.pid.call().get().values()  # type: ignore[no-any-return]

    asks = spawn_far(1).spawn("asks", Asks)
    procs = spawn_far(1, restart=OneForOne())
    echo = procs.spawn("e", Echo)
    before = asks.slice(hosts=0).ask.call_one(echo).get()
    os.kill(before[2], signal.SIGKILL)
    wait_gone(before[2])
    wait_for_life(echo, rank=2, number=1)
    after = echo.pid.call().get().values()
    assert after[:2] == before[:2] and after[2] != before[2]
    assert asks.ask.call(echo).get().values() == [after] * 3


def test_a_call_that_comes_after_a_death_on_another_host_waits_for_the_restart(
    spawn_far: Spawn,
) -> None:
    echo = spawn_far(1, restart=OneForOne(max_restarts=10)).spawn("e", Echo)
    far = echo.slice(hosts=1)
    for _ in range(5):
        before = far.pid.call_one().get()
        with pytest.raises(SupervisionError, match="exited"):
            far.exit_at_once.call_one().get()
        assert far.pid.call_one().get() != before


def test_the_bootstrap_function_runs_again_with_the_proc(
    cluster: Cluster, spawn_far: Spawn
) -> None:
    def bootstrap() -> None:
        os.set_by_bootstrap = os.getpid()  # type: ignore[attr-defined]  # what is tested

    procs = spawn_far(1, restart=OneForOne(), bootstrap=bootstrap)
    looker, echo = procs.spawn("l", Looker), procs.spawn("e", Echo)
    before = echo.pid.call().get().values()
    os.kill(before[0], signal.SIGKILL)
    wait_for_life(echo, rank=0, number=1)
    assert looker.found.call().get().values() == echo.pid.call().get().values()


def test_stopping_procs_ends_them_on_all_hosts(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"n": 2})
    pids = procs.spawn("e", Echo).pid.call().get().values()
    procs.stop().get()
    assert not any(is_alive(pid) for pid in pids)
    procs.stop().get()


class Supervisor(Actor):
    """Owns procs on other hosts, and hears of their end."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[int]]] = []

    @endpoint
    def spawn(self, hosts: Any) -> Any:
        self.procs = hosts.spawn_procs(name="owned")
        self.echo = self.procs.spawn("owned_echo", Echo)
        self.echo.pid.call().get()
        return self.echo

    @endpoint
    def what_was_heard(self) -> list[tuple[str, list[int]]]:
        return self.heard

    def __supervise__(self, failure: Any) -> bool:
        self.heard.append((failure.mesh_name, list(failure.ranks)))
        return True


def test_an_actor_on_one_host_supervises_what_it_owns_on_others(
    far_hosts: HostMesh, spawn_far: Spawn
) -> None:
    supervisor = spawn_far(1).spawn("s", Supervisor).slice(hosts=0)
    echo = supervisor.spawn.call_one(far_hosts).get()
    pids = echo.pid.call().get().values()
    os.kill(pids[2], signal.SIGKILL)
    wait_until(
        lambda: supervisor.what_was_heard.call_one().get(),
        what="the supervisor to hear of it",
    )
    assert supervisor.what_was_heard.call_one().get() == [("owned_echo", [2])]
    assert echo.slice(hosts=slice(0, 2)).say.call(1).get().values() == [1, 1]
