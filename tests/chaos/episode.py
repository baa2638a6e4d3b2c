"""One tree, from its first proc to its end: it keeps the model and the real thing in step, and
compares them.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from chaos.calls import ADVERBS, Sent, Violation, plan
from chaos.consequences import Event, Hearing, Key
from chaos.journal import Disorder, Ended, Heard, Journal
from chaos.members import Settings, Stamp, member_class
from chaos.model import ALIVE, CLIENT, DEEPEST, POLICIES, Actors, Instance, Proc, Procs, View, World
from chaos.outcome import HUNG, VALUE, WRONG, Outcome, outcome_of
from chaos.tally import Tally
from helpers.waiting import is_alive
from monarch.actor import this_host

MOST_PROCS = 10
MOST_ACTORS = 30
MOST_IN_FLIGHT = 30


@dataclass
class Held:
    """A call whose answer waits until each rank is told to release it."""

    what: str
    view: View
    future: Any
    gone_at_first: bool
    released: dict[Instance, int] = field(default_factory=dict)


class Episode:
    """Args:
    seed: Everything that is chosen follows from it.
    prefix: Begins the names of its meshes.
    journal: Where its actors write.
    patience: Seconds after which a wait is a violation.
    log_path: A copy of the log.
    """

    def __init__(
        self,
        seed: str,
        prefix: str,
        journal: Journal,
        patience: float,
        tally: Tally,
        log_path: Path,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.world = World(prefix)
        self.journal = journal
        self.patience = patience
        self.tally = tally
        self.log: list[str] = []
        self.ending = ""
        self._log_path = log_path
        self.in_flight: list[tuple[Sent, Any]] = []
        self.held: list[Held] = []
        self.unsettled: list[Event] = []
        self._expected: dict[Key, Hearing] = {}
        self._heard: dict[Key, Heard] = {}
        self._ended: dict[tuple[str, int], Ended] = {}

    def note(self, text: str) -> None:
        line = f"{len(self.log) + 1:5d}  {text}"
        self.log.append(line)
        # so that it is there even if the whole process hangs
        with self._log_path.open("a") as file:
            file.write(line + "\n")

    # choosing

    def any_view(self, mesh: Actors | Procs) -> View:
        """The whole of a mesh, or a slice."""
        select: dict[str, int | slice] = {}
        for label, size in mesh.sizes.items():
            kind = self.rng.choice(("whole", "whole", "index", "range"))
            if kind == "index":
                select[label] = self.rng.randrange(size)
            elif kind == "range":
                start = self.rng.randrange(size)
                select[label] = slice(start, self.rng.randrange(start, size) + 1)
        return View(mesh, select)

    def view_of(self, instance: Instance) -> View:
        point, rest = {}, instance.rank
        for label, size in reversed(instance.mesh.sizes.items()):
            rest, point[label] = divmod(rest, size)
        return View(instance.mesh, dict(point))

    def any_target(self) -> View:
        """Actors to call: now and then ones that are gone. Raises `NotNow` where there are none."""
        gone_too = self.rng.random() < 0.1
        meshes = [mesh for mesh in self.world.actors if gone_too or mesh.state == ALIVE]
        if not meshes:
            raise NotNow
        return self.any_view(self.rng.choice(meshes))

    def any_owner(self) -> Instance | None:
        """Who makes something: the client (None), or an actor that is not too deep in the tree."""
        actors = [instance for instance in self.world.living() if instance.depth < DEEPEST]
        return self.rng.choice(actors) if actors and self.rng.random() < 0.5 else None

    def any_payload(self) -> Any:
        kind = self.rng.choice(("none", "none", "small", "large", "array"))
        if kind == "none":
            return None
        if kind == "array":
            return np.full(25_000, self.rng.random())
        return self.rng.randbytes(200_000 if kind == "large" else 100)

    # waiting

    def wait(self, kind: str, what: str, future: Any) -> Outcome:
        """The end of a future, timed."""
        start = time.monotonic()
        try:
            outcome = Outcome(VALUE, future.get(timeout=self.patience))
        except Exception as error:
            outcome = outcome_of(error)
        self.tally.waited(kind, time.monotonic() - start)
        if outcome.kind == HUNG:
            raise Hang(f"{what}: not done after {self.patience} s: {outcome.value}")
        if outcome.kind == WRONG:
            raise Violation(f"{what}: {outcome.value}")
        return outcome

    def demand(self, kind: str, what: str, future: Any) -> Any:
        """The value of a future that cannot fail."""
        outcome = self.wait(kind, what, future)
        if outcome.kind != VALUE:
            raise Violation(f"{what}: should have worked, but: {outcome.value}")
        return outcome.value

    def wait_until(
        self, kind: str, what: Callable[[], object], condition: Callable[[], bool]
    ) -> None:
        start = time.monotonic()
        while not condition():
            if time.monotonic() - start > self.patience:
                raise Hang(f"waited {self.patience} s for {what()}")
            time.sleep(0.002)
        self.tally.waited(kind, time.monotonic() - start)

    # calling

    def stamp(self, receivers: Sequence[Instance], sender: str = CLIENT) -> Stamp:
        """For a message that is sent now."""
        stamp = Stamp(sender, self.world.numbers(sender, receivers))
        self.world.sent(sender, receivers)
        return stamp

    def send(self, view: View, adverb: str | None = None) -> tuple[Sent, Any]:
        """Call `add` with something; what to judge later, and the future of it."""
        if adverb is None:
            adverb = self.rng.choice(
                [a for a in ADVERBS if a != "call_one" or len(view.ranks) == 1]
            )
        by, payload = self.rng.randint(1, 9), self.any_payload()
        sent = plan(self.world, CLIENT, view, adverb, by, payload, view.mesh.owner is None)
        self.note(sent.what)
        try:
            answer = getattr(view.handle.add, adverb)(*sent.arguments)
        except Exception as error:
            answer = outcome_of(error)
        return sent, list(answer) if adverb == "stream" else answer

    def collect(self, sent: Sent, answer: Any) -> None:
        if isinstance(answer, Outcome):
            outcomes = [answer]
        elif sent.adverb == "broadcast":
            outcomes = [Outcome(VALUE)]
        else:
            futures = answer if isinstance(answer, list) else [answer]
            outcomes = [self.wait(sent.adverb, sent.what, future) for future in futures]
            if sent.adverb == "stream":
                self._check_stream_ranks(sent, futures, outcomes)
        sent.judge(outcomes)

    def _check_stream_ranks(
        self, sent: Sent, futures: Sequence[Any], outcomes: Sequence[Outcome]
    ) -> None:
        ranks = sent.view.ranks
        for future, outcome in zip(futures, outcomes, strict=True):
            if outcome.kind == VALUE and ranks[future.rank.rank] != outcome.value.rank:
                raise Violation(
                    f"{sent.what}: the future says rank {future.rank}, the actor {outcome.value}"
                )

    def collect_all(self) -> None:
        in_flight, self.in_flight = self.in_flight, []
        for sent, answer in in_flight:
            self.collect(sent, answer)

    def collect_held(self) -> None:
        """Calls that nobody will release any more, or that all ranks have released, must be
        done.
        """
        for held in list(self.held):
            instances = held.view.instances
            complete = all(instance in held.released for instance in instances)
            all_live = all(instance.state == ALIVE for instance in instances)
            if all_live and not complete:
                continue
            self.held.remove(held)
            outcome = self.wait("held", held.what, held.future)
            if outcome.kind == VALUE:
                if held.gone_at_first or not complete:
                    raise Violation(f"{held.what}: nobody could answer, but: {outcome}")
                expected = [held.released[instance] for instance in instances]
                if outcome.value.values() != expected:
                    raise Violation(
                        f"{held.what}: {expected} was due, {outcome.value.values()} came"
                    )
            elif all_live:
                raise Violation(f"{held.what}: every rank lives and has answered, but: {outcome}")

    # making

    def spawn_procs(self, owner: Instance | None, sizes: dict[str, int]) -> Procs:
        mesh = self.world.add_procs(owner, sizes)
        self.note(f"{owner or CLIENT}: {mesh.name} = spawn_procs({sizes})")
        if owner is None:
            mesh.handle = this_host().spawn_procs(per_host=sizes, name=mesh.name)
        else:
            call = self.view_of(owner).handle.spawn_procs.call_one(
                self.stamp([owner]), mesh.name, sizes
            )
            mesh.handle = self.demand("spawn", f"{owner}: spawn_procs", call)
        return mesh

    def spawn_actors(
        self,
        owner: Instance | None,
        where: View,
        is_async: bool,
        policy: str,
        cleanup_raises: bool = False,
    ) -> Actors:
        mesh = self.world.add_actors(owner, where, is_async, policy)
        kind = member_class(is_async, policy)
        settings = Settings(self.journal, policy, cleanup_raises, self.patience)
        event = Event()
        event.spawn(mesh)
        self.begin(event)
        self.note(f"{owner or CLIENT}: {mesh.name} = {where}.spawn({kind.__name__}, {policy})")
        if owner is None:
            mesh.handle = where.handle.spawn(mesh.name, kind, settings)
        else:
            handle = self.view_of(owner).handle
            call = handle.spawn.call_one(
                self.stamp([owner]), where.handle, mesh.name, kind, settings
            )
            mesh.handle = self.demand("spawn", f"{owner}: spawn {mesh.name}", call)
        return mesh

    def any_class(self) -> tuple[bool, str, bool]:
        """Arguments of `spawn_actors`."""
        return (
            self.rng.random() < 0.4,
            self.rng.choice((*POLICIES, "handles", "handles")),
            self.rng.random() < 0.1,
        )

    # what ends

    def begin(self, event: Event) -> None:
        """Something will end because of what is done next."""
        event.finish()
        self._expected.update(event.hearings)
        self.unsettled.append(event)

    def settle(self) -> None:
        """Wait until all that must follow from what was done has come about."""
        while self.unsettled:
            event = self.unsettled.pop(0)
            self.wait_until(
                "settle",
                lambda event=event: self._missing(event),  # type: ignore[misc]  # bound now
                lambda event=event: not self._missing(event),  # type: ignore[misc]
            )
            event.settled()

    def _missing(self, event: Event) -> list[str]:
        self.review()
        missing = [
            f"to be heard: {h.key}"
            for h in event.hearings.values()
            if h.certain and h.key not in self._heard
        ]
        for instance in event.ended - event.unseen:
            process_stays = (
                instance.proc not in event.killed and instance.proc not in event.stopped_procs
            )
            if process_stays and (instance.mesh.name, instance.rank) not in self._ended:
                missing.append(f"the end of actor {instance}")
        for proc in (*event.killed, *event.stopped_procs):
            if proc.pid and is_alive(proc.pid):
                missing.append(f"the end of process {proc.pid}, {proc}")
        return missing

    def review(self) -> None:
        """Read what the actors wrote, and compare it with what may have happened."""
        for entry in self.journal.news():
            if isinstance(entry, Heard):
                self._check_heard(entry)
            elif isinstance(entry, Ended):
                self._check_ended(entry)
            elif isinstance(entry, Disorder):
                raise Violation(f"a message came out of turn: {entry}")

    def _check_heard(self, entry: Heard) -> None:
        key = (entry.hearer, entry.hearer_rank, entry.mesh, entry.rank)
        hearing = self._expected.get(key)
        if hearing is None:
            raise Violation(f"nobody should have heard this: {entry}")
        if key in self._heard:
            raise Violation(f"heard twice: {self._heard[key]}, then {entry}")
        self._heard[key] = entry
        if not any(
            death.fits(entry.cause, entry.signal, entry.exit_code) for death in hearing.deaths
        ):
            raise Violation(f"the wrong cause was heard: {entry}; due was one of {hearing.deaths}")

    def _check_ended(self, entry: Ended) -> None:
        key = (entry.name, entry.rank)
        if key in self._ended:
            raise Violation(f"__cleanup__ ran twice: {entry}")
        self._ended[key] = entry
        (mesh,) = (mesh for mesh in self.world.actors if mesh.name == entry.name)
        instance = mesh.instances[entry.rank]
        if instance.state == ALIVE:
            raise Violation(f"{instance} should live, and has ended: {entry}")
        events = [event for event in self.unsettled if instance in event.ended]
        for event in events:
            if entry.failed and instance not in event.failed and instance not in event.lost:
                raise Violation(f"{instance} was stopped, and its __cleanup__ got an error")
            if not entry.failed and instance not in event.stopped:
                raise Violation(f"{instance} failed, and its __cleanup__ got no error")

    def living_pids(self) -> list[int]:
        return [proc.pid for proc in self.world.living_procs() if proc.pid]

    def show_stacks(self) -> None:
        """Let every proc that is known print the stacks of its threads."""
        for pid in self.living_pids():
            try:
                os.kill(pid, signal.SIGUSR1)
            except ProcessLookupError:
                continue

    def describe(self) -> list[str]:
        """The model, for people."""
        lines = []
        for mesh in self.world.procs:
            lines.append(f"{mesh.name} of {mesh.owner or CLIENT}: " + _states(mesh.procs))
        for actors in self.world.actors:
            kind = f"{'async' if actors.is_async else 'sync'}, {actors.policy}"
            lines.append(
                f"{actors.name} ({kind}) of {actors.owner or CLIENT}: " + _states(actors.instances)
            )
        return lines


class NotNow(Exception):
    """An operation has nothing to work on."""


class Hang(Violation):
    """Something did not end within its bound."""


def _states(items: Sequence[Proc] | Sequence[Instance]) -> str:
    return ", ".join(
        f"{item.state} pid {item.pid}" if isinstance(item, Proc) else f"{item.state} on {item.proc}"
        for item in items
    )
