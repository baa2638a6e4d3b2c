"""A release as CONTRIBUTING.md makes it: wheel and sdist are built, checked, installed and tried."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.processes("builds packages, and installs them in environments of their own"),
    pytest.mark.timeout(600),
]

ROOT = Path(__file__).parents[2]
MOST_BYTES = 1_840_000  # of the wheel: a decision, as more lines are
INSTALLED = """
import importlib.metadata as metadata, pathlib, monarch
from monarch.dashboard import RECORDED, content
folder = pathlib.Path(monarch.__file__).parent
assert "site-packages" in str(folder), folder
assert (folder / "py.typed").exists() and RECORDED.exists() and content("app.js")
print(metadata.version("pymonarch"))
"""


def python_in(folder: Path, *packages: str | Path) -> str:
    """The interpreter of a new environment with some packages; skip where pip gets none."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    command = [python, "-m", "pip", "install", "-q", "--retries", "0", *map(str, packages)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "pymonarch" not in " ".join(command):
        pytest.skip(f"pip does not get what builds packages: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return python


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, which `twine check` has read."""
    tree, dist = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if files.returncode:  # a copy of the tree
        shutil.copytree(ROOT, tree, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
    for name in files.stdout.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    python = python_in(tmp_path_factory.mktemp("venv"), "build", "twine", "hatchling>=1.27")
    build = [python, "-m", "build", "-q", "--no-isolation", "--outdir", str(dist), str(tree)]
    subprocess.run(build, check=True)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    checked = [python, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    subprocess.run(checked, check=True)
    return wheel, sdist


def test_the_wheel_has_what_users_need_and_nothing_else(built: tuple[Path, Path]) -> None:
    wheel, sdist = built
    assert wheel.stat().st_size < MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(about).decode())
    assert {name.partition("/")[0] for name in names} == {"monarch", about.partition("/")[0]}
    assert "monarch/py.typed" in names and not [name for name in names if name.endswith(".map")]
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata["Requires-Python"] == ">=3.10"
    with tarfile.open(sdist) as archive_of_sources:
        roots = {name.split("/")[1] for name in archive_of_sources.getnames() if "/" in name}
    wanted = {"src", "tests", "docs", "examples", "benchmarks", "README.md", "LICENSE"}
    assert wanted <= roots


@pytest.mark.parametrize("which", [0, 1], ids=["wheel", "sdist"])
def test_an_install_in_a_clean_environment_runs_the_quickstart(
    built: tuple[Path, Path], which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    python = python_in(tmp_path / "venv", built[which])
    shutil.copy(ROOT / "examples" / "quickstart.py", tmp_path)
    version = built[0].name.split("-")[1]
    for command in ([python, "-c", INSTALLED], [python, "quickstart.py"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if command[1] == "-c":
            assert done.stdout.strip() == version
