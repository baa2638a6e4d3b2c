"""`torchrun`'s place: a script on every rank of some hosts, started again when a rank fails.

There is no rendezvous. One actor, the launcher, starts all ranks, so it knows them; each start has
a store of its own, which listens before the first rank does, on the loopback interface: from other
hosts, ranks reach it over the links of the program. What ends the launcher's wait for a
rank: the end of the script, of the rank's process, or of its host. When one has failed, the others
get SIGTERM, and SIGKILL after `shutdown_timeout`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple

from .. import actor
from .._forwarding import relay
from .._words import tame
from ..config import configured
from .options import ENDING, Options
from .rank import Attempt, Exit, HostProbe, RankProcess

_LOOK = 1.0  # seconds between two looks, at least
_LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)

logger = logging.getLogger("monarch.spmd")


class Outcome(NamedTuple):
    """How a run has ended.

    Attributes:
        exits: How each rank of the last start has ended, in the order in which they did.
        restarts: How often ranks were started again.
        signal: The signal to the launcher that has ended it; 0 for none.
    """

    exits: tuple[Exit, ...]
    restarts: int = 0
    signal: int = 0

    @property
    def failures(self) -> list[Exit]:
        """The ranks that failed, the first failure first.

        Ranks that were stopped because of it come behind.
        """
        failed = [each for each in self.exits if each.status]
        return sorted(failed, key=lambda each: (each.status == -signal.SIGTERM, each.time))

    @property
    def status(self) -> int:
        """Exit status of the whole: 0; 1 if a rank has failed, as with `torchrun`.

        It is 128 + the signal that has ended it.
        """
        if self.signal:
            return 128 + self.signal
        return 1 if self.failures else 0


class Launcher(actor.Actor):
    """The launcher of ranks.

    Args:
        hosts: Where ranks run.
        options: What runs.
    """

    def __init__(self, hosts: actor.HostMesh, options: Options) -> None:
        self._hosts = hosts
        self._options = options
        self._folder = os.getcwd()
        self._ranks: Any = None
        self._procs: Any = None
        self._signal = 0
        self._lost: set[int] = set()
        self._used: list[int] = []
        # a name that is secret until the file is there
        self._files = f"monarch_run_{secrets.token_hex(8)}"

    def __supervise__(self, failure: actor.MeshFailure) -> bool:
        return True  # the waits for the rank end with this error as well

    @actor.concurrent_endpoint
    async def run(self) -> Outcome:
        """Run the script, with restarts.

        Raises:
            ValueError: There are too few hosts, or not what `procs` asks for.
        """
        options = self._options
        filters = options.stdout_filters, options.stderr_filters
        if options.log_dir is None and any((*options.redirects, *options.tee, *filters)):
            folder = os.path.join(tempfile.gettempdir(), self._files)
            print(f"monarch run: files of output are in {folder}, on each host", file=sys.stderr)
        for number in itertools.count():
            outcome = Outcome(
                tuple(await self._attempt(self._usable_hosts(), number)), number, self._signal
            )
            if not outcome.failures or self._signal or number == self._options.max_restarts:
                return outcome
            first = outcome.failures[0]
            if len(self._left()) < self._nodes()[0]:
                return outcome
            text = "rank %d on %s %s; starting all ranks again (restart %d of %d)"
            who, most = (first.rank, first.host, describe(first.status)), self._options.max_restarts
            logger.info(text, *who, number + 1, most)
        raise AssertionError

    @actor.endpoint
    async def end(self, number: int) -> None:
        """End the ranks.

        Args:
            number: The signal that asks for it; `Outcome.signal` says so. Ranks get SIGTERM, or
                another signal that the user has named.
        """
        self._signal = number
        if self._ranks is not None:
            if number == signal.SIGQUIT:  # who sends this wants to know
                await self._show_stacks("before they end, by SIGQUIT")
            _end(self._ranks, (), signal.SIGTERM if number in ENDING else number)

    def _usable_hosts(self) -> actor.HostMesh:
        fewest, most = self._nodes()
        left = self._left()
        if len(left) < fewest:
            raise ValueError(f"--nnodes asks for {fewest} hosts, and there are {len(left)}")
        self._used = left[:most]
        return self._hosts.flatten("hosts").select(self._used) if self._hosts.sizes else self._hosts

    def _nodes(self) -> tuple[int, int]:
        return self._options.nodes or (len(self._hosts), len(self._hosts))

    def _left(self) -> list[int]:
        """The hosts that are not lost, by number."""
        return [number for number in range(len(self._hosts)) if number not in self._lost]

    async def _attempt(self, hosts: actor.HostMesh, number: int) -> list[Exit]:
        size = await self._ranks_per_host(hosts)
        procs = hosts.spawn_procs({"local": size}, name="rank")
        try:
            ranks: Any = procs.spawn("rank", RankProcess, self._options, self._folder)
            first = ranks.slice(**dict.fromkeys(procs.extent.labels, 0))
            store = await first.open_store.call_one(procs._procs.hosts)
            attempt = Attempt(number, self._files, *store)
            if attempt.has_store and attempt.address != "localhost":
                attempt = attempt._replace(ways=await _ways(procs, attempt.port, len(hosts)))
            self._ranks, self._procs = ranks, procs
            watch = (
                asyncio.ensure_future(self._watch(ranks)) if self._options.hang_timeout else None
            )
            try:
                return [] if self._signal else await self._wait(ranks, attempt)
            finally:
                if watch is not None:
                    watch.cancel()
        finally:
            self._ranks = None
            await procs.stop("the script has ended")

    async def _wait(self, ranks: Any, attempt: Attempt) -> list[Exit]:
        exits: list[Exit] = []
        async for future in ranks.run.stream(attempt):
            try:
                exits.append(await future)
            except actor.SupervisionError as error:
                exits.append(self._gone(future.rank, error))
            failures = [each for each in exits if each.status]
            if len(failures) == 1 and exits[-1].status:
                _end(ranks, {each.rank for each in exits})
        return exits

    async def _watch(self, ranks: Any) -> None:
        """Show the stacks of all ranks, once each time that they have fallen silent."""
        limit, shown = self._options.hang_timeout, False
        while True:
            quiet = limit
            with suppress(actor.SupervisionError):  # one of them is gone, which `_wait` sees
                quiet = min((await ranks.quiet.call()).values())
            if quiet < limit:
                shown = False
            elif not shown:
                shown = True
                await self._show_stacks(f"no rank has printed or ended for {limit:g} s")
            await asyncio.sleep(max(_LOOK, limit - quiet))

    async def _show_stacks(self, why: str) -> None:
        # this host itself may be in trouble, which is told otherwise
        with suppress(actor.SupervisionError):
            stacks = await self._procs.stacks()
            print(f"monarch run: stacks of all ranks, {why}\n{stacks}", file=sys.stderr, flush=True)

    def _gone(self, point: actor.Point, error: actor.SupervisionError) -> Exit:
        """The end of a rank that has lost its process or host."""
        local = point.extent.sizes[-1]
        host = self._used[point.rank // local]
        event = getattr(error.failure, "event", None)
        if event is not None and event.cause == "host":
            self._lost.add(host)
        return Exit(
            point.rank, point.rank % local, f"host {host}", 0, -signal.SIGKILL, time.time(),
            str(error),
        )  # fmt: skip

    async def _ranks_per_host(self, hosts: actor.HostMesh) -> int:
        wanted = self._options.procs
        if isinstance(wanted, int):
            return wanted
        procs = hosts.spawn_procs(name="probe")
        try:
            found = await procs.spawn("probe", HostProbe).ranks.call(wanted)
        finally:
            await procs.stop("the hosts have answered")
        if len(set(found.values())) > 1:
            raise ValueError(
                f"--nproc-per-node {wanted}: hosts differ, they have {sorted(set(found.values()))};"
                " give a number"
            )
        return found.values()[0]


async def _ways(procs: actor.ProcMesh, port: int, hosts: int) -> tuple[int, ...]:
    """Have a port of each other host lead to one of the first; return those of all."""
    if hosts == 1:
        return (port,)
    by_host, _ = procs.extent.labels
    others = procs.slice(local=0, **{by_host: slice(1, None)})
    first = procs.slice(local=0, **{by_host: 0})
    return port, *await relay(first, port, others)


def _end(ranks: Any, ended: Collection[int], number: int = signal.SIGTERM) -> None:
    """End the remaining ranks, one by one.

    A message to a whole mesh is not sent where one rank is gone.
    """
    for rank in set(range(len(ranks))).difference(ended):
        with suppress(actor.SupervisionError):
            ranks.slice(**actor.Point(rank, ranks.extent)).end.broadcast(number)


def launch(hosts: actor.HostMesh, options: Options) -> Outcome:
    """Run a script on every rank of some hosts, in the place of `torchrun`.

    The signals of `options.signals` end the ranks meanwhile, where this is called by the main
    thread.

    Args:
        hosts: Where ranks run.
        options: What runs, and how.

    Raises:
        ValueError: There are too few hosts, or not what `options.procs` asks for.
    """
    launcher: Any = actor.this_proc().spawn("launcher", Launcher, hosts, options)
    before: dict[int, Any] = {}
    # ranks put another head before their lines
    prefix = configured(prefix_with_rank=False) if options.line_prefix else nullcontext()
    with configured(proc_sessions=True), prefix:
        running = launcher.run.call_one()
        try:
            if threading.current_thread() is threading.main_thread():
                for number in options.signals:
                    before[number] = signal.signal(
                        number, lambda number, _: launcher.end.broadcast(number)
                    )
            outcome: Outcome = running.get()
            return outcome
        except actor.ActorError as error:
            # it is about the arguments: no trace of the launcher is of use
            raise error.exception from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            launcher.stop("the script has ended").get()


def describe(status: int) -> str:
    """Say how a script ended, in words that follow its rank."""
    if status >= 0:
        return f"failed with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def explain(outcome: Outcome, options: Options) -> str:
    """Describe all failed ranks in several lines.

    The whole error of the first one is last.
    """
    if not outcome.failures:
        return ""
    first, *others = outcome.failures
    stopped = [each for each in others if each.status in (-signal.SIGTERM, -signal.SIGKILL)]
    lines = [f"{options.script} failed on rank {first.rank} first"]
    lines += [f"  {_row(each)}" for each in others if each not in stopped]
    if stopped:
        count = "1 other rank was" if len(stopped) == 1 else f"{len(stopped)} other ranks were"
        lines.append(f"  {count} stopped then")
    lines.append(_row(first))
    if first.error.strip():
        lines += [f"  {line}" for line in traceback_of(first.error).splitlines()]
    return tame("\n".join(lines), True)  # the error is in the words of the script


def traceback_of(text: str) -> str:
    """Return the last traceback of a text, with those that led to it.

    Where it has none, its last lines.
    """
    lines = text.rstrip().splitlines()
    starts = [
        number
        for number, line in enumerate(lines)
        if line.startswith("Traceback (most recent call last)")
    ]
    if not starts:
        return "\n".join(lines[-20:])
    start = starts.pop()
    while starts and any(lines[between].strip() in _LINKS for between in range(starts[-1], start)):
        start = starts.pop()
    return "\n".join(lines[start:])


def _row(each: Exit) -> str:
    when = time.strftime("%H:%M:%S", time.localtime(each.time))
    return (
        f"rank {each.rank} (local rank {each.local_rank} on {each.host}, process {each.pid})"
        f" {describe(each.status)} at {when}"
    )
