"""Going on without the rank that died, and replacing a mesh from `__supervise__`."""

import os

import monarch.actor
from monarch.actor import (
    Actor,
    MeshFailure,
    SupervisionError,
    ValueMesh,
    current_rank,
    endpoint,
    this_host,
)

# the script owns the meshes of the first part, and goes on
monarch.actor.unhandled_fault_hook = lambda failure: None


class Worker(Actor):
    @endpoint
    def work(self, poison: bool = False) -> int:
        if poison:
            os._exit(3)
        return current_rank().rank


# region slice
procs = this_host().spawn_procs({"gpus": 4})
workers = procs.spawn("workers", Worker)
workers.slice(gpus=3).work.broadcast(poison=True)

try:
    results: ValueMesh[int] = workers.work.options(wait_for_all=True).call().get()
except SupervisionError as error:
    dead = {point["gpus"] for point in error.by_rank}
    alive = workers.without(error.by_rank)
    results = alive.work.call().get()
print(f"dead: {dead}, results: {results.values()}")
# endregion


# region supervise
class Foreman(Actor):
    """Its callers never see that a worker died, only that some work must be asked for again."""

    def __init__(self) -> None:
        self.reports: list[str] = []
        self.hire()

    def hire(self) -> None:
        self.procs = this_host().spawn_procs({"gpus": 2}, name="crew")
        self.workers = self.procs.spawn("workers", Worker)

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.reports.append(
            f"{failure.mesh_name}{failure.ranks}: {failure.cause}, status {failure.exit_code}"
        )
        # what is left of them; from here on no owner hears of their failures
        self.workers.stop()
        self.procs.stop()
        self.hire()
        return True  # handled: no owner above hears of it

    @endpoint
    def work(self, poison: bool = False) -> list[int] | None:
        try:
            return self.workers.work.call(poison).get().values()
        except SupervisionError:
            # __supervise__ runs between messages, so not before this endpoint has returned
            return None

    @endpoint
    def history(self) -> list[str]:
        return self.reports


foreman = this_host().spawn_procs().spawn("foreman", Foreman)
assert foreman.work.call_one().get() == [0, 1]
assert foreman.work.call_one(poison=True).get() is None
while (results_again := foreman.work.call_one().get()) is None:
    pass  # a caller may hear of a death a moment before the owner does
assert results_again == [0, 1]
print(foreman.history.call_one().get())
# endregion
