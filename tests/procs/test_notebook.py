"""The notebooks of the examples run in kernels of their own, and show what is saved in them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

for _name in ("torch", "nbclient", "ipykernel"):
    pytest.importorskip(_name, reason=f"runs a notebook with tensors; {_name} is not installed")

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.timeout(320)
@pytest.mark.parametrize("name", ["getting_started", "debugging_a_hang", "tensors"])
def test_a_notebook_shows_what_is_saved_in_it_without_paths_of_a_machine(
    name: str, tmp_path: Path
) -> None:
    saved = (ROOT / "examples" / f"{name}.ipynb").read_text()
    assert not any(place in saved for place in ("/tmp", "/home", "/root", "/usr", "\\u001b"))
    command = [sys.executable, str(ROOT / "docs" / "notebook.py"), "--check", name]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_notebook_on_a_hang_shows_the_rank_and_the_line() -> None:
    cells = json.loads((ROOT / "examples" / "debugging_a_hang.ipynb").read_text())["cells"]
    texts = [
        "".join(each["data"]["text/plain"])
        for cell in cells
        for each in cell.get("outputs", ())
        if "data" in each
    ]
    assert any("1 rank [2], process ... step: read_text (cell.py:" in text for text in texts), texts
    assert any("> load  cell.py:" in text for text in texts), texts
