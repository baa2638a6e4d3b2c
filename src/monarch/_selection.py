"""Expressions that name ranks of any mesh: checked, kept, and compared.

Meshes themselves are sliced with `slice`.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\s*(?:(?P<dim>\*|\?|\d*:\d*(?::\d+)?|\d+)|(?P<sign>[(),&|]))")


class Selection:
    """A set of ranks, by one term per dimension, outermost first: ``(*, 0:4)``.

    A term is ``*`` for all, ``?`` for any one, an index, or a range ``start:stop:step``. Selections
    are joined with ``&`` and ``|``. Made by `from_string`, `all` and `any`.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @staticmethod
    def from_string(text: str) -> Selection:
        """Read an expression.

        Args:
            text: The expression.

        Returns:
            The selection.

        Raises:
            ValueError: It is none; the message says where.
        """
        return Selection(_Reader(text).read())

    @staticmethod
    def all() -> Selection:
        """Select every rank."""
        return Selection("*")

    @staticmethod
    def any() -> Selection:
        """Any one rank."""
        return Selection("?")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selection) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Selection.from_string({self._text!r})"


class _Reader:
    """A parser of selections, which writes each in one way.

    Its grammar: ``union := part ('|' part)*``, ``part := row ('&' row)*``, ``row := item (','
    item)*``, ``item := dim | '(' union ')'``.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def read(self) -> str:
        found = self._joined("|&,")
        if self._rest():
            raise self._error()
        return found

    def _joined(self, signs: str) -> str:
        if not signs:
            return self._item()
        parts = [self._joined(signs[1:])]
        while self._take(signs[0]):
            parts.append(self._joined(signs[1:]))
        return (", " if signs[0] == "," else f" {signs[0]} ").join(parts)

    def _item(self) -> str:
        if self._take("("):
            inner = self._joined("|&,")
            if not self._take(")"):
                raise self._error()
            return f"({inner})"
        match = _TOKEN.match(self._text, self._position)
        if match is None or match["dim"] is None:
            raise self._error()
        self._position = match.end()
        return match["dim"]

    def _take(self, sign: str) -> bool:
        match = _TOKEN.match(self._text, self._position)
        if match is None or match["sign"] != sign:
            return False
        self._position = match.end()
        return True

    def _rest(self) -> str:
        return self._text[self._position :].strip()

    def _error(self) -> ValueError:
        return ValueError(
            f"{self._text!r} is no selection of ranks: expected something like '(*, 0:4)', "
            f"and found {self._rest()[:20] or 'its end'!r} at position {self._position}"
        )
