"""Bytes that a proc prints in, whole lines out, each with its author. No I/O, no clock.

Lines that the proc itself prints come with a head in front, see `hub/prints`; those of its child
processes and C libraries come without. A chunk of lines with the same head, or none, costs nothing
per line.
"""

from __future__ import annotations

import codecs

from ..hub.prints import BEGIN, END, NEWLINE, NO_AUTHOR, Note, read_note
from .output import Run

LONGEST = 16 << 20
"""Bytes. A line longer than this is passed on in pieces."""

_BAR = 64 << 10  # bytes after which what a progress bar has shown before is forgotten
_CONTINUED = "[continued] "


class LineSplitter:
    """One stream of one proc.

    Attributes:
        alone: Whether nothing else prints where it is shown: a progress bar is shown as it goes,
            and a prompt at once.
    """

    __slots__ = ("_continues", "_rest", "_shown", "alone")

    def __init__(self) -> None:
        self.alone = True
        self._rest = bytearray()
        self._shown = 0  # bytes of it that were given as a prompt
        self._continues = False  # it goes on with a line that was too long

    def feed(self, data: bytes) -> tuple[list[Run], list[Run]]:
        """Take a chunk that was read.

        Returns:
            The lines that are whole now, of a progress bar the last state; and the parts of them to
            be shown: those not shown as a prompt before.
        """
        last = data.rfind(b"\n")
        if last < 0:
            self._rest += data
            return self._bound()
        whole = bytes(self._rest) + data[:last] if self._rest else data[:last]
        shown = self._shown
        self._rest, self._shown = bytearray(data[last + 1 :]), 0
        return self._lines(whole, shown)

    @property
    def waiting(self) -> bool:
        """True if there is a prompt to be shown."""
        return self.alone and len(self._rest) > self._shown

    def prompt(self) -> list[Run]:
        """Return the text printed without a newline, to be shown now.

        It stays until the line is whole.
        """
        rest = self._rest
        end = rest.rfind(BEGIN, self._shown)  # a head of which only half has come is not shown
        if end < 0 or rest.find(END, end) >= 0:
            end = len(rest) - rest.endswith(BEGIN[:1])
        _, used = codecs.utf_8_decode(rest[self._shown : end], "replace", False)
        if not used:
            return []
        begun, self._shown = self._shown, self._shown + used
        return _runs(bytes(self._rest[begun : self._shown]))

    def finish(self) -> tuple[list[Run], list[Run]]:
        """As `feed`, with a last line without a newline, at the end of the stream."""
        rest, shown = bytes(self._rest), self._shown
        self._rest, self._shown = bytearray(), 0
        return self._lines(rest, shown) if rest else ([], [])

    def _lines(self, whole: bytes, shown: int) -> tuple[list[Run], list[Run]]:
        runs = _runs(whole)
        if self._continues:
            self._continues = False
            runs[0] = runs[0][0], _CONTINUED + runs[0][1]
        settled = _settled(runs) if b"\r" in whole else runs
        if shown:
            return settled, _runs(whole[shown:])
        return settled, runs if self.alone else settled

    def _bound(self) -> tuple[list[Run], list[Run]]:
        rest = self._rest
        if len(rest) > _BAR and (bar := rest.rfind(b"\r", 0, -1)) >= 0:
            head = rest[: rest.find(END, 0, bar) + 1] if rest.startswith(BEGIN) else b""
            self._shown = max(len(head), self._shown - bar + len(head)) if self._shown else 0
            rest[:bar] = head
        if len(rest) <= LONGEST:
            return [], []
        # up to a character that is not complete
        _, used = codecs.utf_8_decode(rest, "replace", False)
        piece, shown = bytes(rest[:used]), self._shown
        self._rest, self._shown = rest[used:], 0
        lines = self._lines(piece, shown)
        self._continues = True
        return lines


def _runs(whole: bytes) -> list[Run]:
    if BEGIN not in whole:
        return [(NO_AUTHOR, _text(whole))]
    if whole.startswith(BEGIN):
        head = whole[: whole.find(END) + 1]
        note = read_note(head)
        if head and not note.logger:
            rest = whole[len(head) :]
            text = rest.replace(b"\n" + head, b"\n")
            if BEGIN not in text and len(text) + text.count(b"\n") * len(head) == len(rest):
                return [(note, _text(text))]  # each line begins with the same head
    runs: list[tuple[Note, list[str]]] = []
    for line in whole.split(b"\n"):
        # more than one where another author began before the line ended
        first, *others = line.split(BEGIN)
        if first or not others:
            _add(runs, NO_AUTHOR, _text(first))
        for part in others:
            head, end_, text = part.partition(END)
            if end_:
                note = read_note(BEGIN + head + END)
                _add(runs, note, _text(text.replace(NEWLINE, b"\n") if note.logger else text))
            else:
                _add(runs, NO_AUTHOR, _text(BEGIN + part))
    return [(note, "\n".join(texts)) for note, texts in runs]


def _add(runs: list[tuple[Note, list[str]]], note: Note, text: str) -> None:
    if runs and runs[-1][0] == note and not note.logger:
        runs[-1][1].append(text)
    else:
        runs.append((note, [text]))


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _settled(runs: list[Run]) -> list[Run]:
    """The final state of a progress bar, which rewrites its line."""
    return [(note, "\n".join(map(_last_state, text.split("\n")))) for note, text in runs]


def _last_state(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]
