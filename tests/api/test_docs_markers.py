"""`docs/build.py`: each marker of a page shows something."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MARKER = "<!-- include: docs/examples/actors.py#bounded -->"


@pytest.fixture(scope="module")
def build() -> Any:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_marker_is_followed_by_what_it_asks_for(build: Any) -> None:
    page = build.expand(f"before\n\n{MARKER}\n```python\n```\n\nafter\n")
    assert "    @endpoint(concurrency=8)\n" in page
    assert page.startswith(f"before\n\n{MARKER}\n```python\n") and page.endswith("```\n\nafter\n")
    assert build.expand(page) == page


@pytest.mark.parametrize(
    "text",
    [
        f"{MARKER}\n\nNo block.\n\n```python\n```\n",
        f"{MARKER}\n",
        f"{MARKER}\n\n```python\n```\n",
        f"  {MARKER}\n```python\n```\n",
        "<!-- include:docs/examples/actors.py -->\n```python\n```\n",
        "<!-- output: examples/a program.py -->\n```python\n```\n",
    ],
)
def test_a_marker_that_shows_nothing_is_refused(build: Any, text: str) -> None:
    with pytest.raises(build.DocsError, match="shows nothing"):
        build.expand(text)


def test_each_marker_of_the_pages_has_its_block(build: Any) -> None:
    for page in build.pages():
        text = page.read_text()
        shown = {block.start() for block in build.BLOCK.finditer(text)}
        assert shown == {marker.start() for marker in build.MARKER.finditer(text)}, page
