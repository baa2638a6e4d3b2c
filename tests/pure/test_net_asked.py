"""The note of what went out over a connection."""

from __future__ import annotations

from monarch._core.net.asked import Asked


def test_what_was_answered_is_forgotten_and_what_was_not_is_kept() -> None:
    unanswered = {-5: "no request of this connection"}
    asked = Asked(unanswered)
    for number in range(1, 100_001):
        unanswered[number] = "one"
        asked.note(number)
        if number % 100:
            del unanswered[number]
        assert len(asked.numbers()) <= 2 * len(unanswered) + 1025
    assert sorted({*asked.numbers()} & unanswered.keys()) == list(range(100, 100_001, 100))
