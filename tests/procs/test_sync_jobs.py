"""`job.sync`, `monarch sync` and `monarch bounce`, as they are typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.jobs import Home

pytestmark = pytest.mark.usefixtures("_process_test")

JOB = "from monarch.job import ProcessJob\njob = ProcessJob({'workers': 2})\n"

PROGRAM = """
    import sys
    from monarch.actor import Actor, endpoint
    from monarch.job import ProcessJob

    class Runner(Actor):
        @endpoint
        def value(self) -> tuple[int, str]:
            import edited
            return edited.VALUE, edited.__file__

    job = ProcessJob({'workers': 2})
    workers = job.state().workers
    if "sync" in sys.argv:
        print(job.sync())
    values = workers.spawn_procs().spawn("runner", Runner).value.call().get(timeout=60).values()
    print("VALUES", [value for value, _ in values], all("/store/" in path for _, path in values))
"""


@pytest.fixture
def own(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Keeps what is synced, and what is known of it, in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home.folder / ".monarch" / "cache"))
    monkeypatch.setenv("MONARCH_SYNC_FOLDER", str(home.folder / ".monarch" / "store"))
    return home


def test_a_file_that_is_edited_runs_on_the_hosts_after_monarch_sync(own: Home) -> None:
    home = own
    (home.folder / "cluster.py").write_text(JOB)
    (home.folder / "edited.py").write_text("VALUE = 1\n")
    home.program(PROGRAM)
    home.monarch("apply", "cluster.job")
    said = home.monarch("sync")
    assert "on 2 hosts" in said and "sent to" in said and ".monarch/ (always left out)" in said
    assert "VALUES [1, 1] True" in home.run(PROGRAM)
    (home.folder / "edited.py").write_text("VALUE = 22\n")
    told = json.loads(home.monarch("sync", "--json"))
    assert (told["sent_files"], told["sent"], told["hosts"], told["reloads"]) == (1, 11, 2, [])
    assert "VALUES [22, 22] True" in home.run(PROGRAM)
    assert "nothing has changed" in home.monarch("sync")
    (home.folder / "edited.py").write_text("VALUE = 333\n")
    bounced = home.monarch("bounce")
    assert "2 workers" in bounced
    assert "VALUES [333, 333] True" in home.run(PROGRAM), "new workers have what was synced before"
    (home.folder / "edited.py").write_text("VALUE = 4\n")
    assert "VALUES [4, 4] True" in home.run(PROGRAM, "sync")
    home.monarch("kill")
    assert "no job runs here" in home.monarch("sync", exit_code=1)
    home.wait_nothing_left()
