"""Notes each function of the engine that is entered, in every process of a program whose PYTHONPATH
has this folder.

An interpreter imports this by its name before anything else; a forked process has it from its
parent. Nothing is noted until the program sets the byte of `switch`. The byte goes into each note,
so that one program can be followed several times. An event in `awaited` is set when a function of
its name is entered in this process.

Notes go to a file of each process that is mapped into memory: the process may close every
descriptor, and be killed, and what it has noted is still there.
"""

from __future__ import annotations

import itertools
import mmap
import os
import sys
import threading
import time
from types import CodeType, FrameType

FOLDER = os.environ["MONARCH_TEST_FOLLOW"]
ENGINE = os.environ["MONARCH_TEST_ENGINE"] + os.sep
SIZE = 1024  # bytes of a note
NOTES = 10_000


def _shared(name: str, size: int) -> mmap.mmap:
    fd = os.open(os.path.join(FOLDER, name), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(fd, size)
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)


switch = _shared("switch", 1)
awaited: dict[str, threading.Event] = {}
_notes: mmap.mmap | None = None
_numbers = itertools.count()
_places: dict[CodeType, str] = {}


def _place(code: CodeType) -> str:
    """A function of the engine, by its file and first line; nothing for any other.

    (3.10 has no qualified names.)
    """
    place = _places.get(code)
    if place is None:
        name = code.co_filename
        place = f"{name[len(ENGINE) :]}:{code.co_firstlineno}" if name.startswith(ENGINE) else ""
        _places[code] = place
    return place


def _follow(frame: FrameType | None, event: str, argument: object) -> None:
    in_round = switch[0]
    if event != "call" or not in_round or frame is None or not _place(frame.f_code):
        return
    if frame.f_code.co_name in awaited:
        awaited.pop(frame.f_code.co_name).set()
    global _notes, _numbers
    if _notes is None:
        _numbers = itertools.count()
        _notes = _shared(str(os.getpid()), SIZE * NOTES)
    at = time.monotonic_ns()
    # `current_thread` may make one
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
    stack = []
    while frame is not None:
        if _place(frame.f_code):
            stack.append(_place(frame.f_code))
        frame = frame.f_back
    name = "?" if thread is None else thread.name.replace(" ", "_")
    note = f"{in_round} {at} {name} {' '.join(stack)}".encode()
    number = next(_numbers)
    if number < NOTES:
        _notes[number * SIZE : (number + 1) * SIZE] = note[:SIZE].ljust(SIZE)


def _forked() -> None:
    global _notes
    _notes = None


os.register_at_fork(after_in_child=_forked)
threading.setprofile(_follow)
sys.setprofile(_follow)
