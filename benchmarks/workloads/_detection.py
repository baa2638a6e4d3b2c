"""One event, once: how long until a caller who waits for an answer is told that none will come.

Run by `benchmarks.detection`, under either package. Prints one JSON line: the seconds, or null
where there is no such process, or "late" where nobody was told within the limit. Cleans nothing up:
who runs it does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import monarch.actor
from monarch.actor import Actor, endpoint, this_host


class Victim(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def wait(self) -> None:
        time.sleep(600)

    @endpoint
    def exit(self, pause: float, note: str) -> None:
        time.sleep(pause)
        Path(note).write_text(str(time.monotonic()))
        os._exit(3)


def between(proc: int) -> list[int]:
    """The processes between a proc and this one, the proc's parent first."""
    chain = []
    pid = parent(proc)
    while pid not in (0, 1, os.getpid()):
        chain.append(pid)
        pid = parent(pid)
    return chain if pid == os.getpid() else []


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def measure(who: str, how: str, pause: float, limit: float) -> float | str | None:
    victims = this_host().spawn_procs(per_host={"procs": 2}).spawn("victim", Victim)
    pids = list(victims.pid.call().get().values())
    chain = between(pids[1])
    targets = {
        "proc": pids[1],
        "spawner": chain[0] if len(chain) > 1 else None,
        "agent": chain[-1] if chain else None,
    }
    target = targets[who]
    if target is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder, "note")
        if how == "exit":
            waiting = victims.exit.call(pause, str(note))
        else:
            waiting = victims.wait.call()
            threading.Timer(pause, strike, (target, how, note)).start()
        try:
            waiting.get(timeout=pause + limit)
        except TimeoutError:
            return "late"
        except Exception as error:
            told = time.monotonic()
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return told - float(note.read_text())
    raise AssertionError("it had an answer")


def strike(pid: int, how: str, note: Path) -> None:
    note.write_text(str(time.monotonic()))
    os.kill(pid, getattr(signal, how))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One event; prints one JSON line.")
    parser.add_argument("who", choices=["proc", "spawner", "agent"])
    parser.add_argument("how", help="exit, or the name of a signal")
    parser.add_argument("pause", type=float, help="seconds between the first answers and the event")
    parser.add_argument("limit", type=float, help="seconds to wait to be told")
    options = parser.parse_args()
    monarch.actor.unhandled_fault_hook = lambda failure: None
    print(json.dumps(measure(options.who, options.how, options.pause, options.limit)), flush=True)
    os._exit(0)
