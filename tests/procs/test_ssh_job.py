"""Jobs on machines that ssh reaches: used, found again by the next run, gone when they are not
wanted any more.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.hostile import IN_SUCH_A_FOLDER, nothing_was_run
from helpers.slurm import command_of, environment_of
from helpers.ssh import running_ssh
from helpers.waiting import wait_until
from monarch.job import SSHJob
from monarch.job.ssh.text import keeper, of_user

if TYPE_CHECKING:
    from helpers.jobs import Home
    from helpers.ssh import Ssh

# programs, of which each has to import, connect and answer, one after the other
pytestmark = pytest.mark.timeout(180)

USE = """
    import os, sys
    from monarch.actor import Actor, endpoint
    from monarch.job import SSHJob

    OPTIONS = ["-F", os.environ["SSH_CONFIG"]]

    class Worker(Actor):
        @endpoint
        def machine(self) -> str:
            return os.environ["MONARCH_TEST_MACHINE"]

        @endpoint
        def ask(self, others) -> str:
            return os.environ["MONARCH_TEST_MACHINE"] + " asks " + " ".join(others.machine.call().get().values())

    def ask(hosts):
        with hosts.spawn_procs() as procs:
            return procs.spawn("worker", Worker).machine.call().get().values()
"""
TWO_MESHES = (
    USE
    + """
    if __name__ == "__main__":
        job = SSHJob(ssh_args=OPTIONS, hosts={"trainers": ["a", "b"], "generators": ["b", "here"]})
        state = job.state()
        print(ask(state.trainers), ask(state.generators), flush=True)
        if "talk" in sys.argv:
            trainers, generators = (mesh.spawn_procs().spawn("worker", Worker) for mesh in (state.trainers, state.generators))
            print(*trainers.ask.call(generators).get().values(), sep="; ")
            print(*generators.ask.call(trainers).get().values(), sep="; ", flush=True)
        if "wait" in sys.argv:
            sys.stdin.read()
        if "kill" in sys.argv:
            job.kill()
"""
)
ANSWERS = "['a', 'b'] ['b', 'here']\n"
SERVICE = (
    USE
    + """
    import itertools
    import monarch.actor
    monarch.actor.unhandled_fault_hook = lambda fault: None  # the calls tell
    if __name__ == "__main__":
        hosts = SSHJob(ssh_args=OPTIONS, hosts={"hosts": ["here", "c", "b"]}).state(cached_path=None).hosts
        worker = hosts.spawn_procs(restart=None).spawn("worker", Worker)
        for wanted in itertools.chain([3], sys.stdin):
            part = worker.slice(hosts=slice(0, int(wanted)))
            try:
                print(part.machine.call().get().values(), flush=True)
            except Exception as error:
                print(type(error).__name__, flush=True)
"""
)
DETACHED = (
    USE
    + """
    if __name__ == "__main__":
        job = SSHJob(ssh_args=OPTIONS, hosts={"hosts": ["a", "b"]}, detach=True, idle_limit=float(sys.argv[1]))
        print(ask(job.state().hosts), job.apply_id)
        job.dump("a copy")
        job.dumps()
"""
)


def start(home: Home, source: str, *args: str) -> subprocess.Popen[str]:
    return home.popen([home.program(source), *args], {}, subprocess.PIPE)


def line_of(client: subprocess.Popen[str]) -> str:
    assert client.stdout is not None and client.stderr is not None
    return client.stdout.readline() or client.stderr.read()


def workers_on(ssh: Ssh, name: str) -> list[int]:
    return [
        pid
        for pid in ssh.processes(name)
        if "worker_main" in command_of(pid) and "sh -c" not in command_of(pid)
    ]


def run_by_workers(ssh: Ssh, name: str) -> list[int]:
    """Workers, and all that they have started."""
    return [
        pid
        for pid in ssh.processes(name)
        if any(line.startswith("MONARCH_JOB=") for line in environment_of(pid))
    ]


def listening_ports(pids: list[int]) -> list[str]:
    """The TCP sockets on which processes listen."""
    mine = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            mine.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return [row[1] for row in rows if row[3] == "0A" and row[9] in mine]


def test_machines_of_two_meshes_talk_to_each_other_and_open_no_port(home: Home, ssh: Ssh) -> None:
    first = start(home, TWO_MESHES, "talk", "wait", "kill")
    assert line_of(first) == ANSWERS
    assert line_of(first) == "a asks b here; b asks b here\n"
    assert line_of(first) == "b asks a b; here asks a b\n"
    pids = [pid for name in ssh.daemons for pid in workers_on(ssh, name)]
    assert len(pids) == 4
    assert listening_ports([pid for name in ssh.daemons for pid in ssh.processes(name)]) == []
    assert home.run(TWO_MESHES) == ANSWERS, "another program uses the same workers"
    assert [pid for name in ssh.daemons for pid in workers_on(ssh, name)] == pids
    assert first.communicate(timeout=60) == ("", "")
    assert not (home.folder / ".monarch" / "job_state.pkl").exists()


HOSTILE = (
    USE
    + IN_SUCH_A_FOLDER
    + """
    if __name__ == "__main__":
        job = SSHJob(ssh_args=OPTIONS, hosts={WORD: ["here"]}, python_exe=PYTHON, detach=True)
        print(ask(getattr(job.state(), WORD)))
        print([name for _, _, names in os.walk(".monarch/logs") for name in names if WORD in name] == [WORD + "_0.log"])
        job.kill()
