"""Controllers: one actor for the whole program, found by its name."""

from monarch.actor import Actor, current_rank, endpoint, get_or_spawn_controller, this_host


# region controller
class Registry(Actor):
    def __init__(self) -> None:
        self.entries: dict[str, int] = {}

    @endpoint
    def put(self, key: str, value: int) -> None:
        self.entries[key] = value

    @endpoint
    def all(self) -> dict[str, int]:
        return self.entries


class Worker(Actor):
    @endpoint
    def register(self) -> None:
        registry = get_or_spawn_controller("registry", Registry).get()
        rank = current_rank().rank
        registry.put.call_one(f"worker-{rank}", rank).get()


workers = this_host().spawn_procs(per_host={"gpus": 3}).spawn("workers", Worker)
workers.register.call().get()

registry = get_or_spawn_controller("registry", Registry).get()  # the one that the first worker made
entries = registry.all.call_one().get()
assert entries == {"worker-0": 0, "worker-1": 1, "worker-2": 2}
# endregion
