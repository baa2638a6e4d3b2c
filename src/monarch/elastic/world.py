"""What the code on a rank sees of its world: who it is there, which steps to do, which part of the data is its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from random import Random
from typing import Any, NamedTuple

from ..actor import Future


class Place(NamedTuple):
    """What a rank is told of a world.

    Attributes:
        number: Of the world: 1, 2, ...
        rank: Its rank there.
        size: How many ranks there are.
        address: Host of the store, which is that of rank 0, and
        port: its TCP port.
        one_host: All ranks are on one host.
    """

    number: int
    rank: int
    size: int
    address: str
    port: int
    one_host: bool


class Report(NamedTuple):
    """What a rank has said.

    Attributes:
        step: In which step.
        rank: Its rank in
        world: the world with this number, which has
        size: so many ranks.
        value: What it said.
    """

    step: int
    rank: int
    world: int
    size: int
    value: Any


class WorldChanged(BaseException):
    """Ends `Trainer.train` in a world that is over. No Exception, so that code which goes on after those does not keep it."""


class World:
    """A world, as one of its ranks sees it. The default group of `torch.distributed` is that of its ranks.

    Attributes:
        number: 1, 2, ...
        rank: Of this process, from 0.
        size: How many ranks there are.
        step: The one that is done now, or next.
    """

    def __init__(self, place: Place, step: int, send: Callable[[Report], Future[None]]) -> None:
        self.number = place.number
        self.rank = place.rank
        self.size = place.size
        self.step = step
        self.applied = False  # an optimizer has changed the weights in this step
        self._send = send
        self._sent: Future[None] | None = None
        self._changed = threading.Condition()
        self._in_step = self._held = self._over = False
        self._end: int | None = None

    def steps(self, stop: int) -> Iterator[int]:
        """The steps to do, one after the other, from the first that is not done to `stop`, which is not among them.

        A step is done when the next one is asked for. Where the world ends between two steps, this ends `train`.
        """
        while self.step < stop:
            self._enter_step()
            yield self.step
            with self._changed:
                self.step += 1
                self._in_step = self.applied = False

    def part(self, count: int) -> slice:
        """This rank's part of `count` things that all ranks share out: as even as it can be, in the order of ranks."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def report(self, value: Any) -> None:
        """Say something to the program, such as the loss: `ElasticGroup.run` gives it a `Report`."""
        self.flush()
        self._sent = self._send(Report(self.step, self.rank, self.number, self.size, value))

    def flush(self) -> None:
        """Wait until the last report has come."""
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.get()

    def _enter_step(self) -> None:
        with self._changed:
            while self._held and not self._over:  # ended by `end_before`, or `leave`
                self._changed.wait()
            if self._over or (self._end is not None and self.step >= self._end):
                raise WorldChanged
            self._in_step = True

    def hold(self) -> int:
        """Have the rank wait before its next step; which one that is."""
        with self._changed:
            self._held = True
            return self.step + self._in_step

    def end_before(self, step: int | None) -> None:
        """Let it go on, as far as to this step; None: to the end."""
        with self._changed:
            self._held, self._end = False, step
            self._changed.notify_all()

    def leave(self) -> None:
        """It ends before the next step, at the latest."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether it was told to `leave`."""
        return self._over

    def __repr__(self) -> str:
        return f"<World {self.number}, rank {self.rank} of {self.size}, step {self.step}>"


class Batches:
    """Which samples are in the batch of a step: the same however many ranks share it, whenever it is asked for.

    Every epoch goes through all samples in an order of its own; what is left at its end, less than a batch, is left out.

    Args:
        length: How many samples there are.
        size: Samples of a batch, over all ranks.
        seed: Of the order.
    """

    def __init__(self, length: int, size: int, seed: int = 0) -> None:
        if not 0 < size <= length:
            raise ValueError(f"size={size}: expected 1 to length={length}")
        self._length, self._size, self._seed = length, size, seed
        self._epoch, self._order = -1, None

    def indices(self, step: int, world: World) -> list[int]:
        """This rank's samples of the batch of a step."""
        epoch, position = divmod(step, self._length // self._size)
        if epoch != self._epoch:
            torch = import_module("torch")
            generator = torch.Generator().manual_seed(Random(f"{self._seed}.{epoch}").getrandbits(32))
            self._epoch, self._order = epoch, torch.randperm(self._length, generator=generator)
        batch = self._order[position * self._size : (position + 1) * self._size]  # type: ignore[index]
        found: list[int] = batch[world.part(self._size)].tolist()
        return found
