"""The program is not always a script: pytest runs it, or a person at a prompt or in a notebook."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.scripts import (
    GONE_WITHIN,
    SLACK,
    TAG,
    ScriptResult,
    package_path,
    run_script,
    wait_tag_gone,
)
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKER = """
import os, sys, time
from monarch.actor import Actor, Channel, SupervisionError, endpoint, this_host

class Worker(Actor):
    @endpoint
    def ready(self):
        return True

    @endpoint
    def fail(self):
        raise ValueError("nobody handles this")

    @endpoint
    def sleep(self):
        time.sleep(600)

    @endpoint
    def exit(self):
        os._exit(3)

    @endpoint
    def say(self, text):
        print(text)

    def __cleanup__(self, exc):
        print("cleaned up")
        with open(os.environ["CLEANED"], "a") as file:
            file.write("cleaned up\\n")

def make():
    worker = this_host().spawn_procs().spawn("worker", Worker)
    assert worker.ready.call_one().get()
    return worker
"""

# pytest


def run_pytest(
    tests: str, *options: str, plugin: str = "monarch.pytest_plugin", **how: Any
) -> ScriptResult:
    result = run_script(
        WORKER + tests,
        name="test_user.py",
        python_args=["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin, *options],
        env={"CLEANED": os.devnull, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        **how,
    )
    assert result.left_behind == [], str(result)
    assert "Exception ignored" not in result.stderr, str(result)
    return result


def test_a_passing_pytest_run_ends_with_status_0_and_quietly() -> None:
    result = run_pytest("def test_it():\n    make()\n")
    assert result.exit_code == 0, str(result)
    assert "1 passed" in result.stdout and "cleaned up" in result.stdout, str(result)
    assert result.stderr == "", str(result)


def test_a_failing_pytest_run_stops_at_the_first_failure_and_quietly() -> None:
    result = run_pytest(
        "def test_it():\n    assert make() is None\n\ndef test_more(): pass\n", "-x"
    )
    assert result.exit_code == 1, str(result)
    assert "1 failed" in result.stdout and "passed" not in result.stdout, str(result)
    assert "cleaned up" in result.stdout, str(result)
    assert result.stderr == "", str(result)


def test_ctrl_c_ends_a_pytest_run_that_waits_for_an_actor() -> None:
    result = run_pytest(
        "def test_it():\n    worker = make(); print('here', flush=True);"
        " worker.sleep.call_one().get()\n",
        "-s",
        signal_after=("here", signal.SIGINT),
    )
    assert result.exit_code == pytest.ExitCode.INTERRUPTED, str(result)
    assert "KeyboardInterrupt" in result.stdout, str(result)
    assert result.stderr == "", str(result)


@pytest.mark.parametrize(
    "then", ["; Channel.open()[1].recv().get()", ""], ids=["while it waits", "at its end"]
)
def test_a_fault_fails_the_test_that_caused_it_and_no_other(then: str) -> None:
    result = run_pytest(
        f"def test_it():\n    make().fail.broadcast(){then}\n\ndef test_next():\n    make()\n"
    )
    assert result.exit_code == pytest.ExitCode.TESTS_FAILED, str(result)
    assert "1 failed, 1 passed" in result.stdout, str(result)
    assert "ValueError: nobody handles this" in result.stdout, str(result)


def test_a_fault_that_a_test_has_caught_fails_nothing() -> None:
    result = run_pytest("""
import pytest

def test_one_rank():
    with pytest.raises(SupervisionError):
        make().exit.call_one().get()

def test_all_ranks():
    workers = this_host().spawn_procs({"n": 3}).spawn("workers", Worker)
    with pytest.raises(SupervisionError):
        workers.exit.call().get()

def test_next():
    assert make().ready.call_one().get()
""")
    assert result.exit_code == 0, str(result)
    assert "3 passed" in result.stdout, str(result)
    assert result.stderr == "", str(result)


def test_a_hook_of_the_tests_decides_first() -> None:
    result = run_pytest("""
import monarch.actor, queue

def test_it(monkeypatch):
    faults = queue.Queue()
    monkeypatch.setattr(monarch.actor, "unhandled_fault_hook", faults.put)
    make().fail.broadcast()
    assert "nobody handles this" in faults.get().report()
