"""Runs the cells of each notebook in examples/ with a kernel of its own, and keeps what they show.

    python docs/notebook.py            write the outputs anew
    python docs/notebook.py --check    change nothing; exit 1 if a cell fails, or shows something else than what is there

Names of notebooks after that choose some. What differs from machine to machine, such as paths, is
replaced by dots; what a cell with the tag "varies" shows is kept, and not compared. Needs nbclient
and ipykernel.
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

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
CELL_SECONDS = 150
LOCAL = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"/tmp/ipykernel_\d+/\d+\.py"), "cell.py"),
    (re.compile(r"\b\d{5,}\.py:"), "cell.py:"),
    (re.compile(r"/\S*/lib/python3\.\d+/"), ".../"),
    (re.compile(r"process \d+( on \S+)?"), "process ..."),
    (re.compile(r'"[^"\n]*/(?:site-packages|src)/([^"\n]*)", line \d+'), r'".../\1", line ...'),
    (re.compile(rf"\b{re.escape(os.uname().nodename)} · "), "node · "),
    (re.compile(rf"\bhost {re.escape(os.uname().nodename)}\b"), "host node"),
    # as wide as the host's name makes it
    (re.compile(r"(hosts\\gpus  0) +1"), rf"\1{' ' * len('node · rank[0]')} 1"),
    # marks under the source, which not every Python makes
    (re.compile(r"^[ ~^]+\n", re.MULTILINE), ""),
]


def run(notebook: Any) -> Any:
    """The notebook with the outputs of a new run. Raises what nbclient raises if a cell fails."""
    ran = NotebookClient(
        nbformat.from_dict(notebook), timeout=CELL_SECONDS, kernel_name="python3"
    ).execute()
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
        for output in (
            cell.get("outputs", ()) if "varies" not in cell.metadata.get("tags", ()) else ()
        ):
            for _, text in sorted(output.get("data", {"text": output.get("text", output)}).items()):
                lines += str(text).splitlines()
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if something is out of date"
    )
    parser.add_argument("names", nargs="*", help="of notebooks; all if none is given")
    options = parser.parse_args()
    changes: list[str] = []
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        if options.names and path.stem not in options.names:
            continue
        saved = nbformat.read(path, as_version=4)
        ran = run(saved)
        if options.check:
            changes += difflib.unified_diff(
                shown(saved), shown(ran), f"{path.name} as saved", "as it runs", lineterm=""
            )
        else:
            nbformat.write(ran, path)
    print("\n".join(changes))
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
