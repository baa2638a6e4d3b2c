"""One-sided transfers: buffers, actions, whole state dicts, and what their errors say."""

from array import array

from monarch.actor import Actor, endpoint, this_host
from monarch.rdma import (
    RDMAAction,
    RDMABuffer,
    RDMAError,
    Replica,
    SharedState,
    Split,
    pull,
    share_state,
)


# region owner
class Trainer(Actor):
    def __init__(self) -> None:
        self.weights = array("f", range(1000))
        self.buffer = RDMABuffer(self.weights)  # names the memory; nothing is copied

    @endpoint
    def get_weights(self) -> RDMABuffer:
        return self.buffer  # some hundred bytes, which may be sent anywhere


# endregion


# region user
class Generator(Actor):
    def __init__(self) -> None:
        self.weights = array("f", [0.0] * 1000)

    @endpoint
    async def fetch(self, theirs: RDMABuffer) -> float:
        await theirs.read_into(self.weights)
        return self.weights[999]

    @endpoint
    async def change_one(self, theirs: RDMABuffer) -> None:
        await theirs.write_from(array("f", [-1.0]), offset=4 * 999)


# endregion

# region use
procs = this_host().spawn_procs({"gpus": 2})
trainer = procs.slice(gpus=0).spawn("trainer", Trainer)
generator = procs.slice(gpus=1).spawn("generator", Generator)
buffer = trainer.get_weights.call_one().get()
assert generator.fetch.call_one(buffer).get() == 999.0
generator.change_one.call_one(buffer).get()
assert generator.fetch.call_one(buffer).get() == -1.0
# endregion

# region action
first, last = array("f", [0.0] * 10), array("f", [0.0] * 10)
action = RDMAAction()
action.read_remote(first, buffer, nbytes=40)
action.read_remote(last, buffer, offset=buffer.size() - 40)
action.submit().get()  # as often as you like
assert (first[0], last[-1]) == (0.0, -1.0)
# endregion

# region explain
explanation = buffer.explain(generator)
assert explanation.taken == "vm"
for path, usable, reason in explanation.paths:
    print(f"{path:9} {'yes' if usable else 'no ':3}  {reason}")
# endregion


# region state
class Shards(Actor):
    """Each of two ranks has half of the rows of a matrix of 4 by 6."""

    def __init__(self, rank: int) -> None:
        self.rows = array("d", [10.0 * rank + i for i in range(12)])
        matrix = memoryview(self.rows).cast("B").cast("d", (2, 6))
        self.shared = share_state(
            {"w": matrix}, shards=Split(dim=0, rank=rank, count=2), copy=False
        )

    @endpoint
    def share(self) -> SharedState:
        return self.shared

    @endpoint
    def train(self) -> None:
        with self.shared.writing():  # a pull that overlaps starts again
            for index in range(len(self.rows)):
                self.rows[index] += 1


shards = [procs.slice(gpus=rank).spawn(f"shards{rank}", Shards, rank) for rank in range(2)]
sources = [each.share.call_one().get() for each in shards]
columns = memoryview(bytearray(8 * 4 * 3)).cast("d", (4, 3))  # the last three columns, of all rows
versions = pull(sources, {"w": columns}, shards=Split(dim=1, rank=1, count=2)).get()
assert list(array("d", columns.tobytes()))[-3:] == [19.0, 20.0, 21.0]
assert versions == (0, 0)
shards[1].train.call_one().get()
assert pull(sources, {"w": columns}, shards=Split(dim=1, rank=1, count=2)).get() == (0, 1)
# endregion


# region replica
class Follower(Actor):
    def __init__(self, sources: list[SharedState]) -> None:
        self.matrix = memoryview(bytearray(8 * 4 * 6)).cast("d", (4, 6))
        self.replica = Replica(sources, {"w": self.matrix})

    @endpoint
    def follow(self) -> tuple[int | None, ...]:
        return self.replica.pull().get()  # moves nothing if there is nothing new


followers = procs.spawn("followers", Follower, sources)
assert list(followers.follow.call().get().values()) == [(0, 1), (0, 1)]
shards[0].train.call_one().get()
assert list(followers.follow.call().get().values()) == [(1, 1), (1, 1)]
# endregion

# region errors
buffer.drop().get()
try:
    buffer.read_into(bytearray(buffer.size())).get()
except RDMAError as error:
    assert type(error).__name__ == "BufferDroppedError"
    assert error.owner == buffer.owner
# endregion

procs.stop().get()
