"""Distributed tensors over several hosts, as far as one machine can tell: workers like those of
other hosts.
"""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from monarch import inspect, reduce
from monarch.job import ProcessJob

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


@pytest.mark.timeout(120)
def test_tensors_are_reduced_and_moved_between_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = ProcessJob({"trainers": 2})
    try:
        procs = job.state(cached_path=None).trainers.spawn_procs({"gpus": 1})
        with procs.activate() as mesh:
            rank = mesh.process_idx()
            assert inspect(rank, hosts=1, gpus=0).item() == 1
            assert inspect(reduce(rank + torch.ones(2), "hosts"), hosts=1, gpus=0).tolist() == [
                3.0,
                3.0,
            ]
            assert inspect(rank.slice_mesh(hosts=1).to_mesh(mesh.slice(hosts=0))).item() == 1
        procs.stop().get()
    finally:
        job.kill()
