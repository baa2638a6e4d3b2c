"""The verdict, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._lazy import shown_by
from .._namedtuple import NamedTuple
from ..stacks.grouping import ShownFrame
from ..stacks.model import DEBUGGED, Frame
from .steps import Straggler

FINE, SLOW, STUCK, DEGRADED = "fine", "slow", "stuck", "degraded"
EXIT_STATUS = {FINE: 0, SLOW: 3, STUCK: 4, DEGRADED: 5}

RUNS = "runs"
POLLS = "polls"
WAITS = "waits"
COLLECTIVE = "collective"
STANDS = "stands"
HOLDS = "holds the GIL"
FROZEN = "frozen"
MUTE = "does not answer"
ABSENT = "absent"
SILENT = "silent host"
STATES = {
    RUNS: "It has moved between the two looks, or computes.",
    POLLS: "It stands at the same place, and has run a little: it sleeps and looks again.",
    WAITS: "It waits for the answer of actors, for room in a mailbox, or for a value on a port.",
    COLLECTIVE: "It was in a collective in both looks, which ends when all ranks are in it.",
    STANDS: (
        "It has not run at all, and waits for nothing that Monarch knows: a read, a lock, a sleep."
    ),
    HOLDS: "C code holds the GIL, so that no other thread of its process runs Python.",
    FROZEN: "The process is stopped, or in a system call that nothing interrupts.",
    MUTE: "The process does not answer, for an unknown reason.",
    DEBUGGED: "It is stopped in the debugger.",
    ABSENT: "It is idle, while others of its mesh are in a collective.",
    SILENT: "The agent of its host does not answer.",
}
"""What ranks do, by `Standing.state`."""


class Standing(NamedTuple):
    """Ranks of a mesh that do the same.

    Attributes:
        mesh: Name of the mesh, ``name#id`` where several have it; ``"client"`` for the program
            itself.
        size: Ranks of that mesh.
        ranks: Those that are meant, in order.
        hosts: Names of their machines.
        pids: Their processes, in the order of `ranks`.
        point: Where the first of them is on its host, by the dimensions of its mesh: ``gpu 1``;
            empty in a mesh of one dimension.
        endpoint: What they run, as far as that is known.
        place: Where: ``all_reduce (train.py:88)``; empty where it is not known.
        state: One of `STATES`.
        reason: A remark: ``is stopped``, ``a read of pipe:[4711]``, ``waits for trainer.step()``.
        seconds: For how long: they wait, or others wait for those who are to blame; None if that is
            not known.
        blamed: Whether they hold up others, and none holds up them.
        lines: The stack, the innermost frame first.
    """

    mesh: str
    size: int
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    pids: tuple[int, ...]
    point: str
    endpoint: str
    place: str
    state: str
    reason: str
    seconds: float | None
    blamed: bool
    lines: tuple[ShownFrame, ...]


@dataclass(frozen=True)
class Verdict:
    """Why a program does not go on, or that it does.

    Attributes:
        status: `FINE`, `SLOW`, `STUCK`, or `DEGRADED`: it goes on without ranks that have failed.
        sentence: It, in one sentence.
        seconds: For how long it is stuck or slow, as far as others have waited; None if that is not
            known.
        classes: What all ranks do, equal ones together: the largest class of each mesh first.
        waits: Waits: positions in `classes`, of the waiting one and of the awaited one.
        circles: Actors that wait for each other, each as a chain of names.
        failures: Processes that have ended other than by being stopped.
        full: Mailboxes that take no more.
        frozen: Processes that are stopped, or in a system call that nothing interrupts.
        swapping: Processes that wait for pages from a disk.
        silent: Hosts that have not answered, and why.
        stragglers: Ranks with steps that take longer than the others', the slowest first.
    """

    status: str
    sentence: str
    seconds: float | None = None
    classes: tuple[Standing, ...] = ()
    waits: tuple[tuple[int, int], ...] = ()
    circles: tuple[tuple[str, ...], ...] = ()
    failures: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    swapping: tuple[str, ...] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    stragglers: tuple[Straggler, ...] = ()

    _repr_html_ = shown_by("verdict")

    @property
    def exit_status(self) -> int:
        """The exit status of ``monarch why``: 0 if fine, 3 if slow, 4 if stuck, 5 if degraded."""
        return EXIT_STATUS[self.status]

    @property
    def blamed(self) -> tuple[Standing, ...]:
        """The classes that hold up the others."""
        return tuple(each for each in self.classes if each.blamed)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Verdict:
        """Return the verdict of which `to_json` has told."""
        made: dict[str, Callable[[Any], Any]] = {
            "classes": _standing, "waits": lambda wait: tuple(wait.values()), "circles": tuple,
            "stragglers": lambda late: Straggler(**late),
        }  # fmt: skip
        found: dict[str, Any] = {
            name: tuple(map(made.get(name, str), of)) if isinstance(of, list) else of
            for name, of in told.items()
        }
        return cls(**found)

    def to_json(self) -> dict[str, Any]:
        """Return it as what `json` takes."""
        classes = [
            {
                **each._asdict(),
                "lines": [{"kind": line.kind, **line.frame._asdict()} for line in each.lines],
            }
            for each in self.classes
        ]
        waits = [{"waits": waiting, "for": awaited} for waiting, awaited in self.waits]
        late = [each._asdict() for each in self.stragglers]
        own = {"silent": dict(self.silent), "classes": classes, "waits": waits, "stragglers": late}
        return vars(self) | own

    def __str__(self) -> str:
        return self.sentence


def _standing(told: Mapping[str, Any]) -> Standing:
    lists = {name: tuple(told[name]) for name in ("ranks", "hosts", "pids")}
    lines = tuple(
        ShownFrame(line["kind"], Frame(line["function"], line["file"], line["line"]))
        for line in told["lines"]
    )
    return Standing(**{**told, **lists, "lines": lines})
