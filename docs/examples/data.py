"""Two ranks are fed by two loaders; a loader dies, the program goes on elsewhere, and no batch is
lost or comes twice.
"""

import logging
import os
import signal

import torch
from torch.utils.data import DataLoader, TensorDataset

from monarch.actor import Actor, current_rank, endpoint, this_host
from monarch.data import DataFeed, LoaderInfo
from monarch.supervision import OneForOne


# region all
def make_loader(loader: LoaderInfo) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Every `count`-th batch of the samples, in an order that the seed says: the same whenever it
    is called.
    """
    order = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    batches = order.view(-1, 4)[loader.index :: loader.count]  # 8 batches of 4 samples in all
    return DataLoader(TensorDataset(torch.arange(32)), batch_sampler=batches.tolist())


class Trainer(Actor):
    def __init__(
        self, feed: DataFeed[list[torch.Tensor]], world_size: int, position: int = 0
    ) -> None:
        self.batches = feed.iterate(
            rank=current_rank().rank, world_size=world_size, position=position
        )

    @endpoint
    def train(self, steps: int) -> list[int]:
        samples: list[int] = []
        for _, (batch,) in zip(range(steps), self.batches, strict=False):
            samples += batch.tolist()
        return samples

    @endpoint
    def save(self) -> dict[str, int]:
        return self.batches.state_dict()  # with the weights


class Pid(Actor):
    @endpoint
    def get(self) -> int:
        return os.getpid()


def main() -> None:
    logging.getLogger("monarch.supervision").setLevel(logging.ERROR)  # each restart is a warning
    hosts = this_host()
    loaders = hosts.spawn_procs({"loaders": 2}, restart=OneForOne(max_restarts=3, within=600))
    feed = DataFeed(loaders, make_loader, prefetch=2)
    pids = loaders.spawn("pids", Pid).get.call().get().values()
    two = hosts.spawn_procs({"gpus": 2}).spawn("trainers", Trainer, feed, 2)
    seen = [sample for samples in two.train.call(1).get().values() for sample in samples]
    os.kill(pids[0], signal.SIGKILL)  # it is started again, and goes on where it was
    seen += [sample for samples in two.train.call(1).get().values() for sample in samples]
    saved = two.save.call().get().item(gpus=0)
    assert saved == {"position": 4}

    # fewer ranks go on
    one = hosts.spawn_procs().spawn("trainer", Trainer, feed, 1, saved["position"])
    seen += one.train.call_one(100).get()
    assert sorted(seen) == list(range(32))


# endregion

if __name__ == "__main__":
    main()
