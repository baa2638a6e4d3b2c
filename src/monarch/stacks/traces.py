"""Stacks as `faulthandler` and py-spy write them, read. Pure: text in, stacks out."""

from __future__ import annotations

import json
import re
from typing import Any

from .model import Frame, ThreadStack

_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+(?: \[(?P<name>[^\]]*)\])? .*")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)')


def parse_faulthandler(text: str) -> tuple[ThreadStack, ...]:
    """Return the threads of a dump; other lines are skipped."""
    threads: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        thread = _THREAD.fullmatch(line)
        frame = _FRAME.fullmatch(line)
        if thread:
            threads.append((thread["name"] or "", []))
        elif frame and threads:
            number = int(frame["line"]) if frame["line"].isdigit() else 0
            threads[-1][1].append(Frame(frame["function"], frame["file"], number))
    return tuple(ThreadStack(name, tuple(frames)) for name, frames in threads)


def _function(frame: dict[str, Any]) -> str:
    """The name as Python's own stacks have it: without the class around it."""
    name = str(frame["name"])
    return name.rpartition(".")[2] if frame["filename"].endswith(".py") else name


def _frame(frame: dict[str, Any]) -> Frame:
    return Frame(_function(frame), frame["filename"], int(frame["line"] or 0))


def parse_py_spy(text: str) -> tuple[ThreadStack, ...]:
    """The threads that ``py-spy dump --json`` has found.

    Raises:
        ValueError: It is not such a text.
    """
    try:
        return tuple(
            ThreadStack(str(thread["thread_name"] or ""), tuple(map(_frame, thread["frames"])))
            for thread in json.loads(text)
        )
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"py-spy has another format than expected: {error!r}") from error
