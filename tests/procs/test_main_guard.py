"""Programs without `if __name__ == "__main__":` that would start themselves over and over.

Each of these runs with one proc per mesh and a low `proc_nesting_limit`, so that it would end even
without the guard.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.ahead import several_at_a_time
from helpers.scripts import ScriptResult, run_script
from monarch.actor import Actor, SupervisionError, endpoint, this_host
from monarch.config import configured, get_global_config

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("interpreters that import the main module")

HINT = 'if __name__ == "__main__":'
BOUNDED = {"MONARCH_PROC_NESTING_LIMIT": "2"}

UNGUARDED = """
    from monarch.actor import Actor, endpoint, this_host

    class Worker(Actor):
        @endpoint
        def work(self):
            return 1

    print("level")
    procs = this_host().spawn_procs(per_host={"gpus": 1})
    print(procs.spawn("worker", Worker).work.call().get().values())
"""

ONLY_IN_PROCS = """
import asyncio
import os
import threading
from monarch import Shape
from monarch.actor import *

class Worker(Actor):
    @endpoint
    def work(self):
        return 1

def first():
    pass

received = HostMesh(lambda: ("none",), Shape.unity())
errors = []

def main():
    try:
        this_host().spawn_procs()
    except BaseException as error:
        errors.append(error)

async def start():
    this_host().spawn_procs()

depth = int(os.environ.get("DEPTH", "0"))  # the wall behind the guard
if os.getpid() != int(os.environ["CLIENT"]) and depth < 3:
    os.environ["DEPTH"] = str(depth + 1)
"""

CLIENT = """
    import os
    os.environ["CLIENT"] = str(os.getpid())
    import sys
    from monarch.actor import BootstrapCommand, this_host
    import unguarded
"""


def refused(result: ScriptResult, what: str, place: str) -> None:
    assert result.exit_code != 0, str(result)
    assert HINT in result.stderr, str(result)
    assert what in result.stderr, str(result)
    assert place in result.stderr, str(result)
    assert result.left_behind == [], str(result)


@several_at_a_time
@pytest.mark.parametrize("method", ["fork", "exec"])
@pytest.mark.slow
def test_a_module_that_spawns_at_its_top_level_is_told_where_to_do_it(method: str) -> None:
    result = run_script(
        "import unguarded",
        files={"unguarded.py": UNGUARDED},
        env={**BOUNDED, "MONARCH_PROC_SPAWN_METHOD": method},
    )
    refused(result, "this_host() was called", "unguarded.py:10")
    assert result.stdout.count("level") <= 2, (
        "the script's import, and that of the proc, which must go no further"
    )


@several_at_a_time
@pytest.mark.parametrize(
    "start",
    [
        "received.spawn_procs()",
        "asyncio.run(start())",
        (
            "thread = threading.Thread(target=main); thread.start(); thread.join()\nif errors:"
            " raise errors[0]"
        ),
        "attach('tcp://127.0.0.1:9')",
        "attach_to_workers(workers=['tcp://127.0.0.1:9'])",
        "start_worker_loop_forever(address='tcp://127.0.0.1:0')",
        "import indirectly",
    ],
    ids=[
        "spawn_procs",
        "asyncio",
        "thread",
        "attach",
        "attach_to_workers",
        "worker",
        "another module",
    ],
)
def test_every_start_is_refused_while_a_proc_imports(start: str) -> None:
    lines = "".join(f"    {line}\n" for line in start.splitlines())
    result = run_script(
        f"{CLIENT}    print(this_host().spawn_procs().spawn('worker',"
        " unguarded.Worker).work.call_one().get())\n",
        files={
            "unguarded.py": ONLY_IN_PROCS + lines,
            "indirectly.py": (
                "from monarch.actor import this_host\ndef deep():\n   "
                " this_host().spawn_procs()\ndeep()\n"
            ),
        },
        env=BOUNDED,
    )
    refused(
        result,
        "the top level of a module",
        "indirectly.py:4" if "indirectly" in start else "unguarded.py:",
    )


JOB_AT_TOP = """
    import os
    from monarch.actor import Actor, endpoint
    from monarch.job import ProcessJob

    class Worker(Actor):
        @endpoint
        def work(self):
            return 1

    job = ProcessJob({"trainers": 1})
    try:
        if os.environ["APPLY"] == "1":
            job.apply()
            print("applied by", os.getpid())
        hosts = job.state(f"{os.getpid()}.pkl")
        hosts.trainers.spawn_procs().spawn("worker", Worker).work.call().get()
    finally:
        if str(os.getpid()) == os.environ["CLIENT"]:
            job.kill()
