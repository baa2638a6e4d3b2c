"""Data that crosses ranks: reductions, moves between meshes, gradients through both, failures in
the middle.
"""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, union-attr, no-untyped-call, arg-type"

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

import monarch
from monarch import inspect
from monarch._core.net import unix
from monarch.actor import Point, ProcMesh, this_host
from monarch.tensor_engine import RemoteException

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


@pytest.fixture(scope="module")
def grid(_booted: None) -> Iterator[ProcMesh]:
    """Two by two ranks that the tests share."""
    procs = this_host().spawn_procs(per_host={"dp": 2, "tp": 2})
    with procs.activate():
        inspect(torch.ones(1))
    yield procs
    procs.stop().get()


@pytest.fixture
def mesh(grid: ProcMesh, _process_test: None) -> Iterator[Any]:
    with grid.activate() as mesh:
        yield mesh


def everywhere(tensor: Any) -> list[Any]:
    """What each rank has, as lists."""
    extent = tensor.mesh.extent
    points = [Point(rank, extent) for rank in range(extent.nelements)]
    return [inspect(tensor, **point).tolist() for point in points]


def index(mesh: Any) -> Any:
    """0, 1, 2, 3 on the four ranks."""
    return mesh.rank(("dp", "tp"))


@pytest.mark.parametrize(
    ("kind", "dims", "expected"),
    [
        ("sum", "dp", [6, 6, 6, 6]),
        ("sum", "tp", [3, 3, 9, 9]),
        ("sum", ("dp", "tp"), [12] * 4),
        ("sum", (), [12] * 4),
        ("avg", "tp", [1, 1, 4, 4]),
        ("product", "tp", [2, 2, 20, 20]),
        ("min", "dp", [1, 2, 1, 2]),
        ("max", "dp", [5, 4, 5, 4]),
        ("band", "dp", [1, 0, 1, 0]),
        ("bor", "dp", [5, 6, 5, 6]),
        ("bxor", "dp", [4, 6, 4, 6]),
    ],
)
def test_every_rank_gets_the_reduction_of_its_row(
    mesh: Any, kind: str, dims: Any, expected: list[int]
) -> None:
    values = [1, 2, 5, 4]
    x = torch.tensor(values).take(index(mesh))
    assert everywhere(x.reduce(dims, kind)) == expected
    assert everywhere(x) == values


def test_stacking_gathers_in_the_order_of_the_coordinates(mesh: Any) -> None:
    x = torch.tensor([1.0, 2.0]) + 10 * index(mesh)
    stacked = monarch.reduce({"x": x}, "dp", reduction="stack")["x"]
    assert stacked.shape == (2, 2)
    assert everywhere(stacked)[1] == [[11.0, 12.0], [31.0, 32.0]]
    assert everywhere(index(mesh).reduce("tp", "stack")) == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_scattering_gives_each_rank_its_part(mesh: Any) -> None:
    x = torch.tensor([[1, 2], [3, 4]]) + 10 * index(mesh)
    assert everywhere(x.reduce("tp", "sum", scatter=True)) == [
        [12, 14],
        [16, 18],
        [52, 54],
        [56, 58],
    ]
    assert everywhere(x.reduce("tp", "max", scatter=True))[1] == [13, 14]
    assert everywhere(x.reduce("dp", "stack", scatter=True))[2] == [[3, 4], [23, 24]]


def test_reducing_in_place_and_into_another(mesh: Any) -> None:
    x = torch.ones(2, 2) * index(mesh)
    row = x[0]
    assert monarch.reduce_(x, "tp") is x
    assert everywhere(row)[2] == [5.0, 5.0]
    swapped = index(mesh).repeat(2)
    swapped.reduce_("tp", "stack", scatter=True)
    assert everywhere(swapped)[0] == [0, 1]
    out = torch.empty(2, dtype=torch.int64)
    assert index(mesh).reduce("dp", "stack", out=out) is out
    assert everywhere(out)[3] == [1, 3]


def test_a_part_of_the_mesh_may_get_the_result(mesh: Any) -> None:
    total = index(mesh).reduce("dp", mesh=mesh.slice(dp=0))
    assert total.mesh is mesh.slice(dp=0)
    assert everywhere(total) == [2, 4]


def test_views_can_be_reduced(mesh: Any) -> None:
    x = torch.arange(6.0).reshape(2, 3).t()
    assert everywhere(x.reduce("tp"))[0] == [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]
    x.reduce_("dp")
    assert everywhere(x)[0] == [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]


