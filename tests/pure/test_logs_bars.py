"""Progress bars of the client's own, where lines of ranks are written."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from monarch._core.hub.prints import NO_AUTHOR
from monarch._core.processes.output import Output, Source
from monarch.logs.view import LogView


class Broken:
    """A progress bar that fails before lines are written, or behind them."""

    def __init__(self, clears: bool) -> None:
        self.clears = clears

    def __enter__(self) -> None:
        if not self.clears:
            raise RuntimeError("it cannot clear itself")

    def __exit__(self, *args: object) -> None:
        raise RuntimeError("it cannot draw itself")


@pytest.mark.parametrize("clears", [False, True])
@pytest.mark.parametrize("window", [None, ("uid", 1000.0)])
def test_lines_are_shown_once_beside_a_bar_that_is_broken(
    clears: bool, window: tuple[str, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tqdm: Any = SimpleNamespace(
        tqdm=SimpleNamespace(external_write_mode=lambda file: Broken(clears))
    )
    monkeypatch.setitem(sys.modules, "tqdm.std", tqdm)
    written: list[str] = []
    view = LogView(lambda stream, text: written.append(text))
    for rank in range(2):
        source = Source("trainers", rank, f"gpus={rank}", "machine", 0, 2, False, f"uid.{rank}")
        view.show(Output(source, "stdout", 1.0, [(NO_AUTHOR, "hello")], collect=window))
    view.flush()
    assert "".join(written).count("hello") == 2
