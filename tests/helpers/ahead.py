"""Cases of a test that mostly wait, several at a time: the test looks at what came of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import pytest

T = TypeVar("T")
Ahead: TypeAlias = Mapping[str, Future[T]]
"""What came of each case, by its id."""

AT_ONCE = 4


def run_ahead(request: pytest.FixtureRequest, test: str, run: Callable[..., T]) -> Ahead[T]:
    """Run the cases that were chosen, and wait for the end of all; for a fixture of a module, so
    that no test finds the processes of another.

    Args:
        request: Of the fixture.
        test: The name of the test's function.
        run: Called with the parameters of a case, by name, on a thread.
    """
    cases: dict[str, Any] = {
        item.callspec.id: item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.path == request.path
        and item.originalname == test
    }
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {each: pool.submit(run, **params) for each, params in cases.items()}