"""
)


def test_names_that_a_shell_would_run_are_names_there(home: Home, ssh: Ssh) -> None:
    assert home.run(HOSTILE) == "['here']\nTrue\n"
    assert nothing_was_run(home.folder)


def test_another_program_ends_the_job(home: Home, ssh: Ssh) -> None:
    first = start(home, TWO_MESHES, "wait")
    assert line_of(first) == ANSWERS
    assert "ended: SSHJob" in home.monarch("kill")
    ssh.wait_nothing_left()
    first.kill()
    first.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_workers_are_gone_when_the_client_is(
    home: Home, ssh: Ssh, how: signal.Signals | None
) -> None:
    client = start(home, TWO_MESHES, "wait")
    assert line_of(client) == ANSWERS
    if how is not None:
        client.send_signal(how)
    client.communicate(timeout=60)
    ssh.wait_nothing_left()


def test_lost_workers_and_machines_leave_the_rest_usable(home: Home, ssh: Ssh) -> None:
    ssh.start_machine("c")
    client = start(home, SERVICE)
    assert client.stdin is not None
    assert line_of(client) == "['here', 'c', 'b']\n"
    (worker,) = workers_on(ssh, "b")
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: run_by_workers(ssh, "b") == [], what="the end of all that the worker ran")
    (folder,) = (name for name in ssh.files("b") if name.endswith(".2"))
    assert list((ssh._tmp("b") / folder).iterdir()) == [], "ours, so that no other user makes it"
    for wanted, answer in ((3, "SupervisionError\n"), (2, "['here', 'c']\n")):
        print(wanted, file=client.stdin, flush=True)
        assert line_of(client) == answer
    ssh.kill_machine("c")
    for wanted, answer in ((2, "SupervisionError\n"), (1, "['here']\n")):
        print(wanted, file=client.stdin, flush=True)
        assert line_of(client) == answer
    client.kill()
    said = client.communicate()[1]
    assert "worker hosts_2 on b" in said and "with exit status 137" in said


ONE = (
    USE
    + """
    import time
    if __name__ == "__main__":
        hosts = SSHJob(ssh_args=OPTIONS, hosts={"trainers": sys.argv[1:]}).state(cached_path=None).trainers
        worker = hosts.spawn_procs(restart=None).spawn("worker", Worker)
        print(worker.machine.call().get().values(), flush=True)
        time.sleep(600)
