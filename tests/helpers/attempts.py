"""The attempts of repeated calls that this process has made, and the end of their time whenever a
test wants it.
"""

from __future__ import annotations

from typing import Any

from helpers.waiting import wait_until
from monarch.actor import context


def open_attempts() -> list[Any]:
    """Those to which not all ranks have answered, in order."""
    from monarch._patterns.retrying import _Attempt

    requests = context()._cell.hub.requests
    return [
        request for _, request in sorted(requests.copy().items()) if isinstance(request, _Attempt)
    ]


def wait_for_attempt(number: int, silent: set[int]) -> Any:
    """The attempt of that number, once only these ranks have not answered it."""

    def found() -> Any:
        return next(
            (one for one in open_attempts() if one.number == number and set(one.silent) == silent),
            None,
        )

    return wait_until(found, what=f"attempt {number}, unanswered by {silent}")


def let_expire(number: int, silent: set[int]) -> None:
    """End the time of an attempt, as soon as only these ranks have not answered it."""
    attempt = wait_for_attempt(number, silent)
    wait_until(lambda: attempt.timer is not None, what="its timer")
    context()._cell.hub.poller.call_soon(attempt.timer.callback)
