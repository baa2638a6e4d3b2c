"""Many episodes, in one client: rounds of one tree, or of several trees that as many client threads
use at the same time.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import chaos.fault_operations
import chaos.operations  # noqa: F401  # both for what they enter into the table
import monarch.actor
from chaos.calls import Violation
from chaos.endings import ENDINGS, stop_all
from chaos.episode import Episode, Hang, NotNow
from chaos.journal import Heard, Journal
from chaos.model import CLIENT, View
from chaos.table import TABLE
from chaos.tally import Tally
from helpers.leaks import Snapshot, descendants, describe, take_snapshot, wait_settled
from helpers.waiting import wait_until
from monarch.actor import MeshFailure, shutdown_context

# seconds, over all its bounds, after which a step that does not come back ends the program
_STUCK = 120.0

WEIGHTS = {name: operation.weight for name, operation in TABLE.items()}
_ENDING_WEIGHTS = {"stop": 8, "shutdown": 1, "agent": 1}


class Options(NamedTuple):
    seed: int
    threads: int = 1
    operations: int = 150
    """In each episode."""
    patience: float = 30.0
    weights: dict[str, float] = WEIGHTS
    folder: Path = Path()
    """For journals and logs."""


class ChaosFailure(Exception):
    """A violation, with all that is needed to look into it."""


class Hook:
    """The client's fault hook: enters what it hears into the journal of the episode whose mesh it
    is about.
    """

    def __init__(self) -> None:
        self.journals: dict[str, Journal] = {}
        self.strays: list[MeshFailure] = []

    def __call__(self, failure: MeshFailure) -> None:
        journal = self.journals.get(failure.mesh_name.partition("-")[0])
        if journal is None:
            self.strays.append(failure)
            return
        for rank in failure.ranks:
            journal.write(
                Heard(CLIENT, 0, failure.mesh_name, rank, failure.cause, failure.signal, failure.exit_code)
            )  # fmt: skip


class Campaign:
    def __init__(self, options: Options, terminal: IO[str]) -> None:
        self.options = options
        self.tally = Tally()
        self.hook = Hook()
        self._terminal = terminal
        self._up: Snapshot | None = None
        self._down: Snapshot | None = None

    def run(self, first: int, goes_on: Callable[[int], bool]) -> None:
        """Rounds from `first` on, as long as `goes_on` (asked with the number of rounds that are
        done).

        Raises:
            ChaosFailure: The package did what it must not.
        """
        previous, monarch.actor.unhandled_fault_hook = monarch.actor.unhandled_fault_hook, self.hook
        try:
            number = first
            while goes_on(number - first):
                self._round(number)
                number += 1
            shutdown_context().get(timeout=self.options.patience)
        finally:
            faulthandler.cancel_dump_traceback_later()
            monarch.actor.unhandled_fault_hook = previous

    def _round(self, number: int) -> None:
        if self._up is None:
            self._warm_up(number)
        episodes = [self._episode(number, thread) for thread in range(self.options.threads)]
        if len(episodes) == 1:
            self._play(*episodes)
        else:
            self._play_together(episodes)
        self._check_leaks(number, episodes)
        for episode in episodes:
            self._guarded(episode, episode.review)
            self.hook.journals.pop(episode.world.prefix.partition("-")[0])
        if self.hook.strays:
            raise ChaosFailure(
                f"faults that belong to nobody: {[stray.report() for stray in self.hook.strays]}"
            )

    def _episode(self, number: int, thread: int, seed: str | None = None) -> Episode:
        name = f"r{number}t{thread}" if seed is None else f"{seed}{number}"
        journal = self.hook.journals[name] = Journal(str(self.options.folder / f"{name}.journal"))
        seed = seed or f"{self.options.seed}.{number}.{thread}"
        log = self.options.folder / f"{name}.log"
        return Episode(seed, f"{name}-", journal, self.options.patience, self.tally, log)

    def _warm_up(self, number: int) -> None:
        """What the package starts when it is first needed is not leaked by whoever needs it
        first.
        """
        self._watch()
        episode = self._episode(number, 0, "warmup")
        for size in (2, 1):  # a wait for one actor is not a wait for several
            procs = episode.spawn_procs(None, {"n": size})
            actors = episode.spawn_actors(None, View(procs, {}), False, "handles")
            episode.collect(*episode.send(View(actors, {}), "call"))
            for name in ("freeze", "threads", "kill_processes"):
                TABLE[name].run(episode)
        procs = episode.spawn_procs(None, {})
        actors = episode.spawn_actors(None, View(procs, {}), False, "handles", cleanup_raises=True)
        episode.collect(*episode.send(View(actors, {}), "call"))
        stop_all(episode)
        output = self.options.folder / "output"
        wait_until(lambda: output.stat().st_size, what="the traceback of a __cleanup__")
        self._up = take_snapshot()

    def _play(self, episode: Episode) -> None:
        weights = self.options.weights
        names = [name for name in TABLE if weights.get(name, 0) > 0]
        drawn = [weights[name] for name in names]

        def steps() -> None:
            done = 0
            while done < self.options.operations:
                self._watch()
                name = episode.rng.choices(names, drawn)[0]
                with suppress(NotNow):
                    TABLE[name].run(episode)
                    done += 1
                    self.tally.did(name)
                episode.review()
            alone = self.options.threads == 1
            ending = (
                episode.rng.choices(list(_ENDING_WEIGHTS), list(_ENDING_WEIGHTS.values()))[0]
                if alone
                else "stop"
            )
            self._watch()
            ENDINGS[ending](episode)
            episode.ending = ending
            self.tally.ended(ending, sum(len(mesh.procs) for mesh in episode.world.procs))

        self._guarded(episode, steps)

    def _play_together(self, episodes: list[Episode]) -> None:
        errors: list[BaseException] = []

        def play(episode: Episode) -> None:
            try:
                self._play(episode)
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=play, args=(episode,), name=f"chaos-{n}")
            for n, episode in enumerate(episodes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _watch(self) -> None:
        faulthandler.dump_traceback_later(
            _STUCK + 2 * self.options.patience, exit=True, file=self._terminal
        )

    def _guarded(self, episode: Episode, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:
            if isinstance(error, Hang):
                faulthandler.dump_traceback(self._terminal, all_threads=True)
                episode.show_stacks()
                time.sleep(1.0)  # for the stacks to come
            raise ChaosFailure(_report(episode, error)) from error

    def _check_leaks(self, number: int, episodes: list[Episode]) -> None:
        if any(episode.ending != "stop" for episode in episodes):
            self._up = None
            left = self._left_when_down()
        else:
            assert self._up is not None
            left = wait_settled(self._up, timeout=self.options.patience)
        if left:
            raise ChaosFailure(
                "\n".join(
                    [_report(episodes[0], Violation(f"left behind by round {number}:")), *left]
                )
            )

    def _left_when_down(self) -> list[str]:
        """The context is shut down: no process of ours may be there, and what this process holds
        must not grow.
        """
        if self._down is None:
            self._down = take_snapshot()
            return [f"left running: {describe(pid)}" for pid in descendants(os.getpid())]
        return wait_settled(self._down, timeout=self.options.patience)


def _report(episode: Episode, error: Exception) -> str:
    lines = [
        f"{type(error).__name__}: {error}",
        f"seed of the episode: {episode.seed}",
        "the last steps:",
        *episode.log[-60:],
        "what the model says:",
        *episode.describe(),
        f"the journal: {episode.journal.path}",
    ]
    return "\n".join(lines)
