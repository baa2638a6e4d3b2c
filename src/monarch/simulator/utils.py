"""Names of files."""

from __future__ import annotations

from pathlib import Path


def file_path_with_iter(file_path: str, iter_count: int) -> str:
    """The file of one iteration: of ``runs/trace.json`` and 3 it is ``runs/trace_3.json``."""
    path = Path(file_path)
    return str(path.with_name(f"{path.stem}_{iter_count}{path.suffix}"))
