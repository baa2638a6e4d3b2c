"""Value meshes: what `call` returns."""

from monarch.actor import Actor, current_rank, endpoint, this_host


class Worker(Actor):
    @endpoint
    def square(self) -> int:
        return current_rank().rank ** 2


workers = this_host().spawn_procs(per_host={"replica": 2, "gpus": 2}).spawn("workers", Worker)

# region read
squares = workers.square.call().get()
assert squares.values() == [0, 1, 4, 9]  # in rank order
assert squares.item(replica=1, gpus=0) == 4
assert squares.get(3) == 9  # by linear rank
for point, value in squares.items():  # plain iteration gives the same pairs
    assert value == point.rank**2
    assert value == (2 * point["replica"] + point["gpus"]) ** 2
# endregion

# region index
assert squares[3] == 9
assert squares[1, 0] == squares[{"replica": 1, "gpus": 0}] == 4
# endregion

# region slice
assert squares.slice(replica=1).values() == [4, 9]
assert squares.slice(replica=1, gpus=1).item() == 9
assert squares.flatten("rank").sizes == {"rank": 4}
# endregion

# region bounds
try:
    squares.item(replica=0, gpus=2)
except IndexError as error:
    print(error)
# endregion
