"""The places at which operations were issued: whole stacks, each known by a small number.

An operation may fail long after the program has gone on. So each carries the number of the stack
that issued it, and the text is made only if something fails. A program has few distinct stacks,
however many operations it issues.
"""

from __future__ import annotations

import itertools
import linecache
import os
import sys
import threading
from types import CodeType
from typing import Any, NamedTuple

_DEPTH = 40  # frames, from the innermost
_MOST = 100_000  # stacks; a program that has more must make up code as it runs
# pipelines and actors issue operations, too
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_NOTEBOOK = os.path.join("IPython", "core", "interactiveshell.py")  # what calls the code of a cell

_numbers: dict[tuple[int, ...], int] = {}
_stacks: list[tuple[tuple[CodeType, int], ...]] = []
_lock = threading.Lock()


class SourceLine(NamedTuple):
    """One line of a stack."""

    file: str
    line: int
    function: str

    @property
    def where(self) -> str:
        """The file as its author knows it.

        A cell of a notebook has its number, not the file that stands for it.
        """
        shell = _shell()
        label = shell.compile.format_code_name(self.file) if shell is not None else None
        return label[1] if label is not None else self.file

    def __str__(self) -> str:
        source = linecache.getline(self.file, self.line).strip()
        return f'  File "{self.where}", line {self.line}, in {self.function}\n    {source}'


def _shell() -> Any:
    """The notebook or prompt of IPython that this program is in, if it is in one."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def here() -> int:
    """The number of the present stack."""
    frame = sys._getframe(1)
    key = []
    for _ in range(_DEPTH):
        key.append(id(frame.f_code))
        key.append(frame.f_lasti)
        frame = frame.f_back  # type: ignore[assignment]  # checked in the next line
        if frame is None:
            break
    number = _numbers.get(tuple(key))
    return number if number is not None else _add(tuple(key))


def _add(key: tuple[int, ...]) -> int:
    frame = sys._getframe(2)
    stack = []
    for _ in range(len(key) // 2):
        stack.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back  # type: ignore[assignment]  # as many as there were
    with _lock:
        if len(_stacks) >= _MOST:
            return -1
        _stacks.append(tuple(stack))  # keeps the code, so that no other gets its id
        return _numbers.setdefault(key, len(_stacks) - 1)


def lines(site: int) -> list[SourceLine]:
    """A stack, outermost first, without the frames of this package and those that run a notebook.

    It is empty if it is not known.
    """
    if not 0 <= site < len(_stacks):
        return []
    stack = itertools.takewhile(
        lambda frame: not frame[0].co_filename.endswith(_NOTEBOOK), _stacks[site]
    )
    return [
        SourceLine(code.co_filename, _line(code, instruction), code.co_name)
        for code, instruction in reversed(list(stack))
        if not code.co_filename.startswith(_OURS)
    ]


def _line(code: CodeType, instruction: int) -> int:
    found = code.co_firstlineno
    for start, _, line in code.co_lines():
        if start > instruction:
            break
        found = line or found
    return found


def user_line(site: int) -> SourceLine | None:
    """The innermost line of a stack that is not of torch."""
    theirs = os.path.dirname(str(getattr(sys.modules.get("torch"), "__file__", ""))) + os.sep
    for line in reversed(lines(site)):
        if not line.file.startswith(theirs):
            return line
    return None
