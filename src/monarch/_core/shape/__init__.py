"""Geometry: labelled, row-major arrangements of ranks, and values laid out on them.

What lives here: `Extent` (labels and sizes), `Point` (one position in an extent), `Slice` (a
strided set of flat ranks), `Shape` and `Region` (labels on a slice), `MeshTrait` (slice, split,
rename, flatten and sizes of every mesh) and `ValueMesh` (one value per rank, the result of a call).

What may not: sockets, threads, clocks, anything that knows what an actor or a host is, and imports
that cost start-up time, because every process of a program imports this package before anything
else.

Two rules hold everywhere, so that no mistake picks another rank in silence. A dimension has at
least one element and a label of its own. A position counts from 0 and is never negative; only the
bounds of a Python slice count from the end.

Modules here read each other's underscore attributes (tuples, where the public properties give fresh
lists).

Read next, in this order: `checks`, `ndslice`, `shape`, `picking`, `mesh_trait`, `value_mesh`,
`table`.

Imports no other package of `monarch`.
"""

from monarch._core.shape.mesh_trait import MeshTrait
from monarch._core.shape.ndslice import Slice
from monarch._core.shape.shape import Extent, Point, Region, Shape
from monarch._core.shape.value_mesh import ValueMesh

NDSlice = Slice

__all__ = ["Extent", "MeshTrait", "NDSlice", "Point", "Region", "Shape", "Slice", "ValueMesh"]
