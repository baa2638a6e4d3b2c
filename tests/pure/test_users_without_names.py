"""Users with a number that has no name, as in many containers."""

from __future__ import annotations

import ast
import os

import pytest

from api.test_layering import SOURCE, trees
from monarch._ours import user_name

NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")


def test_a_user_without_a_name_goes_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    assert user_name() == "ada"
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    assert user_name() == "4000000000"


def test_nothing_else_asks_for_the_name_which_fails_there() -> None:
    asking = [
        str(path.relative_to(SOURCE))
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "getuser"
    ]
    assert asking == ["_ours.py"]
