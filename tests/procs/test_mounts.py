"""Mounts of jobs, as a user sees them: by FUSE, on hosts that are processes, nodes of Slurm, or
reached by ssh; those on hosts of a network are in test_mounts_faults.py.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from helpers.fuse import mounted_below
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from helpers.jobs import Home
    from helpers.slurm import Slurm
    from helpers.ssh import Ssh

pytestmark = pytest.mark.usefixtures("_process_test", "fuse")


MOUNTS = """
    import os, signal, subprocess, sys, time
    import monarch.actor
    from cluster import folder, job
    from monarch.actor import Actor, context, endpoint
    from monarch.job import job_load
    from monarch.job.current import set_current_job
    from monarch.mounts.view import PATIENCE

    there = f"{folder}/there/hosts"

    class Trainer(Actor):
        @endpoint
        def save(self, name: str, data: bytes) -> int:
            own = f"{folder}/run/hosts_{context().actor_instance.rank['hosts']}"
            os.makedirs(own, exist_ok=True)
            with open(f"{own}/{name}", "ab") as file:
                file.write(data)
            return context().actor_instance.rank.rank

        @endpoint
        def point_at(self, step: str) -> None:
            own = f"{folder}/run/hosts_{context().actor_instance.rank['hosts']}"
            with open(f"{own}/.latest", "w") as file:
                file.write(step)
            os.replace(f"{own}/.latest", f"{own}/latest")

        @endpoint
        def value(self) -> tuple[int, str, str | None]:
            sys.path.insert(0, there)
            import of_client
            return of_client.VALUE, of_client.__file__, os.environ.get("INTERPRETER")

        @endpoint
        def read(self, name: str) -> str:
            with open(f"{there}/{name}") as file:
                return file.read()

        @endpoint
        def kill_host(self) -> None:
            with open(f"/proc/{os.getppid()}/stat") as file:
                os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)

    def error_of(function, *args) -> str | None:
        try:
            function(*args)
        except OSError as error:
            return error.strerror

    def wait(condition) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.01)

    if __name__ == "__main__":
        set_current_job("cluster.job")
        hosts = job.state().hosts
        procs = hosts.spawn_procs({"procs": 2})
        trainers = procs.spawn("trainers", Trainer)
        writer, own = trainers.slice(hosts=1, procs=1), "shown/hosts_1"
        print("SHOWN", sorted(os.listdir("shown")))

        print("RANK", writer.save.call_one("step 1.pt", b"first").get())
        wait(lambda: os.path.exists(f"{own}/step 1.pt"))
        print("LISTED", os.listdir(own))
        with open(f"{own}/step 1.pt", "rb", buffering=0) as file:
            seen = file.read()
            data = os.urandom(3 << 20)
            writer.save.call_one("step 1.pt", data).get()
            wait(lambda: os.path.getsize(f"{own}/step 1.pt") == 5 + len(data))
            while chunk := file.read(1 << 20):
                seen += chunk
            print("GREW", seen == b"first" + data)
        wrong = []
        for step in range(1, 40):  # mostly within the time for which the kernel trusts what it knows
            writer.point_at.call_one("9" * step).get()
            with open(f"{own}/latest") as file:
                if (pointed := file.read()) != "9" * step:
                    wrong.append(pointed)
        print("POINTED", wrong)
        try:
            open(f"{own}/new", "w")
        except OSError as error:
            print("WRITTEN", error.strerror)

        print("VALUES", set(trainers.value.call().get().values()) == {(1, f"{there}/of_client.py", f"{there}/bin/python")})
        print("ODD", set(trainers.read.call("b\\udcff\\n ä").get().values()))
        os.makedirs("src/sub")
        open("src/sub/more", "w").write("more")
        open("src/of_client.py", "a").write("VALUE = 2\\n")
        job.state()
        print("MORE", set(trainers.read.call("sub/more").get().values()))
        print("APPENDED", set(trainers.read.call("of_client.py").get().values()))
        if hosts.extent["hosts"] == 2:
            monarch.actor.unhandled_fault_hook = lambda failure: None
            writer.save.call_one("large", bytes(40 << 20)).get()
            wait(lambda: os.path.exists(f"{own}/large"))
            with open(f"{own}/large", "rb") as file:
                writer.kill_host.broadcast()
                wait(lambda: error_of(os.stat, f"{own}/absent {time.monotonic()}") == "Input/output error")
                print("KILLED", {error_of(os.pread, file.fileno(), 1, 39 << 20), error_of(os.listdir, own)})
        else:
            procs.stop().get()
            job_load().state()
            command = [sys.executable, "-m", "monarch.tools", "exec", "--", "ls", folder + "/shown"]
            told = subprocess.run(command, check=True, capture_output=True, text=True)
            print("BESIDE", told.stdout.split())
            job.scale(hosts=3)
            job.remote_mount("src/bin", f"{folder}/there/$SUBDIR", python_exe=None)
            job.state()
            print("SCALED", sorted(os.listdir("shown")), os.listdir(there))
        job.kill()
