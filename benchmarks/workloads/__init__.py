"""One program per file, over `monarch.actor` only, the same text under every implementation.

`python -m benchmarks.workloads.NAME [--scale S] [--payload KIND]`, from the repository root, prints
one JSON line with the measured value. Files with a leading underscore are what the programs share;
`../catalog.py` lists the programs.
"""
