"""Futures are read in many places and completed through promises; nobody outside of `_core/calls`
reaches into either.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from api.test_layering import SOURCE, SOURCES, nodes_of
from monarch._core.calls.future import Future
from monarch._core.calls.pending import FutureState
from monarch._core.calls.promise import Promise

CALLS = SOURCE / "_core" / "calls"
PRIVATE = {
    name
    for kind in (*Future.__mro__, *Promise.__mro__)
    if kind.__module__.startswith("monarch.")
    for name in (*kind.__dict__, *kind.__dict__.get("__slots__", ()))
    if name.startswith("_") and not name.startswith("__")
}


@cache
def modules() -> list[Path]:
    return [path for path in SOURCES if CALLS not in path.parents]


def is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


@cache
def names_of_classes(package: Path) -> set[str]:
    """What classes of a package call their own: slots, methods, and what they set on themselves."""
    names = set()
    for path in modules():
        if not path.is_relative_to(package):
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and is_own(node) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.ClassDef):
                names |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                # slots
                names |= {
                    str(each.value) for each in ast.walk(node) if isinstance(each, ast.Constant)
                }
    return names


def plane_of(path: Path) -> Path:
    """The folder of a package of the engine, or of a whole plane."""
    parts = path.parent.relative_to(SOURCE).parts
    return SOURCE.joinpath(*parts[: 2 if parts[:1] == ("_core",) else 1])


def test_a_future_and_its_promise_have_private_names() -> None:
    assert {"_value", "_operation", "_callbacks", "_complete", "_decode_once"} <= PRIVATE


def test_no_module_outside_of_calls_touches_the_inside_of_a_future() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}, line {node.lineno}: {ast.unparse(node)}"
        for path in modules()
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE and not is_own(node)
        if node.attr not in names_of_classes(plane_of(path))
    ]
    assert wrong == [], "use Promise, or the functions of _core/calls/pending.py"


def test_no_module_outside_of_calls_imports_a_private_name_of_it() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}, line {node.lineno}: {alias.name}"
        for path in modules()
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and "calls" in (node.module or "").split(".")
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert wrong == []


def test_what_readers_are_given_cannot_complete_it() -> None:
    promise: Promise[int] = Promise("an answer")
    for name in ("resolve", "reject", "fail", "give_up"):
        assert hasattr(promise, name) and not hasattr(promise.future, name)
    promise.resolve(3)
    assert promise.future.get() == 3
    assert type(promise.future) is Future and isinstance(promise.future, FutureState)


@pytest.mark.parametrize(
    "again",
    [
        lambda promise: promise.resolve(2),
        lambda promise: promise.reject(ValueError()),
        lambda promise: promise.fail(None, ValueError),
        lambda promise: promise.give_up(ValueError()),
    ],
)
def test_a_promise_is_kept_once(again: Callable[[Promise[int]], None]) -> None:
    promise: Promise[int] = Promise()
    promise.resolve(1)
    again(promise)
    assert promise.future.get() == 1
