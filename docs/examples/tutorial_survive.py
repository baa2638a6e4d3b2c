"""Tutorial 5: a rank is killed three times, and each time another owner handles it."""

# region worker
import logging
import os
import signal
import time

import monarch.actor
from monarch.actor import Actor, MeshFailure, SupervisionError, endpoint, this_host
from monarch.supervision import OneForOne, incarnations


class Worker(Actor):
    @endpoint
    def work(self, number: int) -> int:
        return number * number

    @endpoint
    def pid(self) -> int:
        return os.getpid()


def kill(workers: Worker) -> None:
    os.kill(workers.slice(gpus=1).pid.call_one().get(), signal.SIGKILL)


# endregion


# region supervise
class Foreman(Actor):
    def __init__(self) -> None:
        self.failures: list[str] = []
        self.workers = this_host().spawn_procs({"gpus": 2}).spawn("crew", Worker)

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.failures.append(f"{failure.mesh_name}{failure.ranks} was {failure.cause}")
        return True  # handled: no owner above hears of it

    @endpoint
    def crew(self) -> Worker:
        return self.workers

    @endpoint
    def report(self) -> list[str]:
        return self.failures


# endregion


def main() -> None:
    logging.getLogger("monarch.supervision").setLevel(logging.ERROR)  # restarts are warnings

    # region caller
    monarch.actor.unhandled_fault_hook = lambda failure: None  # the script goes on

    workers = this_host().spawn_procs({"gpus": 4}).spawn("workers", Worker)
    kill(workers)
    try:
        workers.work.options(wait_for_all=True).call(3).get()
    except SupervisionError as error:
        rest = workers.without(error.by_rank)
        print("caller: the others say", rest.work.call(3).get().values())
    # endregion

    # region owner
    foreman = this_host().spawn_procs().spawn("foreman", Foreman)
    kill(foreman.crew.call_one().get())
    while not (told := foreman.report.call_one().get()):
        time.sleep(0.01)  # it is told at once, but not before the signal arrives
    print("owner:", *told)
    # endregion

    # region restart
    strategy = OneForOne(max_restarts=3, within=60)
    procs = this_host().spawn_procs({"gpus": 2}, restart=strategy)
    workers = procs.spawn("workers", Worker)
    kill(workers)
    answers: list[int] = []
    while not answers:
        try:
            answers = workers.work.call(4).get().values()
        except SupervisionError:
            time.sleep(0.01)  # a call that meets the death fails: do it again
    print("strategy: the same handle says", answers)
    print("starts before this one:", incarnations(workers).get().values())
    # endregion


if __name__ == "__main__":
    main()