""")
    assert result.exit_code == 0, str(result)


def test_without_the_plugin_a_fault_ends_the_run_and_is_shown() -> None:
    result = run_pytest(
        "def test_it():\n    make().fail.broadcast(); time.sleep(600)\n", plugin="no:monarch"
    )
    assert result.exit_code == 1, str(result)
    assert result.stderr.count("ValueError: nobody handles this") == 1, str(result)


def test_the_plugin_is_found_by_pytest_and_imports_nothing_in_a_run_without_monarch() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\nmonarch = "monarch.pytest_plugin"' in project
    result = run_script(
        """
        import sys

        def test_it():
            mine = {name for name in sys.modules if name.startswith("monarch._core.")}
            client = {"monarch._core.client", "monarch._core.client.session"}
            assert mine == client | {"monarch._core.extension"}
        """,
        name="test_user.py",
        python_args=["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "monarch.pytest_plugin"],
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert result.exit_code == 0, str(result)


# a prompt


def check_prompt(result: ScriptResult, cleaned: Path) -> None:
    assert result.exit_code == 0, str(result)
    assert "still here: True" in result.stdout, str(result)
    assert "ValueError: nobody handles this" in result.stderr, str(result)
    assert "KeyboardInterrupt" not in result.stderr, str(result)
    assert result.stderr.count("SupervisionError: this wait was given up") == 1, str(result)
    assert cleaned.read_text().count("cleaned up") == 2, str(result)
    assert result.left_behind == [], str(result)


TYPED = """\
worker = make(); worker.fail.broadcast(); Channel.open()[1].recv().get()
print('still here:', make().ready.call_one().get())
exit()
"""


def test_a_fault_is_raised_by_what_waits_at_a_prompt_and_the_session_goes_on(
    tmp_path: Path,
) -> None:
    cleaned = tmp_path / "cleaned"
    result = run_script(WORKER, python_args=["-i"], stdin=TYPED, env={"CLEANED": str(cleaned)})
    check_prompt(result, cleaned)


def test_a_console_in_a_program_is_a_prompt_like_any_other(tmp_path: Path) -> None:
    cleaned = tmp_path / "cleaned"
    result = run_script(
        WORKER + "import code\ncode.InteractiveConsole(globals()).interact(banner='')\n",
        stdin=TYPED,
        env={"CLEANED": str(cleaned)},
    )
    check_prompt(result, cleaned)


# a notebook


TENSORS = """
import os, time
import torch
from monarch import inspect, remote

@remote(propagate="inspect")
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)

with this_host().spawn_procs(per_host={"gpus": 2}).activate() as mesh:
    x = torch.ones(2)
    index = torch.tensor([5])

def wait(path):
    with mesh.activate():
        wait_for(path)
"""


class Notebook:
    """A kernel of its own, as Jupyter starts one."""

    def __init__(self, tag: str, cleaned: Path) -> None:
        from jupyter_client.manager import KernelManager

        self.tag = tag
        self.manager = KernelManager()
        self.manager.start_kernel(
            env={
                **os.environ,
                TAG: tag,
                "CLEANED": str(cleaned),
                "PYTHONPATH": package_path(),
                "PYTHONWARNINGS": "ignore",
            }
        )
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.run(WORKER)

    def run(self, cell: str, interrupt_at: str | None = None) -> str:
        """What the cell prints; interrupted, as by the stop button, once it printed that text."""
        asked = self.client.execute(cell)
        shown = ""
        while True:
            message = self.client.get_iopub_msg(timeout=30)
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                shown += content["text"]
                if interrupt_at is not None and interrupt_at in shown:
                    interrupt_at = None
                    self.manager.interrupt_kernel()
            elif message["parent_header"].get("msg_id") != asked:
                continue
            elif kind == "error":
                shown += content["ename"]
            elif kind == "status" and content["execution_state"] == "idle":
                return shown

    def close(self) -> None:
        self.client.stop_channels()
        if self.manager.is_alive():
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    pytest.importorskip("ipykernel", reason="ipykernel and jupyter_client are not installed")
    pytest.importorskip("jupyter_client", reason="ipykernel and jupyter_client are not installed")
    notebook = Notebook(uuid.uuid4().hex, tmp_path / "cleaned")
    yield notebook
    notebook.close()


@pytest.mark.may_keep("threads", "descriptors")  # Jupyter's own
def test_interrupted_or_failed_cells_leave_the_notebook_working(
    notebook: Notebook,
) -> None:
    shown = notebook.run(
        "worker = make(); print('here', flush=True); worker.sleep.call_one().get()", "here"
    )
    assert shown.endswith("KeyboardInterrupt"), shown
    shown = notebook.run("worker = make(); worker.fail.broadcast(); Channel.open()[1].recv().get()")
    assert "ValueError: nobody handles this" in shown and shown.endswith("SupervisionError"), shown
    assert notebook.run("print(await make().ready.call_one())").strip() == "True"


@pytest.mark.may_keep("threads", "descriptors")  # Jupyter's own
def test_a_fault_in_a_notebook_ends_no_cell_that_has_seen_it_or_does_not_wait(
    notebook: Notebook, tmp_path: Path
) -> None:
    notebook.run(f"""
