"""Which faults are reported together."""

from __future__ import annotations

from monarch._core.client.faults import _report, merge
from monarch._core.supervision.failure import EXCEPTION, KILLED, Failure, MeshFailure


def failure(
    rank: int | None, reason: str = "it broke", mesh: str = "trainers", cause: str = EXCEPTION
) -> MeshFailure:
    return MeshFailure(
        Failure(
            cause, reason, f"<root>.<Trainer {mesh}>", mesh, hash(mesh), rank, pid=100 + (rank or 0)
        )
    )


def test_ranks_of_one_mesh_with_one_reason_belong_together() -> None:
    faults = [failure(rank) for rank in (3, 0, 1)]
    assert merge(faults) == [faults]


def test_other_meshes_reasons_and_causes_are_own_reports_in_order() -> None:
    faults = [
        failure(0),
        failure(1, "another"),
        failure(2, mesh="others"),
        failure(3, cause=KILLED),
        failure(4),
    ]
    first, *others = faults
    assert merge(faults) == [[first, others.pop()], *([fault] for fault in others)]


def test_a_report_of_several_ranks_names_them_all() -> None:
    text = _report([failure(rank) for rank in (7, 0, 2, 1, 9, 10)])
    assert text.splitlines()[-1] == "6 ranks of trainers failed for this reason: 0-2,7,9-10"
    assert text.count("it broke") == 1


def test_a_report_of_one_fault_counts_nothing() -> None:
    assert "for this reason" not in _report([failure(3)])
    assert "it broke" in _report([failure(None)])
