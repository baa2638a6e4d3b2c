"""Numbers in arguments, checked at the call."""

from __future__ import annotations

from threading import TIMEOUT_MAX


def whole(number: int, name: str, least: int = 1) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} must be an int, got {number!r}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def seconds(number: float, name: str, least: float = 0.0) -> float:
    if (
        not isinstance(number, (int, float))
        or isinstance(number, bool)
        or not least <= number <= TIMEOUT_MAX
    ):
        raise ValueError(
            f"{name} must be a number of seconds, from {least:g} to {TIMEOUT_MAX:g}, got {number!r}"
        )
    return number
