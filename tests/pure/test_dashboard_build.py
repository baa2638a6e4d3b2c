"""What is built of the dashboard's sources is what git has of it; and the files of it, as they are
served.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from monarch import dashboard

pytestmark = pytest.mark.timeout(300)  # node starts, on a busy machine

WEB = Path(__file__).parents[2] / "dashboard" / "web"
STATIC = Path(dashboard.__file__).parent / "static"
MANIFEST = json.loads((STATIC / "manifest.json").read_text())
AGAIN = "build it again: cd dashboard/web && npm ci && npm run build"


def digest_of_sources() -> str:
    inside = [
        path.relative_to(WEB).as_posix() for path in (WEB / "src").rglob("*") if path.is_file()
    ]
    names = [*inside, "build.mjs", "package.json", "package-lock.json", "tsconfig.json"]
    each = (f"{name} {sha256((WEB / name).read_bytes()).hexdigest()}\n" for name in sorted(names))
    return sha256("".join(each).encode()).hexdigest()


def too_old(node: str) -> str:
    """Why a version of node does not do; empty if it does."""
    wanted = json.loads((WEB / "package.json").read_text())["engines"]["node"]
    least, found = (
        tuple(map(int, version.split(".")))
        for version in (wanted.removeprefix(">="), node.strip()[1:])
    )
    return "" if found >= least else f"node {wanted} builds the pages, and here is {node.strip()}"


def built(folder: Path) -> dict[str, str]:
    return {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "manifest.json"
    }


def test_the_built_pages_are_those_of_the_sources() -> None:
    assert MANIFEST["sources"] == digest_of_sources(), AGAIN


def test_the_built_files_were_not_changed_by_hand() -> None:
    assert built(STATIC) == MANIFEST["files"], AGAIN


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    if shutil.which("node") is None or not (WEB / "node_modules").is_dir():
        pytest.skip("dashboard/web/node_modules is not there: npm ci makes it")
    if reason := too_old(
        subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=100).stdout
    ):
        pytest.skip(reason)
    subprocess.run(
        ["node", "build.mjs", str(tmp_path / "static")], cwd=WEB, check=True, timeout=100
    )
    assert built(tmp_path / "static") == MANIFEST["files"], AGAIN


def test_an_old_node_is_said_to_be_too_old() -> None:
    assert too_old("v18.19.0\n").endswith("builds the pages, and here is v18.19.0")
    assert too_old("v20.12.0") == too_old("v22.1.0") == ""


def test_all_built_files_are_served_and_have_at_most_300_kilobytes() -> None:
    assert set(dashboard.MEDIA) == set(MANIFEST["files"])
    assert sum(len(gzip.compress(dashboard.content(name))) for name in dashboard.MEDIA) <= 300_000


@pytest.mark.parametrize(
    "name", ["manifest.json", "../__init__.py", "", "index.html/", "INDEX.HTML"]
)
def test_nothing_else_is_served(name: str) -> None:
    with pytest.raises(KeyError):
        dashboard.content(name)


def test_the_lock_file_says_nothing_of_where_packages_come_from() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())
    assert len(lock["packages"]) > 10
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_no_page_makes_markup_of_text() -> None:
    for path in (WEB / "src").rglob("*.*"):
        text = path.read_text()
        for word in (
            "{@html",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ):
            assert word not in text, path
