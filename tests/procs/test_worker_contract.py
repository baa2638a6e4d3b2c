"""What a worker promises to its launcher: it says where it listens, and ends by itself when nobody
owns it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from helpers.processes import parent_of
from helpers.waiting import is_alive, wait_until
from monarch.job.base.contract import (
    IDLE_LIMIT,
    SECRET_FILE,
    WARNS,
    make_secret_file,
    read_reports,
    worker_command,
)
from monarch.job.base.worker_spec import KEEP, KILLED, WorkerReport, WorkerSpec

if TYPE_CHECKING:
    from helpers.jobs import Home

USE = """
    import sys
    from monarch.actor import attach_to_workers, this_host
    from helpers.actors import Echo

    if "is told where" in sys.argv:
        this_host().spawn_procs().initialized.get()
        print("ready", flush=True)
    address = sys.stdin.readline().strip() if "is told where" in sys.argv else sys.argv[1]
    hosts = attach_to_workers(workers=[address])
    with hosts.spawn_procs() as procs:
        print(procs.spawn("echo", Echo).say.call("hi").get().values())
    if "shut down" in sys.argv:
        hosts.shutdown().get()
    if "stay" in sys.argv:
        print(flush=True)
        sys.stdin.read()
"""


class Launched:
    """A worker, as a launcher starts it: with a pipe as its lifeline, and its report in a
    folder.
    """

    def __init__(self, home: Home, env: Mapping[str, str], **spec: Any) -> None:
        self.folder = home.folder / "reports"
        self.secret = {SECRET_FILE: str(make_secret_file(home.folder / ".monarch" / "job"))}
        wanted = WorkerSpec(
            "trainers",
            "$RANK",
            "tcp://:0",
            "$HEAD",
            folder=str(self.folder),
            **{"lifeline": 0, **spec},
        )
        with (home.folder / "worker.log").open("wb") as log:
            self.process = subprocess.Popen(
                worker_command(wanted),
                env=home.environment({"RANK": "3", "HEAD": "127.0.0.1", **self.secret, **env}),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def report(self) -> WorkerReport:
        def found() -> list[WorkerReport]:
            assert self.process.poll() is None, "the worker has ended"
            return [*read_reports(self.folder)]

        (report,) = wait_until(found, what="the report of the worker")
        return report

    def cut_lifeline(self, word: bytes = b"") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word)
        self.process.stdin.close()


@pytest.fixture
def launch(home: Home) -> Iterator[Any]:
    started: list[Launched] = []

    def start(env: Mapping[str, str] | None = None, **spec: Any) -> Launched:
        started.append(Launched(home, env or {}, **spec))
        return started[-1]

    yield start
    for worker in started:
        worker.process.kill()
        worker.process.communicate()


def test_a_worker_on_a_free_port_reports_its_rank_and_an_address_that_can_be_used(
    home: Home, launch: Any
) -> None:
    worker = launch()
    report = worker.report()
    assert report[:2] == ("trainers", 3)
    assert (report.machine, report.pid) == (os.uname().nodename, worker.process.pid)
    assert home.run(USE, report.address, "shut down", env=worker.secret) == "['hi']\n"
    assert worker.process.wait(30) == 0


def test_a_worker_lets_in_only_those_that_have_the_secret_of_its_job(
    home: Home, launch: Any
) -> None:
    address = launch().report().address
    said = home.run(
        USE, address, env={"MONARCH_SECRET": "a guess that is long enough"}, exit_code=1
    )
    assert "wrong secret" in said


def test_a_worker_of_another_release_is_refused_with_the_side_to_upgrade(
    home: Home, launch: Any
) -> None:
    old = home.folder / "old"
    old.mkdir()
    (old / "sitecustomize.py").write_text(
        "import monarch._public\nmonarch._public.RELEASE = '0.0.9'\n"
    )
    worker = launch({"PYTHONPATH": os.pathsep.join([str(old), os.environ["PYTHONPATH"]])})
    address = worker.report().address
    said = home.run(USE, address, env=worker.secret, exit_code=1)
    assert f"{address} runs pymonarch 0.0.9" in said
    assert f"upgrade pymonarch of {address}" in said


def test_a_worker_ends_with_its_lifeline_and_so_does_what_it_runs(home: Home, launch: Any) -> None:
    worker = launch()
    client = home.popen(
        [home.program(USE), worker.report().address, "stay"], worker.secret, subprocess.PIPE
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "['hi']\n"
    worker.cut_lifeline()
    assert worker.process.wait(30) == 0
    client.communicate(timeout=60)
    home.wait_nothing_left()


def test_a_worker_stays_when_anything_else_is_written_on_its_lifeline(
    home: Home, launch: Any
) -> None:
    worker = launch()
    address = worker.report().address
    worker.cut_lifeline(b"\n?" + KEEP)  # had it ended at the first byte, nobody could use it
    assert home.run(USE, address, "shut down", env=worker.secret) == "['hi']\n"
    assert worker.process.wait(30) == 0


def test_a_worker_that_may_stay_survives_the_end_of_its_lifeline(home: Home, launch: Any) -> None:
    worker = launch()
    address = worker.report().address
    worker.cut_lifeline(KEEP)
    assert home.run(USE, address, "shut down", env=worker.secret) == "['hi']\n"
    assert worker.process.wait(30) == 0


def test_a_worker_ends_by_itself_when_no_client_comes_for_the_idle_limit(
    home: Home, launch: Any
) -> None:
    worker = launch({IDLE_LIMIT: "300ms"}, lifeline=-1)
    assert worker.process.wait(30) == 0
    home.wait_nothing_left()


def test_the_idle_limit_begins_when_the_last_client_is_gone(home: Home, launch: Any) -> None:
    secret = {SECRET_FILE: str(make_secret_file(home.folder / ".monarch" / "of client"))}
    client = home.popen([home.program(USE), "is told where", "stay"], secret, subprocess.PIPE)
    assert client.stdout is not None and client.stdin is not None
    assert client.stdout.readline() == "ready\n"
    worker = launch({IDLE_LIMIT: "2s", **secret}, lifeline=-1)
    print(worker.report().address, file=client.stdin, flush=True)
    assert client.stdout.readline() == "['hi']\n"
    with pytest.raises(subprocess.TimeoutExpired):
        worker.process.wait(3)
    client.kill()
    client.communicate()
    assert worker.process.wait(30) == 0


def test_a_killed_worker_takes_what_it_runs_with_it(home: Home, launch: Any) -> None:
    worker = launch()
    worker.report()
    agents = [pid for pid in home.processes() if pid != worker.process.pid]
    assert agents
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    wait_until(lambda: not any(map(is_alive, agents)), what="the end of the agent")


def test_without_a_secret_a_worker_does_not_listen(home: Home, launch: Any) -> None:
    worker = launch({SECRET_FILE: "", "HOME": str(home.folder)})
    assert worker.process.wait(30) == 1
    assert "there is no secret" in (home.folder / "worker.log").read_text()
    assert [*read_reports(worker.folder)] == []


def test_the_command_reports_its_port_and_ends_with_its_stdin(home: Home) -> None:
    reports = home.folder / "reports"
    command = [
        "worker",
        "--listen",
        "tcp://127.0.0.1:0",
        "--report",
        str(reports),
        "--lifeline",
        "--idle-limit",
        "1h",
    ]
    worker = home.popen(
        ["-m", "monarch.tools", *command],
        {"MONARCH_SECRET": "long enough for a secret"},
        subprocess.PIPE,
    )
    (report,) = wait_until(lambda: [*read_reports(reports)], what="the report")
    assert worker.stderr is not None
    assert worker.stderr.readline() == f"listening: {report.address}\n"
    worker.communicate(timeout=60)
    assert worker.returncode == 0


ASKS = """
    import sys
    from monarch.actor import attach_to_workers
    from helpers.actors import Echo

    echo = attach_to_workers(workers=[sys.argv[1]]).spawn_procs().spawn("echo", Echo)
    for line in sys.stdin:
        print(echo.say.call(line.strip()).get().values(), flush=True)
