"""Meshes in other processes than the client and its procs."""

import multiprocessing

from monarch.actor import Actor, Channel, Port, ProcMesh, endpoint, this_host


class Counter(Actor):
    def __init__(self) -> None:
        self.count = 0

    @endpoint
    def add(self, number: int) -> int:
        self.count += number
        return self.count


# region children
def child(procs: ProcMesh, counters: Counter, results: Port[int]) -> None:
    counters.add.call(1).get()  # its parent's actors
    # one of its own on its parent's procs, which ends when this process does
    own = procs.spawn("own", Counter)
    results.send(sum(own.add.call(1).get().values()))


if __name__ == "__main__":
    procs = this_host().spawn_procs(per_host={"gpus": 2})
    counters = procs.spawn("counters", Counter)
    results, receiver = Channel[int].open()
    process = multiprocessing.get_context("spawn").Process(
        target=child, args=(procs, counters, results)
    )
    process.start()
    assert receiver.recv().get() == 2
    # endregion
    process.join()
    assert process.exitcode == 0
    procs.stop().get()
