"""Edit here, run there: the code of a folder on the hosts of a job, and in procs that run."""

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from monarch.actor import Actor, endpoint
from monarch.job import ProcessJob

done = ExitStack()
os.chdir(done.enter_context(tempfile.TemporaryDirectory()))
os.environ["MONARCH_SYNC_FOLDER"] = done.enter_context(tempfile.TemporaryDirectory())
os.environ["XDG_CACHE_HOME"] = done.enter_context(tempfile.TemporaryDirectory())
project = Path("project")
project.mkdir()
(project / "recipe.py").write_text("def loss() -> float:\n    return 0.5\n")


# region sync
class Trainer(Actor):
    @endpoint
    def step(self) -> float:
        # it is in project/, on this machine
        from recipe import loss  # type: ignore[import-not-found]

        return float(loss())


job = ProcessJob({"trainers": 2})
trainers = job.state().trainers
print(job.sync("project"))

procs = trainers.spawn_procs()
actors = procs.spawn("trainer", Trainer)
assert set(actors.step.call().get().values()) == {0.5}

(project / "recipe.py").write_text("def loss() -> float:\n    return 0.25\n")
result = job.sync("project", auto_reload=True)
assert set(actors.step.call().get().values()) == {0.25}  # in the same procs
assert [each.reloaded for each in result.reloads] == [["recipe"], ["recipe"]]
# endregion


class Edited(Trainer):
    @endpoint
    def twice(self) -> float:
        return 0.5


# as the cell of a notebook does that is edited and run again
Trainer = Edited  # type: ignore[misc]

# region update
# or await it; a slice of the mesh and a reference to it take one as well
actors.update_class(Trainer).get()
# endregion
assert set(actors.twice.call().get().values()) == {0.5}  # type: ignore[attr-defined]

job.kill()
done.close()
