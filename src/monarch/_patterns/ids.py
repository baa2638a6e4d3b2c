"""Identities that programs can make and compare: `Uid` and `ProcId`."""

from __future__ import annotations

import os
from typing import Any

_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"  # base 58: no 0, O, I or l


class Uid:
    """A unique id with an optional label; `str` gives ``label<vWDatA6Ui4X>``.

    Immutable, hashable, comparable.

    A *singleton* has only a label, an *instance* a 64-bit value.
    """

    __slots__ = ("_label", "_value")

    def __init__(self, label: str | None, value: int | None) -> None:
        if label is None and value is None:
            raise ValueError("a Uid has a label, a value, or both")
        self._label = label
        self._value = value

    @staticmethod
    def anonymous() -> Uid:
        """A new instance without a label."""
        return Uid.instance()

    @staticmethod
    def instance(label: str | None = None) -> Uid:
        """Return a new instance, with random value.

        Args:
            label: A name for people.
        """
        return Uid(label, int.from_bytes(os.urandom(8), "big"))

    @staticmethod
    def instance_from_value(value: int, label: str | None = None) -> Uid:
        """Return the instance with that value.

        Args:
            value: A number of 64 bits.
            label: A name for people.

        Raises:
            OverflowError: `value` does not fit 64 bits.
        """
        if not 0 <= value < 2**64:
            raise OverflowError(f"the value of a Uid is an unsigned 64-bit integer, got {value}")
        return Uid(label, value)

    @staticmethod
    def from_string(text: str) -> Uid:
        """The id that `str` wrote.

        Args:
            text: What `str` wrote.

        Raises:
            ValueError: It did not write that.
        """
        label, bracket, rest = text.rpartition("<")
        if not bracket:
            return Uid(text, None) if text else _bad(text)
        if (
            not rest.endswith(">")
            or len(rest) < 2
            or any(char not in _DIGITS for char in rest[:-1])
        ):
            return _bad(text)
        value = 0
        for char in rest[:-1]:
            value = value * 58 + _DIGITS.index(char)
        return Uid(label or None, value) if value < 2**64 else _bad(text)

    @property
    def label(self) -> str | None:
        return self._label

    @property
    def is_instance(self) -> bool:
        return self._value is not None

    @property
    def is_singleton(self) -> bool:
        return self._value is None

    @property
    def instance_value(self) -> int | None:
        return self._value

    def _key(self) -> tuple[str, int]:
        # the label of an instance is only for people
        return ("", self._value) if self._value is not None else (self._label or "", -1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uid) and self._key() == other._key()

    def __lt__(self, other: Uid) -> bool:
        return self._key() < other._key() if isinstance(other, Uid) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        if self._value is None:
            return self._label or ""
        digits, value = "", self._value
        while value or not digits:
            value, digit = divmod(value, 58)
            digits = _DIGITS[digit] + digits
        return f"{self._label or ''}<{digits}>"

    def __repr__(self) -> str:
        return f"Uid({str(self)!r})"

    def __reduce__(self) -> Any:
        return Uid, (self._label, self._value)


def _bad(text: str) -> Uid:
    raise ValueError(f"not a Uid: {text!r}; expected a label, or label<digits of base 58>")


class ProcId:
    """Identity of a proc."""

    __slots__ = ("uid",)

    def __init__(self, uid: Uid) -> None:
        if not isinstance(uid, Uid):
            raise TypeError(f"ProcId takes a Uid, got {uid!r}")
        self.uid = uid

    @staticmethod
    def from_string(text: str) -> ProcId:
        """The id that `str` wrote; raises ValueError as `Uid.from_string`.

        Args:
            text: What `str` wrote.
        """
        return ProcId(Uid.from_string(text))

    @property
    def label(self) -> str | None:
        return self.uid.label

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcId) and self.uid == other.uid

    def __hash__(self) -> int:
        return hash(self.uid)

    def __str__(self) -> str:
        return str(self.uid)

    def __repr__(self) -> str:
        return f"ProcId({str(self)!r})"
