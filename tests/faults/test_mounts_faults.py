"""Mounts whose other side, process or program dies: errors within a bound, and nothing that stays
mounted.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from helpers import netns
from helpers.fuse import mounted_below
from helpers.remote import run
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.jobs import Home

pytestmark = pytest.mark.usefixtures("_process_test", "fuse")


DEATHS = """
    import glob, os, signal, subprocess, time
    from monarch.gather_mount import gather_mount
    from monarch.job import ProcessJob
    from monarch.mounts.table import find_mounts
    from monarch.remotemount import remotemount

    def served(point: str) -> int:
        (pid,) = [int(each.name.split(":")[1]) for each in find_mounts() if each.point == os.path.realpath(point)]
        return pid

    def stat_of(pid: int) -> str:
        with open(f"/proc/{pid}/stat") as file:
            name, _, state = file.read().partition("(")[2].partition(") ")
        return f"{name} {state[0]}"

    def source_below(pid: int) -> int:
        children = [int(each) for path in glob.glob(f"/proc/{pid}/task/*/children") for each in open(path).read().split()]
        named = [each for each in children if stat_of(each).startswith("mounted_folders")]
        return named[0] if named else sum(map(source_below, children))

    def parts_of(path: str) -> None:
        with open(path, "rb", buffering=0) as file:
            while part := file.read(1 << 16):
                yield part

    def wait(condition) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.01)

    if __name__ == "__main__":
        for rank in range(2):
            os.makedirs(f"run/hosts_{rank}")
            with open(f"run/hosts_{rank}/data", "wb") as file:
                file.truncate(64 << 20)
        job = ProcessJob({"hosts": 2})
        hosts = job.state(cached_path=None).hosts
        gathered = gather_mount(hosts, f"{os.getcwd()}/run/$SUBDIR", "gathered")
        shown = remotemount(hosts, "run", f"{os.getcwd()}/shown")

        pid = served("shown")
        os.kill(pid, signal.SIGKILL)
        wait(lambda: os.path.realpath("shown") not in {each.point for each in find_mounts()})
        print("UNMOUNTED", os.listdir("shown"))
        shown.refresh()
        print("AGAIN", sorted(os.listdir("shown")), served("shown") != pid)

        # More of them than the kernel has questions in the background by itself, and libfuse threads.
        opened = [open("gathered/hosts_1/data", "rb") for _ in range(14)]
        for place, file in enumerate(opened, 1):
            os.lseek(file.fileno(), place * (4 << 20), os.SEEK_SET)
        source = source_below(job._workers["hosts"][1].pid)
        os.kill(source, signal.SIGSTOP)
        wait(lambda: stat_of(source).endswith(" T"))
        readers = [subprocess.Popen(["head", "-c", "1"], stdin=file, stdout=subprocess.PIPE) for file in opened]
        wait(lambda: all(stat_of(each.pid) in ("head S", "head D") for each in readers))
        print("HEALTHY", sum(len(part) for part in parts_of("gathered/hosts_0/data")) == 64 << 20)
        print("FROZEN", {each.poll() for each in readers})
        os.kill(source, signal.SIGCONT)
        print("THAWED", {each.communicate() for each in readers})

        reading = parts_of("gathered/hosts_1/data")
        next(reading)
        os.kill(job._workers["hosts"][1].pid, signal.SIGKILL)
        for read in (lambda: [*reading], lambda: os.listdir("gathered/hosts_1"), lambda: open("gathered/hosts_1/data")):
            try:
                read()
            except OSError as error:
                print("DEAD", error.strerror)
        print("OTHERS", os.listdir("gathered"), os.listdir("gathered/hosts_0"))
        print("READY", flush=True)
        signal.pause()