def test_wrong_reductions_are_refused_at_once(mesh: Any) -> None:
    x = torch.ones(3)
    for error, match, use in [
        (KeyError, "pp", lambda: x.reduce("pp")),
        (ValueError, "twice", lambda: x.reduce(("dp", "dp"))),
        (ValueError, "median", lambda: x.reduce("dp", "median")),
        (ValueError, "not valid for multiple dimensions", lambda: x.reduce(("dp", "tp"), "stack")),
        (TypeError, "When scattering", lambda: x.reduce("dp", "sum", scatter=True)),
        (ValueError, "in place", lambda: x.reduce_("dp", "stack")),
        (ValueError, "Reduce expects the shape to be", lambda: x.reduce("dp", out=torch.ones(4))),
        (TypeError, "REQUIRES_GRAD", lambda: torch.ones(2, requires_grad=True).reduce("dp", "max")),
        (TypeError, "LOCAL_TENSOR", lambda: monarch.reduce(inspect(x), "dp")),
    ]:
        with pytest.raises(error, match=match):
            use()
    assert everywhere(x)[0] == [1.0] * 3


def test_gradients_pass_through_reductions(mesh: Any) -> None:
    weights = 1.0 + index(mesh)
    for kind, scatter, expected in [
        ("sum", False, [3.0, 3.0]),
        ("avg", False, [1.5, 1.5]),
        ("stack", False, [1.0, 1.0]),
    ]:
        x = torch.ones(2, requires_grad=True)
        (
            x.reduce("tp", kind, scatter=scatter) * (weights if kind != "stack" else 0.5)
        ).sum().backward()
        assert everywhere(x.grad)[0] == expected
    x = torch.ones(2, 3, requires_grad=True)
    (x.reduce("tp", "sum", scatter=True) * weights).sum().backward()
    assert everywhere(x.grad)[0] == [[1.0] * 3, [2.0] * 3]
    x = torch.ones(2, 3, requires_grad=True)
    (x.reduce("tp", "stack", scatter=True) * weights).sum().backward()
    assert everywhere(x.grad)[1] == [[1.0] * 3, [2.0] * 3]


def test_tensors_move_to_the_ranks_with_the_same_coordinates(mesh: Any) -> None:
    x = index(mesh) + 1
    first, second = mesh.slice(dp=0), mesh.slice(dp=1)
    moved = x.slice_mesh(dp=0).to_mesh(second)
    assert moved.mesh is second
    assert everywhere(moved) == [1, 2]
    back = (moved * 10).to_mesh(first)
    assert everywhere(back) == [10, 20]
    assert everywhere(monarch.slice_mesh([x], tp=1)[0].to_mesh(mesh.slice(tp=0))) == [2, 4]


def test_a_move_to_more_dimensions_repeats(mesh: Any) -> None:
    x = index(mesh).slice_mesh(tp=1).to_mesh(mesh)
    assert everywhere(x) == [1, 1, 3, 3]


def test_a_move_is_a_copy(mesh: Any) -> None:
    x = torch.zeros(1)
    y = x.to_mesh(mesh)
    x += 1
    assert everywhere(y) == [[0.0]] * 4


def test_a_move_to_where_it_does_not_fit_is_refused(mesh: Any, spawn: Spawn) -> None:
    x = index(mesh)
    with pytest.raises(ValueError, match="does not have dimensions"):
        x.to_mesh(mesh.slice(dp=0))
    with pytest.raises(ValueError, match="different length"):
        x.to_mesh(mesh.slice(dp=slice(0, 1)))
    with pytest.raises(ValueError, match="different length"):
        x.to_mesh(spawn({"dp": 2, "tp": 1}))
    with pytest.raises(TypeError):
        x.to_mesh("gpus")


def test_gradients_pass_through_moves(mesh: Any) -> None:
    first, second = mesh.slice(dp=0), mesh.slice(dp=1)
    with first.activate():
        x = torch.ones(2, requires_grad=True)
    y = (x * 3).to_mesh(second)
    (y * second.rank("tp")).sum().backward()
    assert x.grad.mesh is first
    assert everywhere(x.grad) == [[0.0, 0.0], [3.0, 3.0]]
    with mesh.slice(dp=0, tp=0).activate():
        z = torch.ones((), requires_grad=True)
    (z.to_mesh(mesh) * index(mesh)).backward()
    assert everywhere(z.grad) == [6.0]


def bad_on(mesh: Any, rank: int) -> Any:
    """A tensor whose value could not be computed on one rank."""
    return torch.zeros(4).index_select(0, (index(mesh) == rank).reshape(1) * 9)


def test_what_a_failed_rank_takes_part_in_fails_for_its_peers_only(mesh: Any) -> None:
    total = bad_on(mesh, 3).reduce("tp")
    with mesh.slice(dp=0).activate() as healthy:
        there = torch.ones(1)
    assert everywhere(there + total.slice_mesh(dp=0).to_mesh(healthy)) == [[1.0], [1.0]]
    for part in (mesh.slice(dp=1, tp=0), mesh.slice(dp=1)):
        selected = (
            total.slice_mesh(dp=1, tp=0) if part.extent.nelements == 1 else total.slice_mesh(dp=1)
        )
        with pytest.raises(RemoteException, match="rank 3") as caught:
            inspect(selected.to_mesh(part))
        assert "index_select" in str(caught.value)
    with pytest.raises(RemoteException):
        inspect(total)
    assert everywhere(index(mesh).reduce((), "sum")) == [6] * 4


