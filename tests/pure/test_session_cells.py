"""What is called at the end of the cells of a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from monarch._core.client import session


def test_what_is_called_at_the_end_of_cells_is_called_for_the_last_client_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered: list[Callable[..., object]] = []
    events = SimpleNamespace(register=lambda event, callback: registered.append(callback))
    shell: Any = SimpleNamespace(get_ipython=lambda: SimpleNamespace(events=events))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setattr(session, "_at_end", None)
    called: list[str] = []
    for name in ("first", "second", "third"):
        # bound now
        session.at_end_of_cells(lambda name=name: called.append(name))  # type: ignore[misc]
    for callback in registered:
        callback("a result")
    assert called == ["third"]
