"""Tests that mostly wait, several at a time.

@several_at_a_time
def test_a_program_ends() -> None: ...

The first such test of a file runs all that were chosen there, on a few threads; each then has what
came of its own. So no test finds the processes of another one. A test that is run by itself, such as
at its second try, is alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

import pytest

from helpers.each import disguised

Ahead: TypeAlias = Mapping[str, Future[None]]
"""What came of the tests of a file, by their ids."""

AT_ONCE = 4
LIMIT = 600.0  # seconds, for the first one, which waits for all


def several_at_a_time(test: Callable[..., None]) -> Any:
    """A decorator, above those that give parameters; the test takes these alone, no fixtures."""

    def look(ran_ahead: Ahead, request: pytest.FixtureRequest, **params: object) -> None:
        ran_ahead[request.node.nodeid].result()

    look.ahead = test  # type: ignore[attr-defined]
    names = ["ran_ahead", "request", *inspect.signature(test).parameters]
    return pytest.mark.timeout(LIMIT)(disguised(look, test, names))


@pytest.fixture(scope="module")
def ran_ahead(request: pytest.FixtureRequest) -> Ahead:
    """Run the tests of a file that are run so, and wait for the end of all."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {
            item.nodeid: pool.submit(item.obj.ahead, **_params(item))
            for item in request.session.items
            if isinstance(item, pytest.Function)
            and item.path == request.path
            and hasattr(item.obj, "ahead")
        }


def _params(item: pytest.Function) -> dict[str, Any]:
    return dict(item.callspec.params) if hasattr(item, "callspec") else {}
