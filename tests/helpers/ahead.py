"""Cases of tests that mostly wait, several at a time: each test looks at what came of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias, TypeVar

import pytest

T = TypeVar("T")
Ahead: TypeAlias = Mapping[str, Future[T]]
"""What came of each case, by the id of its test."""

AT_ONCE = 4


def run_ahead(request: pytest.FixtureRequest, runs: Mapping[str, Callable[..., T]]) -> Ahead[T]:
    """Run the cases that were chosen, and wait for the end of all.

    For a fixture of a module, so that no test finds the processes of another. The first test waits
    for all of them: it needs a limit of time that allows that.

    Args:
        request: Of the fixture.
        runs: By the names of the functions of the tests, what is called with the parameters of each
            case, on a thread.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {
            item.nodeid: pool.submit(runs[item.originalname], **item.callspec.params)
            for item in request.session.items
            if isinstance(item, pytest.Function)
            and item.path == request.path
            and item.originalname in runs
        }
