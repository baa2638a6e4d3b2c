"""Questions on bad days: whoever is asked dies, another client dies, a clock is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo
from helpers.scripts import run_script
from helpers.waiting import PATIENCE, wait_until
from helpers.workers import SECRET, Cluster, attached_cluster
from monarch.actor import Actor, endpoint, this_host
from monarch.telemetry import Observation, get_meter, read
from monarch.telemetry.result import missing

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("telemetry of several processes")

SITE = Path(__file__).parents[1] / "helpers" / "skewed_site"
HOUR = 3600


class DiesWhenItIsAsked(Actor):
    """One rank answers, the other one is killed by its answer."""

    def __init__(self, rank_that_dies: int) -> None:
        get_meter().create_observable_gauge("asked", [self._observe])
        self._dies, self._rank = rank_that_dies, -1

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def arm(self, rank: int) -> None:
        self._rank = rank

    def _observe(self, options: Any) -> list[Observation]:
        if self._rank == self._dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return [Observation(self._rank)]


def test_a_process_that_is_killed_while_it_answers_costs_its_own_rows_only(
    spawn: Spawn, faults: Faults
) -> None:
    mesh = "dies when asked"  # actors of other files in this program stay among its rows
    actors = spawn({"gpus": 2}).spawn(mesh, DiesWhenItIsAsked, 1)
    for rank in range(2):
        actors.slice(gpus=rank).arm.call_one(rank).get(timeout=PATIENCE)
    found = read("metric_gauges", "procs", hosts=this_host()).get(timeout=PATIENCE)
    assert [row["value_i64"] for row in found.rows("metric_gauges") if row["name"] == "asked"] == [
        0
    ]
    faults.wait_for(1)
    later = read("actors", hosts=this_host()).get(timeout=PATIENCE)
    ranks = {row["rank"]: row["status"] for row in later.rows("actors") if row["name"] == mesh}
    assert ranks == {0: "Idle", 1: "Failed"} and not later.silent


@pytest.fixture(scope="module")
def late() -> Iterator[Cluster]:
    """A host whose clock is an hour late."""
    env = {
        "PYTHONPATH": os.pathsep.join([str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "MONARCH_TEST_SKEW": str(-HOUR),
    }
    with attached_cluster(1, env=env) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def right() -> Iterator[Cluster]:
    with attached_cluster(1) as cluster:
        yield cluster


def test_an_answer_says_which_clock_is_off_and_by_how_much(late: Cluster, right: Cluster) -> None:
    [host] = late.workers.addresses
    for cluster in (late, right):
        found = read("hosts", hosts=cluster.hosts).get(timeout=PATIENCE)
        assert len(found.rows("hosts")) == 1  # it has answered all the same
        if cluster is right:
            assert not found.silent
            continue
        [line] = missing(found.silent, {})
        assert line.startswith(f"the clock of {host} is off: 3,") and " s behind" in line
        seconds = float(line.split(": ")[1].split()[0].replace(",", ""))
        assert HOUR - 30 < seconds <= HOUR + 1


OTHER = """
    import sys, time
    from monarch.actor import Actor, attach_to_workers, endpoint

    class Passing(Actor):
        @endpoint
        def ping(self): pass

    if __name__ == "__main__":
        hosts = attach_to_workers(workers=[sys.argv[1]])
        passing = hosts.spawn_procs({"gpus": 1}, name="passing").spawn("passing", Passing)
        passing.ping.call().get()
        print("there", flush=True)
        time.sleep(1000)
    """


def test_a_client_that_is_killed_takes_nothing_from_the_telemetry_of_others(
    right: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "other.py"
    script.write_text(textwrap.dedent(OTHER))
    with right.hosts.spawn_procs({"gpus": 2}, name="stays") as procs:
        echo = procs.spawn("stays", Echo)
        pids = echo.pid.call().get(timeout=PATIENCE).values()
        environment = {**os.environ, "MONARCH_SECRET": SECRET}
        with subprocess.Popen(
            [sys.executable, script, *right.workers.addresses],
            stdout=subprocess.PIPE,
            env=environment,
        ) as other:
            assert other.stdout is not None and other.stdout.readline() == b"there\n"
            assert {row["mesh"] for row in of(right, "procs")} >= {"stays"}
            other.kill()
        wait_until(
            lambda: "passing" not in right_now(right), what="the end of what the other client had"
        )
        found = read("actors", "actor_status_events", hosts=right.hosts).get(timeout=PATIENCE)
        assert not found.silent
        mine = {row["id"]: row["pid"] for row in found.rows("actors") if row["name"] == "stays"}
        assert sorted(mine.values()) == sorted(pids)
        assert {row["actor_id"] for row in found.rows("actor_status_events")} >= set(mine)


def of(cluster: Cluster, table: str) -> list[dict[str, Any]]:
    return read(table, hosts=cluster.hosts).get(timeout=PATIENCE).rows(table)


def right_now(cluster: Cluster) -> set[str]:
    return {row["mesh"] for row in of(cluster, "procs") if row["state"] != "ended"}


FULL_DISK = """
    import resource, sys
    from pathlib import Path
    from monarch.actor import this_host
    from monarch.telemetry.run_file import snapshot_source, write_run

    if __name__ == "__main__":
        this_host().spawn_procs({"gpus": 1}).initialized.get()
        source = snapshot_source()
        write_run("kept.duckdb", source, {}, 60)
        before = Path("kept.duckdb").read_bytes()
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (128 * 1024, most))  # no file gets longer, as on a disk that is full
        try:
            write_run("kept.duckdb", source, {}, 60)
        except OSError as error:
            print("SAID", error)
        assert Path("kept.duckdb").read_bytes() == before
        print("LEFT", [path.name for path in Path().iterdir()])
    """


@pytest.mark.skipif(
    not (find_spec("duckdb") and find_spec("arro3")), reason="the extra telemetry is not installed"
)
def test_a_full_disk_costs_one_line_and_leaves_the_file_before(tmp_path: Path) -> None:
    done = run_script(FULL_DISK, cwd=tmp_path, timeout=120)
    assert done.exit_code == 0, done
    assert "SAID kept.duckdb can't be written: " in done.stdout
    assert "LEFT ['kept.duckdb']" in done.stdout and "Traceback" not in done.stderr
