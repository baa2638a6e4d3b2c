"""Values and errors that programs for 0.7 reckon with."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from monarch.job import SlurmJob
from monarch.job.kubernetes import KubeConfig, KubernetesJob
from monarch.job.kubernetes import config as kubernetes_config
from monarch.job.spmd import StoreJob


def test_a_store_job_without_a_rank_is_an_error_of_both_kinds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    store: Any = None
    for kind in (RuntimeError, ValueError):
        with pytest.raises(kind, match="give rank="):
            StoreJob.from_store(store)


def test_a_job_for_pods_cannot_run_outside_of_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    job = KubernetesJob(namespace="team")
    job.add_mesh("workers", 1)
    assert not job.can_run(job)
    # an account alone is not enough, nor are the variables
    monkeypatch.setattr(kubernetes_config, "ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("t")
    assert KubeConfig().is_out_of_place
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert not KubeConfig().is_out_of_place
    assert not KubeConfig.from_path(str(tmp_path / "config")).is_out_of_place


def test_clients_read_the_partition_of_a_slurm_job() -> None:
    assert SlurmJob({"hosts": 1}, partition="low")._partition == "low"
    assert SlurmJob({"hosts": 1})._partition is None


def test_a_timer_that_has_measured_nothing_says_0_and_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("torch", reason="timers measure GPUs as well")
    from monarch.timer import ExecutionTimer
    from monarch.timer.execution_timer import get_latest_timer_measurement

    with caplog.at_level(logging.WARNING, logger="monarch.timer"):
        assert ExecutionTimer.get_latest_measurement("none") == 0.0
        assert get_latest_timer_measurement("none").item() == 0.0
    assert "the timer 'none' has measured nothing" in caplog.text


def test_the_last_step_of_a_simulation_is_traced_when_the_mesh_ends(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="distributed tensors need torch")
    from monarch import Simulator

    sim = Simulator(1, 2, trace_path=tmp_path / "trace.json")
    with sim.mesh.activate():
        torch.ones(2) + 1
    sim.mesh.exit()
    assert "trace_0.json" in [path.name for path in tmp_path.iterdir()]

    sim = Simulator(1, 2, trace_path=tmp_path / "stepped.json")
    with sim.mesh.activate():
        torch.ones(2) + 1
    sim.step()
    sim.mesh.exit()
    assert sorted(path.name for path in tmp_path.glob("stepped*.json")) == ["stepped_0.json"]
