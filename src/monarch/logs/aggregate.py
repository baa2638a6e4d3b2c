"""Equal lines from many ranks, shown once.

Lines and the time go in, the lines to show come out. No I/O, no clock.

Lines are of one *kind* if they differ in numbers at most, and in who said them. The first line of a
kind is shown at once, the others when the window ends, as one `LogEntry` with the ranks, the count
and the range of each number that differs. A kind that goes on has one entry per window; one that
was silent for a whole window begins anew.

The shown text may be trusted:

* Words are equal, or lines are not of one kind. A number stands alone, with or without a unit
  behind it (``3ms``, ``12:34:56``, ``0x7f3a``); digits behind a letter belong to a word (``fp16``).
* A line that is shown alone comes after all that its rank has said before, which ends the wait of
  that.
* Entries come in the order of their oldest lines.
* Errors and tracebacks are shown alone, at once, each of them.
* Every line is in exactly one entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from .line import LogEntry, LogLine, alone

_MOST_KINDS = 4096  # that are remembered; the next one makes all of them new again
_LONGEST = 4096  # characters; longer lines are shown alone
_MOST_NUMBERS = 32  # in a line; those of longer tables are words
_ERROR_LEVEL = 40

_NUMBERS = r"""(?<!\w)(?:
    (?P<date>\d{4}-\d\d-\d\d(?!\d)(?:[ T]\d\d:\d\d(?!\d)(?::\d\d(?!\d)(?:[.,]\d+)?)?)?)
    |(?P<clock>\d+(?::\d\d)+(?!\d)(?:[.,]\d+)?)
    |(?P<hex>0[xX][0-9a-fA-F]+)
    |(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,64})(?!\w)
    |(?P<dotted>\d+(?:\.\d+){2,})
    |(?P<number>[-+]?(?:(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?)
    |(?<=\|)(?P<bar>[ ▏▎▍▌▋▊▉█]{4,})(?=\|)
    )"""
_ERROR = re.compile(
    r"^[EF]\d{4} |(?:Error|Exception)\b|\b(?:ERROR|CRITICAL|FATAL|error:|fatal:|panic)|Segmentation"
    r" fault|core dumped"
)
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_STYLE = re.compile(r"\x1b\[[0-9;:]*m")

_TRACE, _ERRED = 1, 2  # what the last line of a rank was: within a traceback, or an error

_Value = tuple[object, str]  # to compare by, and as it was written
_Kind = tuple[object, ...]


class Aggregator:
    """The lines of one mesh. Each method returns the lines to show now, in this order.

    Args:
        window: Seconds for which lines are collected.
    """

    def __init__(self, window: float) -> None:
        self.window = window
        self._held: dict[_Kind, _Group] = {}  # in the order of their first lines
        self._known: set[_Kind] = set()  # said in this window, or in the one before
        self._said: set[_Kind] = set()  # said in this window
        self._errors: dict[tuple[int, str], int] = {}  # ranks and streams that are amid an error
        self.due: float | None = None
        """When `expire` has something to do; None for not before the next line."""

    def take(self, line: LogLine, now: float) -> list[LogEntry]:
        """A line has come."""
        shown = self.expire(now)
        text = _STYLE.sub("", line.text) if "\x1b" in line.text else line.text
        if self._is_error(line, text) or len(text) > _LONGEST:
            return [*shown, *self._before(line.rank), alone(line)]
        words, values = parse(text)
        kind = (line.stream, line.level, line.logger, line.location, words)
        if kind not in self._known and len(self._known) >= _MOST_KINDS:
            shown += self.flush()
        if self.due is None:
            self.due = now + self.window
        self._said.add(kind)
        if kind not in self._known:
            self._known.add(kind)
            return [*shown, *self._before(line.rank), alone(line)]
        group = self._held.get(kind)
        if group is None:
            self._held[kind] = _Group(line, words, values)
        else:
            group.add(line, values)
        return shown

    def expire(self, now: float) -> list[LogEntry]:
        """Time has passed."""
        if self.due is None or now < self.due:
            return []
        self._known, self._said = self._said, set()
        self.due = now + self.window if self._known else None
        return self._release(len(self._held))

    def flush(self) -> list[LogEntry]:
        """Show all that is held back; every kind is new again."""
        self._known, self._said, self.due = set(), set(), None
        return self._release(len(self._held))

    def _before(self, rank: int) -> list[LogEntry]:
        """Return the entries that must be shown before a line of this rank."""
        last = max(
            (at for at, group in enumerate(self._held.values(), 1) if rank in group.ranks),
            default=0,
        )
        return self._release(last)

    def _release(self, count: int) -> list[LogEntry]:
        """Take the oldest out."""
        oldest = list(self._held)[:count]
        return [self._held.pop(kind).entry() for kind in oldest]

    def _is_error(self, line: LogLine, text: str) -> bool:
        if line.level:
            return line.level >= _ERROR_LEVEL or _TRACEBACK in text
        of = line.rank, line.stream
        state = self._errors.pop(of, 0)
        if _TRACEBACK in text:
            after = _TRACE
        elif state == _TRACE:  # up to the line that is not indented: the exception
            after = _TRACE if _goes_on(text) else _ERRED
        elif _ERROR.search(text) or (state and _goes_on(text)):
            after = _ERRED
        else:
            return False
        self._errors[of] = after
        return True


def parse(text: str) -> tuple[tuple[str, ...], list[_Value]]:
    """Take words and numbers apart.

    Returns:
        What stands around the numbers, and what kind each of them is, which is equal for lines of
        one kind; the numbers.
    """
    words: list[str] = []
    values: list[_Value] = []
    end = 0
    for match in _numbers().finditer(text):
        start = match.start()
        if text[start - 1 : start].isalnum():  # a letter beyond ASCII
            continue
        assert match.lastgroup is not None
        written = match.group()
        words += (text[end:start], match.lastgroup)
        values.append((_COMPARED[match.lastgroup](written), written))
        end = match.end()
    if len(values) > _MOST_NUMBERS:
        return (text,), []
    words.append(text[end:])
    return tuple(words), values


@cache
def _numbers() -> re.Pattern[str]:
    """Compiled when something is collected.

    It takes as long as to import all that shows lines on a terminal.
    """
    return re.compile(_NUMBERS, re.VERBOSE | re.ASCII)


class _Group:
    """Lines of one kind that wait for the end of the window."""

    __slots__ = ("_high", "_low", "_words", "count", "first", "ranks")

    def __init__(self, first: LogLine, words: tuple[str, ...], values: list[_Value]) -> None:
        self.first = first
        self.count = 1
        self.ranks = {first.rank: first.point}
        self._words = words
        self._low = values
        self._high = values

    def add(self, line: LogLine, values: list[_Value]) -> None:
        self.count += 1
        self.ranks[line.rank] = line.point
        if values != self._low or values != self._high:
            self._low = list(map(min, self._low, values))
            self._high = list(map(max, self._high, values))

    def entry(self) -> LogEntry:
        text = self.first.text if self._low == self._high else "".join(self._pieces())
        return LogEntry(self.first, text, self.count, self.ranks)

    def _pieces(self) -> Iterator[str]:
        kinds = self._words[1::2]
        for before, kind, (_, low), (_, high) in zip(
            self._words[::2], kinds, self._low, self._high, strict=False
        ):
            yield before
            # the range of a bar is its percentage's
            yield low if low == high or kind == "bar" else f"{low}..{high}"
        yield self._words[-1]


def _goes_on(text: str) -> bool:
    return not text or text[0].isspace() or text.startswith(("frame #", "#", *_CHAINED))


def _number(text: str) -> float:
    text = text.replace(",", "")
    return int(text) if text.lstrip("+-").isdigit() else float(text)


_COMPARED: dict[str, Callable[[str], object]] = {
    "date": str,
    "clock": lambda text: tuple(map(float, text.replace(",", ".").split(":"))),
    "hex": lambda text: int(text, 16),
    "id": str,
    "dotted": lambda text: tuple(map(int, text.split("."))),
    "number": _number,
    "bar": lambda text: text.count("█"),
}
