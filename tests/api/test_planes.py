"""Planes use what the engine publishes for them, `monarch._core.plane`, and nothing else of the
engine.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from api import test_layering as layering
from monarch._core import plane

PUBLISHED = "monarch._core.plane"
PAGE = Path(__file__).parents[2] / "docs" / "planes.md"

# No planes: the engine's public faces, and what drives the engine's pure parts without processes.
ENGINE = {"monarch", "monarch._core", "monarch._patterns", "monarch.compat", "monarch.actor", "monarch.supervision"} | {
    "monarch.pytest_plugin", "monarch.testing", "monarch.trust", "monarch._guests", "monarch._lazy",
}  # fmt: skip


def published() -> set[str]:
    """The names that the module imports from the engine."""
    tree = layering.trees()[layering.SOURCE / "_core" / "plane.py"]
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }


def of_planes() -> list[layering.Import]:
    return [
        found
        for found in layering.own()
        if (found.imported + ".").startswith("monarch._core.")
        and not any(
            found.importer == each or found.importer.startswith(each + ".")
            for each in ENGINE - {"monarch"}
        )
        and found.importer != "monarch"
    ]


def test_planes_import_nothing_of_the_engine_but_what_is_published() -> None:
    wrong = [found for found in of_planes() if found.imported != PUBLISHED]
    assert wrong == [], "offer it in _core/plane.py, or use monarch.actor:\n" + layering.listed(
        wrong
    )
    assert {found.importer.split(".")[1] for found in of_planes()} >= {"rdma", "tensor_engine"}


def test_the_engine_does_not_use_what_it_publishes_for_planes() -> None:
    wrong = {found for found in layering.own() if found.imported == PUBLISHED} - set(of_planes())
    assert wrong == set()


def test_the_page_on_planes_says_what_each_published_name_is_for() -> None:
    table = PAGE.read_text().split("## What there is")[1]
    named = {
        name
        for row in table.splitlines()
        for name in re.findall(r"`(\w+)`", "|".join(row.split("|")[2:3]))
    }
    assert named == published()


def test_each_published_name_has_a_docstring() -> None:
    functions_and_classes = [each for name in published() if callable(each := getattr(plane, name))]
    aliases = {plane.Reply, plane.Reducer}
    silent = [
        each for each in functions_and_classes if each not in aliases and not inspect.getdoc(each)
    ]
    assert silent == [] and len(functions_and_classes) > 30


def test_each_published_name_is_used_by_a_plane() -> None:
    importers = {found.importer for found in of_planes()}
    words = {
        word
        for path in layering.SOURCES
        if layering.module_name(path) in importers
        for word in re.findall(r"\w+", path.read_text())
    }
    assert published() - words == set()
