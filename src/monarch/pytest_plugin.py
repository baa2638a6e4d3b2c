"""A plugin that pytest finds by itself: a fault belongs to the test that caused it.

An unhandled failure ends a program. In a test run it fails the test, unless the test has
seen it as the error of a call; it ends neither the run nor another test. What the test waits for
when it comes raises `SupervisionError`. At the end of the run everything is shut down, before
pytest closes what it captures.

The fixture `monarch_local` runs the actors of a test in its process: see `monarch.testing.local`.

A run that does not use Monarch imports nothing more than this. A hook that tests set
(`monarch.actor.unhandled_fault_hook`) decides first, as ever. ``-p no:monarch`` turns all of it
off.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ._core.client import session as sessions

if TYPE_CHECKING:
    from .actor import MeshFailure
    from .testing import LocalHosts

_SHUTDOWN = 30.0  # seconds


class _Run:
    """The run of the tests.

    Attributes:
        test: The test that runs.
    """

    def __init__(self) -> None:
        self.test: str | None = None
        self._reports: list[tuple[Sequence[MeshFailure], str]] = []

    def part(self, waits: Collection[object]) -> str | None:
        return self.test

    def report(self, failures: Sequence[MeshFailure], text: str) -> None:
        self._reports.append((failures, text))

    def news(self) -> str:
        """Return the failures since the last call that were not the error of a call."""
        client: Any = sys.modules.get("monarch._core.client.client")
        if client is None:
            return ""
        client.settle_faults()
        knows = client.faults.delivered_failures.knows
        reports, self._reports = self._reports, []
        return "\n".join(
            text
            for failures, text in reports
            if not all(knows(failure.event) for failure in failures)
        )

    def check(self) -> None:
        news = self.news()
        if news:
            pytest.fail(news, pytrace=False)


_run = sessions.current = _Run()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note the running test."""
    _run.test = item.nodeid


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail the test if an actor has failed during its call."""
    _run.check()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Fail the test if an actor has failed by its end."""
    _run.test = None
    _run.check()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report what failed outside of tests, and end the processes of the program."""
    news = _run.news()
    if news:  # of fixtures of the whole session
        sys.stderr.write(news)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    actor: Any = sys.modules.get("monarch.actor")
    if actor is not None:
        with suppress(TimeoutError):
            actor.shutdown_context().get(timeout=_SHUTDOWN)


@pytest.fixture
def monarch_local(request: pytest.FixtureRequest) -> Iterator[LocalHosts]:
    """Hosts in the process of the test.

    There are two, or as an indirect parameter says, such as ``{"hosts": 4, "seed": 7}``.
    """
    from .testing import local  # here: a run without Monarch imports nothing of it

    with local(**getattr(request, "param", {"hosts": 2})) as hosts:
        yield hosts
