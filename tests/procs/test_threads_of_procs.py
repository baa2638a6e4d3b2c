"""Procs of a mesh share the cores of their host."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from monarch import _resources
from monarch._guards import surroundings
from monarch.actor import Actor, endpoint, this_host
from monarch.config import configured
from monarch.errors import SupervisionError
from monarch.supervision import OneForOne

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.processes("threads of an operation are a process's own"),
]
CORES = _resources.usable_cores()
ALONE = torch.get_num_threads()


class Computes(Actor):
    @endpoint
    def threads(self) -> tuple[int, str | None]:
        """Those of torch, and what the environment says, here and in a program that is started here."""
        tell = "import os; print(os.environ.get('OMP_NUM_THREADS'))"
        said = subprocess.check_output([sys.executable, "-c", tell], text=True).strip()
        there = os.environ.get("OMP_NUM_THREADS")
        assert said == str(there)
        return torch.get_num_threads(), there

    @endpoint
    def below(self, procs: int) -> list[tuple[int, str | None]]:
        mesh = this_host().spawn_procs({"n": procs})
        return mesh.spawn("below", Computes).threads.call().get().values()

    @endpoint
    def method(self) -> str:
        """How this process was made."""
        return "exec" if Path("/proc/self/cmdline").read_bytes().count(b"-m") else "fork"

    @endpoint
    def end(self) -> None:
        os._exit(1)


@pytest.fixture(autouse=True)
def _nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("method", ["fork", "exec"])
@pytest.mark.slow
def test_procs_of_a_mesh_share_the_cores_of_the_host(method: str) -> None:
    with configured(proc_spawn_method=method):
        procs = this_host().spawn_procs({"n": CORES})
        one = this_host().spawn_procs()
    assert procs.spawn("many", Computes).threads.call().get().values() == [(1, "1")] * CORES
    assert one.spawn("one", Computes).threads.call_one().get() == (ALONE, None)
    procs.stop().get()
    one.stop().get()


@pytest.mark.slow
def test_what_the_program_or_the_environment_says_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for threads, settings, variable in (
        (2, {}, None),
        (None, {"threads": 2}, None),
        (None, {}, "2"),
        (2, {"threads": 1}, "1"),
        (None, {"threads": 2}, "1"),
    ):
        if variable is not None:
            monkeypatch.setenv("OMP_NUM_THREADS", variable)
        with configured(**settings):
            procs = this_host().spawn_procs({"n": CORES}, threads=threads)
        found = procs.spawn("a", Computes).threads.call().get().values()
        procs.stop().get()
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        assert found == [(2, "2")] * CORES, (threads, settings, variable)


def test_procs_of_a_proc_have_its_threads_and_are_forked() -> None:
    procs = this_host().spawn_procs({"n": 2}, threads=3)
    above = procs.spawn("above", Computes)
    assert above.below.call(1).get().values() == [[(3, "3")]] * 2
    assert above.method.call().get().values() == ["fork"] * 2
    procs.stop().get()


def test_a_rank_that_starts_again_has_the_same_share() -> None:
    procs = this_host().spawn_procs({"n": CORES}, restart=OneForOne())
    ranks = procs.spawn("again", Computes)
    with pytest.raises(SupervisionError):
        ranks.slice(n=0).end.call_one().get()
    assert ranks.slice(n=0).threads.call_one().get() == (1, "1")
    procs.stop().get()


PROGRAM = """
    import ctypes
    import os
    import torch
    from numpy._core import _multiarray_umath
    from monarch.actor import Actor, endpoint, this_host
    from monarch.config import configured

    class Computes(Actor):
        @endpoint
        def threads(self) -> list[int]:
            openblas = ctypes.CDLL(_multiarray_umath.__file__)
            names = "scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_"
            found = next((getattr(openblas, name) for name in names if hasattr(openblas, name)), None)
            return [torch.get_num_threads(), found() if found else torch.get_num_threads()]

    def sets_two() -> None:
        torch.set_num_threads(2)

    if __name__ == "__main__":
        for method, preload in (("fork", ("torch",)), ("exec", ())):
            for threads, bootstrap in ((None, None), (1, None), (1, sets_two)):
                with configured(proc_spawn_method=method, preload=preload):
                    procs = this_host().spawn_procs({"n": CORES}, bootstrap, threads=threads)
                    found = procs.spawn("computes", Computes).threads.call().get().values()
                    print(method, threads, bootstrap is not None, *found[0], found[1:] == found[:-1])
                    procs.stop().get()
"""


@pytest.mark.slow
@pytest.mark.parametrize("said", [{}, {"MKL_NUM_THREADS": str(CORES)}])
def test_forked_and_executed_procs_compute_with_the_same_number(
    said: dict[str, str], tmp_path: Path
) -> None:
    """A forked one has torch and numpy's OpenBLAS from the spawner, which have counted the cores."""
    if said and not torch.backends.mkl.is_available():
        pytest.skip("this torch does not read it")
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM).replace("CORES", str(CORES)))
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, **said},
        capture_output=True,
        text=True,
        check=True,
    )
    share = CORES if said else 1
    assert done.stdout.splitlines() == [
        f"{method} {threads} {boot} {torchs} {openblas} True"
        for method in ("fork", "exec")
        for threads, boot, torchs, openblas in (
            (None, False, share, share),
            (1, False, 1, 1),
            (1, True, 2, 1),
        )
    ]


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_no_number_of_threads_is_refused(threads: object) -> None:
    with pytest.raises((TypeError, ValueError), match="threads must be (an int|at least 1), got"):
        this_host().spawn_procs(threads=threads)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"own/cpu.max": "max 100000", "cpu.max": "max 100000"}, 8),
        ({"own/cpu.max": "max 100000", "cpu.max": "350000 100000"}, 3),
        ({"own/cpu.max": "50000 100000"}, 1),
        ({"own/cpu.cfs_quota_us": "200000", "own/cpu.cfs_period_us": "100000"}, 2),
        ({"own/cpu.cfs_quota_us": "-1", "own/cpu.cfs_period_us": "100000"}, 8),
        ({}, 8),
    ],
)
def test_the_quota_of_a_control_group_bounds_the_cores(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "cgroup").write_text("0::/own\n")
    monkeypatch.setattr(surroundings, "_OWN", str(tmp_path / "cgroup"))
    monkeypatch.setattr(surroundings, "_GROUPS", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert _resources.usable_cores() == expected
