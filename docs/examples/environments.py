"""Packages for procs, from a file of requirements that comes with a sync."""

import os
import tempfile
import zipfile
from contextlib import ExitStack
from pathlib import Path

from monarch.actor import Actor, endpoint
from monarch.environments import in_environment
from monarch.job import ProcessJob

done = ExitStack()
os.chdir(done.enter_context(tempfile.TemporaryDirectory()))
os.environ["MONARCH_SYNC_FOLDER"] = done.enter_context(tempfile.TemporaryDirectory())
os.environ["XDG_CACHE_HOME"] = done.enter_context(tempfile.TemporaryDirectory())
Path("project/wheels").mkdir(parents=True)
info = "new_package-1.0.dist-info"
with zipfile.ZipFile("project/wheels/new_package-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("new_package.py", "ANSWER = 42\n")
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: new_package\nVersion: 1.0\n")
    wheel.writestr(
        f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    wheel.writestr(f"{info}/RECORD", "")


class Trainer(Actor):
    @endpoint
    def answer(self) -> int:
        from new_package import ANSWER  # type: ignore[import-not-found]  # it is on the hosts alone

        return int(ANSWER)


job = ProcessJob({"trainers": 1})
# region environments
Path("project/requirements.txt").write_text("new_package\n")
trainers = job.state().trainers
job.sync("project")  # brings the file, and wheels for hosts without a network
ready = in_environment(trainers, "requirements.txt", wheels="wheels", offline=True)
assert ready.spawn_procs().spawn("trainer", Trainer).answer.call_one().get() == 42
# endregion

job.kill()
done.close()
