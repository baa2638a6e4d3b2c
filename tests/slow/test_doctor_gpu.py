"""`monarch doctor --gpu` as a user runs it, on CPUs: every check that makes sense there, for real."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="the checks need torch, which is not installed")
pytest.importorskip("typer", reason="the command needs typer, which is not installed")

if TYPE_CHECKING:
    from helpers.jobs import Home

pytestmark = [
    pytest.mark.torch,
    pytest.mark.processes("kills ranks, and has one process for each"),
    pytest.mark.timeout(600),
]

NEED_A_GPU = {"transfer: ipc", "telemetry"}


def test_all_that_needs_no_gpu_passes_on_two_cpu_ranks(home: Home) -> None:
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(home.folder)}  # which torch makes where there is none
    command = home.monarch_started("doctor", "--gpu", "--device", "cpu", "--json", env=caches)
    said, complaints = command.communicate(timeout=570)
    told = json.loads(said)  # nothing else is on stdout
    found = {check["name"]: check for check in told["checks"]}
    wrong = {
        name: check["details"] for name, check in found.items() if check["outcome"] == "failed"
    }
    assert wrong == {} and told["failed"] == 0 and command.returncode == 0, complaints
    skipped = {name for name, check in found.items() if check["outcome"] == "skipped"}
    assert skipped - {"transfer: nixl"} == NEED_A_GPU
    assert {found[name]["words"] for name in NEED_A_GPU} == {"no GPU"}
    assert "SupervisionError" in found["killed rank"]["words"]
    assert "imed out" in found["timeout"]["words"]
    assert "rank 0 has 513 of 1027 KiB" in found["fsdp"]["words"]
