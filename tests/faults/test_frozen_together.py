"""A client is killed while several of its processes stand still: all of them end.

The kernel tells each process of the end of its parent, also one that is stopped: so the agent goes
on, and ends; then the spawner; then the procs.
"""

from __future__ import annotations

import itertools
import signal

import pytest

from helpers.scripts import program, run_script

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
WHO = ("agent", "spawner", "proc")


@pytest.mark.parametrize("names", [*itertools.permutations(WHO, 2), *itertools.permutations(WHO)])
def test_all_end_though_several_of_them_stand_still(names: tuple[str, ...]) -> None:
    source = CLIENT.replace("NAMES", repr(names))
    result = run_script(program(source), signal_after=("now", signal.SIGKILL))
    assert "now" in result.stdout, str(result)
    assert result.left_behind == [], str(result)
