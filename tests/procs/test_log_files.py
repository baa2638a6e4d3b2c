"""What procs print is kept in files on their hosts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.scripts import package_path, run_script
from monarch.actor import Actor, endpoint, this_host
from monarch.job import ProcessJob
from monarch.logs import flush_logs
from monarch.logs.line import LogLine

if TYPE_CHECKING:
    from helpers.jobs import Home

JOB = """
import logging, os, sys
from monarch.actor import Actor, endpoint
from monarch.job import ProcessJob

class Prints(Actor):
    @endpoint
    def say(self, text):
        print(text)
        logging.getLogger("a.library").error("logged %s", text)

    @endpoint
    def die(self):
        print("last words", flush=True)
        os._exit(3)

job = ProcessJob({"trainers": 2})
"""


def kept(folder: Path) -> dict[str, list[LogLine]]:
    """The lines of each rank, by the name of its file."""
    return {
        path.stem: [LogLine.from_json(line) for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("*/*.jsonl"))
    }


def test_lines_of_a_job_are_shown_and_kept_on_each_host_also_after_its_end(home: Home) -> None:
    shown = home.run(
        JOB
        + """
procs = job.state().trainers.spawn_procs({"gpus": 2}, name="gpus")
procs.spawn("prints", Prints).say.call("hello").get()
        """
    )
    said = [line for line in shown.splitlines() if "logged" not in line]
    assert sorted(said) == [f"[gpus {rank}] hello" for rank in range(4)]
    (folder,) = home.folder.glob(".monarch/logs/*")
    lines = kept(folder)
    assert list(lines) == [f"gpus_{rank}" for rank in range(4)]
    for rank, of_rank in enumerate(lines.values()):
        assert [(line.stream, line.rank, line.point) for line in of_rank] == [
            ("stdout", rank, f"hosts={rank // 2},gpus={rank % 2}"), ("log", rank, f"hosts={rank // 2},gpus={rank % 2}")
        ]  # fmt: skip
        assert of_rank[0].text == "hello"
        assert "logged hello" in of_rank[1].text
        assert {line.job for line in of_rank} == {folder.name}
    text = (folder / os.uname().nodename / "gpus_0.log").read_text()
    assert " hello\n" in text
    home.run(JOB + "job.state(); job.kill()")
    assert kept(folder) == lines


def test_another_program_and_another_process_of_a_rank_go_on_with_the_same_files(
    home: Home,
) -> None:
    again = (
        JOB
        + """
from monarch.supervision import OneForOne

procs = job.state().trainers.spawn_procs({"gpus": 1}, name="gpus", restart=OneForOne())
prints = procs.spawn("prints", Prints)
prints.say.call(sys.argv[1]).get()
try:
    prints.slice(hosts=0).die.call_one().get()
except Exception:
    pass
prints.say.call("again").get()
job.kill() if sys.argv[1] == "second" else None
        """
    )
    home.run(again, "first")
    home.run(again, "second")
    (folder,) = home.folder.glob(".monarch/logs/*")
    texts = [
        (line.text, line.incarnation) for line in kept(folder)["gpus_0"] if line.stream == "stdout"
    ]
    assert texts == [
        (text, incarnation)
        for run in ("first", "second")
        for text, incarnation in ((run, 0), ("last words", 0), ("again", 1))
    ]


def test_files_are_not_written_where_the_count_of_them_is_0(home: Home) -> None:
    home.run(
        """
from monarch import config
"""
        + JOB
        + """
config.configure(log_file_count=0)
job.state().trainers.spawn_procs(name="gpus").spawn("prints", Prints).say.call("hello").get()
job.kill()
        """
    )
    assert [
        path for path in home.folder.glob(".monarch/logs/*/*/*") if path.parent.name != "workers"
    ] == []


HANGS = """
import sys
from pathlib import Path
from monarch.actor import Actor, attach_to_workers, endpoint
from monarch.logs.keep import keep_logs

class Prints(Actor):
    @endpoint
    def say_much(self):
        for _ in range(300):
            print("x" * 1000)