"""


def test_a_dead_worker_is_an_error_and_a_dead_client_leaves_nothing_mounted(home: Home) -> None:
    program = home.start(DEATHS)
    try:
        assert program.stdout is not None
        said = []
        for line in program.stdout:
            said.append(line.rstrip())
            if line == "READY\n":
                break
        assert said == [
            "UNMOUNTED []",
            "AGAIN ['hosts_0', 'hosts_1'] True",
            "HEALTHY True",
            "FROZEN {None}",
            "THAWED {(b'\\x00', None)}",
            *["DEAD Input/output error"] * 3,
            "OTHERS ['hosts_0', 'hosts_1'] ['data']",
            "READY",
        ]
        assert {line.split()[1] for line in mounted_below(home.folder)} == {
            f"{home.folder}/{name}" for name in ("gathered", "shown")
        }
    finally:
        program.kill()
        program.communicate()
    wait_until(lambda: not mounted_below(home.folder), what="the end of all mounts")


STALE = """
    import os, signal, subprocess, sys, threading
    from monarch.mounts.fuse import serve
    from monarch.mounts.tree import MountTree

    serve(MountTree({}), sys.argv[1], "old", False, lambda: None)
    (keeper,) = [int(pid) for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split()]
    os.kill(keeper, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
"""

NEXT = """
    import os
    from concurrent.futures import ThreadPoolExecutor
    from monarch.actor import this_host
    from monarch.gather_mount import gather_mount
    from monarch.remotemount import remotemount

    if __name__ == "__main__":
        os.makedirs("run/there")
        with remotemount(this_host(), "run", "shown"):
            print("SHOWN", os.listdir("shown"))
        with remotemount(this_host(), "run") as same:
            print("SAME", os.path.ismount(same.point))

        def at_once(_: int) -> str:  # each by a process of its own, as those of several programs are
            try:
                mounts.append(remotemount(this_host(), "run", "shown"))
                return "MOUNTED"
            except Exception as error:
                return f"{type(error).__name__} {'is a mount already' in str(error)}"

        mounts = []
        with ThreadPoolExecutor() as threads:
            print("ONE", sorted(threads.map(at_once, range(3))), os.listdir("shown"))
        mounts[0].close()
        os.symlink("run", "link")
        for point in ("link/there/seen", "."):
            for mount in (remotemount, gather_mount):
                try:
                    mount(this_host(), "run", os.path.abspath(point))
                except Exception as error:
                    print("NESTED", type(error).__name__, str(error).partition(",")[0])
"""


def test_what_a_run_has_left_mounted_is_removed_by_the_next(home: Home) -> None:
    point = home.folder / "shown"
    point.mkdir()
    home.run(STALE, str(point), exit_code=-signal.SIGKILL)
    said = home.run(NEXT)  # unless a test beside this one has removed it already
    assert [line for line in said.splitlines() if line[:1].isupper()] == [
        "SHOWN ['there']",
        "SAME False",
        "ONE ['MOUNTED', 'TakenError True', 'TakenError True'] ['there']",
        *[
            f"NESTED MountError {home.folder / point} shows {path}"
            for point in ("link/there/seen", ".")
            for path in (f"{home.folder}/run", "run")
        ],
    ], said
    assert mounted_below(home.folder) == []


@pytest.mark.skipif(netns.why_not() is not None, reason=str(netns.why_not()))
def test_what_grows_is_read_over_a_network_and_a_lost_machine_is_an_error(tmp_path: Path) -> None:
    run(
        """
        import errno, subprocess
        from monarch.actor import Actor
        from monarch.gather_mount import gather_mount
        from monarch.mounts.view import PATIENCE
        from monarch.remotemount import remotemount

        class Trainer(Actor):
            @endpoint
            def save(self, data: bytes) -> int:
                rank = context().actor_instance.rank
                with open(f"{FOLDER}/run/hosts_{rank['hosts']}/checkpoint", "ab") as file:
                    file.write(data)
                return rank.rank

            @endpoint
            def read(self, name: str) -> bytes:
                with open(f"{FOLDER}/there/{name}", "rb") as file:
                    return file.read()

        def error_of(function, *args):
            try:
                function(*args)
            except OSError as error:
                return error.errno

        def mounted_on(table: int) -> list[str]:
            command = ["nsenter", f"--mount=/proc/self/fd/{table}", "cat", "/proc/self/mounts"]
            told = subprocess.run(command, pass_fds=[table], check=True, capture_output=True, text=True).stdout
            return [line.split()[1] for line in told.splitlines() if line.split()[1].startswith(FOLDER)]

        def grow(path: str, writer, data: bytes, size: int) -> None:
            writer.save.call_one(data).get()
            wait_until(lambda: os.path.exists(path) and os.path.getsize(path) == size, what=f"{size} bytes of {path}")

        content = os.urandom(40 << 20)
        for name in ("run/hosts_0", "run/hosts_1", "src"):
            os.makedirs(f"{FOLDER}/{name}")
        with open(f"{FOLDER}/src/of_client", "wb") as file:
            file.write(b"seen")
        with machines(2, 0, own_mounts=True) as (network, w, hosts, _, _):
            tables = [os.open(f"/proc/{each.pid}/ns/mnt", os.O_RDONLY) for each in w.processes]
            trainers = hosts.spawn_procs({"procs": 2}).spawn("trainers", Trainer)
            with gather_mount(hosts, f"{FOLDER}/run/$SUBDIR", f"{FOLDER}/seen"):
                with remotemount(hosts, f"{FOLDER}/src", f"{FOLDER}/there"):
                    assert [mounted_on(each) for each in tables] == [[f"{FOLDER}/there"]] * 2
                    assert set(trainers.read.call("of_client").get().values()) == {b"seen"}
                    first, second = (f"{FOLDER}/seen/hosts_{host}/checkpoint" for host in range(2))
                    rank_0, rank_3 = trainers.slice(hosts=0, procs=0), trainers.slice(hosts=1, procs=1)
                    assert rank_3.save.call_one(b"first").get() == 3
                    grow(second, rank_3, b"", 5)
                    assert os.listdir(os.path.dirname(second)) == ["checkpoint"]
                    with open(second, "rb", buffering=0) as file:
                        seen = file.read()
                        grow(second, rank_3, content, 5 + len(content))
                        while chunk := file.read(1 << 20):
                            seen += chunk
                        assert seen == b"first" + content
                        grow(second, rank_3, content, 5 + 2 * len(content))
                        network.hosts[2].silence()
                        assert error_of(os.pread, file.fileno(), 1, 79 << 20) == errno.EIO
                        assert error_of(os.listdir, os.path.dirname(second)) == errno.EIO
                    grow(first, rank_0, content, len(content))
                    with open(first, "rb") as file:
                        assert file.read(5) == content[:5]
                        hurt(w, 0, "kill the worker")
                        wait_until(lambda: error_of(os.stat, f"{first} {time.monotonic()}") == errno.EIO, what="EIO")
                        assert error_of(os.pread, file.fileno(), 1, 39 << 20) == errno.EIO
                        assert error_of(os.listdir, os.path.dirname(first)) == errno.EIO
                    wait_until(lambda: not any(map(mounted_on, tables)), what="the end of mounts on the machines")
        for table in tables:
            os.close(table)
        """.replace("FOLDER", repr(str(tmp_path)))
    )
    assert mounted_below(tmp_path) == []
