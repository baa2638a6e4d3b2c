"""Jobs: hosts by name, found again by the next run."""

import os
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

from monarch.actor import Actor, attach_to_workers, endpoint, this_proc
from monarch.job import (
    JobError,
    JobState,
    JobTrait,
    LocalJob,
    PortForwarder,
    ProcessJob,
    hosts_from_config,
    job_load,
)

done = ExitStack()
os.chdir(done.enter_context(tempfile.TemporaryDirectory()))


# region process
class Trainer(Actor):
    @endpoint
    def where(self) -> int:
        return os.getppid()


job = ProcessJob({"trainers": 2, "generators": 1})
state = job.state()  # starts three workers, or finds those of an earlier run
assert state.trainers.sizes == {"hosts": 2}

procs = state.trainers.spawn_procs({"gpus": 4})
assert procs.sizes == {"hosts": 2, "gpus": 4}
parents = procs.spawn("trainers", Trainer).where.call().get()
assert len(set(parents.values())) == 2  # four procs on each of two hosts
# endregion

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]

# region forward
forwarder = this_proc().spawn("forwarder", PortForwarder)
first = procs.slice(hosts=0, gpus=0)
# port 6006 there is `port` here
forwarder.forward.call_one(first, 6006, this_proc(), f"127.0.0.1:{port}").get()
# endregion
forwarder.stop().get()
procs.stop().get()

# region again
again = ProcessJob({"trainers": 2, "generators": 1})  # as a second run of the program would
assert again.state().trainers.sizes == {"hosts": 2}
assert again.apply_id == job.apply_id  # nothing was started
# endregion

# region other
try:
    ProcessJob({"trainers": 16}).state()
except JobError as error:
    assert "Nothing was changed" in str(error)  # a job that runs is never replaced by another one

other = ProcessJob({"trainers": 1})
other.state(cached_path="other.pkl")  # it gets a file of its own instead
other.kill()
# endregion

# region scale
job.scale(trainers=3)
assert job.state().trainers.sizes == {"hosts": 3}
assert state.trainers.sizes == {"hosts": 2}  # a mesh is a snapshot
job.scale(trainers=1, replace_lost=True)  # hosts that are lost get a successor
# endregion

# region kill
job_load().kill()  # any program may do so, this one or the next
assert not Path(".monarch/job_state.pkl").exists()
# endregion

# region local
local = LocalJob(hosts=("trainers", "generators"))
with local.state().trainers.spawn_procs({"gpus": 2}) as procs:
    procs.spawn("trainers", Trainer).where.call().get()
# endregion

Path("monarch.toml").write_text("[hosts.trainers]\nprocesses = 2\n")

# region hosts
trainers = hosts_from_config("trainers")
with trainers.spawn_procs() as procs:
    procs.spawn("trainers", Trainer).where.call().get()
# endregion


# region own
class Lab(JobTrait):
    """The machines of a lab, whose workers are started by other means."""

    def __init__(self, machines: list[str]) -> None:
        self.machines = machines

    def _create(self, client_script: str | None) -> None:
        """Start the workers; here it is done already."""

    def _state(self) -> JobState:
        return JobState(
            {"lab": attach_to_workers(workers=[f"tcp://{name}:26600" for name in self.machines])}
        )

    def can_run(self, spec: JobTrait) -> bool:
        return self.active and isinstance(spec, Lab) and spec.machines == self.machines

    def _kill(self) -> None:
        """End the workers and everything that they started."""


# endregion
assert not Lab(["a"]).active
done.close()
