"""Which faults are reported together."""

from __future__ import annotations

import pytest

from monarch._core.client import faults
from monarch._core.client.faults import _report, merge
from monarch._core.supervision.failure import (
    EXCEPTION,
    HOST,
    KILLED,
    WORKER_ENDED,
    Failure,
    MeshFailure,
)


def failure(
    rank: int | None, reason: str = "it broke", mesh: str = "trainers", cause: str = EXCEPTION
) -> MeshFailure:
    return MeshFailure(
        Failure(
            cause, reason, f"<root>.<Trainer {mesh}>", mesh, hash(mesh), rank, pid=100 + (rank or 0)
        )
    )


def test_ranks_of_one_mesh_with_one_reason_belong_together() -> None:
    alike = [failure(rank) for rank in (3, 0, 1)]
    assert merge(alike) == [alike]


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


def test_the_loss_of_a_host_is_told_as_its_scheduler_tells_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = failure(0, f"host lost: process 12, {WORKER_ENDED}", cause=HOST)
    silent = failure(0, "it did not answer for 30s", cause=HOST)
    monkeypatch.setattr(faults, "why_hosts_end", [lambda: ""])
    text = _report([gone])
    assert faults._of_hosts([gone], text) == text
    ended = "Slurm ended job 9: TIMEOUT (TimeLimit)"
    monkeypatch.setattr(faults, "why_hosts_end", [lambda: "", lambda: ended])
    told = faults._of_hosts([gone], text)
    assert f"host lost: {ended}" in told and WORKER_ENDED not in told
    told = faults._of_hosts([silent], _report([silent]))
    assert told.startswith(f"{ended}\n") and "it did not answer for 30s" in told
    other = failure(0, "it broke")  # no host, and none is asked
    assert faults._of_hosts([other], "text") == "text"
