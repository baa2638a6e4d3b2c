"""Errors: an answer that is an exception, an actor that is gone, and who hears of what."""

import os
import time

import monarch.actor
from monarch.actor import Actor, ActorError, MeshFailure, SupervisionError, endpoint, this_host

procs = this_host().spawn_procs(per_host={"gpus": 2})


class Divider(Actor):
    @endpoint
    def divide(self, a: int, b: int) -> float:
        return a / b

    @endpoint
    def exit(self) -> None:
        os._exit(3)


dividers = procs.spawn("dividers", Divider)

# region reply
try:
    dividers.divide.call(1, 0).get()
except ActorError as error:
    assert isinstance(error.exception, ZeroDivisionError)  # the original
    assert "return a / b" in error.exception_formatted  # and its traceback over there
assert dividers.divide.call(6, 3).get().values() == [2.0, 2.0]  # the actors are well
# endregion

failures: list[MeshFailure] = []
monarch.actor.unhandled_fault_hook = failures.append  # instead of ending the program

# region gone
try:
    dividers.slice(gpus=1).exit.call_one().get(timeout=60)
except SupervisionError as error:
    print(error)
# a slice without the dead rank works
assert dividers.slice(gpus=0).divide.call_one(6, 3).get() == 2.0
# endregion

while not failures:
    time.sleep(0.01)
print(failures[0].report())


# region supervise
class Owner(Actor):
    def __init__(self) -> None:
        self.reports: list[str] = []
        self.divider = this_host().spawn_procs().spawn("divider", Divider)

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.reports.append(failure.report())
        return True  # handled: no owner above is told

    @endpoint
    def try_it(self) -> str:
        try:
            self.divider.exit.call_one().get(timeout=60)
        except SupervisionError:
            # a new process, a new actor
            self.divider = this_host().spawn_procs().spawn("divider", Divider)
        return f"6 / 3 = {self.divider.divide.call_one(6, 3).get()}"


owner = procs.slice(gpus=0).spawn("owner", Owner)
assert owner.try_it.call_one().get(timeout=120) == "6 / 3 = 2.0"
# endregion
