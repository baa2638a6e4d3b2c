"""However a program ends, and whatever it and its actors are doing: its own exit status, nothing
left, nobody noisy.

The bounds: a program that ends in order is gone some 2 s after its last line, as `__cleanup__` gets
1 s. What it started is gone `GONE_WITHIN` seconds after the program, however that ended;
`run_script` looks for it.
"""

from __future__ import annotations

import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.ahead import several_at_a_time
from helpers.scripts import ScriptResult, run_script

WORKERS = """
import asyncio, ctypes, multiprocessing, os, signal, sys, threading, time
from monarch.actor import Actor, endpoint, this_host

def begin():
    "Tell `wait_until_busy`."
    print("busy", flush=True)
    open(os.environ["CLEANED"] + ".busy", "w").close()

def wait_until_busy():
    while not os.path.exists(os.environ["CLEANED"] + ".busy"):
        time.sleep(0.01)

def clean_up():
    with open(os.environ["CLEANED"], "a") as file:
        file.write("cleaned\\n")
    print("last words")

class Worker(Actor):
    @endpoint
    def ready(self):
        return os.getpid()

    @endpoint
    def own(self):
        self.child = this_host().spawn_procs().spawn("child", Worker)
        return self.child.ready.call_one().get()

    @endpoint
    def sleep(self):
        begin()
        time.sleep(60)

    @endpoint
    def hold_the_gil(self):
        begin()
        ctypes.PyDLL(None).sleep(20)

    def __cleanup__(self, exc):
        clean_up()

class AsyncWorker(Actor):
    @endpoint
    async def sleep(self):
        begin()
        await asyncio.sleep(60)

    async def __cleanup__(self, exc):
        clean_up()

"""


@dataclass(frozen=True)
class Situation:
    """What a program is doing when it ends."""

    source: str
    """``END`` stands for what ends it; for a signal it is waited after it, unless the program waits
    itself.
    """
    actors: int = 1
    """How many are able to clean up."""
    waits: bool = False


@dataclass(frozen=True)
class Ending:
    status: int
    source: str = ""
    signals: tuple[signal.Signals, ...] = ()
    orderly: bool = True
    """What actors print in their cleanup is seen."""
    last_line: str = ""
    """Of stderr."""


MAKE_WORKER = "w = this_host().spawn_procs().spawn('w', Worker); w.ready.call_one().get(); "
SITUATIONS = {
    "idle": Situation(MAKE_WORKER + "END"),
    "family": Situation(
        "w = this_host().spawn_procs({'n': 8}).spawn('w', Worker); w.ready.call().get()\n"
        "w.slice(n=3).own.call_one().get(); END",
        actors=9,
    ),
    "get": Situation(
        MAKE_WORKER + "call = w.sleep.call_one(); wait_until_busy(); END; call.get()", 0, waits=True
    ),
    "await": Situation(
        "async def main():\n"
        "    call = this_host().spawn_procs().spawn('w', AsyncWorker).sleep.call_one()\n"
        "    wait_until_busy()\n"
        "    END\n"
        "    await call\n"
        "asyncio.run(main())",
        waits=True,
    ),
    "busy": Situation(MAKE_WORKER + "w.sleep.broadcast(); wait_until_busy(); END", actors=0),
    "gil": Situation(MAKE_WORKER + "w.hold_the_gil.broadcast(); wait_until_busy(); END", actors=0),
    "thread": Situation(
        f"def work():\n    {MAKE_WORKER}\nthread = threading.Thread(target=work); thread.start();"
        " thread.join()\nEND"
    ),
    "waiting thread": Situation(
        MAKE_WORKER
        + "threading.Thread(target=lambda: w.sleep.call_one().get(), daemon=True).start();"
        " wait_until_busy(); END",
        actors=0,
    ),
}
ENDINGS = {
    "end": Ending(0, "print('here')"),
    "raise": Ending(1, "raise RuntimeError('mine')", last_line="RuntimeError: mine"),
    "exit": Ending(3, "sys.exit(3)"),
    "os._exit": Ending(4, "os._exit(4)", orderly=False),
    "ctrl-c": Ending(-signal.SIGINT, signals=(signal.SIGINT,), last_line="KeyboardInterrupt"),
    "ctrl-c twice": Ending(
        -signal.SIGINT, signals=(signal.SIGINT, signal.SIGINT), last_line="KeyboardInterrupt"
    ),
    "sigterm": Ending(-signal.SIGTERM, signals=(signal.SIGTERM,), orderly=False),
    "sigterm that exits": Ending(
        9, "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))", (signal.SIGTERM,)
    ),
    "sighup": Ending(-signal.SIGHUP, signals=(signal.SIGHUP,), orderly=False),
    "sigkill": Ending(-signal.SIGKILL, signals=(signal.SIGKILL,), orderly=False),
}
MATRIX = [
    *(("idle", ending) for ending in ENDINGS),
    *(("family", ending) for ending in ("end", "ctrl-c", "sigterm", "sigkill")),
    *(("get", ending) for ending in ("ctrl-c", "sigterm that exits", "sigkill")),
    *(("await", ending) for ending in ("raise", "ctrl-c", "sigterm that exits", "sigkill")),
    *(("busy", ending) for ending in ("end", "raise", "ctrl-c twice", "sigterm")),
    *(("gil", ending) for ending in ("end", "ctrl-c", "sigkill")),
    *(("thread", ending) for ending in ("end", "ctrl-c", "sigterm")),
    *(("waiting thread", ending) for ending in ("end", "ctrl-c")),
]
NOISE = (
    "Exception ignored",
    "Exception in thread",
    "resource_tracker",
    "monarch.errors",
    "ResourceWarning",
)


