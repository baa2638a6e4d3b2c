"""Ports and channels: messages that are not answers to a call."""

from monarch.actor import Actor, Channel, Port, current_rank, endpoint, this_host


class Trainer(Actor):
    @endpoint
    def train(self, steps: int, progress: Port[tuple[int, int]]) -> str:
        for step in range(steps):
            progress.send((current_rank().rank, step))
        return "trained"


procs = this_host().spawn_procs(per_host={"gpus": 2})
trainers = procs.spawn("trainers", Trainer)

# region channel
port, receiver = Channel[tuple[int, int]].open()
result = trainers.train.call(3, port)

seen = [receiver.recv().get(timeout=30) for _ in range(2 * 3)]
assert [step for rank, step in seen if rank == 1] == [0, 1, 2]  # in order, per sender
assert result.get().values() == ["trained", "trained"]
# endregion


# region explicit
class Barrier(Actor):
    """Lets everybody go when `count` have come."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.waiting: list[Port[int]] = []

    @endpoint(explicit_response_port=True)
    def wait(self, port: Port[int]) -> None:
        self.waiting.append(port)
        if len(self.waiting) == self.count:
            for place, waiting in enumerate(self.waiting):
                waiting.send(place)


barrier = procs.slice(gpus=0).spawn("barrier", Barrier, 3)
futures = [barrier.wait.call_one() for _ in range(3)]  # callers do not see the port
assert [future.get() for future in futures] == [0, 1, 2]
# endregion
