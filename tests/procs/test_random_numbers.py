"""Each proc draws random numbers of its own; with a seed, the same in each run."""

from __future__ import annotations

import importlib
import os
import random
import secrets
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.scripts import run_script
from monarch._seeds import derive
from monarch.actor import Actor, context, endpoint
from monarch.config import configured
from monarch.errors import SupervisionError
from monarch.supervision import OneForOne

if TYPE_CHECKING:
    from conftest import Spawn

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

MODULE = """
import random, numpy, torch
torch.manual_seed(3)  # as a module of a script may
torch.cuda.manual_seed_all(3)
numpy.random.seed(3)
numbers, bits = random.Random(), numpy.random.default_rng()
seeded, seeded_bits = random.Random(3), numpy.random.default_rng(3)
class Holder:
    numbers = random.Random()
"""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.processes("each process has a state of random numbers of its own"),
]


class Draws(Actor):
    @endpoint
    def draw(self) -> dict[str, Any]:
        """One of each generator that a fork copies, or might."""
        from torch.utils.data import DataLoader

        order = next(iter(DataLoader(torch.arange(1000), 1000, shuffle=True)))
        return {
            "initial_seed": torch.initial_seed(),
            "rand": torch.rand(4).tolist(),
            "weights": torch.nn.Linear(2, 2).weight.tolist(),
            "dropout": torch.nn.functional.dropout(torch.ones(200)).tolist(),
            "shuffle": order.tolist(),
            "numpy": float(np.random.rand()),
            "random": random.random(),
            "uuid4": uuid.uuid4(),
            "uuid1": uuid.uuid1(),
            "secrets": secrets.token_hex(),
        }

    @endpoint
    def draw_of_module(self, name: str) -> list[float]:
        module: Any = importlib.import_module(name)
        return [
            module.numbers.random(),
            module.Holder.numbers.random(),
            module.bits.random(),
            module.seeded.random(),
            module.seeded_bits.random(),
        ]

    @endpoint
    def seed_of_cuda(self) -> int:
        """What CUDA will be seeded with once it is used."""
        [(call, _)] = [each for each in torch.cuda._lazy_seed_tracker.get_calls() if each]
        seed: int = call.__closure__[call.__code__.co_freevars.index("seed")].cell_contents
        return seed

    @endpoint
    def end(self) -> None:
        os._exit(1)

    @endpoint
    def restarted(self) -> int:
        return context().actor_instance.incarnation


def _all_differ(drawn: list[dict[str, Any]]) -> None:
    for what in drawn[0]:
        assert len({str(each[what]) for each in drawn}) == len(drawn), what


@pytest.mark.parametrize("method", ["fork", "exec"])
@pytest.mark.slow
def test_each_proc_of_each_mesh_draws_its_own(spawn: Spawn, method: str) -> None:
    with configured(proc_spawn_method=method, preload=["torch"]):
        meshes = [spawn(2).spawn("draws", Draws) for _ in range(2)]
        _all_differ([each for mesh in meshes for each in mesh.draw.call().get().values()])


def test_a_rank_that_starts_again_draws_others_than_before(spawn: Spawn) -> None:
    with configured(preload=["torch"]):
        draws = spawn(1, restart=OneForOne()).spawn("draws", Draws)
        before = draws.draw.call_one().get()
        with pytest.raises(SupervisionError):
            draws.end.call_one().get()
        _all_differ([before, draws.draw.call_one().get()])


def test_generators_of_preloaded_modules_differ_unless_the_module_has_seeded_them(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "has_generators.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    with configured(preload=["has_generators"]):
        meshes = [spawn(2).spawn("draws", Draws) for _ in range(2)]
        drawn = [
            row
            for mesh in meshes
            for row in mesh.draw_of_module.call("has_generators").get().values()
        ]
        *of_no_seed, seeded, seeded_bits = zip(*drawn, strict=True)
        assert [len(set(column)) for column in of_no_seed] == [4, 4, 4]
        assert set(seeded) == {random.Random(3).random()}
        assert set(seeded_bits) == {np.random.default_rng(3).random()}
        # what belongs to the process is seeded anew, whatever a module did to it
        _all_differ([each for mesh in meshes for each in mesh.draw.call().get().values()])
        seeds = [each for mesh in meshes for each in mesh.seed_of_cuda.call().get().values()]
        assert len({*seeds, 3}) == 5


SEEDED = """
    import os, random
    from monarch.actor import Actor, endpoint, this_host, this_proc
    from monarch.supervision import OneForOne

    class Draws(Actor):
        @endpoint
        def draw(self):
            import numpy, torch
            return [torch.initial_seed(), torch.rand(3).tolist(), numpy.random.rand(), random.random()]

        @endpoint
        def of_a_child(self):
            procs = this_host().spawn_procs(per_host={"n": 1}, name="m")
            drawn = procs.spawn("draws", Draws).draw.call_one().get()
            procs.stop().get()
            return drawn

        @endpoint
        def end(self):
            os._exit(1)

    if __name__ == "__main__":
        options = dict(name="m", restart=OneForOne())
        meshes = [this_host().spawn_procs(per_host={"n": n}, **options).spawn("draws", Draws) for n in (1, 2)]
        drawn = [row for mesh in meshes for row in mesh.draw.call().get().values()]
        try:
            meshes[0].slice(n=0).end.call_one().get()
        except Exception:
            pass
        drawn.append(meshes[0].slice(n=0).draw.call_one().get())
        drawn.append(meshes[1].slice(n=1).of_a_child.call_one().get())
        print(drawn)
"""


def _of_run(seed: str, method: str) -> list[Any]:
    settings = {"MONARCH_SEED": seed, "MONARCH_PROC_SPAWN_METHOD": method}
    # preloaded and forked in one run, imported by the proc itself in the other
    settings["MONARCH_PRELOAD"] = "torch,numpy" if method == "fork" else ""
    result = run_script(SEEDED, env=settings)
    assert result.exit_code == 0, result
    drawn: list[Any] = eval(result.stdout)
    return drawn


@pytest.mark.timeout(240)
@pytest.mark.slow
def test_with_a_seed_all_procs_draw_the_same_in_each_run_and_others_than_each_other() -> None:
    forked, executed, other = _of_run("7", "fork"), _of_run("7", "exec"), _of_run("8", "fork")
    assert forked == executed
    everything = [str(column) for row in forked + other for column in row]
    assert len(set(everything)) == len(everything)


def test_a_seed_derives_from_names_and_their_order() -> None:
    seeds = [derive(1), derive(2), derive(1, "a"), derive(1, "a", "b"), derive(1, "b", "a")]
    seeds += [derive(1, "ab"), derive(1, "a", 1), derive(1, "a", 11)]
    assert len(set(seeds)) == len(seeds)
    assert derive(1, "a", 1) == derive(1, "a", "1") == seeds[6]
    assert all(0 <= seed < 2**63 for seed in seeds)
