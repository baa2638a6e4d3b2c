"""Processes that an actor starts by `multiprocessing`: workers of a data loader, pools."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from helpers.scripts import run_script

torch = pytest.importorskip("torch")

HEAVY = """
import os
import numpy, random
importer = os.getpid()
numbers, bits = random.Random(), numpy.random.default_rng()
with open(os.environ["IMPORTS"], "a") as file:
    file.write(f"{importer} ")
"""

STARTS = """
    import multiprocessing, os, sys, time
    from concurrent.futures import ProcessPoolExecutor
    from monarch.actor import Actor, endpoint, this_host

    class Squares:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return [os.getppid(), *told()]

    def told(_=None):
        heavy, own = sys.modules.get("heavy"), sys.modules.get("own")
        return [heavy.importer if heavy else 0, own.importer if own else 0]

    def draw(barrier):
        import heavy, random, torch
        barrier.wait()  # so that each process draws once
        return [torch.initial_seed(), random.random(), heavy.numbers.random(), heavy.bits.random()]

    class Starts(Actor):
        def __init__(self):
            import heavy, own

        @endpoint
        def load(self):
            from torch.utils.data import DataLoader
            loader = DataLoader(Squares(), batch_size=1, num_workers=2, collate_fn=lambda each: each[0])
            return [row for _ in range(2) for row in loader]

        @endpoint
        def map(self):
            with multiprocessing.Pool(2) as pool, ProcessPoolExecutor(2) as executor:
                return [*pool.map(told, range(2)), *executor.map(told, range(2))]

        @endpoint
        def draw(self):
            with multiprocessing.Manager() as manager, multiprocessing.Pool(3) as pool:
                return pool.map(draw, [manager.Barrier(3)] * 3, chunksize=1)

        @endpoint
        def preload_nothing(self):
            multiprocessing.set_forkserver_preload([])

    if __name__ == "__main__":
        procs = this_host().spawn_procs(per_host={"n": 1})
        starts = procs.spawn("starts", Starts)
        if OF_ITS_OWN:
            starts.preload_nothing.call_one().get()
        print([getattr(starts, name).call_one().get() for name in ("load", "map", "draw")])
"""


def _run(tmp_path: Path, of_its_own: bool) -> tuple[list[Any], list[str]]:
    """What the endpoints return; which processes have imported the package."""
    packages, own = tmp_path / "site-packages", tmp_path / "own"
    for folder, name, text in (
        (packages, "heavy", HEAVY),
        (own, "own", "import os\nimporter = os.getpid()\n"),
    ):
        folder.mkdir()
        (folder / f"{name}.py").write_text(text)
    imports = tmp_path / "imports"
    path = f"{packages}:{own}"
    source = STARTS.replace("OF_ITS_OWN", str(of_its_own))
    result = run_script(source, env={"PYTHONPATH": path, "IMPORTS": str(imports)})
    assert result.exit_code == 0, result
    assert result.left_behind == []
    return eval(result.stdout), imports.read_text().split()


@pytest.mark.timeout(180)
def test_what_an_actor_has_imported_is_imported_once_for_all_its_workers(tmp_path: Path) -> None:
    (loaded, mapped, drawn), importers = _run(tmp_path, of_its_own=False)
    server = loaded[0][0]
    assert loaded == [[server, server, 0]] * 8  # two epochs, and not the modules of the script
    assert mapped == [[server, 0]] * 4
    assert len(importers) == 2  # the proc, and the server
    assert importers[1] == str(server)
    assert [len(set(column)) for column in zip(*drawn, strict=True)] == [3, 3, 3, 3]


@pytest.mark.timeout(180)
def test_an_actor_may_say_what_its_workers_share(tmp_path: Path) -> None:
    (loaded, mapped, _), importers = _run(tmp_path, of_its_own=True)
    assert [row[1:] for row in loaded] + mapped == [[0, 0]] * 12
    assert len(importers) == 1 + 3  # the proc, and what has drawn


def test_workers_of_a_loader_read_files_with_objects_of_the_script() -> None:
    result = run_script(
        """
        import os, pickle, tempfile
        from dataclasses import dataclass
        from monarch.actor import Actor, endpoint, this_host

        @dataclass
        class Config:
            size: int

        class Files:
            def __init__(self, path): self.path = path
            def __len__(self): return 4
            def __getitem__(self, index):
                with open(self.path, "rb") as file:
                    return pickle.load(file)

        class Worker(Actor):
            @endpoint
            def load(self, path):
                from torch.utils.data import DataLoader
                with open(path, "wb") as file:
                    pickle.dump(Config(3), file)
                loader = DataLoader(Files(path), num_workers=2, batch_size=2, collate_fn=list)
                return [config == Config(3) for batch in loader for config in batch]

        if __name__ == "__main__":
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "config")
                print(this_host().spawn_procs().spawn("w", Worker).load.call_one(path).get())
        """
    )
    assert result.stdout == "[True, True, True, True]\n", str(result)


DATASETS = find_spec("datasets")


@pytest.mark.skipif(DATASETS is None, reason="Hugging Face's datasets is not installed")
@pytest.mark.timeout(300)
def test_datasets_of_hugging_face_map_in_processes_that_import_nothing_anew(tmp_path: Path) -> None:
    assert DATASETS is not None
    path = str(Path(str(DATASETS.origin)).parents[1])  # wherever that is
    result = run_script(
        """
        import os, sys
        from monarch.actor import Actor, endpoint, this_host

        LENGTH = 8

        def square(row):
            heavy = sys.modules.get("heavy")
            return {"square": row["x"] ** 2 + LENGTH, "pid": os.getpid(),
                    "importer": heavy.importer if heavy else 0}

        class Maps(Actor):
            def __init__(self):
                import heavy

            @endpoint
            def map(self):
                import datasets
                datasets.disable_progress_bars()
                rows = datasets.Dataset.from_dict({"x": list(range(LENGTH))}).map(square, num_proc=2)
                return os.getpid(), rows["square"][:], set(rows["pid"]), set(rows["importer"])

        if __name__ == "__main__":
            pid, squares, pids, importers = (
                this_host().spawn_procs().spawn("maps", Maps).map.call_one().get()
            )
            print(squares == [x ** 2 + LENGTH for x in range(LENGTH)])
            print(len(pids), pid in pids, importers == {pid})
        """,
        files={"heavy.py": "import os\nimporter = os.getpid()\n"},
        env={"PYTHONPATH": path, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        timeout=240,
    )
    assert result.exit_code == 0, str(result)
    assert result.stdout.splitlines() == ["True", "2 False True"], str(result)
    assert result.left_behind == [], str(result)
