"""The benchmark of one call's steps wraps functions of the engine by their names."""

from __future__ import annotations

import pytest
from benchmarks.journey import WRAPPED


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, name, _ in WRAPPED], ids=lambda part: str(part)
)
def test_each_function_that_is_timed_is_there(owner: object, name: str) -> None:
    assert callable(getattr(owner, name))