"""

CLUSTER = """
import os
from monarch.job import *

folder = os.path.dirname(__file__)
job = {job}
for _ in range(2):  # to ask twice is to ask once
    job.gather_mount(folder + "/run/$SUBDIR", "shown")
    job.remote_mount("src", folder + "/there/$SUBDIR", python_exe="bin/python")
"""

JOBS = {
    "process": "ProcessJob({'hosts': 4})",
    "slurm": "SlurmJob({'hosts': 2}, exclusive=False)",
    "ssh": "SSHJob(ssh_args=['-F', os.environ['SSH_CONFIG']], hosts={'hosts': ['a', 'b']})",
}


def mount_and_read(home: Home, kind: str, hosts: int) -> None:
    source = home.folder / "src"
    source.mkdir()
    (source / "bin").mkdir()
    interpreter = source / "bin" / "python"
    interpreter.write_text(f'#!/bin/sh\nINTERPRETER="$0" exec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    (source / "of_client.py").write_text("VALUE = 1\n")
    (source / "b\udcff\n ä").write_text("odd")
    (home.folder / "cluster.py").write_text(CLUSTER.format(job=JOBS[kind]))
    said = home.run(MOUNTS)
    expected = [
        f"SHOWN {[f'hosts_{rank}' for rank in range(hosts)]}",
        "RANK 3",
        "LISTED ['step 1.pt']",
        "GREW True",
        "POINTED []",
        "WRITTEN Read-only file system",
        "VALUES True",
        "ODD {'odd'}",
        "MORE {'more'}",
        "APPENDED {'VALUE = 1\\nVALUE = 2\\n'}",
    ]
    if kind == "process":
        expected += [
            f"BESIDE {[word for rank in range(4) for word in ('[exec', '0]', f'hosts_{rank}')]}",
            "SCALED ['hosts_0', 'hosts_1', 'hosts_2'] ['python']",
        ]
    else:
        expected += ["KILLED {'Input/output error'}"]
    assert [line for line in said.splitlines() if line.split(" ")[0].isupper()] == expected, said
    wait_until(lambda: not mounted_below(home.folder), what="the end of all mounts")


@pytest.mark.slow
def test_a_checkpoint_is_read_while_it_grows_and_code_of_the_client_is_imported(home: Home) -> None:
    mount_and_read(home, "process", 4)


def test_folders_are_shown_to_and_by_nodes_of_slurm(home: Home, slurm: Slurm) -> None:
    mount_and_read(home, "slurm", 2)


@pytest.mark.slow
def test_machines_that_ssh_reaches_show_folders_and_one_that_dies_is_an_error(
    home: Home, ssh: Ssh
) -> None:
    mount_and_read(home, "ssh", 2)
    wait_until(
        lambda: not any(ssh.mounts(name, home.folder) for name in ssh.daemons),
        what="the end of all mounts on the machines",
    )


LAYOUT = """
    import glob, os
    from monarch.gather_mount import gather_mount
    from monarch.job import ProcessJob

    if __name__ == "__main__":
        os.makedirs("run")
        with open("run/log", "w") as file:
            file.write("said")
        run = os.path.abspath("run")
        job = ProcessJob({"trainers": 2, "generators": 1})
        job.gather_mount(run, "all")
        job.gather_mount(run, "one", meshes="generators")
        state = job.state(cached_path=None)
        print("LAYOUT", sorted(path for top in ("all", "one") for path in glob.glob(f"{top}/**", recursive=True)
                               if os.path.isfile(path)))
        try:
            gather_mount(state.trainers, run, "one")
        except Exception as error:
            print("TWICE", type(error).__name__, "is a mount already" in str(error))
        with open("one/log") as file:
            print("STILL", file.read())
        job.kill()
"""


def test_hosts_are_seen_below_their_mesh_and_one_alone_at_the_point_itself(home: Home) -> None:
    said = home.run(LAYOUT)
    paths = [
        "all/generators/log",
        "all/trainers/hosts_0/log",
        "all/trainers/hosts_1/log",
        "one/log",
    ]
    assert [line for line in said.splitlines() if line.split(" ")[0].isupper()] == [
        f"LAYOUT {paths}",
        "TWICE TakenError True",
        "STILL said",
    ], said
    wait_until(lambda: not mounted_below(home.folder), what="the end of all mounts")
