"""All rows in turn: `python -m benchmarks.end_to_end`, with the options that all rows have."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import subprocess
import sys

from benchmarks import end_to_end
from benchmarks.end_to_end.contenders import ROOT


def rows() -> list[str]:
    """The modules of this package that have a row."""
    package = end_to_end.__name__
    names = (f"{package}.{module.name}" for module in pkgutil.iter_modules(end_to_end.__path__))
    return [
        name for name in names if name != __name__ and hasattr(importlib.import_module(name), "ROW")
    ]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.end_to_end", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    for kind in ("json", "plot"):
        parser.add_argument(
            f"--{kind}", action="store_true", help="keep those of each row in results/"
        )
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"rounds are at least 1, got {options.rounds}")
    kept = [f"--{kind}" for kind in ("json", "plot") if getattr(options, kind)]
    failed = []
    for name in rows():
        command = [sys.executable, "-m", name, "--rounds", str(options.rounds), *kept]
        if subprocess.run(command, cwd=ROOT).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
