"""The docstring of every package says what to read first, and which other packages it imports."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from api.test_layering import SOURCES, module_name, own, trees
from helpers.each import for_each

PACKAGES = {module_name(path): path for path in SOURCES if path.name == "__init__.py"}
ROOTS = {"monarch", "monarch._core"}  # their docstrings have the layers
SMALL = 3  # modules, which need no order to be read in


def package_of(module: str) -> str:
    return max((p for p in PACKAGES if module == p or module.startswith(f"{p}.")), key=len)


def neighbours(package: str) -> str:
    """What names in the docstring of a package are relative to."""
    return "monarch._core." if package.startswith("monarch._core.") else "monarch."


def docstring(package: str) -> str:
    return " ".join((ast.get_docstring(trees()[PACKAGES[package]]) or "").split())


@cache
def imported() -> dict[str, set[str]]:
    """Packages, or single modules of `monarch`, by the package that imports them.

    Without `errors`, `config`, private helpers and the points of the engine: all may import them.
    """
    found: dict[str, set[str]] = {package: set() for package in PACKAGES}
    for each in own():
        importer, target = package_of(each.importer), package_of(each.imported)
        if target in ROOTS:
            target = each.imported
        first, _, rest = target.removeprefix("monarch.").partition(".")
        is_for_all = first in ("errors", "config") or (
            (first[0] == "_" and first != "_patterns" and not rest)
            or target == "monarch._core.extension"
        )
        if target != importer and not is_for_all:
            found[importer].add(target.removeprefix(neighbours(importer)))
    return found


def names_in(sentence: str) -> set[str]:
    return set(re.findall(r"`([\w.]+)`", sentence))


def test_packages_are_found() -> None:
    assert "monarch._core.wire" in PACKAGES
    assert {"_core.plane", "actor"} <= imported()["monarch.stacks"]
    assert "wire" in imported()["monarch._core.net"]


@for_each("package", sorted(PACKAGES.keys() - ROOTS))
def test_a_package_says_what_it_imports(package: str) -> None:
    sentence = re.search(
        r"\bImports (`[^.]*(?:\.\w[^.]*)*|no other package of `monarch`)\.(?: |$)",
        docstring(package),
    )
    assert sentence, (
        "a sentence `Imports ...` with the names of packages, or `Imports no other ...`"
    )
    assert names_in(sentence[1]) - {"monarch"} == imported()[package]


@for_each("package", sorted(PACKAGES.keys() - {"monarch"}))
def test_a_package_says_what_to_read_first(package: str) -> None:
    path = PACKAGES[package].parent
    modules = {each.stem for each in path.glob("*.py")} | {each.name for each in path.iterdir()}
    if len(list(path.glob("[!_]*.py"))) <= SMALL:
        return
    orders = re.findall(r"\b[Rr]ead\b[^.]*(?:\.\w[^.]*)*", docstring(package))
    assert any(modules & names_in(order) for order in orders)


def test_names_of_tests_have_at_most_80_characters() -> None:
    tests = Path(__file__).parents[1]
    long = [
        name
        for path in tests.rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
        if len(name) > 80
    ]
    assert not long
