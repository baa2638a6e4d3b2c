"""`monarch demo`: a run that was recorded, and comes with the package."""

from __future__ import annotations

import json
import lzma
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.admin import Asker
from helpers.terminals import killed_after

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")  # here, as it starts threads
pytest.importorskip("arro3.core")

from monarch.dashboard import RECORDED
from monarch.telemetry.programs import SCHEMA
from monarch.telemetry.run_file import RunFile
from monarch.why import STUCK
from monarch.why.run import of_run


def test_the_recorded_run_has_the_tables_of_today_and_a_verdict(tmp_path: Path) -> None:
    path = tmp_path / "run.duckdb"
    path.write_bytes(lzma.decompress(RECORDED.read_bytes()))
    found = {table: list(columns) for table, columns in RunFile(path)._there.items()}
    found.pop("run")
    wanted = {table: list(columns) for table, columns in SCHEMA.items()}
    assert found == wanted, "record it again: python -m benchmarks.demo --record --ranks 8"
    verdict = of_run(path)
    assert verdict.status == STUCK
    assert "trainers[3] (host trainers[0] on h0, gpu 3" in verdict.sentence


@pytest.mark.processes("the command `monarch demo`")
def test_the_command_shows_the_recorded_run_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "monarch.tools", "demo", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        with killed_after(90, process):
            access = json.loads(process.stdout.readline() or "{}")
        asker = Asker(access["url"], access["token"])
        now = asker.get("/v1/now")
        assert now["verdict"]["blamed"][0]["ranks"] == [3]
        sizes = {mesh["name"]: mesh["size"] for mesh in now["meshes"].values()}
        assert sizes["trainers"] == 8
    finally:
        process.send_signal(signal.SIGINT)
        with killed_after(90, process):
            process.communicate()
    assert process.returncode == 0
