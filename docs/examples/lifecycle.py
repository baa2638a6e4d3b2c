"""Lifecycle: who stops what, and what runs at the end."""

import os
import tempfile
from pathlib import Path

from monarch.actor import Actor, endpoint, this_host


# region cleanup
class Logfile(Actor):
    def __init__(self, path: Path) -> None:
        self.file = path.open("a")

    @endpoint
    def write(self, line: str) -> None:
        self.file.write(line + "\n")

    def __cleanup__(self, exc: Exception | None) -> None:
        self.file.write("closed\n" if exc is None else f"closed after {exc}\n")
        self.file.close()


path = Path(tempfile.mkdtemp()) / "log.txt"
procs = this_host().spawn_procs()
log = procs.spawn("log", Logfile, path)
log.write.call_one("hello").get()
procs.stop().get()  # runs __cleanup__ of every actor there, then ends the processes
assert path.read_text() == "hello\nclosed\n"
# endregion


# region with
class Worker(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()


with this_host().spawn_procs(per_host={"gpus": 2}) as procs:
    workers = procs.spawn("workers", Worker)
    pids = workers.pid.call().get().values()
assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
# endregion
