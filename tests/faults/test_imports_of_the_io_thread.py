"""The I/O thread imports nothing: a handler that waits for an import, or is cut short by one that
another thread has begun, would leave callers and owners untold.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.scripts import package_path, program, run_script

pytestmark = pytest.mark.processes("what agents and procs import on their own")
WATCH = """
import os
import sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        frame, callers = sys._getframe(1), []
        while frame is not None:
            callers.append(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}")
            frame = frame.f_back
        if "monarch._core.net.poller.run" in callers:
            with open(os.environ["IMPORTS"], "a") as log:
                print(name, *(each for each in callers if "importlib" not in each), file=log)

sys.meta_path.insert(0, Watch())
"""
PROGRAM = """
    import os, signal, sys, time
    from contextlib import suppress
    import monarch.actor
    from monarch.actor import *
    from monarch.supervision import OneForOne
    ERRORS = (ActorError, SupervisionError)
    monarch.actor.unhandled_fault_hook = lambda failure: None

    class Worker(Actor):
        @endpoint
        def pid(self): return os.getpid()
        @endpoint
        def agent(self): return parent(os.getppid())
        @endpoint
        def fail(self): raise ConnectionError("gone")
        @endpoint
        def sleep(self, port):
            port.send(None)
            time.sleep(3600)
        @endpoint
        def own(self):
            self.inner = this_host().spawn_procs({"n": 2}).spawn("inner", Worker)
            return len(self.inner.pid.call().get())

    class Waits(Actor):
        @endpoint
        async def ask(self, worker): return await worker.pid.call_one()

    def parent(pid):
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])

    def failed(*futures):
        for future in futures:
            with suppress(*ERRORS):
                future.get()
                raise AssertionError("it has not failed")

    def cancel(workers):
        port, started = Channel.open()
        first = workers.slice(n=0).sleep.call_one(port)
        started.recv().get()
        second, third = workers.slice(n=0).pid.call_one(), workers.pid.call()
        second.cancel(), third.cancel()
        for future in (second, third):
            assert "was cancelled" in str(future.exception())
        return first

    def die(workers):
        sleeping = cancel(workers)
        os.kill(pids[0], signal.SIGKILL)
        failed(sleeping, workers.pid.call(), workers.slice(n=0).pid.call_one())
        with suppress(*ERRORS):
            workers.pid.broadcast()

    if __name__ == "__main__":
        procs = this_host().spawn_procs({"n": 3})
        workers = procs.spawn("workers", Worker)
        pids = workers.pid.call().get().values()
        failed(workers.fail.call(), workers.slice(n=0).fail.call_one(), workers.fail.choose())
        failed(*workers.fail.stream())
        assert workers.slice(n=1).own.call_one().get() == 2
        waits = procs.slice(n=1).spawn("waits", Waits)
        waits.ask.call_one(workers.slice(n=2)).get()
        die(workers)
        procs.stop().get()
        failed(workers.pid.call())
        again = this_host().spawn_procs({"n": 2}, restart=OneForOne(max_restarts=9, within=600))
        workers = again.spawn("again", Worker)
        os.kill(workers.pid.call().get().values()[0], signal.SIGKILL)
        while True:
            with suppress(*ERRORS):
                agent = workers.agent.call().get().values()[0]
                break
        port, started = Channel.open()
        sleeping = workers.slice(n=1).sleep.call_one(port)
        started.recv().get()
        with suppress(TimeoutError):
            workers.pid.options(timeout=0.05, retries=1).call().get()
            raise AssertionError("rank 1 has answered")
        os.kill(agent, signal.SIGKILL)
        failed(sleeping, workers.pid.call())
        print("done")
        os._exit(0)
"""


def run(tmp_path: Path, source: str) -> list[str]:
    """Run a program, and return what the I/O threads of all its processes have imported."""
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    log = tmp_path / "imports"
    log.touch()
    path = ":".join(filter(None, [str(tmp_path), package_path()]))
    result = run_script(program(source), env={"PYTHONPATH": path, "IMPORTS": str(log)})
    assert result.stdout.splitlines()[-1:] == ["done"], str(result)
    return log.read_text().splitlines()


def test_no_handler_imports_though_calls_fail_ranks_die_and_the_agent_too(tmp_path: Path) -> None:
    assert run(tmp_path, PROGRAM) == []


def test_an_import_on_the_io_thread_is_seen(tmp_path: Path) -> None:
    source = """
        import threading
        from monarch.actor import context, this_host

        if __name__ == "__main__":
            this_host().spawn_procs().initialized.get()
            imported = threading.Event()

            def handle():
                import colorsys
                imported.set()

            context()._cell.hub.poller.call_soon(handle)
            imported.wait()
            print("done")
        """
    (line,) = run(tmp_path, source)
    assert line.startswith("colorsys __main__.handle ")
