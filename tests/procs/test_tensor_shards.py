"""What the ranks have of a tensor, as a table."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from monarch import Stream, no_mesh
from monarch.tensor_engine import RemoteException, shards

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


def test_ranks_of_the_last_dimension_stand_side_by_side(mesh: Any) -> None:
    found = shards(torch.arange(4).reshape(2, 2) * mesh.rank("gpus"))
    assert repr(found).splitlines() == [
        "   gpus=0     gpus=1",
        "   [[0, 0],   [[0, 1],",
        "    [0, 0]]    [2, 3]]",
    ]
    with no_mesh.activate():
        assert found.values.item(gpus=1).tolist() == [[0, 1], [2, 3]]
    html = found._repr_html_()
    assert html.count("<tr>") == 2
    assert "<th>gpus=1</th>" in html
    assert "<pre>[[0, 1],\n [2, 3]]</pre>" in html


def test_other_dimensions_stand_one_below_the_other(mesh: Any) -> None:
    with mesh.split(gpus=("a", "b"), b=1).activate() as mesh:
        assert repr(shards(mesh.rank("a"))).splitlines() == ["      b=0", "a=0   0", "a=1   1"]
        one = mesh.slice(a=1, b=0)
    with one.activate():
        assert repr(shards(torch.ones(2))).split() == ["[1.,", "1.]"]


def test_a_tensor_of_any_stream_and_with_a_gradient_is_shown(mesh: Any) -> None:
    with Stream("another").activate():
        tensor = torch.ones(1, requires_grad=True)
    assert repr(shards(tensor)).splitlines()[1].split() == ["[1.]", "[1.]"]


def test_a_tensor_that_failed_is_not_shown(mesh: Any) -> None:
    failed = torch.zeros(3).index_select(0, mesh.rank("gpus").reshape(1) * 5)
    with pytest.raises(RemoteException, match="index"):
        shards(failed)
    with no_mesh.activate(), pytest.raises(TypeError, match="LOCAL_TENSOR"):
        shards(torch.ones(1))