"""
)


def test_the_end_of_a_worker_and_of_a_machine_are_told_as_ssh_tells_them(
    home: Home, ssh: Ssh
) -> None:
    client = start(home, ONE, "b")
    assert line_of(client) == "['b']\n"
    os.kill(workers_on(ssh, "b")[0], signal.SIGKILL)
    said = client.communicate()[1]
    killed = r"ssh b: trainers_0 has ended: its worker with exit status 137: .*Killed"
    assert re.search(killed, said) and "which started this host's agent" not in said, said
    ssh.start_machine("c")
    client = start(home, ONE, "c")
    assert line_of(client) == "['c']\n"
    ssh.kill_machine("c")
    said = client.communicate()[1]
    assert "ssh c: trainers_0 has ended: its connection is broken" in said, said


def test_detached_workers_are_found_by_the_next_run_and_end_when_unused(
    home: Home, ssh: Ssh
) -> None:
    first = home.run(DETACHED, "600")
    assert first.startswith("['a', 'b'] ")
    pids = [*workers_on(ssh, "a"), *workers_on(ssh, "b")]
    assert len(pids) == 2
    wait_until(lambda: home.left() == [], what=f"the end of the connections: {home.left()}")
    assert home.run(DETACHED, "600") == first
    assert [*workers_on(ssh, "a"), *workers_on(ssh, "b")] == pids
    assert "ended: SSHJob" in home.monarch("kill")
    ssh.wait_nothing_left()
    home.run(DETACHED, "8")
    ssh.wait_nothing_left()


def test_a_host_that_is_down_keeps_no_other_from_ending_its_workers(home: Home, ssh: Ssh) -> None:
    ssh.start_machine("c")
    try:
        home.run(DETACHED.replace('"a", "b"', '"c", "a"'), "600")
        assert len(workers_on(ssh, "a")) == 1
    finally:
        ssh.kill_machine("c")
    end = "from monarch.job import job_load; job_load().kill()"
    said = home.run(end, exit_code=1)
    wait_until(
        lambda: workers_on(ssh, "a") == [], what="the end of the workers that can be reached"
    )
    assert "workers on c may be left, all others have ended" in said.splitlines()[-1]
    ssh.start_machine("c")  # it is up again
    try:
        home.run(end)
        assert not (home.folder / ".monarch" / "job_state.pkl").exists()
    finally:
        ssh.kill_machine("c")
    ssh.wait_nothing_left()


def test_hosts_come_from_a_file_and_through_a_jump_host(home: Home, ssh: Ssh) -> None:
    (home.folder / "hostfile").write_text("# two of them\na slots=8\n\nbehind  # by way of a\n")
    said = home.run(
        USE
        + """
    job = SSHJob(ssh_args=OPTIONS, hostfile="hostfile", setup=["export MONARCH_TEST_MACHINE=$MONARCH_TEST_MACHINE.$((1+1))"])
    print(ask(job.state().hosts))
    job.kill()
    """
    )
    assert (
        said.splitlines()[-1]
        == "hostfile: slots=8 has no effect; spawn_procs says how many processes"
    )
    assert said.splitlines()[0] == "['a.2', 'b.2']"


def test_workers_listen_on_tcp_with_a_secret_if_they_are_to(home: Home, ssh: Ssh) -> None:
    said = home.run(
        USE
        + """
    job = SSHJob(ssh_args=OPTIONS, hosts={"hosts": ["a", "b"]}, transport="tcp")
    hosts = job.state().hosts
    with hosts.spawn_procs() as procs:
        worker, other = procs.spawn("worker", Worker), procs.spawn("other", Worker)
        print(*worker.ask.call(other).get().values(), sep="; ")
    assert job._reports[0].address.startswith(f"tcp://{sys.argv[1]}:")
    job.kill()
    """,
        ssh.address,
        env={"MONARCH_SECRET": "another one, of at least 16 bytes"},
    )
    assert said == "a asks a b; b asks a b\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            "hosts={'m': ['a', 'nowhere.invalid']}",
            "host 'nowhere.invalid': ssh: Could not resolve hostname nowhere.invalid",
        ),
        (
            "hosts={'m': ['nobody@a']}",
            "host 'nobody@a': nobody@ADDRESS: Permission denied (publickey). (no key was accepted",
        ),
        (
            "hosts={'m': ['a']}, python_exe='/no/python'",
            "/no/python: not found (is /no/python its interpreter?",
        ),
        (
            "hosts={'m': ['a']}, setup=['export PYTHONPATH=$OLD']",
            "No module named 'monarch.job' (install the same release",
        ),
        (
            "hosts={'m': ['a']}, setup=['echo no data here >&2', 'false']",
            "host 'a', worker m_0: no data here",
        ),
        (
            "hosts={'m': ['a']}, detach=True, setup=['echo no data here', 'false']",
            "host 'a', worker m_0: no data here",
        ),
    ],
)
def test_what_is_wrong_with_a_host_is_one_line(
    home: Home, ssh: Ssh, options: str, why: str
) -> None:
    (ssh.folder / "old" / "monarch").mkdir(parents=True, exist_ok=True)
    (ssh.folder / "old" / "monarch" / "__init__.py").write_text("")
    said = home.run(
        USE
        + f"\n    SSHJob(ssh_args=OPTIONS, {options}).state()".replace("$OLD", f"{ssh.folder}/old"),
        exit_code=1,
    )
    assert why.replace("ADDRESS", ssh.address) in said.splitlines()[-1]


def test_a_host_key_that_changed_or_is_unknown_is_told(home: Home, ssh: Ssh) -> None:
    program = USE + "\n    SSHJob(ssh_args=OPTIONS, hosts={'m': ['a']}).state()"
    try:
        ssh.trust("other_key")
        changed = home.run(program, exit_code=1).splitlines()[-1]
        (ssh.folder / "known_hosts").write_text("")
        unknown = home.run(program, exit_code=1).splitlines()[-1]
    finally:
        ssh.trust("host_key")
    assert "host 'a': Host key verification failed. (its host key has changed." in changed
    assert "host 'a': Host key verification failed. (its host key is not known yet" in unknown


def test_what_a_login_shell_says_first_is_no_answer(home: Home, ssh: Ssh) -> None:
    greeting = 'echo "hello, 7 of 9 are here"; exec sh -c "$SSH_ORIGINAL_COMMAND"'
    ssh.configure("c", f"ForceCommand {greeting}")
    ssh.start_machine("c")
    try:
        program = DETACHED.replace('"a", "b"', '"c"')
        first = home.run(program, "600")
        assert first.startswith("['c'] ") and home.run(program, "600") == first
        assert "ended: SSHJob" in home.monarch("kill")
        ssh.wait_nothing_left()
    finally:
        ssh.kill_machine("c")
        ssh.configure("c")


def test_a_machine_that_forwards_no_sockets_is_told(home: Home, ssh: Ssh) -> None:
    ssh.configure("c", "AllowStreamLocalForwarding no")
    ssh.start_machine("c")
    said = home.run(USE + "\n    SSHJob(ssh_args=OPTIONS, hosts={'m': ['c']}).state()", exit_code=1)
    ssh.wait_nothing_left()
    ssh.kill_machine("c")
    ssh.configure("c")
    assert (
        "host 'c': its sshd forwards no Unix sockets (AllowStreamLocalForwarding"
        in said.splitlines()[-1]
    )


SCALED = (
    USE
    + """
    import logging, signal
    if __name__ == "__main__":
        job = SSHJob(ssh_args=OPTIONS, detach="detach" in sys.argv)
        job.add_mesh("hosts", ["a", "b", "c"], size=1)
        state = job.state()
        procs = state.hosts.spawn_procs()
        worker = procs.spawn("worker", Worker)
        print(ask(state.hosts), flush=True)
        job.scale(hosts=3)
        print(ask(job.state().hosts), worker.machine.call_one().get(), flush=True)
        ssh = job._workers[job._numbers["hosts", 1]].pid
        if "attached" in sys.argv:
            os.kill(ssh, signal.SIGSTOP)  # as if it had no time to see that the worker has ended
        sys.stdin.readline()  # the worker of b is lost meanwhile
        job.scale(replace_lost=True)
        if "attached" in sys.argv:
            os.kill(ssh, signal.SIGCONT)
        hosts = job.state().hosts
        print(ask(hosts), worker.machine.call_one().get(), flush=True)
        with hosts.spawn_procs() as others:  # they reach each other
            asking, asked = others.spawn("asking", Worker), others.spawn("asked", Worker)
            print(asking.slice(hosts=1).ask.call_one(asked).get(), flush=True)
        job.scale(hosts=2)
        print(ask(job.state().hosts), worker.machine.call_one().get(), flush=True)
        try:
            job.scale(hosts=4)
        except Exception as error:
            print(error, flush=True)
        sys.stdin.readline()
        procs.stop().get()
    """
)


@pytest.mark.parametrize("kind", ["attached", "detach"])
def test_machines_of_the_list_are_added_replaced_and_given_back(
    home: Home, ssh: Ssh, kind: str
) -> None:
    ssh.start_machine("c")
    client = start(home, SCALED, kind)
    assert client.stdin is not None
    assert line_of(client) == "['a']\n"
    assert line_of(client) == "['a', 'b', 'c'] a\n"
    # one that forks is two for a moment
    (worker,) = wait_until(
        lambda: found if len(found := workers_on(ssh, "b")) == 1 else [], what="one worker on b"
    )
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: run_by_workers(ssh, "b") == [], what="the end of all that the worker ran")
    print(file=client.stdin, flush=True)
    assert line_of(client) == "['a', 'b', 'c'] a\n"
    assert line_of(client) == "b asks a b c\n"
    assert line_of(client) == "['a', 'b'] a\n"
    assert "can't have 4 hosts, as 3 are named: ['a', 'b', 'c']" in line_of(client)
    elsewhere = (
        "from monarch.job import job_load; job = job_load(); job.scale(hosts=1);"
        " print(job.state().hosts.sizes)"
    )
    if kind == "detach":
        assert home.run(elsewhere) == "{'hosts': 1}\n"
        wait_until(
            lambda: not run_by_workers(ssh, "b"), what="the end of the worker that was given back"
        )
    else:
        assert "only that can scale it" in home.run(elsewhere, exit_code=1)
    said, told = client.communicate("\n", timeout=60)
    assert client.returncode == 0, said + told
    assert "host 1 of mesh 'hosts' was lost; another takes its place" in told
    if kind == "detach":
        home.monarch("kill")
    ssh.wait_nothing_left()
    ssh.kill_machine("c")


def test_a_machine_that_is_down_is_no_successor_of_itself(home: Home, ssh: Ssh) -> None:
    said = home.run(
        USE
        + """
    job = SSHJob(ssh_args=OPTIONS, start_timeout=30)
    job.add_mesh("hosts", ["a", "nowhere.invalid"], size=1)
    job.state(None)
    try:
        job.scale(hosts=2)
    except Exception as error:
        print(error)
    print(ask(job.state(None).hosts))
        """
    )
    assert "nowhere.invalid" in said and said.endswith("['a']\n")
    with pytest.raises(ValueError, match="of 1 hosts, 2 can't be used"):
        SSHJob().add_mesh("hosts", ["a"], size=2)


def test_a_wait_for_machines_is_shown_and_ends_with_all_that_it_has_started(
    home: Home, ssh: Ssh
) -> None:
    stuck = (
        # the sh itself: it has started nothing by which it is found
        "[ $MONARCH_TEST_MACHINE = a ] || kill -STOP $$"
    )
    said = home.run(
        USE
        + """
    from monarch.job.base import waiting
    waiting._LINES_AFTER = 0.0
    SSHJob(ssh_args=OPTIONS, hosts={"m": ["a", "b"]}, setup=["STUCK"], start_timeout=5).state()
    """.replace("STUCK", stuck),
        exit_code=1,
    )
    assert said.startswith("SSH hosts: 0 of 1 folders made")
    assert "did not come up in time (start_timeout), among them host" in said.splitlines()[-1]
    ssh.wait_nothing_left()


USERS = (
    USE
    + """
    class Named(Worker):
        @endpoint
        def machine(self) -> str:
            return f"{os.environ['MONARCH_TEST_MACHINE']} {os.geteuid()}"

    if __name__ == "__main__":
        job = SSHJob(ssh_args=OPTIONS, hosts={"trainers": ["c", "second@c"], "generators": ["here", "second@c"]})
        state = job.state()
        trainers, generators = (mesh.spawn_procs().spawn("worker", Named) for mesh in (state.trainers, state.generators))
        print(trainers.machine.call().get().values(), generators.machine.call().get().values())
        for one, other in ((trainers, generators), (generators, trainers)):
            print(sorted({said.partition(" asks ")[2] for said in one.ask.call(other).get().values()}), flush=True)
        sys.stdin.read()
        job.kill()
