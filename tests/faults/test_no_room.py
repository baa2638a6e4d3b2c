"""Where there is no room for processes: a folder that is gone, a limit on their number.

It shows at once, with what to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.scripts import run_script
from helpers.waiting import wait_until


def test_a_deleted_working_directory_is_an_error_of_spawn_procs_that_says_so() -> None:
    result = run_script("""
        import os, tempfile
        from monarch.actor import Actor, endpoint, this_host

        class Where(Actor):
            @endpoint
            def cwd(self):
                return os.getcwd()

        folder = tempfile.mkdtemp()
        os.chdir(folder)
        os.rmdir(folder)
        try:
            this_host().spawn_procs({"gpus": 2})
        except FileNotFoundError as error:
            print("os.chdir" in str(error))
        os.chdir("/")
        print(this_host().spawn_procs().spawn("w", Where).cwd.call_one().get())
        """)
    assert (result.exit_code, result.stdout) == (0, "True\n/\n"), str(result)


def _pids_group() -> Path | None:
    """A new control group that can limit the number of processes; None where none can be made."""
    for parent in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):
        folder = parent / f"monarch-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / "pids.max").exists():
            return folder
        folder.rmdir()
    return None


@pytest.fixture
def limited() -> Iterator[Callable[[int], str]]:
    """The source that puts a program into a control group with room for so many processes and
    threads.
    """
    folder = _pids_group()
    if folder is None:
        pytest.skip("no control group with a limit on processes can be made here")

    def limit(room: int) -> str:
        (folder / "pids.max").write_text(str(room))
        return f"open({str(folder / 'cgroup.procs')!r}, 'w').write('0')"

    yield limit
    wait_until(
        lambda: not (folder / "cgroup.procs").read_text().strip(),
        what="the control group to be empty",
    )
    folder.rmdir()


@pytest.mark.parametrize("room", range(1, 11))
def test_a_limit_on_processes_shows_at_once_and_by_name(
    limited: Callable[[int], str], room: int
) -> None:
    """Two processes with an actor each take the client's four threads, agent, spawner, and two
    each.
    """
    result = run_script(f"""
        {limited(room)}
        from monarch.actor import Actor, endpoint, this_host
        from monarch.config import configure

        configure(host_spawn_ready_timeout="1h", heartbeat_timeout="1h")  # it shows before

        class Works(Actor):
            @endpoint
            def work(self):
                return 1

        print(this_host().spawn_procs({{"gpus": 2}}).spawn("works", Works).work.call().get().values())
        """)
    told = f"pids.max of its control group is {room}"
    if result.exit_code:
        assert told in result.stderr, str(result)
        assert "--pids-limit" in result.stderr, str(result)
    else:
        assert (room, result.stdout) == (10, "[1, 1]\n"), str(result)
    assert "internal error" not in result.stderr, str(result)
    assert result.left_behind == [], str(result)
