"""Breakpoints that are set from outside, in actors that run.

They are those of pdb: of the process, whichever actor gets there.
"""

from __future__ import annotations

import bdb
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from .._answering import answer_on_thread
from .._core.plane import ControlRequest, actors_of, current_hub
from .._rank_selector import RankSelector
from . import tracing
from .protocol import ClearBreakpoint, ListBreakpoints, SetBreakpoint


def set_breakpoint(request: ControlRequest, record: SetBreakpoint) -> None:
    """Set one, and have all threads traced.

    On a thread of its own: the source may have to come from the client.
    """
    if record.ranks and not selected("", record.ranks):
        request.answer()
        return
    place = record.file, record.line, record.condition
    answer_on_thread(request, "monarch-debugger", _set, *place)


def _set(name: str, line: int, condition: str) -> tuple[str, str]:
    file = find_file(name)
    if condition:
        try:
            compile(condition, "<condition>", "eval")
        except SyntaxError as error:
            return f"the condition {condition!r} is no expression: {error.msg}", file
    problem = tracing.watcher.set_break(file, line, cond=condition or None)
    if problem:
        return problem, file
    known = tracing.watcher.canonic(file)
    for session in list(tracing.sessions.values()):
        lines = session.breaks.setdefault(known, [])
        if line not in lines:
            lines.append(line)
    tracing.trace_all_threads()
    return "", file


def list_breakpoints(request: ControlRequest, record: ListBreakpoints) -> None:
    """List the breakpoints in words."""
    found = [each for several in bdb.Breakpoint.bplist.values() for each in several]
    request.answer(
        [f"{each.file}:{each.line}" + (f" if {each.cond}" if each.cond else "") for each in found]
    )


def selected(name: str, ranks: str) -> list[Any]:
    """The actors of this process that a command means.

    They have that name, or are of the mesh of that name, if one is given, and are of these ranks.
    """
    wanted = RankSelector(ranks) if ranks else None
    return [
        actor
        for actor in actors_of(current_hub())
        if name in ("", actor.instance.name, getattr(actor.instance.proc_mesh, "name", ""))
        and (wanted is None or wanted.matches(actor.instance.rank.rank, actor.instance.rank))
    ]


def clear_breakpoint(request: ControlRequest, record: ClearBreakpoint) -> None:
    """Clear those of a line; a file without breakpoints costs nothing any more."""
    file = tracing.watcher.canonic(find_file(record.file))
    found = list(bdb.Breakpoint.bplist.get((file, record.line), ()))
    for each in found:
        each.deleteMe()
    for debugger in (tracing.watcher, *tracing.sessions.values()):
        lines = debugger.breaks.get(file, [])
        if record.line in lines:
            lines.remove(record.line)
        if not lines:
            debugger.breaks.pop(file, None)
    if not bdb.Breakpoint.bplist:
        threading.settrace(None)
    request.answer(len(found))


def find_file(name: str) -> str:
    """Find the file of loaded code with a path that ends in `name`.

    Where none does, the name is relative to the working directory.
    """
    if os.path.isabs(name):
        return name
    tail = os.sep + name
    return next((file for file in _files() if file.endswith(tail)), os.path.abspath(name))


def _files() -> Iterator[str]:
    """The files of loaded modules, and those of actors with a class that came by value.

    Classes of the client's script do that.
    """
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield file
    for actor in actors_of(current_hub()):
        for each in type(actor.actor).__mro__:
            for attribute in vars(each).values():
                code = getattr(getattr(attribute, "method", attribute), "__code__", None)
                if code is not None:
                    yield os.path.abspath(code.co_filename)
