"""What is known of a process that died: a hook of one's own that writes it down."""

import os
import signal
import threading
from queue import Queue

import monarch.actor
from monarch.actor import Actor, MeshFailure, SupervisionError, endpoint, this_host


class Worker(Actor):
    @endpoint
    def crash(self) -> None:
        print("loading shard 17")
        print("allocating 900 GiB", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()

    @endpoint
    def raise_unheard(self) -> None:
        raise ValueError("bad shard")


# region hook
failures: Queue[MeshFailure] = Queue()


def write_down(failure: MeshFailure) -> None:
    """On a thread of its own, one failure at a time.

    Returning drops the failure; sys.exit(3) ends the program with 3.
    """
    failures.put(failure)


monarch.actor.unhandled_fault_hook = write_down
# endregion

procs = this_host().spawn_procs({"gpus": 2}, name="gpus")
workers = procs.spawn("workers", Worker)

# region post_mortem
try:
    workers.slice(gpus=1).crash.call_one().get()
except SupervisionError as error:
    assert isinstance(error.failure, MeshFailure)  # the caller has the record, too

failure = failures.get(timeout=30)
assert (failure.mesh_name, failure.ranks, failure.cause) == ("workers", [1], "killed")
assert failure.signal == signal.SIGKILL
assert failure.exit_code is None  # as a signal ended it
assert failure.last_output[-1].endswith("allocating 900 GiB")
assert failure.mesh is workers  # what to stop, or to slice
# endregion
lines = failure.report().splitlines()
print("\n".join(line for line in lines if "pid" not in line))

# region exception
workers.slice(gpus=0).raise_unheard.broadcast()  # no caller waits for an answer, so the actor ends
failure = failures.get(timeout=30)
assert failure.cause == "exception"
assert isinstance(failure.exception, ValueError)  # rebuilt here
# endregion
