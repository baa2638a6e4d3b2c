"""Context: where am I, and who made me?"""

from monarch.actor import Actor, context, current_rank, current_size, endpoint, this_host, this_proc


# region ranks
class Where(Actor):
    @endpoint
    def in_this_call(self) -> dict[str, int]:
        return dict(current_rank())  # position in the mesh that was called

    @endpoint
    def at_home(self) -> dict[str, int]:
        return dict(context().actor_instance.rank)  # position in the mesh it was spawned in

    @endpoint
    def mesh(self) -> dict[str, int]:
        return current_size()


where = this_host().spawn_procs(per_host={"replica": 2, "gpus": 2}).spawn("where", Where)
lower = where.slice(replica=1)

assert lower.in_this_call.call().get().values() == [{"gpus": 0}, {"gpus": 1}]
assert lower.at_home.call().get().values() == [{"replica": 1, "gpus": 0}, {"replica": 1, "gpus": 1}]
assert lower.mesh.call().get().values() == [{"gpus": 2}, {"gpus": 2}]
# endregion


# region neighbour
class Neighbour(Actor):
    @endpoint
    def name(self) -> str:
        return context().actor_instance.name


class Host(Actor):
    def __init__(self) -> None:
        # another actor in my own process
        self.neighbour = this_proc().spawn("neighbour", Neighbour)

    @endpoint
    def ask(self) -> str:
        return self.neighbour.name.call_one().get()


host = this_host().spawn_procs().spawn("host", Host)
assert host.ask.call_one().get() == "neighbour"
# endregion
