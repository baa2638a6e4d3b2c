"""What a program with distributed tensors imports: neither the compiler of torch nor transfers,
unless it uses them.
"""

from __future__ import annotations

import pytest

from helpers.scripts import run_script

pytest.importorskip("torch", reason="distributed tensors need torch")


@pytest.mark.timeout(120)
def test_a_simple_program_imports_neither_the_compiler_nor_transfers() -> None:
    result = run_script(
        """
        import sys, torch
        from monarch import inspect
        from monarch.actor import this_host

        if __name__ == "__main__":
            with this_host().spawn_procs(per_host={"gpus": 2}).activate():
                x = torch.rand(3, requires_grad=True)
                torch.autograd.backward(torch.nn.functional.gelu(x + x).sum())
                torch.optim.SGD([x], lr=0.1).step()
                print(inspect(x.grad).shape)
            store = torch.distributed.HashStore()
            torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
            torch.distributed.destroy_process_group()
            print([name for name in sys.modules if name.startswith(("torch._dynamo.", "monarch.rdma"))])
        """,
        timeout=90,
    )
    assert result.exit_code == 0, result
    assert result.stdout.splitlines() == ["torch.Size([3])", "['torch._dynamo.config']"]


USES = {
    "compile": (
        "f = torch.compile(lambda x: torch.nn.functional.gelu(x) * 2, backend='eager');"
        " print(f(torch.zeros(2)).tolist())"
    ),
    "submodule": "import torch._dynamo.utils; print(torch._dynamo.utils.counters is not None)",
    "name": "from torch._dynamo import optimize; print(callable(optimize))",
    "decorator": "print(torch._dynamo.disable(lambda: 1)())",
    "rules": "print(torch._dynamo.trace_rules.lookup)",
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.timeout(120)
def test_the_compiler_is_there_when_it_is_used_with_the_settings_made_before(use: str) -> None:
    result = run_script(
        f"""
        import sys
        import monarch.tensor_engine.planning.fakes
        import torch, torch._dynamo.config
        with monarch.tensor_engine.planning.fakes.faking():
            torch.ones(2) + 1
        assert not any(name == "torch._dynamo.utils" for name in sys.modules)
        settings = torch._dynamo.config
        settings.verbose = True
        {use}
        assert sys.modules["torch._dynamo"] is torch._dynamo and torch._dynamo.__file__
        assert torch._dynamo.config is settings is sys.modules["torch._dynamo.config"] and torch._dynamo.config.verbose
        mode = torch._subclasses.fake_tensor.FakeTensorMode
        disguised = mode.__torch_dispatch__.__wrapped__.__dict__.get("__dynamo_disable")
        assert disguised is not mode.__torch_dispatch__.__wrapped__, "a compiler would look into it"
        with monarch.tensor_engine.planning.fakes.faking():
            torch.ones(2) + 1
        """,
        timeout=90,
    )
    assert result.exit_code == 0, result


@pytest.mark.timeout(120)
def test_a_process_group_is_made_without_the_compiler_and_then_with_it() -> None:
    result = run_script(
        """
        import sys
        import monarch.tensor_engine.planning.fakes
        import torch, torch.distributed as dist

        def make():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            dist.destroy_process_group()

        make()
        print([name for name in sys.modules if name.startswith("torch._dynamo.")])
        rules = torch._dynamo.trace_rules
        print(callable(rules.lookup))
        cleared = []
        torch._dynamo.trace_rules.clear_lru_cache = lambda: cleared.append(1)
        make()
        rules.clear_lru_cache()
        print(len(cleared))
        """,
        timeout=90,
    )
    assert result.exit_code == 0, result
    assert result.stdout.splitlines() == ["['torch._dynamo.config']", "True", "2"]
