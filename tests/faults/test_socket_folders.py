"""Where the processes of a program listen: nothing of it is left, however the program ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.scripts import run_script
from helpers.waiting import wait_until

ENDINGS = {
    "it ends": "",
    "it leaves without a word": "os._exit(0)",
    "it is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "its agent is killed": "kill_agent()",
    "it starts afresh": "shutdown_context().get(); print(where()); proc()",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_folder_of_sockets_goes_with_the_program(ending: str) -> None:
    result = run_script(f"""
        import os, signal
        import monarch.actor
        from pathlib import Path
        from monarch._core.net import unix
        from monarch._core.client.client import client
        from monarch.actor import Actor, endpoint, shutdown_context, this_host

        class Echo(Actor):
            @endpoint
            def say(self, value):
                return value

        def proc():
            echo = this_host().spawn_procs().spawn("echo", Echo)
            assert echo.say.call_one(1).get() == 1

        def where():
            return Path(unix.path_of(client().hub.address)).parent

        def kill_agent():
            client()._agent.kill()
            client()._agent.wait()

        monarch.actor.unhandled_fault_hook = lambda failure: None
        proc()
        assert len(list(where().iterdir())) == 3  # client, agent, proc
        print(where(), flush=True)
        {ENDINGS[ending]}
        """)
    folders = [Path(line) for line in result.stdout.splitlines()]
    assert folders, str(result)
    wait_until(lambda: not any(folder.exists() for folder in folders), what="the end of its folder")
