"""How Sphinx makes a site of the pages that a code host shows: `python docs/build.py --site`.

The source is the whole repository, so that links between pages, programs and notebooks are the same
here and there. Pages hold no directive. The menu is what stands in the first columns of the tables
of `SECTIONS`.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock
from sphinx.parsers import Parser

# torch with it: once, and not in each process that Sphinx forks
import monarch.tensor_engine  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "*.md",
    "docs/*.md",
    "docs/api/*.md",
    "docs/tutorials/*.md",
    "benchmarks/README.md",
    "examples/README.md",
]
SECTIONS = [
    "docs/tutorials",
    "docs/how_to",
    "docs/reference",
    "docs/explanation",
    "examples/README",
]
TABLE_ROW = re.compile(r"^\| (\[.*?) \|", re.MULTILINE)
LINKED_PAGE = re.compile(r"\]\(([\w./]+)\.(?:md|ipynb|py)\)")
LINKED_PROGRAM = re.compile(r"\]\(([\w./]+\.py)\)")


def linked_programs() -> list[str]:
    """Each program to which a page links is a page."""
    pages = [page for pattern in PAGES for page in ROOT.glob(pattern)]
    links = {
        (page.parent / link).resolve()
        for page in pages
        for link in LINKED_PROGRAM.findall(page.read_text())
    }
    return sorted(str(link.relative_to(ROOT)) for link in links)


project = "pymonarch"
root_doc = "README"
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".py": "program"}
include_patterns = [*PAGES, "examples/*", *linked_programs()]
exclude_patterns = ["docs/README.md", ".*", "build", "dashboard"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# `bytes` in a signature is also the name of an attribute, and Sphinx asks which is meant.
suppress_warnings = ["ref.python"]

nb_execution_mode = "off"  # a test holds that the outputs in them are those of a run
myst_heading_anchors = 4
default_role = "py:obj"  # `name` in a docstring is code, and a link where that name has an entry
napoleon_use_ivar = True
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_mock_imports = [] if find_spec("lightning") else ["lightning"]
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = "pymonarch"
html_copy_source = False


# its types are not looked at, as it is not always there
class ProgramParser(Parser):  # type: ignore[misc]
    """A program as a page, which need not be in the menu."""

    supported = ("program",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        name = Path(document["source"]).name
        code = nodes.literal_block(inputstring, inputstring, language="python")
        document += nodes.docinfo(
            "", nodes.field("", nodes.field_name(text="orphan"), nodes.field_body())
        )
        document += nodes.section(
            "", nodes.title(text=name), code, ids=["program"], names=["program"]
        )


def add_menu(app: Sphinx, page: str, source: list[str]) -> None:
    entries = []
    if page == root_doc:
        entries = SECTIONS
    elif page in SECTIONS:
        entries = [
            link for row in TABLE_ROW.findall(source[0]) for link in LINKED_PAGE.findall(row)
        ]
    if entries:
        source[0] += "\n".join(["\n\n```{toctree}", ":hidden:", "", *entries, "```\n"])


class Exports:
    """The names that a package exports: what is at home in another one has a line there, and its
    entry at home.
    """

    def __init__(self) -> None:
        self.elsewhere: set[str] = set()

    def begin(
        self, app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
    ) -> None:
        if what == "module":
            names = getattr(thing, "__all__", ())
            with mock(app.config.autodoc_mock_imports):  # names may be imported on first use
                homes = {each: getattr(getattr(thing, each), "__module__", name) for each in names}
            self.elsewhere = {
                each for each in names if homes[each] != name and has_page(homes[each])
            }
            for each in sorted(self.elsewhere):
                lines += ["", f".. py:data:: {each}", "", f"   The same as `{homes[each]}.{each}`."]

    def skip(
        self, app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any
    ) -> bool | None:
        if what != "module" or name.startswith("_"):
            return None
        return name in self.elsewhere


def has_page(package: str) -> bool:
    return (ROOT / "docs" / "api" / f"{package}.md").exists()


def begin_at_root(app: Sphinx, error: Exception | None) -> None:
    """Lead from the place where browsers and servers look first to the front page."""
    if error is None:
        (Path(app.outdir) / "index.html").write_text(
            '<meta http-equiv="refresh" content="0; url=README.html">\n'
        )


def setup(app: Sphinx) -> dict[str, Any]:
    exports = Exports()
    app.add_source_parser(ProgramParser)
    app.connect("source-read", add_menu)
    app.connect("autodoc-process-docstring", exports.begin)
    app.connect("autodoc-skip-member", exports.skip)
    app.connect("build-finished", begin_at_root)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
