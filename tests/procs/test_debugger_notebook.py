"""The debugger in a cell of a notebook, by a real kernel: with somebody who can type, and
without.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.scripts import package_path
from helpers.waiting import PATIENCE

for _name in ("ipykernel", "jupyter_client"):
    pytest.importorskip(_name, reason=f"starts a kernel; {_name} is not installed")

SETUP = """
from monarch.actor import Actor, endpoint, this_host
from monarch.debugger import debug

class Trainer(Actor):
    @endpoint
    def step(self, number):
        doubled = number * 2
        breakpoint()
        return doubled

trainer = this_host().spawn_procs(name="trainers").spawn("trainer", Trainer)
answer = trainer.step.call_one(4)
"""


class Kernel:
    """One of its own, as Jupyter starts it."""

    def __init__(self) -> None:
        from jupyter_client.manager import KernelManager

        self._manager = KernelManager()
        self._manager.start_kernel(env={**os.environ, "PYTHONPATH": package_path()})
        self.client: Any = self._manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, cell: str, *typed: str, until: str = "") -> str:
        """What the cell shows while these lines are typed at the prompts that it gives; and more,
        until that is shown.
        """
        asked = self.client.execute(cell, allow_stdin=bool(typed))
        shown = ""
        for line in typed:
            shown += self.client.get_stdin_msg(timeout=PATIENCE)["content"]["prompt"]
            self.client.input(line)
        idle = False
        while not idle or until not in shown:
            message = self.client.get_iopub_msg(timeout=PATIENCE)
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                shown += content["text"]
            elif message["parent_header"].get("msg_id") != asked:
                continue
            elif kind == "error":
                raise AssertionError("\n".join(content["traceback"]))
            elif kind == "status":
                idle = content["execution_state"] == "idle"
        return shown

    def close(self) -> None:
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.close()


@pytest.mark.may_keep("threads", "descriptors")  # Jupyter's own
def test_a_cell_debugs_actors_or_says_where_to_if_nobody_can_type(kernel: Kernel) -> None:
    shown = kernel.run(SETUP, until="in a cell\n")
    assert "monarch: trainer 0 has stopped in step()" in shown
    assert "run `monarch debug` in another terminal, or monarch.debugger.debug() in a cell" in shown
    shown = kernel.run("debug()")
    assert "This notebook takes no input: run `monarch debug --program " in shown
    shown = kernel.run(
        "debug()", "list", "attach trainer 0", "p doubled", "doubled = 5", "c", "quit"
    )
    assert shown.startswith("monarch_dbg> monarch_dbg> (Pdb) (Pdb) (Pdb) monarch_dbg> ")
    assert "-> breakpoint()" in shown and "8\n" in shown and "the endpoint has returned" in shown
    assert kernel.run("print(answer.get())").endswith("5\n")
