"""Classes of equal stacks, over all ranks of a mesh.

They say which ranks stand where, and which stand elsewhere. Pure.

The frames of threads that only wait for work are left out, those of Monarch are one line, and the
rest is compared frame by frame, down to the line. A class says first what a person looks for: how
many, which ranks, and the innermost function of the program's own code, with what that has called.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from .._namedtuple import NamedTuple
from .model import DEBUGGED, Frame, ProcStacks, ThreadStack

USER, LIBRARY, NATIVE, STANDARD, ENGINE = "user", "library", "native", "standard", "monarch"

_ENGINE = re.compile(
    r"/monarch/(_core|actor|builtins|debugger|job|logs|rdma|spmd|stacks|tensor_engine)/"
)
_STANDARD = re.compile(r"/lib/python3\.\d+/(?!(site|dist)-packages/)")
_LIBRARY = re.compile(r"/(site|dist)-packages/")
_DEBUGGER = "/monarch/debugger/"
_IDLE = "waits for a message"


class ShownFrame(NamedTuple):
    """A frame as it is shown.

    Attributes:
        kind: Origin of its code: the program (`USER`), a package, C, Python, or Monarch; one such
            frame stands for several of Monarch.
    """

    kind: str
    frame: Frame

    @property
    def place(self) -> str:
        """File and line, such as ``train.py:88``."""
        return f"{os.path.basename(self.frame.file)}:{self.frame.line}"


class StackClass(NamedTuple):
    """Threads of a mesh that stand at the same place.

    Attributes:
        mesh: Name of the mesh.
        size: Its ranks.
        ranks: Those that stand here, in order.
        endpoint: What they run, as far as that can be told from the stack.
        headline: Where they stand: ``all_reduce at train.py:88``; or why that is not known.
        waits_for: What one of them waits for, in words.
        lines: The stack, the innermost frame first; empty where there is nothing to show.
        how: How the stacks were had, see `ProcStacks`.
        hosts: Names of their machines.
        pids: Their processes, in the order of `ranks`.
        state: `DEBUGGED` where they are stopped in the debugger, else empty.
    """

    mesh: str
    size: int
    ranks: tuple[int, ...]
    endpoint: str
    headline: str
    waits_for: str
    lines: tuple[ShownFrame, ...]
    how: tuple[str, ...]
    hosts: tuple[str, ...]
    pids: tuple[int, ...]
    state: str = ""


def classes(procs: Iterable[ProcStacks], everything: bool = False) -> list[StackClass]:
    """The classes of each mesh, the largest first: what stands elsewhere than most comes last.

    Args:
        procs: Stacks of the processes.
        everything: Also show threads that wait for work, and each frame of Monarch and of the start
            of a thread.
    """
    found: dict[
        tuple[object, ...], list[tuple[ProcStacks, ThreadStack | None, str, tuple[ShownFrame, ...]]]
    ] = {}
    meshes: dict[str, None] = {}
    for proc in procs:
        meshes.setdefault(proc.mesh)
        shown = 0
        for thread in proc.threads:
            endpoint, lines = _everything(thread) if everything else essence(thread)
            if lines:
                shown += 1
                name = thread.name if everything else ""
                key = (proc.mesh, proc.note, endpoint, name, lines, state_of(thread))
                found.setdefault(key, []).append((proc, thread, endpoint, lines))
        if not shown:
            found.setdefault((proc.mesh, proc.note), []).append((proc, None, "", ()))
    order = list(meshes)
    made = [_class(members) for members in found.values()]
    return sorted(made, key=lambda each: (order.index(each.mesh), -len(each.ranks), each.ranks))


def kind_of(frame: Frame) -> str:
    """Return the owner of a frame's code, by the place of its file."""
    path = frame.file
    if _ENGINE.search(path):
        return ENGINE
    if _LIBRARY.search(path):
        return LIBRARY
    if path.startswith("<frozen") or _STANDARD.search(path):
        return STANDARD
    return USER if path.endswith(".py") or path.startswith("<") else NATIVE


def state_of(thread: ThreadStack) -> str:
    """Return `DEBUGGED` if the thread is stopped in the debugger, also in one of an editor."""
    return DEBUGGED if any(_DEBUGGER in frame.file for frame in thread.frames) else ""


def _class(
    members: Sequence[tuple[ProcStacks, ThreadStack | None, str, tuple[ShownFrame, ...]]],
) -> StackClass:
    proc, thread, endpoint, lines = members[0]
    standing = {
        each.rank: each for each, _, _, _ in sorted(members, key=lambda member: member[0].rank)
    }
    hosts = tuple(sorted({each.host for each in standing.values()}))
    pids = tuple(each.pid for each in standing.values())
    waits_for = next(
        (each.waits_for for _, each, _, _ in members if each is not None and each.waits_for), ""
    )
    how = tuple(sorted({each.how for each, _, _, _ in members if each.how}))
    place = headline(lines) if lines else _IDLE if proc.how else ""
    if proc.note:
        place = f"{proc.note}; {place}" if place else proc.note
    return StackClass(
        proc.mesh, proc.size, tuple(standing), endpoint, place, waits_for, lines, how, hosts, pids,
        state_of(thread) if thread is not None else "",
    )  # fmt: skip


def headline(lines: Sequence[ShownFrame]) -> str:
    """The innermost frame of the program, and what it has called.

    Where the program has none, it is that of a library.
    """
    for kind in (USER, LIBRARY, STANDARD, NATIVE, ENGINE):
        for index, line in enumerate(lines):
            if line.kind == kind:
                called = lines[index - 1].frame.function if index else line.frame.function
                return f"{called} at {line.place}"
    return ""


def _everything(thread: ThreadStack) -> tuple[str, tuple[ShownFrame, ...]]:
    return thread.endpoint, tuple(ShownFrame(kind_of(frame), frame) for frame in thread.frames)


def essence(thread: ThreadStack) -> tuple[str, tuple[ShownFrame, ...]]:
    """The endpoint that a thread runs, if known, and its frames without those of the engine."""
    return _essence(thread.frames, thread.endpoint)


@lru_cache(4096)  # most of ten thousand ranks stand at the same place
def _essence(frames: tuple[Frame, ...], running: str) -> tuple[str, tuple[ShownFrame, ...]]:
    lines = [ShownFrame(kind_of(frame), frame) for frame in frames]
    outer = len(lines)
    # the program of the host agent
    if outer > 1 and frames[-1].file == "<string>" and lines[-2].kind == ENGINE:
        outer -= 1
    while outer and lines[outer - 1].kind in (ENGINE, STANDARD, NATIVE):
        outer -= 1
    runs_endpoint = any(line.kind == ENGINE for line in lines[outer:])
    if not outer and running:  # it reads the arguments of a call, or sends the answer
        outer = 1
    kept: list[ShownFrame] = []
    for line in lines[:outer]:
        if line.kind == ENGINE and kept and kept[-1].kind == ENGINE:
            kept[-1] = line  # the outermost of several: what the program has called
        else:
            kept.append(line)
    endpoint = kept[-1].frame.function if kept and runs_endpoint else ""
    return running or endpoint, tuple(_without_insides(kept))


def _without_insides(lines: list[ShownFrame]) -> list[ShownFrame]:
    """Leave out what Monarch has called."""
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].kind == ENGINE and all(line.kind != USER for line in lines[:index]):
            return lines[index:]
    return lines
