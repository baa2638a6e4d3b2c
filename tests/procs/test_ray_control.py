"""The process that talks to a Ray cluster, with a `ray` that says what it is told to."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from monarch.errors import JobError
from monarch.job.ray.control import Control

RAY = """
import os, sys

def init(**options):
    if options["address"] == "broken":
        print("the head node does not know us", file=sys.stderr, flush=True)
        os._exit(3)
    print("a warning of Ray " * 20000, file=sys.stderr, flush=True)

def get_actor(name):
    raise ValueError(name)
"""


@contextmanager
def control(address: str) -> Iterator[Control]:
    found = Control(address, "keeper")
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(autouse=True)
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ray.py").write_text(RAY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")


def test_what_ray_prints_holds_up_no_answer() -> None:
    with control("talkative") as cluster:
        assert cluster.ask("look", bundle={}) is None


def test_a_broken_connection_is_explained_by_the_last_words_of_ray() -> None:
    with (
        control("broken") as cluster,
        pytest.raises(
            JobError, match=r"at broken is broken; it said:\n  \| the head node does not know us"
        ),
    ):
        cluster.ask("look", bundle={})


def test_a_program_with_many_open_files_can_ask_ray() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"at most {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]  # more than select() takes
    try:
        with control("here") as cluster:
            assert cluster.ask("look", bundle={}) is None
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
