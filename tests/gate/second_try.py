"""One more try, alone, for a process test that has failed.

Of some thousand process tests on a busy machine one fails now and then, by a chance of one in ten
thousand each. It is run again by itself, in a fresh pytest, after all others have ended. Fails it
again, it has failed. Passes it, it is *flaky*: a table at the end shows both outputs, and more than
`MOST_FLAKY` of these fail the run. Tests without processes have no such excuse. Once
`MOST_FAILED` have failed again, no other is tried: the run has failed, and what fails may hang.

A failure is held back where reports come in: in the controller of pytest-xdist, or in the one
process that there is. No second try where the first failure is to end the run (`-x`, `--pdb`).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

MOST_FLAKY = 3
MOST_FAILED = 2
_LIMIT = 600.0  # seconds of a second try: pytest-timeout ends tests, but no fixture of a session
_LAST_LINES = 60  # of a second try, in the table


@dataclass
class _Held:
    """A test that has failed once."""

    reports: list[pytest.TestReport] = field(default_factory=list)
    second: str = ""


class SecondTry:
    """The plugin."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.held: dict[str, _Held] = {}
        self.flaky: dict[str, _Held] = {}
        self._deciding = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._deciding and _is_process_test(report):
            report.outcome = "held"  # type: ignore[assignment]  # so that it counts as no failure yet
            self.held.setdefault(report.nodeid, _Held()).reports.append(report)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if report.outcome == "held":  # type: ignore[comparison-overlap]
            return "failed once", "f", "FAILED ONCE"
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        done = yield
        self._decide(session)
        return done

    def _decide(self, session: pytest.Session) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        assert terminal is not None
        terminal.stats.pop("failed once", None)
        self._deciding = True
        failed = 0
        for test, held in self.held.items():
            tried = failed < MOST_FAILED
            passed = tried and self._passes_alone(test, held)
            said = ("passed" if passed else "failed") if tried else "not made"
            terminal.write_line("")
            terminal.write(f"second try, alone: {test} {said}")
            if passed:
                self.flaky[test] = held
            else:
                failed += 1
                # at once: the run may be ended before its summary
                terminal.write_line(f"\n{held.second}")
                for report in held.reports:
                    report.outcome = "failed"
                    if held.second:
                        report.sections.append(("The second try, alone", held.second))
                    self.config.hook.pytest_runtest_logreport(report=report)
        if self.flaky:
            terminal.stats["flaky"] = [held.reports[0] for held in self.flaky.values()]
        if len(self.flaky) > MOST_FLAKY:
            session.testsfailed += len(self.flaky)

    def _passes_alone(self, test: str, held: _Held) -> bool:
        # `-x`: without a third try; the limit of the test itself is pytest-timeout's
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:xdist", test]
        with tempfile.TemporaryFile() as output:
            try:
                passed = not subprocess.run(
                    command,
                    cwd=self.config.invocation_params.dir,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=_LIMIT,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                passed = False
                output.write(f"\nit had not ended after {_LIMIT:.0f} s".encode())
            output.seek(0)
            said = output.read().decode(errors="replace").splitlines()
        held.second = "\n".join(said[-_LAST_LINES:])
        return passed

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.flaky:
            return
        terminalreporter.section(f"flaky: {len(self.flaky)}", yellow=True)
        for test, held in self.flaky.items():
            terminalreporter.write_sep("-", test)
            for report in held.reports:
                terminalreporter.write_line(f"first try, among others; {report.when}:")
                terminalreporter.write_line(report.longreprtext)
                for title, text in report.sections:
                    terminalreporter.write_line(f"{title}:\n{text}")
            terminalreporter.write_line(f"second try, alone:\n{held.second}")
        terminalreporter.section("flaky", yellow=True)
        for test in self.flaky:
            terminalreporter.write_line(test)
        if len(self.flaky) > MOST_FLAKY:
            terminalreporter.write_line(
                f"{len(self.flaky)} tests failed only once; more than {MOST_FLAKY} fail the run",
                red=True,
            )


def _is_process_test(report: pytest.TestReport) -> bool:
    # of a worker that crashed, pytest-xdist knows the name of its test alone
    if report.when not in ("setup", "call", "teardown"):
        return not report.nodeid.startswith(("tests/api/", "tests/pure/", "tests/bench/"))
    return "process" in report.keywords


def register(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or config.option.usepdb or config.option.maxfail:
        return
    config.pluginmanager.register(SecondTry(config), "second try")
