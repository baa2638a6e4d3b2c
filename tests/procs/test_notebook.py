"""The notebook of the examples runs in a kernel of its own, and shows what is saved in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

for _name in ("torch", "nbclient", "ipykernel"):
    pytest.importorskip(_name, reason=f"runs a notebook with tensors; {_name} is not installed")

ROOT = Path(__file__).parent.parent.parent


def test_the_notebook_shows_what_is_saved_in_it_without_paths_of_a_machine() -> None:
    saved = (ROOT / "examples" / "tensors.ipynb").read_text()
    assert not any(place in saved for place in ("/tmp", "/home", "/root", "/usr", "\\u001b"))
    command = [sys.executable, str(ROOT / "docs" / "notebook.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
