"""What fills a point of the engine is imported whole, whatever else imports its packages meanwhile."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import pytest

from helpers.waiting import PATIENCE
from monarch._core import extension


def test_a_guest_deep_in_a_package_waits_for_another_thread_that_imports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "guest_in_rooms"
    (package / "inner").mkdir(parents=True)
    (package / "inner" / "__init__.py").touch()
    (package / "__init__.py").write_text(
        "import builtins\n"
        "builtins.guest_begun.set()\n"
        "builtins.guest_goes_on.wait()\n"
        "from .choice import CHOSEN\n"
    )
    # which waits for the package, as that waits for this
    (package / "choice.py").write_text("from . import other\nCHOSEN = other.OTHER\n")
    (package / "other.py").write_text("OTHER = 7\n")
    (package / "inner" / "place.py").write_text("from ..choice import CHOSEN as HERE\n")
    begun, goes_on = threading.Event(), threading.Event()
    monkeypatch.setattr("builtins.guest_begun", begun, raising=False)
    monkeypatch.setattr("builtins.guest_goes_on", goes_on, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    found: list[object] = []

    def user() -> None:
        try:
            found.append(importlib.import_module("guest_in_rooms").CHOSEN)
        except ImportError as error:
            found.append(error)

    def guest() -> None:
        found.append(extension._load("guest_in_rooms.inner.place:HERE"))

    threads = [threading.Thread(target=each, daemon=True) for each in (user, guest)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    threads[1].start()
    threads[1].join(0.2)  # so that a wrong one is in the midst of it
    goes_on.set()
    for each in threads:
        each.join(PATIENCE)
    assert found == [7, 7]
