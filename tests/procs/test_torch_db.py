"""A part of torch's own database of operations, on a mesh: nothing differs without a word."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

import torch_db
from helpers.each import for_each
from monarch import inspect, no_mesh
from monarch.actor import this_host
from monarch.testing import local
from torch_db import Outcome, chosen, compared, fallen_behind, kept, summary, tried
from torch_db_others import Entry, Sample

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


@pytest.mark.timeout(600)
def test_one_of_ten_operations_of_torchs_database_is_right_or_refused() -> None:
    outcomes = tried(chosen(0.1))
    found = summary(outcomes)
    assert found["wrong"] == {}
    assert fallen_behind(outcomes) == {}
    assert found["entries"] > 50
    assert found["samples"]["right"] > 9 * found["samples"].get("refused", 0)


@pytest.mark.slow
@for_each("of, share", [("modules", 0.06), ("optimizers", 0.2), ("mistakes", 0.04)])
def test_a_few_of_torchs_other_databases_are_right_or_refused(of: str, share: float) -> None:
    found = summary(tried(chosen(share, of=of), most=8))
    assert found["wrong"] == {}
    assert found["entries"] > 2
    assert found["samples"]["right"] > found["samples"].get("refused", 0)


def test_the_kept_summary_is_of_all_databases_and_has_nothing_wrong() -> None:
    whole = kept()
    assert whole.keys() == torch_db.DATABASES.keys()
    for of, summed in whole.items():
        assert summed["wrong"] == {}, of
        assert summed["entries"] >= len(summed["right"]) > 10, of
        assert sum(summed["right"].values()) == summed["samples"]["right"], of


def test_an_entry_with_fewer_right_samples_than_before_has_fallen_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, refused = Outcome("right"), Outcome("refused", "why")
    before = {"torch": torch.__version__, "right": {"add": 2, "sub": 1}}
    monkeypatch.setattr(torch_db, "kept", lambda: {"operations": before})
    assert fallen_behind({"add": [right, refused], "sub": [right, refused]}) == {"add": "1 of 2"}
    before["torch"] = "another"  # its samples are others
    assert fallen_behind({"add": [refused]}) == {}


def test_a_mistake_that_raises_nothing_on_a_mesh_is_wrong() -> None:
    def only_local(x: torch.Tensor) -> torch.Tensor:
        if type(x) is torch.Tensor:
            raise ValueError("refused here")
        return x

    def samples() -> Iterator[Sample]:
        yield Sample(torch.ones(2), (), {}, only_local)

    found = summary(tried([Entry("only local", samples, raises=True)]))
    assert found["wrong"] == {"only local": "no ValueError"}


@for_each(
    "there, why",
    [
        (torch.tensor([1.0, 2.0]), ""),
        (torch.tensor([1.0, 3.0]), "other values"),
        (
            torch.tensor([1.0, 2.0], dtype=torch.float64),
            "torch.float64 (2,) for torch.float32 (2,)",
        ),
        (torch.tensor([1.0]), "torch.float32 (1,) for torch.float32 (2,)"),
    ],
)
def test_what_differs_is_found(there: torch.Tensor, why: str) -> None:
    here = torch.tensor([1.0, 2.0])
    with local(), this_host().spawn_procs(per_host={"gpus": 1}).activate():
        made = torch.ones(2)
        inspect(made)
        with no_mesh.activate():
            found = compared(here, made, there, fixed=True)
    assert found == (Outcome("wrong", why) if why else Outcome("right"))


def test_a_share_is_the_same_each_time_and_names_are_taken() -> None:
    assert [each.name for each in chosen(0.01)] == [each.name for each in chosen(0.01)]
    assert {each.name for each in chosen(1, names=["add", "nn.functional.relu"])} == {
        "add",
        "nn.functional.relu",
    }