import monarch.actor, threading
from pathlib import Path

reported = Path({str(tmp_path / "reported")!r})

class Told:  # says when a report was written
    def write(self, text):
        sys.__stderr__.write(text)
        if "Unhandled" in text:
            reported.touch()
    def flush(self): pass

def wait_until_reported(waiting):
    while not reported.exists():
        waiting()
    reported.unlink()

bystander = make()
sys.stderr, sys_stderr = Told(), sys.stderr
""")
    cells = [
        """
worker = make()
try:
    worker.exit.call_one().get()
except SupervisionError as error:
    print("caught")
wait_until_reported(lambda: bystander.ready.call_one().get())
""",
        "worker = make(); worker.fail.broadcast(); wait_until_reported(lambda: time.sleep(0.01))",
        # for when no cell runs
        "worker = make(); threading.Timer(0.3, worker.fail.broadcast).start()",
    ]
    for cell in cells:
        shown = notebook.run(cell + "\nprint('not disturbed')")
        assert shown.endswith("not disturbed\n"), shown
    wait_until((tmp_path / "reported").exists, what="the report of a fault that no cell ran for")
    assert "True" in notebook.run("print(bystander.ready.call_one().get())")


@pytest.mark.may_keep("threads", "descriptors")  # Jupyter's own
def test_remote_tracebacks_show_the_lines_of_cells(notebook: Notebook) -> None:
    shown = notebook.run(
        "try: make().fail.call_one().get()\nexcept ValueError as error: print(error)"
    )
    assert (
        'in fail\n    raise ValueError("nobody handles this")\nValueError: nobody handles this'
        in shown
    ), shown


@pytest.mark.may_keep("threads", "descriptors")  # Jupyter's own
def test_lines_appear_in_the_cell_that_asked_for_them_and_none_is_lost(notebook: Notebook) -> None:
    notebook.run("worker = make()")
    for number in range(16):
        assert notebook.run(f"worker.say.call_one('remote {number}').get()") == f"remote {number}\n"
        assert (
            notebook.run(f"_ = await worker.say.call_one('awaited {number}')")
            == f"awaited {number}\n"
        )


@pytest.mark.may_keep("threads", "descriptors")  # Jupyter's own
def test_a_cell_that_waits_for_tensors_is_interrupted_and_the_next_one_goes_on(
    notebook: Notebook, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="distributed tensors need torch")
    go_on = tmp_path / "go on"
    notebook.run(TENSORS)
    assert notebook.run(
        f"wait({str(go_on)!r}); print('here', flush=True); inspect(x)", "here"
    ).endswith("KeyboardInterrupt")
    assert notebook.run(f"wait({str(go_on)!r}); print(x.shape)").strip() == "torch.Size([2])"
    go_on.touch()
    assert notebook.run("print(inspect(x + 1).tolist())").strip() == "[2.0, 2.0]"
    assert "In[6]:1" in notebook.run(
        "try: inspect(x.index_select(0, index))\nexcept Exception as error: print(error)"
    )


@pytest.mark.may_keep("threads", "descriptors")  # Jupyter's own
@pytest.mark.parametrize("how", ["shutdown", "restart", "SIGTERM", "SIGKILL"])
def test_nothing_is_left_of_a_notebook_that_is_closed_and_its_actors_clean_up(
    notebook: Notebook, how: str, tmp_path: Path
) -> None:
    assert "True" in notebook.run("worker = make(); print(worker.ready.call_one().get())")
    if how == "shutdown":
        notebook.manager.shutdown_kernel()
    elif how == "restart":
        notebook.manager.restart_kernel()
        notebook.manager.shutdown_kernel(now=True)
    else:
        notebook.manager.signal_kernel(signal.Signals[how])
    assert wait_tag_gone(notebook.tag, GONE_WITHIN + SLACK) == []
    assert (tmp_path / "cleaned").read_text() == "cleaned up\n"
