"""A controller plans for the GPUs of the ranks as instructions, on fakes, with a GPU and without."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.scripts import TESTS, run_script

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


# answered by the runtime of CUDA itself, without a context
HARMLESS = {
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaRuntimeGetVersion",
    "cudaGetDriverEntryPoint",
    "cudaGetDriverEntryPointByVersion",
}


def stand_in(folder: Path) -> tuple[Path, set[str]]:
    """Compile what stands in for the runtime; with it are the functions that make no context."""
    source = Path(TESTS, "helpers", "cuda_runtime.c")
    answered = set(re.findall(r"^ANSWER\((\w+)", source.read_text(), re.MULTILINE))
    libraries = [
        str(path)
        for name in ("libc10_cuda", "libtorch_cuda", "libtorch_cuda_linalg", "libtorch_python")
        if (path := Path(torch.__file__).parent / "lib" / f"{name}.so").exists()
    ]
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", *libraries], capture_output=True, text=True, check=True
    )
    names = set(re.findall(r" U (cuda[A-Z]\w+)", symbols.stdout)) - answered
    kept = {name for name in names if name in HARMLESS and "Driver" not in name}
    refused = "".join(f"REFUSE({name})\n" for name in sorted(names - kept))
    (folder / "refused.h").write_text(refused)
    made = folder / "libcuda.so.1"
    options = ["-shared", "-fPIC", f"-Wl,-soname,{made.name}", f"-I{folder}", "-o", str(made)]
    subprocess.run(["gcc", *options, str(source)], check=True)
    return made, answered | HARMLESS


@pytest.mark.processes("torch notes in a process for good that CUDA was started")
@pytest.mark.skipif(torch.version.cuda is None, reason="torch here is a build without CUDA")
@pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("nm")), reason="needs gcc and nm to make the stand-in"
)
def test_a_controller_with_a_gpu_plans_without_a_context(tmp_path: Path) -> None:
    runtime, harmless = stand_in(tmp_path)
    noted = tmp_path / "noted"
    result = run_script(
        """
        import json
        import os
        from pathlib import Path

        import torch
        from monarch import no_mesh
        from monarch.simulator import Simulator
        from torch._subclasses import fake_tensor

        def step(name, function):
            noted = Path(os.environ["NOTED_CALLS"])
            noted.write_text("")
            error = ""
            try:
                function()
            except Exception as raised:
                error = repr(raised)
            print(json.dumps([name, noted.read_text().split(), error]))

        def autocast(dtype):
            with torch.autocast("cuda", dtype=dtype):
                made = torch.ones(3, 3, device="cuda") @ torch.ones(3, 3, device="cuda")
            assert made.dtype == dtype

        def in_older_torch():
            fake_tensor.torch.accelerator.current_accelerator = lambda *_: "cuda"
            torch.ones(7, 7, device="cuda").cumsum(1)  # not yet planned

        STEPS = {
            "is_available": torch.cuda.is_available,
            "ones": lambda: torch.ones(4, device="cuda"),
            "to": lambda: torch.ones(4).to("cuda:0"),
            "cuda": lambda: torch.ones(4).cuda(),
            "pin_memory": lambda: torch.ones(4).pin_memory(),
            "tensor": lambda: torch.tensor([1.0, 2.0], device="cuda"),
            "random": lambda: torch.rand(3, device="cuda") + torch.randn(3, device="cuda"),
            "manual_seed": lambda: torch.manual_seed(3),
            "bfloat16": lambda: autocast(torch.bfloat16),
            "float16": lambda: autocast(torch.float16),
            "module": lambda: torch.nn.Linear(3, 3).cuda().requires_grad_(False)(
                torch.ones(2, 3, device="cuda")
            ),
            "in_older_torch": in_older_torch,
        }

        if __name__ == "__main__":
            with Simulator(1, 2, build_ir=True).mesh.activate():
                for name, function in STEPS.items():
                    step(name, function)
                with no_mesh.activate():
                    step("no_mesh", lambda: torch.ones(3, device="cuda"))
            step("outside", lambda: torch.ones(3, device="cuda"))
        """,
        env={"LD_PRELOAD": str(runtime), "NOTED_CALLS": str(noted)},
    )
    asked = {}
    for line in result.stdout.splitlines():
        name, calls, error = json.loads(line)
        asked[name] = set(calls) - harmless
        assert bool(error) == (name in ("no_mesh", "outside")), line
    assert len(asked) == 14, str(result)
    assert asked.pop("no_mesh"), "a tensor of its own does use the GPU"
    assert asked.pop("outside")
    assert asked == {name: set() for name in asked}, str(result)
