"""`Stacks`, the answer of `monarch.stacks`: the stacks of a program's processes, as text and as JSON.

`gather` makes it. The command `monarch stacks` shows it, and `why` looks for the rank that hangs in
it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from .._lazy import shown_by
from .._words import host_named, named, ranges
from .grouping import ENGINE, USER, StackClass, classes
from .model import CLIENT, ProcStacks

HEAD, PROGRAM, PLAIN, TROUBLE = "head", "program", "plain", "trouble"
"""What a line of `Stacks.lines` is: the head of a class, a frame of the program, any other, a host
that did not answer.
"""

_PATHS: dict[tuple[str, ...], str] = {
    ("signal",): "C code holds the GIL",
    ("py-spy",): "seen by py-spy",
}


class Stacks:
    """The stacks of all processes that were asked for. As a text it is the classes of equal ones.

    Attributes:
        procs: Those of each process.
        silent: Hosts that have not answered, and why.
    """

    _repr_html_ = shown_by("stacks")

    def __init__(self, procs: Sequence[ProcStacks], silent: Mapping[str, str]) -> None:
        self.procs = tuple(procs)
        self.silent = dict(silent)

    @cached_property
    def classes(self) -> list[StackClass]:
        """Equal stacks together, the most frequent of each mesh first."""
        return classes(self.procs)

    def lines(self, everything: bool = False) -> Iterator[tuple[str, str]]:
        """Iterate over the lines of the report, each with its kind.

        Args:
            everything: Also threads that wait for work, and all frames of Monarch.
        """
        return ((kind, named(text)) for kind, text in self._lines(everything))

    def _lines(self, everything: bool) -> Iterator[tuple[str, str]]:
        mesh = None
        for each in classes(self.procs, everything=True) if everything else self.classes:
            if each.mesh != mesh:
                mesh = each.mesh
                yield PLAIN, mesh if mesh == CLIENT else f"{mesh} ({_count(each.size)})"
            yield HEAD, f"  {self._who(each)}: {_what(each)}"
            if each.waits_for:
                yield PLAIN, f"      waits for {each.waits_for}"
            for line in each.lines:
                function, file, number = line.frame
                mark, kind = (">", PROGRAM) if line.kind == USER else (" ", PLAIN)
                place = f"{_near(file)}:{number}"
                if line.kind == ENGINE and not everything:
                    place = "(monarch)"
                yield kind, f"    {mark} {function}  {place}"
        for host, reason in self.silent.items():
            yield TROUBLE, f"host {host_named(host)} did not answer: {reason}"
        if not self.procs and not self.silent:
            yield PLAIN, "no process is of this mesh, and these ranks"

    def to_json(self) -> dict[str, Any]:
        """Return the classes as what `json` takes."""
        return {
            "classes": [
                {
                    **each._asdict(),
                    "lines": [{"kind": line.kind, **line.frame._asdict()} for line in each.lines],
                }
                for each in self.classes
            ],
            "silent": self.silent,
        }

    def __str__(self) -> str:
        return "\n".join(text for _, text in self.lines())

    def __repr__(self) -> str:
        return f"<Stacks of {len(self.procs)} processes, {len(self.classes)} classes>"

    def _who(self, each: StackClass) -> str:
        who = "" if each.mesh == CLIENT else f"{_count(len(each.ranks))} [{ranges(each.ranks)}]"
        process = f"process {each.pids[0]}" if len(each.pids) == 1 else ""
        where = f" on {each.hosts[0]}" if len(each.hosts) == 1 and self._several_hosts else ""
        return ", ".join(filter(None, (who, process))) + where

    @cached_property
    def _several_hosts(self) -> bool:
        return len({proc.host for proc in self.procs}) > 1


def _near(file: str) -> str:
    """A path below the working directory is shown without that."""
    here = os.getcwd().rstrip("/") + "/"
    return file.removeprefix(here)


def _what(each: StackClass) -> str:
    begins = each.headline.partition(" at ")[0]
    endpoint = f"{each.endpoint}: " if each.endpoint and each.endpoint != begins else ""
    how = _PATHS.get(each.how)
    return f"{endpoint}{each.headline}{f' ({how})' if how and each.lines else ''}"


def _count(ranks: int) -> str:
    return f"{ranks} rank" if ranks == 1 else f"{ranks} ranks"
