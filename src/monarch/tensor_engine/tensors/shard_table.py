"""A table of the ranks' shards of a tensor, for a terminal or a notebook."""

from __future__ import annotations

from html import escape
from itertools import zip_longest
from typing import Any

import torch

from ..._core.plane import Shape, Slice
from ...actor import Point, ValueMesh
from . import operand_checks
from .activation import no_mesh
from .fetching import fetch_shard

_GAP = 3  # columns of text between two ranks


def shards(tensor: Any) -> Shards:
    """Fetch what each rank has, to be looked at: the result shows itself as a table.

    Args:
        tensor: A distributed tensor.

    Returns:
        The values by rank.

    Raises:
        RemoteException: The tensor failed on some rank.
        TypeError: It is no distributed tensor.
    """
    operand_checks.check("shards", tensor, any_stream=True)
    extent = tensor.mesh.extent
    futures = [fetch_shard(tensor, dict(Point(rank, extent))) for rank in range(extent.nelements)]
    shape = Shape(extent.labels, Slice.new_row_major(extent.sizes))
    return Shards(ValueMesh(shape, [future.get() for future in futures]))


class Shards:
    """The tensors of all ranks of a mesh.

    Along the last dimension of the mesh they stand side by side, along others below.

    Attributes:
        values: The tensors, on the CPU.
    """

    def __init__(self, values: ValueMesh[torch.Tensor]) -> None:
        self.values = values

    def __repr__(self) -> str:
        rows = self._rows()
        widths = [
            max(len(line) for row in rows for line in row[column]) for column in range(len(rows[0]))
        ]
        lines = []
        for row in rows:
            for parts in zip_longest(*row, fillvalue=""):
                padded = [
                    part.ljust(width + _GAP) for part, width in zip(parts, widths, strict=True)
                ]
                lines.append("".join(padded).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = [["\n".join(lines) for lines in row] for row in self._rows()]
        titles = "".join(f"<th>{escape(title)}</th>" for title in head)
        body = "".join(
            f"<tr><th>{escape(title)}</th>{''.join(f'<td><pre>{escape(cell)}</pre></td>' for cell in cells)}</tr>"
            for title, *cells in rows
        )
        return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"

    def _rows(self) -> list[list[list[str]]]:
        """The table: for each cell its lines, titles first."""
        extent = self.values.extent
        labels, columns = extent.labels, extent.sizes[-1] if extent.sizes else 1
        rows = [
            [[""], *([f"{labels[-1]}={column}"] if labels else [""] for column in range(columns))]
        ]
        cells = [(point, _text(value)) for point, value in self.values.items()]
        for start in range(0, len(cells), columns):
            point = cells[start][0]
            title = ", ".join(f"{label}={point[label]}" for label in labels[:-1])
            rows.append(
                [[title], *(text.splitlines() for _, text in cells[start : start + columns])]
            )
        return rows


def _text(value: torch.Tensor) -> str:
    """As torch shows it, without its frame."""
    with no_mesh.activate():
        lines = repr(value).removeprefix("tensor(").removesuffix(")").splitlines()
    return "\n".join([lines[0], *(line.removeprefix(" " * len("tensor(")) for line in lines[1:])])
