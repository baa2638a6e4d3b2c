"""The debugger in a cell of a notebook, by a real kernel: with somebody who can type, and
without.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.kernels import Kernel

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


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.close()


@pytest.mark.may_keep("threads", "descriptors")  # Jupyter's own
def test_a_cell_debugs_actors_or_says_where_to_if_no_user_can_type(kernel: Kernel) -> None:
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
