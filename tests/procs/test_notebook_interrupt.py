"""The stop button of a notebook, by a real kernel: the prompt is back, and what becomes of ranks is a
choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.kernels import Kernel
from helpers.waiting import wait_gone, wait_until

for _name in ("ipykernel", "jupyter_client"):
    pytest.importorskip(_name, reason=f"starts a kernel; {_name} is not installed")

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.may_keep("threads", "descriptors"),  # Jupyter's own
]

SETUP = """
import os, time
from pathlib import Path
from monarch.actor import Actor, current_rank, endpoint, this_host

class Trainer(Actor):
    def __init__(self):
        self.done = 0
    @endpoint
    def step(self, folder):
        Path(folder, f"begun{current_rank().rank}").write_text(str(os.getpid()))
        while not Path(folder, "release").exists():
            time.sleep(0.01)
        self.done += 1
        return self.done

def trainers_on(procs):
    return procs.spawn("trainer", Trainer)

trainers = trainers_on(this_host().spawn_procs({"gpus": 2}, name="trainers"))
"""


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    kernel.run(SETUP)
    yield kernel
    kernel.close()


def ranks_work(folder: Path) -> Callable[[], object]:
    """Waits until both ranks do."""
    folder.mkdir()
    marks = [folder / f"begun{rank}" for rank in range(2)]
    return lambda: wait_until(
        lambda: all(mark.exists() and mark.read_text() for mark in marks), what="ranks work"
    )


def test_ranks_go_on_after_the_stop_button_and_their_answer_can_be_waited_for_again(
    kernel: Kernel, tmp_path: Path
) -> None:
    folder = tmp_path / "steps"
    begun = ranks_work(folder)
    kernel.run(f"answer = trainers.step.call({str(folder)!r})")
    kernel.run("print('waits')\nanswer.get()", interrupt=begun)
    assert kernel.run("print('the prompt')") == "the prompt\n"
    (folder / "release").touch()
    assert kernel.run("print(*answer.get().values())") == "1 1\n"


def test_a_cell_that_awaits_hears_the_stop_button(kernel: Kernel, tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    begun = ranks_work(folder)
    kernel.run("%load_ext monarch")
    kernel.run(f"answer = trainers.step.call({str(folder)!r})")
    kernel.run("print('waits')\nawait answer", interrupt=begun, raises="CancelledError")
    assert kernel.run("print('the prompt')") == "the prompt\n"
    (folder / "release").touch()
    assert kernel.run("print(*(await answer).values())") == "1 1\n"


def test_ranks_end_with_the_block_that_the_stop_button_ends(kernel: Kernel, tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    kernel.run(
        f"""
with this_host().spawn_procs({{"gpus": 2}}, name="others") as procs:
    print("waits")
    trainers_on(procs).step.call({str(folder)!r}).get()
""",
        interrupt=ranks_work(folder),
    )
    for mark in folder.glob("begun*"):
        wait_gone(int(mark.read_text()))
    assert (
        kernel.run(
            f"Path({str(folder)!r}, 'release').touch(); print(*trainers.step.call({str(folder)!r}).get().values())"
        )
        == "1 1\n"
    )
