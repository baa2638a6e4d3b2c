"""A controller without a GPU plans for those of the ranks: as instructions, on fakes."""

from __future__ import annotations

import pytest

from helpers.scripts import run_script

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@pytest.mark.processes("torch notes in a process for good that CUDA was started")
def test_tensors_of_gpus_are_planned_where_there_is_none() -> None:
    result = run_script("""
        import torch
        from monarch import no_mesh
        from monarch.simulator import Simulator

        if __name__ == "__main__":
            torch.backends.cuda.is_built = lambda: True  # as the build of most machines without one
            sim = Simulator(1, 2, build_ir=True)
            with sim.mesh.activate():
                made = torch.ones(4).pin_memory().to("cuda:0")
                kinds = [
                    made,
                    torch.full((3,), 2.0, device="cuda") + torch.rand(3, device="cuda"),
                    torch.tensor([1.0, 2.0], device="cuda:0"),
                    torch.tensor(1.0, device="cuda:0") * 2,
                    torch.empty_like(made),
                ]
            print([str(each.device) for each in kinds])
            sim.step()
            print([each.command_name for each in sim.ir.control_dag if each.worker_rank == 1])
            print(torch._C._only_lift_cpu_tensors(), torch.cuda.is_initialized())
            print(no_mesh, torch.tensor([1.0]).device)
        """)
    devices, commands, state, local = result.stdout.splitlines()
    assert devices == str(["cuda:0"] * 5), str(result)
    for name in ("ones", "_pin_memory", "_to_copy", "full", "rand", "add", "mul", "empty_like"):
        assert f"'{name}'" in commands, str(result)
    assert state == "False False", str(result)
    assert local.endswith("cpu"), str(result)