keep_logs(Path("logs"), "job")
hosts = attach_to_workers(workers=[sys.argv[1]])
hosts.spawn_procs(name="gpus").spawn("prints", Prints).say_much.call_one().get()
hosts.shutdown().get()
print("shut down")
"""


DISK = """
import os, threading

def write(fd, data, real=os.write):
    if "/gpus_0." in os.readlink(f"/proc/self/fd/{fd}"):
        os.close(os.open(f"{os.path.dirname(__file__)}/hung", os.O_CREAT))
        threading.Event().wait()
    return real(fd, data)

os.write = write
"""


def test_a_host_is_shut_down_though_the_disk_of_its_files_hangs(home: Home, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(DISK)
    secret = {"MONARCH_SECRET": "x" * 40}
    disk = {"PYTHONPATH": f"{tmp_path}:{package_path()}"}
    with home.worker(env=secret | disk) as address:
        said = home.run(HANGS, address, env=secret)
    assert said.endswith("shut down\n"), said
    assert (tmp_path / "hung").exists()


PLAIN = """
from monarch.actor import Actor, endpoint, this_host

class Prints(Actor):
    @endpoint
    def say(self, text):
        print(text, end="")

this_host().spawn_procs(name="gpus").spawn("prints", Prints).say.call_one("hello").get()
"""


@pytest.mark.parametrize("on", [False, True])
def test_a_program_without_a_job_keeps_files_if_it_is_asked_to(on: bool, tmp_path: Path) -> None:
    result = run_script(
        PLAIN, env={"HYPERACTOR_MESH_ENABLE_FILE_CAPTURE": str(int(on))}, cwd=tmp_path
    )
    assert result.stdout.startswith("hello"), str(result)
    found = [
        line.text
        for folder in tmp_path.glob(".monarch/logs/*")
        for lines in kept(folder).values()
        for line in lines
    ]
    assert found == (["hello"] if on else [])


def test_the_files_of_procs_that_were_stopped_are_closed(tmp_path: Path) -> None:
    result = run_script(
        """
        import os
        from helpers.leaks import descendants
        from helpers.waiting import wait_until
        from monarch.actor import Actor, endpoint, this_host

        class Prints(Actor):
            @endpoint
            def say(self, text):
                print(text)

        def opened():
            folders = [f"/proc/{pid}/fd" for pid in descendants(os.getpid())]
            paths = [os.readlink(entry.path) for folder in folders for entry in os.scandir(folder)]
            return sorted(os.path.basename(path) for path in paths if "/.monarch/logs/" in path)

        staying, leaving = (this_host().spawn_procs(name=name) for name in ("staying", "leaving"))
        for procs in (staying, leaving):
            procs.spawn("prints", Prints).say.call_one("hello").get()
        staying.flush_logs().get()
        both = ["leaving_0.jsonl", "leaving_0.log", "staying_0.jsonl", "staying_0.log"]
        assert opened() == both, opened()
        leaving.stop().get()
        wait_until(lambda: opened() == both[2:], what="the end of the files")
        """,
        env={
            "HYPERACTOR_MESH_ENABLE_FILE_CAPTURE": "1",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        },
        cwd=tmp_path,
    )
    assert result.exit_code == 0, str(result)


class Prints(Actor):
    @endpoint
    def say(self, text: str) -> None:
        print(text)


@pytest.mark.usefixtures("_process_test")
def test_what_is_spawned_after_the_end_of_a_job_is_not_kept_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = ProcessJob({"hosts": 1})
    job.state().hosts.spawn_procs(name="of_the_job").spawn("prints", Prints).say.call("hello").get()
    with this_host().spawn_procs(name="beside_it") as beside:
        beside.spawn("prints", Prints).say.call("hello").get()
        flush_logs().get()
        job.kill()
        with this_host().spawn_procs(name="after_it") as after:
            after.spawn("prints", Prints).say.call("hello").get()
            flush_logs().get()
    names = {path.name for path in tmp_path.rglob("*.jsonl")}
    assert "after_it_0.jsonl" not in names and names >= {
        "of_the_job_0.jsonl",
        "beside_it_0.jsonl",
    }, names