"""
)


def test_two_users_of_one_machine_are_hosts_of_one_job(home: Home, ssh: Ssh) -> None:
    ssh.start_machine("c", second=True)
    client = start(home, USERS)
    assert line_of(client) == "['c 0', 'c 61234'] ['here 0', 'c 61234']\n"
    assert line_of(client) == "['here 0 c 61234']\n"
    assert line_of(client) == "['c 0 c 61234']\n"
    with suppress(ProcessLookupError):  # it has ended: its stderr says why
        folders = [name for name in ssh.files("c") if name.count("_") == 2]
        assert {name.rpartition(".")[2] for name in folders} >= {"0", "61234"}
        owners = {(ssh._tmp("c") / name).stat().st_uid for name in folders}
        assert owners == {0, 61234}
    assert client.communicate("", timeout=60)[1] == ""
    assert client.returncode == 0
    assert ssh.files("c") == [] and ssh.processes("c") == []


def test_another_run_of_these_tests_is_left_alone(ssh: Ssh) -> None:
    with running_ssh(network=128) as other:
        folder = f"/tmp/monarch_ssh_{os.getpid()}"
        made = Path(of_user(folder, os.geteuid())).name
        users = [
            subprocess.Popen(
                ["ssh", "-F", other.config, name, keeper(folder)],
                env={**os.environ, "SSH_CONFIG": other.config},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("a", "here")
        ]
        for user in users:
            assert user.stdout is not None and user.stdout.readline() == "\n"
        assert other.files("a") == other.files("here") == [made]
        assert ssh.left() == []
        ssh.end_everything()
        for user in users:
            user.communicate(timeout=60)
            assert user.returncode == 0, "its command has ended by itself"
        other.wait_nothing_left()


def test_the_example_runs_on_machines_that_ssh_reaches(home: Home, ssh: Ssh) -> None:
    example = Path(__file__).parents[2] / "examples" / "ssh_hosts.py"
    said = home.finish(home.popen([str(example), "-F", ssh.config, "a", "b"], {}), 0)
    assert said == "".join(f"rank {rank} has the sum 10\n" for rank in range(4))
