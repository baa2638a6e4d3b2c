"""Weights on their way from who trains to who computes with them."""

import asyncio

import torch

from monarch.actor import Actor, concurrent_endpoint, endpoint, this_host, this_proc
from monarch.elastic import StateBoard, StateFollower, StatePublisher


# region publish
class Trainer(Actor):
    def __init__(self, board: StateBoard) -> None:
        self.weights = {"layer": torch.zeros(4)}
        self.publisher = StatePublisher(board, self.weights)

    @endpoint
    def step(self) -> None:
        with self.publisher.writing():  # once in each step
            self.weights["layer"] += 1


# endregion


# region follow
class Generator(Actor):
    def __init__(self, board: StateBoard) -> None:
        self.weights = {"layer": torch.zeros(4)}
        self.follower = StateFollower(board, self.weights)

    @concurrent_endpoint
    async def generate(self, least: int) -> tuple[int, list[float]]:
        await self.follower.pull()  # the newest, if there is a newer one
        while self.follower.version < least:
            await self.follower.changed.wait()
            await self.follower.pull()
        return self.follower.version, self.weights["layer"].tolist()


# endregion


async def main() -> None:
    board = this_proc().spawn("board", StateBoard)
    trainer = this_host().spawn_procs().spawn("trainer", Trainer, board)
    generators = this_host().spawn_procs({"gpus": 2}).spawn("generators", Generator, board)
    waiting = generators.generate.call(least=2)
    for _ in range(2):
        await trainer.step.call_one()
    for version, layer in (await waiting).values():
        assert (version, layer) == (2, [2.0] * 4)


if __name__ == "__main__":
    asyncio.run(main())
