"""Numbers with units, read and shown: "1h 30m" as nanoseconds, "64 MiB" as bytes.

Exact integers throughout.

`re` would make the grammar shorter, and costs more to import than the rest of this package
together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 10**9  # durations count nanoseconds
_MINUTE, _HOUR, _DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
_MONTH = 2_630_016 * SECOND  # 30.44 days, as the humantime format has it
_YEAR = 365 * _DAY + _DAY // 4

_DURATION_UNITS = {
    spelling: size
    for size, spellings in (
        (1, "ns nsec nanos"),
        (10**3, "us \u00b5s \u03bcs usec micros"),  # the micro sign and the Greek letter
        (10**6, "ms msec millis"),
        (SECOND, "s sec secs second seconds"),
        (_MINUTE, "m min mins minute minutes"),
        (_HOUR, "h hr hrs hour hours"),
        (_DAY, "d day days"),
        (7 * _DAY, "w week weeks"),
        (_MONTH, "M month months"),
        (_YEAR, "y yr yrs year years"),
    )
    for spelling in spellings.split()
}
# Only the three long units have a plural when shown.
_SHOWN_DURATIONS = (
    ("year", _YEAR, "s"), ("month", _MONTH, "s"), ("day", _DAY, "s"), ("h", _HOUR, ""),
    ("m", _MINUTE, ""), ("s", SECOND, ""), ("ms", 10**6, ""), ("us", 10**3, ""), ("ns", 1, ""),
)  # fmt: skip
_BINARY_SIZES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE_UNITS.update((unit.lower(), size) for unit, size in _BINARY_SIZES.items())


class Unreadable(ValueError):
    """A value has the wrong type or range.

    The text says why, and is empty where the value's type says it all.
    """


class OutOfRange(Unreadable):
    """A number is too small or too large."""


def read_duration(text: str) -> int:
    """Return the nanoseconds of a text like "1h 30m" or "1.5s"; only zero may lack a unit.

    Raises `Unreadable`.
    """
    rest, total = text.strip(), 0
    if not rest:
        raise Unreadable("it is empty")
    while rest:
        number, unit, rest = _split_amount(rest)
        if not unit and number.strip("0."):
            raise Unreadable(f"the unit after {number} is missing")
        # "M" is a month and "m" a minute, so the exact spelling goes first.
        scale = _DURATION_UNITS.get(unit) or _DURATION_UNITS.get(unit.lower() or "s")
        total += _scaled(number, unit, scale)
    return total


def duration_text(nanoseconds: int) -> str:
    """Return the normal form of a duration: ninety seconds are "1m 30s"."""
    parts = []
    for unit, size, plural in _SHOWN_DURATIONS:
        count, nanoseconds = divmod(nanoseconds, size)
        if count:
            parts.append(f"{count}{unit}{plural if count > 1 else ''}")
    return " ".join(parts) or "0s"


def read_size(text: str) -> int:
    """Return the bytes of a text like "64 MiB", "1.5GB" or "4096". Raises `Unreadable`."""
    number, unit, rest = _split_amount(text.strip())
    if rest:
        raise Unreadable(f"{rest!r} follows the size")
    return _scaled(number, unit, _SIZE_UNITS.get(unit.lower() or "b"))


def size_text(size: int) -> str:
    """Return a number of bytes in its largest exact unit: 67108864 is "64 MiB"."""
    for unit, scale in reversed(_BINARY_SIZES.items()):
        if size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size} B"


def _split_amount(text: str) -> tuple[str, str, str]:
    number, rest = _split_leading(text, lambda c: c in "0123456789.")
    if not number:
        raise Unreadable(f"a number is missing before {text!r}" if text else "it is empty")
    unit, rest = _split_leading(rest, str.isalpha)
    return number, unit, rest


def _split_leading(text: str, allowed: Callable[[str], bool]) -> tuple[str, str]:
    end = 0
    while end < len(text) and allowed(text[end]):
        end += 1
    return text[:end], text[end:].lstrip()


def _scaled(number: str, unit: str, scale: int | None) -> int:
    """Return a decimal text times `scale`, rounded down.

    By integers, since 1.1 GiB is no place for float noise.
    """
    if scale is None:
        raise Unreadable(f"{unit!r} is not a unit")
    whole, _, fraction = number.partition(".")
    if not (whole or fraction) or "." in fraction:
        raise Unreadable(f"{number!r} is not a number")
    if len(number) > 40:
        raise Unreadable("the number is too long")
    return int(whole + fraction) * scale // int(10 ** len(fraction))