def run(
    situation: Situation, ending: Ending, cleaned: Path, stdin: str | None = ""
) -> ScriptResult:
    end = ending.source or "pass"
    if ending.signals:
        end += "; print('here', flush=True)" + ("" if situation.waits else "; time.sleep(60)")
    after = list(zip(("here", "last words"), ending.signals, strict=False))
    return run_script(
        WORKERS + situation.source.replace("END", end),
        env={"CLEANED": str(cleaned)},
        python_args=["-W", "default::ResourceWarning"],
        signal_after=after[0] if after else None,
        more_signals=after[1:],
        stdin=stdin,
    )


def check(result: ScriptResult, ending: Ending, cleaned: Path, actors: int) -> None:
    assert result.exit_code == ending.status, str(result)
    assert result.left_behind == [], str(result)
    assert not any(noise in result.stderr for noise in NOISE), str(result)
    assert (cleaned.read_text().count("cleaned") if cleaned.exists() else 0) == actors, str(result)
    if ending.orderly:
        assert result.stdout.count("last words") == actors, str(result)
    assert (result.stderr.splitlines() or [""])[-1] == ending.last_line, str(result)


@several_at_a_time
@pytest.mark.parametrize(
    ("situation", "how"), MATRIX, ids=[f"{name}: {how}" for name, how in MATRIX]
)
def test_a_program_ends_with_its_own_status_and_leaves_nothing(situation: str, how: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cleaned = Path(folder, "cleaned")
        result = run(SITUATIONS[situation], ENDINGS[how], cleaned)
        check(result, ENDINGS[how], cleaned, SITUATIONS[situation].actors)


@pytest.mark.parametrize("how", ["end", "ctrl-c"])
def test_a_program_without_stdin_ends_like_any_other(how: str, tmp_path: Path) -> None:
    cleaned = tmp_path / "cleaned"
    situation = Situation("assert sys.stdin is None; " + SITUATIONS["idle"].source)
    result = run(situation, ENDINGS[how], cleaned, stdin=None)
    check(result, ENDINGS[how], cleaned, 1)


CHILD = f"""
def child():
    {MAKE_WORKER}
    END

process = multiprocessing.get_context("START").Process(target=child)
if __name__ == "__main__":
    process.start()
    process.join()
    sys.exit(process.exitcode % 256)
"""


@pytest.mark.parametrize(
    ("start", "how"),
    [("fork", how) for how in ("end", "raise", "exit", "os._exit")]
    + [("spawn", "end"), ("forkserver", "exit")],
)
def test_a_client_in_a_multiprocessing_child_ends_as_one_in_a_script_does(
    start: str, how: str, tmp_path: Path
) -> None:
    cleaned = tmp_path / "cleaned"
    result = run(Situation(CHILD.replace("START", start)), ENDINGS[how], cleaned)
    check(result, ENDINGS[how], cleaned, 1)


@pytest.mark.parametrize("how", ["ctrl-c", "sigkill"])
def test_a_signalled_multiprocessing_child_leaves_nothing_of_its_client(
    how: str, tmp_path: Path
) -> None:
    cleaned = tmp_path / "cleaned"
    result = run(Situation(CHILD.replace("START", "fork")), ENDINGS[how], cleaned)
    assert result.exit_code == ENDINGS[how].status, str(result)
    assert result.left_behind == [], str(result)
    assert cleaned.read_text() == "cleaned\n", str(result)


def test_an_unhandled_fault_ends_a_multiprocessing_child_with_status_1() -> None:
    result = run_script(
        WORKERS
        + """
class Fails(Worker):
    @endpoint
    def fail(self):
        raise ValueError("in the child")

def child():
    fails = this_host().spawn_procs().spawn("fails", Fails)
    fails.ready.call_one().get()  # what is sent one way at the end of a program has half a second
    fails.fail.broadcast()

process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
print("status", process.exitcode)
""",
        env={"CLEANED": "/dev/null"},
    )
    assert "status 1" in result.stdout, str(result)
    assert "in the child" in result.stderr, str(result)
    assert "Process-1" not in result.stderr, str(result)
    assert result.left_behind == [], str(result)


def test_a_program_that_ends_with_large_messages_under_way_leaves_no_shared_memory(
    tmp_path: Path,
) -> None:
    def folders_in_memory() -> set[str]:
        return {name for name in os.listdir("/dev/shm") if name.startswith("monarch-")}

    before = folders_in_memory()
    result = run_script(
        WORKERS
        + "w = this_host().spawn_procs({'n': 4}).spawn('w', Worker); w.ready.call().get()\n"
        + "class Keeps(Worker):\n    @endpoint\n    def keep(self, data):\n        self.data ="
        " data\n"
        + "k = this_host().spawn_procs({'n': 4}).spawn('k', Keeps)\n"
        + "k.keep.call(bytearray(8_000_000)).get(); k.keep.broadcast(bytearray(8_000_000));"
        " os.kill(os.getpid(), 9)\n",
        env={"CLEANED": str(tmp_path / "cleaned")},
    )
    assert result.exit_code == -signal.SIGKILL, str(result)
    assert result.left_behind == [], str(result)
    assert folders_in_memory() <= before, str(result)
