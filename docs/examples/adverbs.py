"""Adverbs: the ways to call an endpoint."""

from monarch.actor import Accumulator, Actor, Channel, current_rank, endpoint, send, this_host


class Worker(Actor):
    def __init__(self) -> None:
        self.total = 0

    @endpoint
    def add(self, n: int) -> None:
        self.total += n

    @endpoint
    def get(self) -> int:
        return self.total

    @endpoint
    def rank(self) -> int:
        return current_rank().rank


workers = this_host().spawn_procs(per_host={"gpus": 4}).spawn("workers", Worker)

# region call
ranks = workers.rank.call().get()  # all ranks: one value for each
assert ranks.sizes == {"gpus": 4}
assert ranks.values() == [0, 1, 2, 3]
# endregion

# region call_one
assert workers.slice(gpus=2).get.call_one().get() == 0  # exactly one actor: its bare value
# endregion

# region choose
assert workers.rank.choose().get() in range(4)  # any one of them
# endregion

# region broadcast
workers.add.broadcast(7)  # all, and no answer
assert workers.get.call().get().values() == [7, 7, 7, 7]  # sent later, so handled later
# endregion

# region stream
# all, each result as soon as it is there
arrived = [future.get() for future in workers.rank.stream()]
assert sorted(arrived) == [0, 1, 2, 3]
# endregion


# region accumulate
def add(total: int, n: int) -> int:
    return total + n


assert Accumulator(workers.get, 0, add).accumulate().get() == 4 * 7  # a stream, folded as it comes
# endregion

# region send
port, answers = Channel[int].open()
send(workers.rank, args=(), port=port)  # each rank answers through the port
assert sorted(answers.recv().get() for _ in range(4)) == [0, 1, 2, 3]
# endregion