"""


def warn(home: Home, worker: subprocess.Popen[bytes]) -> None:
    """SIGTERM to a worker and all that it runs, as schedulers send it."""
    found = {worker.pid}
    while more := {pid for pid in home.processes() if parent_of(pid) in found} - found:
        found |= more
    for pid in found:
        os.kill(pid, signal.SIGTERM)


def test_a_warning_is_passed_on_and_ends_nothing_that_a_client_uses(
    home: Home, launch: Any
) -> None:
    warning = home.folder / "warned"
    worker = launch({WARNS: "1"}, warning=str(warning))
    client = home.popen(
        [home.program(ASKS), worker.report().address], worker.secret, subprocess.PIPE
    )
    assert client.stdin is not None and client.stdout is not None
    print("before", file=client.stdin, flush=True)
    assert client.stdout.readline() == "['before']\n"
    warn(home, worker.process)
    wait_until(warning.exists, what="the warning")
    print("after", file=client.stdin, flush=True)
    assert client.stdout.readline() == "['after']\n"
    client.kill()
    client.communicate()
    worker.process.wait(30)


@pytest.mark.parametrize("is_killed", [False, True], ids=["unused", "killed"])
def test_a_warning_ends_a_worker_that_is_not_wanted_any_more(
    home: Home, launch: Any, is_killed: bool
) -> None:
    if is_killed:
        (home.folder / KILLED).touch()
    worker = launch({WARNS: "1"}, warning=str(home.folder / "warned"))
    worker.report()
    warn(home, worker.process)
    assert (worker.process.wait(30) == 128 + signal.SIGTERM) == is_killed
    assert (home.folder / "warned").exists() != is_killed
    home.wait_nothing_left()
