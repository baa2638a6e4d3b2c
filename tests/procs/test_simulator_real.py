"""Predictions against real ranks, on a machine that was measured; and simulated tensors in real
actors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from helpers.simulated import Starter, Trainer, network
from monarch import inspect, reduce_, remote
from monarch.simulator import Machine, Simulator, measure, patch_tensor_engine
from monarch.simulator.meter import processor_times

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(300),  # to measure a machine that is busy takes long
    pytest.mark.processes("compares with real processes"),
]

if TYPE_CHECKING:
    from conftest import Spawn
    from monarch.actor import ProcMesh

NETWORKS = {
    "small": (64, 16, 2),
    "narrow": (256, 64, 3),
    "wide": (768, 64, 2),
    "large": (512, 256, 3),
}
STEPS = 4


@pytest.fixture(scope="module")
def machine(pair_of_processes: ProcMesh) -> Machine:
    """This one.

    Ranks have one thread each, as there may be only two cores; others may be using them, too.
    """
    with pair_of_processes.activate():
        remote("torch.set_num_threads", propagate="inspect")(1)
    return measure(pair_of_processes, shared=True)


def computed(pair_of_processes: ProcMesh, shape: tuple[int, int, int]) -> float:
    """Seconds of processor time that a rank needs for a step."""
    with pair_of_processes.activate():
        step = network(*shape)
        for _ in range(2):
            inspect(step())
        best = float("inf")
        for _ in range(8):
            before = processor_times()
            for _ in range(STEPS):
                step()
            best = min(
                best,
                *(after - start for start, after in zip(before, processor_times(), strict=True)),
            )
    return best / STEPS


def predicted(machine: Machine, shape: tuple[int, int, int], folder: Path) -> float:
    """The same, simulated: all that its ranks compute."""
    sim = Simulator(1, 2, machine=machine, trace_path=folder / "trace.json")
    with sim.mesh.activate():
        step = network(*shape)
        step()
        sim.step()
        step()
    sim.step()
    return sum(event.end - event.start for event in sim._last if event.kind == "compute")


@pytest.mark.slow
def test_what_ranks_compute_is_predicted_within_a_factor_of_two(
    pair_of_processes: ProcMesh, machine: Machine, tmp_path: Path
) -> None:
    real = {name: computed(pair_of_processes, shape) for name, shape in NETWORKS.items()}
    simulated = {name: predicted(machine, shape, tmp_path) for name, shape in NETWORKS.items()}
    print(
        "\n".join(
            f"{name:8} real {real[name] * 1e3:8.3f} ms, simulated {simulated[name] * 1e3:8.3f} ms"
            for name in real
        )
    )
    assert sorted(NETWORKS, key=real.__getitem__) == sorted(NETWORKS, key=simulated.__getitem__)
    assert 0.5 < sum(simulated.values()) / sum(real.values()) < 2
    for name in NETWORKS:
        assert 1 / 3 < simulated[name] / real[name] < 3


def reduced(
    mesh: Any, dim: str, bucket: bool, finish: Callable[[float], float], rounds: int
) -> float:
    """Seconds to average many small gradients: each for itself, or all in one.

    Args:
        finish: Gets the seconds that have passed, and gives those that count.
    """
    with mesh.activate():
        gradients: list[Any] = [torch.ones(100) for _ in range(60)]
        best = float("inf")
        for _ in range(rounds):
            begun = time.perf_counter()
            made = [torch.cat(gradients)] if bucket else gradients
            for gradient in made:
                reduce_(gradient, dim, "avg")
            inspect(made[-1])
            best = min(best, finish(time.perf_counter() - begun))
    return best


def test_which_way_of_reducing_is_faster_is_predicted(
    pair_of_processes: ProcMesh, machine: Machine
) -> None:
    sim = Simulator(1, 2, machine=machine, simulate_mode="simulate_with_report_only")
    simulated = {
        bucket: reduced(sim.mesh, "gpu", bucket, lambda _: sim.step().seconds, 3)
        for bucket in (False, True)
    }
    real = {
        bucket: reduced(pair_of_processes, "gpus", bucket, float, 12) for bucket in (False, True)
    }
    print(f"seconds; one by one: False, in a bucket: True\nreal {real}\nsimulated {simulated}")
    assert simulated[True] < simulated[False] / 3
    assert real[True] < real[False] / 2


# actors


def test_an_actor_of_a_patched_class_computes_with_simulated_tensors(spawn: Spawn) -> None:
    procs = spawn(1)
    with patch_tensor_engine(Trainer):
        patched = procs.spawn("patched", Trainer)
    assert patched.train.call_one(2).get() == 0.0
    assert procs.spawn("real", Trainer).train.call_one(2).get() == 6.0


def test_procs_made_meanwhile_patch_what_their_actors_spawn(spawn: Spawn) -> None:
    with patch_tensor_engine(Trainer):
        procs = spawn(1)
    assert procs.spawn("starter", Starter).train.call_one(2).get() == 0.0


def test_a_factory_says_what_stands_for_the_procs(spawn: Spawn) -> None:
    with patch_tensor_engine(
        Trainer, lambda procs: Simulator(1, 1, simulate_mode="simulate_with_report_only")
    ):
        trainer = spawn(1).spawn("trainer", Trainer)
    assert trainer.train.call_one(1).get() == 0.0
    with pytest.raises(TypeError, match="must give a Simulator with 2 ranks"):
        trainer.train.call_one(2).get()


def test_the_patch_is_where_old_tests_import_it_from() -> None:
    assert import_module("monarch._src.actor.mock").patch_tensor_engine is patch_tensor_engine


def test_only_classes_of_actors_can_be_patched() -> None:
    actor: Any = "Trainer"
    with pytest.raises(TypeError, match="takes an actor class"):
        patch_tensor_engine(actor)
