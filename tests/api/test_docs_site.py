"""Each page, program and public package stands in the menu of the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api.test_public_names import PACKAGES, WITH_TORCH

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SECTIONS = [*(DOCS / f"{name}.md" for name in ("tutorials", "how_to", "reference", "explanation"))]


def rows(page: Path) -> list[Path]:
    """The pages to which the first cells of its tables link."""
    links = re.findall(r"^\| \[[^]]*\]\(([^)#]+)\)", page.read_text(), re.MULTILINE)
    return [(page.parent / link).resolve() for link in links]


@pytest.mark.parametrize(
    "package", [*PACKAGES, *WITH_TORCH, "monarch.elastic", "monarch.lightning"]
)
def test_the_reference_has_an_entry_for_each_name_of_a_public_package(package: str) -> None:
    page = DOCS / "api" / f"{package}.md"
    assert f".. automodule:: {package}\n" in page.read_text()
    assert page in rows(DOCS / "reference.md")


def test_each_page_stands_once_in_a_section() -> None:
    listed = sorted(path for section in SECTIONS for path in rows(section) if DOCS in path.parents)
    pages = {*DOCS.glob("**/*.md")} - {*SECTIONS, DOCS / "README.md"}
    assert listed == sorted(pages)


def test_each_example_has_a_row() -> None:
    programs = {*(ROOT / "examples").glob("**/*.py"), *(ROOT / "examples").glob("*.ipynb")}
    assert {*rows(ROOT / "examples" / "README.md"), *rows(DOCS / "tutorials.md")} >= programs


def test_the_readme_opens_with_what_an_operator_sees_of_a_stuck_job() -> None:
    opening, _, _ = (ROOT / "README.md").read_text().partition("\n## ")
    pictures = re.findall(r"^!\[[^]]+\]\(([^)]+)\)$", opening, re.MULTILINE)
    assert pictures[:2] == ["docs/images/dashboard_now.png", "docs/images/tui_now.svg"]
    assert all((ROOT / each).is_file() for each in pictures)
