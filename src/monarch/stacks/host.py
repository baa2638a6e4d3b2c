"""The stacks of all processes of a host, collected by its agent, on a thread of its own.

What ends its waits: each process has answered, or ended, or none has for as long as the question
says; then the bounds of `dump`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .._answering import HostAnswers, answer_on_thread
from .._core import plane
from .._namedtuple import NamedTuple
from .._rank_selector import RankSelector
from . import dump
from .capture import Capture, GetStacks
from .kernel import look_at
from .model import CLIENT, HAS_ENDED, ProcStacks, ThreadStack


class GetHostStacks(NamedTuple):
    """Ask for the stacks of a host's processes.

    A client, of the program or beside it ──▶ host agent. Answer: a list of `ProcStacks`, within
    some seconds. An agent that has ended: so have its procs.

    Attributes:
        root: The client that owns the procs, which is included if it is on that host; None for
            everybody's.
        mesh: Name or id of the mesh that is meant; None for all.
        ranks: Ranks of it, as numbers or as an expression for `RankSelector`; None for all.
        native: Look at all by py-spy, with the functions of C libraries.
        patience: Seconds in which a process answers that is not held up: its I/O thread needs the
            GIL for less than a millisecond.
        py_spy: Look by py-spy at those that can't be seen otherwise; it takes a tenth of a second
            each.
        ended: Tell of processes that have failed as well, until their mesh is stopped.
    """

    root: plane.ProcAddress | None = None
    mesh: str | None = None
    ranks: Sequence[int] | str | None = None
    native: bool = False
    patience: float = 0.5
    py_spy: bool = True
    ended: bool = False


@plane.handles(GetHostStacks)
def _get_host_stacks(
    service: plane.ControlService, request: plane.ControlRequest, record: GetHostStacks
) -> None:
    found = HostStacks(service.hub, record, service.describe_host(record.ended))
    answer_on_thread(request, "monarch-stacks", found.collect)


class HostStacks(HostAnswers):
    """One request.

    Args:
        hub: That of the agent.
        record: The request.
        description: What runs there.
    """

    def __init__(
        self, hub: plane.Hub, record: GetHostStacks, description: plane.HostDescription
    ) -> None:
        self._record = record
        self._found: list[ProcStacks] = []
        self._looked_at: list[plane.ProcAddress] = []
        client = description.root
        names = (None, CLIENT, client.mesh)
        if (
            client.is_client
            and record.root in (None, client)
            and record.mesh in names
            and record.ranks in (None, [0])
        ):
            self._look_at(client, CLIENT, 0, 1, description.root_pid, description.machine, {})
        self._failed: list[ProcStacks] = []
        for proc in description.procs:
            if record.root not in (None, proc.root) or record.mesh not in (
                None,
                proc.mesh,
                proc.mesh_id,
            ):
                continue
            if not is_among(record.ranks, proc.rank, proc.coordinates):
                continue
            if proc.end is None:
                self._look_at(
                    proc.address, proc.mesh, proc.rank, proc.size, proc.pid, description.machine,
                    proc.coordinates,
                )  # fmt: skip
            elif not proc.end.is_stop:
                self._failed.append(
                    ProcStacks(
                        proc.mesh, proc.rank, proc.size, 0, description.machine, "",
                        f"{HAS_ENDED}: {proc.end.reason}", (), proc.address,
                        ago=time.monotonic() - proc.end.known if proc.end.known else None,
                    )
                )  # fmt: skip
        super().__init__(hub, self._looked_at)
        # those that run a script, which is looked at in their place
        self._programs: set[int] = set()

    def _look_at(
        self,
        address: plane.ProcAddress,
        mesh: str,
        rank: int,
        size: int,
        pid: int,
        machine: str,
        coordinates: dict[str, int],
    ) -> None:
        self._looked_at.append(address)
        note = "" if pid else "has not started yet"
        self._found.append(
            ProcStacks(mesh, rank, size, pid, machine, "", note, (), address, coordinates)
        )

    def collect(self) -> list[ProcStacks]:
        """The stacks of all that are meant; called once, on a thread that may wait."""
        try:
            if not self._record.native and self._found:
                self.ask(GetStacks())
                self.wait(self._record.patience)
            self._look_from_outside()
            for index, proc in enumerate(self._found):
                self._found[index] = proc._replace(kernel=look_at(proc.pid) if proc.pid else None)
            return self._found + self._failed
        finally:
            # This request stays known as long as a process does not answer: not with what the
            # others have said.
            self._found = [proc._replace(threads=(), mailboxes=()) for proc in self._found]

    def take(self, index: int, frame: Any) -> None:
        if frame.flags in (plane.ERROR, plane.DEAD):
            return
        capture: Capture = plane.pickling.loads(frame.payload, frame.buffers)
        if capture.program:
            self._found[index] = self._found[index]._replace(pid=capture.program)
            self._programs.add(index)
        else:
            self._note(index, "itself", capture.threads)
            self._found[index] = self._found[index]._replace(mailboxes=capture.mailboxes)

    def lost(self, index: int, failure: plane.Failure) -> None:
        self._found[index] = self._found[index]._replace(note=f"{HAS_ENDED}: {failure.reason}")

    def _note(self, index: int, how: str, threads: tuple[ThreadStack, ...], note: str = "") -> None:
        self._found[index] = self._found[index]._replace(how=how, note=note, threads=threads)

    def _look_from_outside(self) -> None:
        """Look at processes that have not answered, and at scripts, from outside."""
        silent = [
            index for index in sorted(self.waiting | self._programs) if self._found[index].pid
        ]
        states = {index: dump.state_of(self._found[index].pid) for index in silent}
        for index, state in states.items():
            self._found[index] = self._found[index]._replace(note=state)
        missing = silent
        if not self._record.native:
            dumps = dump.by_signal(
                [self._found[index].pid for index in silent if not states[index]]
            )
            for index in silent:
                threads = dumps.get(self._found[index].pid)
                if threads is not None and index in self._programs:
                    self._note(index, "itself", threads)
                elif threads is not None and index in self.waiting:
                    # it was only slow, if it has answered since
                    self._note(index, "signal", threads)
            missing = [index for index in silent if not self._found[index].how]
        program = dump.py_spy() if missing and self._record.py_spy else None
        if program is None:
            for index in missing:
                if not states[index]:
                    more = "with py-spy (pip install 'pymonarch[stacks]') there may be more"
                    self._note(index, "", (), f"does not answer; {more}")
            return
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda index: self._by_py_spy(program, index, states[index]), missing))

    def _by_py_spy(self, program: str, index: int, state: str) -> None:
        if state == "has ended":
            return
        try:
            threads = dump.by_py_spy(
                program, self._found[index].pid, self._record.native, "stopped" in state
            )
        except ValueError as error:
            self._note(index, "", (), f"{state or 'does not answer'}; py-spy: {error}")
        else:
            self._note(index, "py-spy", threads, state)


def is_among(ranks: Sequence[int] | str | None, rank: int, coordinates: Mapping[str, int]) -> bool:
    """Return whether a rank is meant; see `GetHostStacks`."""
    if isinstance(ranks, str):
        return RankSelector(ranks).matches(rank, coordinates)
    return ranks is None or rank in ranks


HANDLERS = (_get_host_stacks,)
