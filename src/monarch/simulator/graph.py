"""The graph of a simulated program: its instructions, and which of them need what others make."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monarch.tensor_engine import call_sites

from .record import InstructionNode
from .trace import named


def export(nodes: Sequence[InstructionNode], path: Path) -> None:
    """Write the graph: as a table if the name ends with ``.csv``, else as JSON.

    The JSON has ``nodes`` and ``edges``.

    An edge leads from what last wrote a storage to what reads it, or writes it next; and from what
    reads it to what writes it next.
    """
    if path.suffix == ".csv":
        rows = [_row(node) for node in nodes]
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else ["id"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text(
            json.dumps({"nodes": [_row(node) for node in nodes], "edges": edges(nodes)}, indent=1)
            + "\n"
        )


def _row(node: InstructionNode) -> dict[str, Any]:
    line = call_sites.user_line(node.site)
    return {
        "id": node.id, "name": node.name, "kind": node.kind, "ranks": named(node.ranks), "stream": node.stream,
        "inputs": list(node.inputs), "outputs": list(node.outputs), "seconds": node.seconds, "flops": node.flops,
        "bytes": node.bytes, "line": f"{line.file}:{line.line}" if line is not None else "",
        "meta": "" if node.tag is None else str(node.tag),
    }  # fmt: skip


def edges(nodes: Sequence[InstructionNode]) -> list[tuple[int, int]]:
    """The edges, each from an instruction to another, as `export` says, by their numbers."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    found: dict[tuple[int, int], None] = {}
    for node in nodes:
        before = [writer[storage] for storage in (*node.inputs, *node.outputs) if storage in writer]
        before += [reader for storage in node.outputs for reader in readers.get(storage, ())]
        found.update({(other, node.id): None for other in before if other != node.id})
        for storage in node.inputs:
            readers.setdefault(storage, []).append(node.id)
        for storage in node.outputs:
            writer[storage] = node.id
            readers[storage] = []
    return list(found)
