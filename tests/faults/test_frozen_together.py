"""A client is killed while several of its processes stand still: all of them end.

The kernel tells each process of the end of its parent, also one that is stopped: so the agent goes
on, and ends; then the spawner; then the procs.
"""

from __future__ import annotations

import itertools
import os
import signal
import textwrap
from pathlib import Path

import pytest

from helpers.scripts import package_path, program, run_script

pytestmark = pytest.mark.processes("they are stopped")
CLIENT = """
    import os, signal
    from helpers.actors import Echo
    from helpers.processes import agent_of, spawner_of, wait_stopped
    from monarch.actor import Channel, this_host
    from monarch.config import configure

    if __name__ == "__main__":
        configure(heartbeat_timeout="1h")
        pids = this_host().spawn_procs({"n": 3}).spawn("echo", Echo).pid.call().get().values()
        who = {"agent": agent_of(pids[0]), "spawner": spawner_of(pids[0]), "proc": pids[1]}
        for pid in [who[name] for name in NAMES]:
            os.kill(pid, signal.SIGSTOP)
            wait_stopped(pid)
        print("now", flush=True)
        Channel.open()[1].recv().get()
"""
STARTING = """
    import os
    from helpers.processes import wait_stopped
    from helpers.workers import children_of
    from monarch.actor import Channel, this_host

    this_host().spawn_procs({"n": 3})
    (agent,) = children_of(os.getpid())
    wait_stopped(agent)
    print("now", flush=True)
    Channel.open()[1].recv().get()
"""
STOPS_ITSELF = """
    import os, signal, sys

    if any("agent_main" in each for each in sys.orig_argv):
        os.kill(os.getpid(), signal.SIGSTOP)
"""
WHO = ("agent", "spawner", "proc")


@pytest.mark.parametrize("names", [*itertools.permutations(WHO, 2), *itertools.permutations(WHO)])
def test_all_end_though_several_of_them_stand_still(names: tuple[str, ...]) -> None:
    source = CLIENT.replace("NAMES", repr(names))
    result = run_script(program(source), signal_after=("now", signal.SIGKILL))
    assert "now" in result.stdout, str(result)
    assert result.left_behind == [], str(result)


def test_an_agent_ends_that_is_stopped_before_any_code_of_ours_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(STOPS_ITSELF))
    path = f"{tmp_path}{os.pathsep}{package_path()}"
    result = run_script(
        program(STARTING), env={"PYTHONPATH": path}, signal_after=("now", signal.SIGKILL)
    )
    assert "now" in result.stdout, str(result)
    assert result.left_behind == [], str(result)
