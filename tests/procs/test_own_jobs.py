"""Jobs of a kind that a program makes for itself, as those for Monarch 0.7 do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.jobs import Home

pytestmark = pytest.mark.processes("a worker, and a program that goes through it")

THROUGH_ONE_WORKER = """
    import sys
    from monarch.actor import Actor, attach_to_workers, endpoint
    from monarch.job import JobState, JobTrait

    class Far(JobTrait):
        def _create(self, client_script):
            pass

        def can_run(self, spec):
            return self.active

        def _kill(self):
            pass

        def _prepare_client_gateway(self):
            self._attach_client(sys.argv[1])
            self._attach_client(sys.argv[1])  # it is the same one: nothing happens

        def _state(self):
            return JobState({"hosts": attach_to_workers(workers=[sys.argv[1]], name="hosts")})

    class Worker(Actor):
        @endpoint
        def add(self, number: int) -> int:
            return number + 1

    if __name__ == "__main__":
        hosts = Far().state(cached_path=None).hosts
        with hosts.spawn_procs() as procs:
            print(procs.spawn("worker", Worker).add.call_one(1).get())
        try:
            Far()._attach_client("tcp://127.0.0.1:1")
        except RuntimeError as error:
            print(error)
"""


def test_all_traffic_passes_through_the_worker_that_a_kind_of_job_names(home: Home) -> None:
    secret = {"MONARCH_SECRET": "a secret of at least 16 bytes"}
    with home.worker(env=secret) as address:
        said = home.run(THROUGH_ONE_WORKER, address, env=secret)
    answer, refused = said.splitlines()
    assert answer == "2"
    assert f"through {address}; it can't change to tcp://127.0.0.1:1" in refused
