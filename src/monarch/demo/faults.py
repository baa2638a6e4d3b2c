"""The faults of the simulated training.

Each says where the odd rank stands, and where all others do meanwhile. They are in `faults.json`:
a frame is its function and its place, ``*get`` the stack of that name, ``late`` the line of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._namedtuple import NamedTuple
from ..stacks.model import Frame

Frames = tuple[Frame, ...]

Line = tuple[float, str, str, str, str]
"""Seconds after the fault has begun; of `"odd"`, `"others"` or `"first"`; the level, or stdout, or
stderr; where; what.
"""

_DATA = json.loads(Path(__file__).with_name("faults.json").read_text("utf-8"))
_PLACES = {"$SITE": "/opt/venv/lib/python3.12/site-packages", "$RUN": "/home/me/run"}


def _frames(texts: Sequence[str]) -> Iterator[Frame]:
    for text in texts:
        if text.startswith("*"):
            yield from _frames(_DATA["stacks"][text[1:]])
        else:
            function, _, place = text.partition(" ")
            file, _, line = place.rpartition(":")
            root, _, rest = file.partition("/")
            yield Frame(function, f"{_PLACES.get(root, root)}/{rest}", int(line))


STACKS: Mapping[str, Frames] = {
    name: tuple(_frames(texts)) for name, texts in _DATA["stacks"].items()
}
STAGES: Sequence[tuple[float, Frames]] = [(until, STACKS[name]) for until, name in _DATA["stages"]]
"""What a rank does in a step, and until which part of it."""


class Fault(NamedTuple):
    """Something that is wrong.

    Attributes:
        about: For people.
        odd: Where the odd rank stands; empty if it is nowhere, or as the others are.
        inside: In which system call.
        others: Where the other ranks stand.
        speed: Of the training while it lasts; 0 if it hangs.
        odd_speed: Of the odd rank, where it does not wait for the others.
        kernel: The state of the odd process, as the kernel names it.
        age: Seconds for which it lasts already when the simulation begins.
        wants: Ranks that it takes.
        lines: Its lines in the logs.
    """

    about: str
    odd: Frames = ()
    inside: str = ""
    others: Frames = STACKS["all_reduce"]
    speed: float = 0.0
    odd_speed: float | None = None
    kernel: str = "S"
    age: float = 43.0
    wants: int = 2
    lines: tuple[Line, ...] = ()


def _fault(fields: dict[str, Any]) -> Fault:
    stacks = {each: STACKS[fields[each]] for each in fields if each in ("odd", "others")}
    lines = (_DATA["late"] if line == "late" else line for line in fields.get("lines", ()))
    given: dict[str, Any] = {**fields, **stacks, "lines": tuple(tuple(line) for line in lines)}
    return Fault(**given)


FAULTS: Mapping[str, Fault] = {name: _fault(each) for name, each in _DATA["faults"].items()}
"""By name."""
