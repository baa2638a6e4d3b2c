"""Expressions that name ranks."""

from __future__ import annotations

import pytest

from monarch import Selection


@pytest.mark.parametrize(
    "text", ["*", "?", "(*, 0:4)", "0", "(0:8:2, (?)) | (1, 2)", "(*, 1) & (2, *)", ":"]
)
def test_expressions_are_read_and_shown(text: str) -> None:
    assert str(Selection.from_string(text)) == text
    assert Selection.from_string(f" {text} ") == Selection.from_string(text)
    assert eval(repr(Selection.from_string(text))) == Selection.from_string(text)


@pytest.mark.parametrize("text", ["", "(*", "a", "*)", "(,)", "0:4 0", "-1", "* |"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="selection"):
        Selection.from_string(text)


def test_all_and_any_are_expressions_as_well() -> None:
    assert Selection.all() == Selection.from_string("*")
    assert Selection.any() == Selection.from_string("?")
    assert len({Selection.all(), Selection.any(), Selection.from_string("*")}) == 2
