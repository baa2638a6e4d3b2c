"""Runs the cells of examples/tensors.ipynb with a kernel of their own, and keeps what they show.

    python docs/notebook.py            write the outputs anew
    python docs/notebook.py --check    change nothing; exit 1 if a cell fails, or shows something else than what is there

What differs from machine to machine, such as paths, is replaced by dots. Needs nbclient and ipykernel.
"""

# nbformat has types for some of its functions only.
# mypy: disable-error-code="no-untyped-call"

import argparse
import difflib
import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "tensors.ipynb"
CELL_SECONDS = 60
LOCAL = [
    (re.compile(r'"[^"\n]*/(?:site-packages|src)/([^"\n]*)", line \d+'), r'".../\1", line ...'),
    (re.compile(rf"\b{re.escape(os.uname().nodename)} · "), "node · "),
    (re.compile(r"(hosts\\gpus  0) +1"), rf"\1{' ' * len('node · rank[0]')} 1"),  # as wide as the host's name makes it
    (re.compile(r"^[ ~^]+\n", re.MULTILINE), ""),  # marks under the source, which not every Python makes
]


def run(notebook: Any) -> Any:
    """The notebook with the outputs of a new run. Raises what nbclient raises if a cell fails."""
    ran = NotebookClient(nbformat.from_dict(notebook), timeout=CELL_SECONDS, kernel_name="python3").execute()
    for cell in ran.cells:
        cell.metadata.pop("execution", None)  # when it ran
        for output in cell.get("outputs", ()):
            for kind, text in output.get("data", {}).items():
                output["data"][kind] = clean(text)
            if "text" in output:
                output["text"] = clean(output["text"])
    ran.metadata = nbformat.from_dict(
        {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    )
    return ran


def clean(text: str) -> str:
    for pattern, replacement in LOCAL:
        text = pattern.sub(replacement, text)
    return text


def shown(notebook: Any) -> list[str]:
    """What a reader sees, line by line."""
    lines = []
    for number, cell in enumerate(notebook.cells):
        lines += [f"cell {number}:", *cell.source.splitlines()]
        for output in cell.get("outputs", ()):
            for _, text in sorted(output.get("data", {"text": output.get("text", output)}).items()):
                lines += str(text).splitlines()
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if something is out of date")
    check = parser.parse_args().check
    saved = nbformat.read(NOTEBOOK, as_version=4)
    ran = run(saved)
    if not check:
        nbformat.write(ran, NOTEBOOK)
        return 0
    changes = list(difflib.unified_diff(shown(saved), shown(ran), "as it is saved", "as it runs", lineterm=""))
    print("\n".join(changes))
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
