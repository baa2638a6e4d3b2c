"""The bar of a sync: on a terminal, and only where it takes a while."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from monarch.sync import progress
from monarch.sync.progress import Progress


class Terminal:
    """A terminal of the kernel that stands for ``sys.stderr``."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        self.stream = os.fdopen(theirs, "w")

    def close(self) -> None:
        self.stream.close()
        os.close(self._ours)

    def shown(self) -> str:
        self.stream.flush()
        os.set_blocking(self._ours, False)
        said = b""
        with suppress(BlockingIOError):
            while True:
                said += os.read(self._ours, 1 << 16)
        return said.decode()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    yield terminal
    terminal.close()


def test_what_takes_long_shows_how_much_of_it_is_done(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(progress, "_SOON", -1.0)
    monkeypatch.setattr(sys, "stderr", terminal.stream)  # here: pytest puts its own before a test
    with Progress("sync", 4_000_000) as bar:
        bar.advance(1_000_000)
        bar.advance(2_000_000)
    shown = terminal.shown()
    assert "sync" in shown
    assert "3.0/4.0 MB" in shown


def test_what_is_done_soon_shows_nothing(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    with Progress("sync", 100) as bar:
        bar.advance(100)
    assert terminal.shown() == ""


def test_a_file_as_output_gets_no_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_SOON", -1.0)
    with Progress("sync", 100) as bar:
        bar.advance(50)
    assert capsys.readouterr() == ("", "")
