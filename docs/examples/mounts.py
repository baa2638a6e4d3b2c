"""Folders of hosts, seen here, and folders of this machine, seen on hosts: mounts by FUSE."""

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from monarch.actor import Actor, context, endpoint
from monarch.errors import MountError
from monarch.job import ProcessJob
from monarch.mounts.table import check_fuse

try:
    check_fuse()
except MountError as error:
    print(f"left out: {error}")
    sys.exit(0)

done = ExitStack()
here = Path(done.enter_context(tempfile.TemporaryDirectory()))
os.chdir(here)
dataset = here / "dataset"
dataset.mkdir()
(dataset / "vocabulary.txt").write_text("a b c")


# region mounts
class Trainer(Actor):
    def __init__(self, dataset: str, folder: str) -> None:
        self.words = Path(dataset, "vocabulary.txt").read_text().split()
        self.folder = Path(
            folder, context().actor_instance.name, f"hosts_{context().actor_instance.rank['hosts']}"
        )

    @endpoint
    def save(self, step: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"step_{step}.pt").write_text(" ".join(self.words))


job = ProcessJob({"trainers": 4})
job.remote_mount(dataset, here / "seen_there", python_exe=None)  # this folder, on all hosts
job.gather_mount(here / "trainers" / "$SUBDIR", "checkpoints")  # that of each host, here
trainers = job.state().trainers

actors = trainers.spawn_procs().spawn("trainers", Trainer, str(here / "seen_there"), str(here))
actors.save.call(100).get()
assert os.listdir("checkpoints") == ["hosts_0", "hosts_1", "hosts_2", "hosts_3"]
assert Path("checkpoints/hosts_3/step_100.pt").read_text() == "a b c"
# endregion

job.kill()
assert os.listdir("checkpoints") == []
done.close()