def test_a_failed_reduction_in_place_spoils_the_tensor(mesh: Any) -> None:
    x = torch.zeros(1)
    x += bad_on(mesh, 0)
    x.reduce_("dp")
    with pytest.raises(RemoteException, match="rank 0"):
        inspect(x, dp=1, tp=0)


def test_a_move_of_what_failed_fails(mesh: Any) -> None:
    moved = bad_on(mesh, 1).slice_mesh(dp=0).to_mesh(mesh.slice(dp=1))
    with pytest.raises(RemoteException, match="rank 1"):
        inspect(moved)


def test_seeding_is_the_same_on_all_ranks(mesh: Any) -> None:
    torch.manual_seed(7)
    first = torch.rand(3)
    torch.manual_seed(7)
    again = torch.rand(3)
    values = everywhere(first)
    assert values == everywhere(again) == [values[0]] * 4
    with monarch.no_mesh.activate():
        torch.manual_seed(7)
        assert torch.rand(3).tolist() == values[0]


def test_what_is_only_noted_as_conjugated_arrives_conjugated(mesh: Any) -> None:
    x = torch.tensor([1 + 2j, 3 - 1j]).conj()
    label = mesh.extent.labels[-1]
    there = monarch.slice_mesh(x, **{label: 0}).to_mesh(mesh.slice(**{label: 1}))
    assert inspect(there).tolist() == [1 - 2j, 3 + 1j]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int16, torch.float16], ids=str)
def test_tensors_of_any_type_are_reduced_and_moved(mesh: Any, dtype: torch.dtype) -> None:
    unit = torch.ones((), dtype=dtype) * (2j if dtype.is_complex else 2)
    two = 2j if dtype.is_complex else 2
    x = (index(mesh) * unit).to(dtype).expand(2).clone()  # 0, 2, 4, 6 on the four ranks, times i
    assert inspect(x.reduce("tp", "sum"), dp=1, tp=0).tolist() == [5 * two] * 2
    assert inspect(x.reduce(("dp", "tp"), "avg")).tolist() == [1.5 * two] * 2
    assert inspect(x.reduce("dp", "stack"), dp=0, tp=1).tolist() == [[two] * 2, [3 * two] * 2]
    assert inspect(x.reduce("tp", "sum", scatter=True), dp=1, tp=1).item() == 5 * two
    assert inspect(x.reduce("tp", "stack", scatter=True), dp=1, tp=0).tolist() == [2 * two, 3 * two]
    assert inspect((x + two).reduce("tp", "product"), dp=0, tp=0).tolist() == [2 * two * two] * 2
    moved = x.slice_mesh(dp=1).to_mesh(mesh.slice(dp=0))
    assert inspect(moved, tp=1).tolist() == [3 * two] * 2
    gathered = x.reduce("tp", "sum", mesh=mesh.slice(tp=0))
    assert inspect(gathered, dp=1).tolist() == [5 * two] * 2
    x.reduce_("dp", "sum")
    assert inspect(x, dp=0, tp=1).tolist() == [4 * two] * 2


def test_what_is_only_noted_as_conjugated_is_reduced_in_place(mesh: Any) -> None:
    x = torch.tensor([1 + 2j]) * (1 + mesh.rank("dp"))
    x.conj().reduce_("dp")
    assert inspect(x).tolist() == [3 + 6j]


def test_a_program_that_starts_later_leaves_the_store_of_groups_alone(mesh: Any) -> None:
    torch.ones(1).reduce_("dp")
    path = Path(mesh.engine.meeting.path)
    for each in (path, path.parent):
        os.utime(each, (0, 0))  # long before
    unix.release_abandoned()  # as the host agent of a program does, a moment after its start
    assert everywhere(torch.ones(1).reduce("dp")) == [[2.0]] * 4


def test_reductions_that_a_type_does_not_have_are_refused_at_once(mesh: Any) -> None:
    for kind in ("min", "max"):
        with pytest.raises(TypeError, match="complex64 does not have"):
            torch.ones(2, dtype=torch.complex64).reduce("dp", kind)
    with pytest.raises(TypeError, match="band is for integers"):
        torch.ones(2).reduce("dp", "band")
    with pytest.raises(TypeError, match="avg is for numbers, got a torch.bool"):
        torch.ones(2, dtype=torch.bool).reduce("dp", "avg")
