"""The points of the engine, and who fills them: read from the source, no guest is imported here."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from api.test_layering import SOURCES, module_name, nodes_of, trees
from helpers.each import for_each
from monarch import _guests
from monarch._core import extension
from monarch._core.extension import KeyedPoint, Point
from monarch._core.hub.control_service import _RECORD

POINTS = {
    name: found for name, found in vars(extension).items() if isinstance(found, (Point, KeyedPoint))
}
OF_THE_ENGINE = {"client_mesh", "host_mesh"}  # layers of it fill these
WHEN_USED = {"lend"}  # filled by the plane itself, as messages are faster while it is not used
PLACES = [
    (name, place)
    for name, places in _guests.GUESTS.items()
    for place in ([places] if isinstance(places, str) else places.values())
]


@cache
def tree_of(module: str) -> ast.Module:
    return next(trees()[path] for path in SOURCES if module_name(path) == module)


def test_the_table_has_each_point_and_no_other() -> None:
    assert _guests.GUESTS.keys() == POINTS.keys() - OF_THE_ENGINE - WHEN_USED
    for name, places in _guests.GUESTS.items():
        assert isinstance(POINTS[name], Point if isinstance(places, str) else KeyedPoint)


def test_each_point_has_its_own_name_and_says_what_it_is_for() -> None:
    for name, found in POINTS.items():
        assert found.name == name
        assert isinstance(found, KeyedPoint) or found.__doc__


@for_each("point, place", PLACES)
def test_each_guest_exists_and_takes_what_its_point_gives(point: str, place: str) -> None:
    module, _, name = place.partition(":")
    *_, guest = [node for node in tree_of(module).body if name in names_of(node)]
    asked = POINTS[point]
    if isinstance(asked, Point) and isinstance(guest, (ast.FunctionDef, ast.ClassDef)):
        takes = arguments_of(guest)
        for given in inspect.signature(asked._empty).parameters.values():
            if given.kind is given.KEYWORD_ONLY:
                assert given.name in {each.arg for each in (*takes.args, *takes.kwonlyargs)}
            elif given.kind is given.VAR_POSITIONAL:
                assert takes.vararg or len(takes.args) > 1
        positional = sum(
            each.kind is each.POSITIONAL_OR_KEYWORD
            for each in inspect.signature(asked._empty).parameters.values()
        )
        assert takes.vararg or positional <= len(takes.args)
        assert len(takes.args) - len(takes.defaults) <= positional or several(asked)


def several(asked: Point[..., object]) -> bool:
    """Whether it gives any number of arguments."""
    kinds = [each.kind for each in inspect.signature(asked._empty).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.KEYWORD_ONLY in kinds


def names_of(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def arguments_of(guest: ast.FunctionDef | ast.ClassDef) -> ast.arguments:
    """The arguments of a function, or of the constructor of a class."""
    if isinstance(guest, ast.FunctionDef):
        return guest.args
    made = [
        each for each in guest.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    ]
    if not made:  # a named tuple
        return ast.arguments([], [], None, [], [], None, [])
    return ast.arguments([], made[0].args.args[1:], None, [], [], None, made[0].args.defaults)


def test_each_handler_of_a_control_record_is_found_by_the_module_of_its_record() -> None:
    pytest.importorskip("torch", reason="distributed tensors have handlers")
    table = _guests.GUESTS["control"]
    assert isinstance(table, dict)
    found = {key: set(extension._load(place)) for key, place in table.items()}
    modules = {place.partition(":")[0] for place in table.values()} | set(with_handlers())
    for module in modules:
        for handler in vars(importlib.import_module(module)).values():
            if record := getattr(handler, _RECORD, None):
                assert handler in found[record.__module__], f"{handler} of {module}"
    for key, handlers in found.items():
        assert {getattr(each, _RECORD).__module__ for each in handlers} == {key}


def with_handlers() -> Iterator[str]:
    """Modules above the engine that take control records."""
    for path in SOURCES:
        module = module_name(path)
        if not module.startswith("monarch._core"):
            calls = (node for node in nodes_of(path) if isinstance(node, ast.Call))
            if any(isinstance(call.func, ast.Name) and call.func.id == "handles" for call in calls):
                yield module


def test_the_page_on_planes_has_each_point() -> None:
    page = (Path(__file__).parents[2] / "docs" / "planes.md").read_text()
    table = page.partition("## Points")[2].partition("A plane of another package")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == POINTS.keys()
