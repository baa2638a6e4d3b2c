"""`ElasticGroup`: a program's handle to training ranks that come and go.

It checks the arguments and yields what ranks report; the `Coordinator`, an actor beside the
program, starts ranks and forms their worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from .._arguments import seconds, whole
from ..actor import ActorError, Channel, HostMesh, SupervisionError, this_proc
from .coordinator import Coordinator, GroupOptions
from .world import Report, World


class Trainer(Protocol):
    """The protocol of a trainer: a class of yours, made on each rank.

    Its constructor makes what does not depend on the ranks.
    """

    def train(self, world: World) -> None:
        """Train to the end.

        Build the state of the ranks, call `World.restore`, then do the steps of
        `World.steps`.

        Called again in each new world.

        Args:
            world: The ranks of now, and the position in the training.
        """


_LONGEST = 1e9  # seconds: more is too much for torch's clocks


class ElasticGroup:
    """Ranks that train together, and go on when some of them die.

    Args:
        hosts: Where they run, spread evenly.
        make: Makes the trainer of a rank: a class, or a function without arguments.
        ranks: How many there are to be. One that dies is replaced, on the same host.
        min_ranks: With how many they go on until then. With fewer they wait.
        max_losses: How many may be lost before a world begins that is a step farther. No more are
            started then, until one does.
        timeout: Of a collective, in seconds.
        checkpoint: A folder for checkpoints, which all hosts have. If there is one, the training
            goes on from it: when the program starts, and when ranks are lost with a state that
            no other rank has.
        checkpoint_every: After how many steps one is written, beside the training.
        checkpoint_keep: How many are kept.

    Raises:
        TypeError: An argument is of another type.
        ValueError: A number is out of range.
    """

    def __init__(
        self,
        hosts: HostMesh,
        make: Callable[[], Trainer],
        *,
        ranks: int,
        min_ranks: int = 1,
        max_losses: int = 10,
        timeout: float = 1800,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_every: int = 100,
        checkpoint_keep: int = 2,
    ) -> None:
        if not isinstance(hosts, HostMesh):
            raise TypeError(f"hosts={hosts!r}: expected a HostMesh, such as this_host()")
        if not callable(make):
            raise TypeError(f"make={make!r}: expected a class, or a function without arguments")
        for name, number, least in (
            ("ranks", ranks, 1),
            ("min_ranks", min_ranks, 1),
            ("max_losses", max_losses, 0),
            ("checkpoint_every", checkpoint_every, 1),
            ("checkpoint_keep", checkpoint_keep, 1),
        ):
            whole(number, name, least)
        if not isinstance(checkpoint, (str, PathLike, type(None))):
            raise TypeError(f"checkpoint={checkpoint!r}: expected the path of a folder")
        if min_ranks > ranks:
            raise ValueError(f"min_ranks={min_ranks}: expected 1 to ranks={ranks}")
        self._plan = GroupOptions(
            hosts, make, ranks, min_ranks, max_losses,
            min(seconds(timeout, "timeout", 0.001), _LONGEST),
            None if checkpoint is None else Path(checkpoint).absolute(), checkpoint_every,
            checkpoint_keep,
        )  # fmt: skip
        self._coordinator: Any = None

    def run(self) -> Generator[Report, None, None]:
        """Train, to the end of `Trainer.train` on all ranks; gives what they report, as it comes.

        Leaving the loop early ends the training.

        Raises:
            ElasticError: Too few ranks are left, and no more are to be had; or another program
                writes its checkpoints to the same folder.
            ActorError: The trainer has raised.
            RuntimeError: It runs already, or has run.
        """
        if self._coordinator is not None:
            raise RuntimeError("an ElasticGroup runs once; make another one")
        self._coordinator = this_proc().spawn("elastic", Coordinator, self._plan)
        return self._reports()

    def _reports(self) -> Generator[Report, None, None]:
        port, receiver = Channel[Report | None].open()
        reports = receiver.tied_to(self._coordinator.run.call_one(self._coordinator, port))
        try:
            while (report := reports.recv().get()) is not None:
                yield report
        except ActorError as error:
            raise error.exception from None  # no trace of the coordinator is of use
        finally:
            self._coordinator.stop("the training is over").get()

    def resize(self, ranks: int) -> None:
        """Aim at another number of ranks, while it runs.

        Returns at once; the world changes between two steps.

        Args:
            ranks: The wanted number.

        Raises:
            TypeError: It is no int.
            ValueError: It is less than `min_ranks`.
            RuntimeError: It does not run.
        """
        if whole(ranks, "ranks") < self._plan.min_ranks:
            raise ValueError(f"ranks={ranks}: expected at least min_ranks={self._plan.min_ranks}")
        if self._coordinator is None:
            raise RuntimeError("run() comes first")
        try:
            self._coordinator.resize.call_one(ranks).get()
        except SupervisionError:
            raise RuntimeError("the training is over") from None