"""


@pytest.mark.parametrize("apply", ["1", "0"], ids=["apply", "state"])
def test_a_job_at_the_top_of_a_module_is_not_started_once_more_by_its_procs(
    tmp_path: Path, apply: str
) -> None:
    result = run_script(
        "import os; os.environ['CLIENT'] = str(os.getpid()); import"
        " monarch.actor\nmonarch.actor.unhandled_fault_hook = print  # its interrupt would come"
        " while the job is being killed\nimport unguarded",
        cwd=tmp_path,
        files={"unguarded.py": JOB_AT_TOP},
        env={**BOUNDED, "APPLY": apply},
    )
    place = "unguarded.py:14" if apply == "1" else "unguarded.py:16"
    called = "apply()" if apply == "1" else "state()"
    refused(result, f"{called} was called by the top level of a module", place)
    assert result.stdout.count("applied") == int(apply), "by the client alone"
    if apply == "0":
        assert len(list(tmp_path.rglob("*.log"))) == 1, (
            "that of the client's only worker, which was ended"
        )


PROGRAM = "import unguarded; from monarch._src.actor.bootstrap_main import main; main()"
PATH = "{'PYTHONPATH': ':'.join(sys.path)}"


@several_at_a_time
@pytest.mark.parametrize(
    ("arguments", "preload"),
    [
        ("bootstrap=unguarded.first", ""),
        ("", "unguarded"),
        (
            (
                f"bootstrap_command=BootstrapCommand(sys.executable, None, ['-c', {PROGRAM!r}],"
                f" env={PATH})"
            ),
            "",
        ),
    ],
    ids=["bootstrap function", "preloaded module", "program"],
)
@pytest.mark.parametrize("in_thread", [False, True], ids=["import", "thread"])
def test_what_prepares_a_proc_can_not_spawn_as_it_is_imported(
    arguments: str, preload: str, in_thread: bool
) -> None:
    start = (
        "thread = threading.Thread(target=main); thread.start(); thread.join()\n    if errors:"
        " raise errors[0]\n"
    )
    result = run_script(
        f"{CLIENT}    this_host().spawn_procs({arguments}).initialized.get()\n",
        files={
            "unguarded.py": (
                ONLY_IN_PROCS + f"    {start if in_thread else 'this_host().spawn_procs()'}\n"
            )
        },
        env={**BOUNDED, "MONARCH_PRELOAD": preload},
    )
    refused(result, "this_host() was called", "")


class Spawner(Actor):
    """Spawns wherever user code may."""

    def __init__(self, levels: int = 0) -> None:
        self.below = (
            [this_host().spawn_procs().spawn("below", Spawner, levels - 1)] if levels else []
        )

    @endpoint
    def levels(self) -> int:
        return 1 + sum(below.levels.call_one().get() for below in self.below)

    @endpoint
    def import_(self, folder: str) -> int:
        sys.path.append(folder)
        # by the user's own statement
        import spawns_as_it_is_imported  # type: ignore[import-not-found]

        return spawns_as_it_is_imported.found  # type: ignore[no-any-return]  # an int


def test_procs_own_procs_down_to_the_level_of_the_knob(spawn: Spawn, faults: Faults) -> None:
    with configured(proc_nesting_limit=2):
        assert spawn(1).spawn("deep", Spawner, 2).levels.call_one().get() == 3
        too_deep = spawn(1).spawn("too_deep", Spawner, 3)
        with pytest.raises(
            SupervisionError,
            match=r"a proc of level 3, .* only those of up to level 2 .*proc_nesting_limit",
        ):
            too_deep.levels.call_one().get()
        faults.wait_for(1)


@several_at_a_time
def test_the_default_knob_lets_sixteen_levels_own_procs() -> None:
    assert get_global_config()["proc_nesting_limit"] == 16


def test_an_endpoint_may_import_a_module_that_spawns_at_its_top_level(
    spawn: Spawn, tmp_path: Path
) -> None:
    (tmp_path / "spawns_as_it_is_imported.py").write_text(
        "from helpers.actors import Counter\nfrom monarch.actor import this_host\n"
        "found = this_host().spawn_procs().spawn('counter', Counter, 5).add.call_one(1).get()\n"
    )
    assert spawn(1).spawn("importer", Spawner).import_.call_one(str(tmp_path)).get() == 6


IMPORTER = """
    import importlib
    from monarch.actor import Actor, endpoint

    class Importer(Actor):
        @endpoint
        def import_(self, module):
            importlib.import_module(module)
"""
IMPORTED_AGAIN = """
    import os
    from importers import Importer
    from monarch.actor import this_host

    name = os.path.basename(__file__).removesuffix(".py")
    this_host().spawn_procs(per_host={"gpus": 1}).spawn("importer", Importer).import_.call(name).get()
"""


@several_at_a_time
@pytest.mark.parametrize("script", [IMPORTED_AGAIN, "import spawning"], ids=["script", "module"])
def test_a_module_that_its_own_procs_import_does_not_spawn_there_again(script: str) -> None:
    result = run_script(
        script,
        name="client.py",
        files={"importers.py": IMPORTER, "spawning.py": IMPORTED_AGAIN},
        env=BOUNDED,
    )
    refused(result, "this_host() was called by the top level of", "a proc that the top level of")
