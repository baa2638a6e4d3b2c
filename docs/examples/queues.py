"""Queues and replay buffers, for docs/queues.md."""

from monarch.actor import Actor, current_rank, endpoint, this_host
from monarch.queues import Empty, Full, Queue, ReplayBuffer

# region queue


class Generator(Actor):
    def __init__(self, episodes: Queue[str]) -> None:
        self.episodes = episodes

    @endpoint
    def play(self, count: int) -> None:
        for number in range(count):
            # waits for room
            self.episodes.put(f"episode {number} of generator {current_rank().rank}").get()


class Judge(Actor):
    @endpoint
    def judge(self, episodes: Queue[str]) -> int:
        return sum(1 for episode in episodes)  # until the queue is closed


def flow() -> None:
    procs = this_host().spawn_procs({"gpus": 4})
    episodes: Queue[str] = Queue(procs.slice(gpus=0), maxsize=8)
    judged = procs.slice(gpus=slice(2, 4)).spawn("judges", Judge).judge.call(episodes)
    procs.slice(gpus=slice(0, 2)).spawn("generators", Generator, episodes).play.call(20).get()
    episodes.close().get()
    assert sum(judged.get().values()) == 40
    # endregion
    procs.stop().get()


def limits() -> None:
    procs = this_host().spawn_procs({"gpus": 1})
    # region limits
    queue: Queue[int] = Queue(procs, maxsize=1)
    queue.put(1).get()
    try:
        queue.put(2, timeout=0.1).get()
    except Full:
        print("no room in time")
    assert queue.get().get() == 1
    try:
        queue.get(timeout=0).get()
    except Empty:
        print("nothing there")
    # endregion
    procs.stop().get()


def learn() -> None:
    procs = this_host().spawn_procs({"gpus": 1})
    # region replay
    replay: ReplayBuffer[str] = ReplayBuffer(procs, 1000, max_age=2, memory=1 << 30)
    for version in range(4):
        for number in range(8):
            replay.add(f"episode {number} of policy {version}", version=version).get()
    batch = replay.sample(16, version=4).get()  # of policies 2 to 4: waits until there are so many
    assert all(int(episode[-1]) >= 2 for episode in batch)
    # endregion
    procs.stop().get()


if __name__ == "__main__":
    flow()
    limits()
    learn()
