"""The world as the code on a rank sees it: its rank, the steps to do, its part of the data."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ..actor import Future, SupervisionError

if TYPE_CHECKING:
    from .._kept_store import KeptStore
    from .state import Lent

T = TypeVar("T")
_LOOK_AGAIN = 0.1  # seconds


class WorldPlace(NamedTuple):
    """A rank's place in a world.

    Attributes:
        number: Of the world: 1, 2, ...
        rank: Its rank there.
        size: How many ranks there are.
        store: Of rank 0.
        one_host: All ranks are on one host.
        step: The first step.
        sources: Where its state is to be had; empty: as the trainer begins, or
        checkpoint: in this folder.
        current: The rank has that state already.
    """

    number: int
    rank: int
    size: int
    store: KeptStore
    one_host: bool
    step: int = 0
    sources: Sequence[Lent] = ()
    checkpoint: str | None = None
    current: bool = False


class Report(NamedTuple):
    """The report of a rank.

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
    """Ends `Trainer.train` in a world that is over.

    No Exception, so that code which goes on after those does not keep it.
    """


class WorldKeeper(Protocol):
    """The protocol of a world's process, as the world uses it."""

    def restore(self, world: World, state: Mapping[str, Any]) -> None:
        """Make a state that with which the world begins."""

    def completed(self, world: World) -> None:
        """A step is done; `world.step` is the next."""

    def send(self, report: Report) -> Future[None]:
        """Give the program a report."""


class World:
    """A world, as one of its ranks sees it.

    The default group of `torch.distributed` is that of its ranks.

    Attributes:
        number: 1, 2, ...
        rank: Of this process, from 0.
        size: How many ranks there are.
        step: The one that is done now, or next.
    """

    def __init__(self, place: WorldPlace, keeper: WorldKeeper) -> None:
        self.place = place
        self.number = place.number
        self.rank = place.rank
        self.size = place.size
        self.step = place.step
        self.restored = False
        # all that this rank needs of others to change the weights in this step is there
        self.prepared = False
        self.applied = False  # an optimizer has changed the weights in this step
        self._keeper = keeper
        self._sent: Future[None] | None = None
        self._changed = threading.Condition()
        self._in_step = self._held = self._over = False
        self._end: int | None = None

    def restore(self, **state: Any) -> None:
        """Give the state with which this world begins to these objects.

        Call it once in `train`, before `steps`.

        It comes from the memory of ranks that were in the world before, or from a checkpoint. In
        the first world there is none, and nothing is changed: all ranks have to begin with the same
        weights. Sharded tensors may be laid out otherwise than before.

        Args:
            **state: Objects with ``state_dict`` and ``load_state_dict``; the same names in each
                world. The optimizers are among them: they tell how far a step has come.

        Raises:
            TypeError: An object has no such methods.
            RuntimeError: Called twice.
            KeyError: The names are others than in the world before.
        """
        if self.restored:
            raise RuntimeError("restore() comes once in a world, with all of the state")
        for name, each in state.items():
            if not hasattr(each, "state_dict") or not hasattr(each, "load_state_dict"):
                raise TypeError(
                    f"restore({name}={each!r}): expected an object with state_dict and"
                    " load_state_dict"
                )
        self._keeper.restore(self, state)
        self.restored = True

    def steps(self, stop: int) -> Iterator[int]:
        """The steps to do, in order, from the first that is not done up to `stop`, excluded.

        A step is done when the next one is asked for. Where the world ends between two steps, this
        ends `train`.

        Args:
            stop: The first step that is not done.

        Raises:
            RuntimeError: `restore` was not called.
        """
        if not self.restored:
            raise RuntimeError("restore() comes first: the steps begin where the state is")
        while self.step < stop:
            self._enter_step()
            yield self.step
            with self._changed:
                self.step += 1
                self._in_step = self.prepared = self.applied = False
            self._keeper.completed(self)

    def part(self, count: int) -> slice:
        """This rank's share of `count` things.

        Shares are as even as they can be, in the order of ranks.

        Args:
            count: How many things there are.
        """
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def ask(self, call: Callable[[], Future[T]]) -> T:
        """Wait for an answer of others, such as a replay buffer's; ask again where one has died.

        If the world is over, this ends `train`. A rank that waits by `Future.get` stays until there
        is an answer, and keeps the next world from its begin: for ever, if the answer needs that.

        Args:
            call: Makes the call, more than once where its process has ended and is started again.

        Returns:
            The answer.

        Raises:
            Exception: As the future; not `SupervisionError`.
        """
        future = call()
        while not self._over:
            try:
                error = future.exception(timeout=_LOOK_AGAIN)
            except TimeoutError:
                continue
            if not isinstance(error, SupervisionError):
                return future.get()
            time.sleep(_LOOK_AGAIN)
            future = call()
        raise WorldChanged

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in their order; a collective, which each rank calls.

        Args:
            value: Anything that can be pickled.
        """
        values = [value] * self.size
        import_module("torch.distributed").all_gather_object(values, value)
        return values

    def report(self, value: Any) -> None:
        """Report a value to the program, such as the loss.

        `ElasticGroup.run` gives it a `Report`.

        Args:
            value: Anything that can be pickled.
        """
        self.flush()
        self._sent = self._keeper.send(Report(self.step, self.rank, self.number, self.size, value))

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
        """Let it go on, as far as to this step; None: to the end.

        Args:
            step: The first step that is not done any more.
        """
        with self._changed:
            self._held, self._end = False, step
            self._changed.notify_all()

    def leave(self) -> None:
        """Leave the world before the next step, at the latest."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """True after `leave`."""
        return self._over

    def __repr__(self) -> str:
        return f"<World {self.number}, rank {self.rank} of {self.size}, step {self.step}>"


class Batches:
    """The samples in the batch of a step.

    They do not depend on how many ranks share it, or on when it is asked for.

    Every epoch goes through all samples in an order of its own; a rest at its end that is smaller
    than a batch is left out.

    Args:
        length: How many samples there are.
        size: Samples of a batch, over all ranks.
        seed: Of the order.

    Raises:
        ValueError: `size` is not in 1 to `length`.
    """

    def __init__(self, length: int, size: int, seed: int = 0) -> None:
        if not 0 < size <= length:
            raise ValueError(f"size={size}: expected 1 to length={length}")
        self._length, self._size, self._seed = length, size, seed
        self._epoch, self._order = -1, None

    def indices(self, step: int, world: World) -> list[int]:
        """This rank's samples of the batch of a step.

        Args:
            step: Number of the step.
            world: The world of this rank.
        """
        epoch, position = divmod(step, self._length // self._size)
        if epoch != self._epoch:
            torch = import_module("torch")
            generator = torch.Generator().manual_seed(
                Random(f"{self._seed}.{epoch}").getrandbits(32)
            )
            self._epoch, self._order = epoch, torch.randperm(self._length, generator=generator)
        batch = self._order[position * self._size : (position + 1) * self._size]  # type: ignore[index]
        found: list[int] = batch[world.part(self._size)].tolist()
        return found
