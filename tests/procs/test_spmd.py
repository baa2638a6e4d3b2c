"""`monarch.spmd`: the environment of torch elastic on the ranks of a mesh, and scripts that run as
one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from monarch.actor import Actor, endpoint
from monarch.spmd import SPMDActor, setup_torch_elastic_env, setup_torch_elastic_env_async

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.processes("each rank has the environment of its process"),
    pytest.mark.torch,  # of a mesh that tests share
]

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch, which is not installed"
)


class Rank(Actor):
    @endpoint
    def variables(self) -> dict[str, str]:
        return dict(os.environ)

    @endpoint
    def total(self) -> float:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        try:
            mine = torch.tensor([float(dist.get_rank())])
            dist.all_reduce(mine)
            return mine.item()
        finally:
            dist.destroy_process_group()


def test_every_rank_has_the_variables_of_torch_elastic(spawn: Spawn) -> None:
    procs = spawn({"hosts": 2, "gpus": 3})
    ranks = procs.spawn("ranks", Rank)
    setup_torch_elastic_env(procs)
    found = ranks.variables.call().get()
    last = found.item(hosts=1, gpus=2)
    wanted = {
        "RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "5", "ROLE_WORLD_SIZE": "6", "ROLE_NAME": "rank",
    }  # fmt: skip
    assert {name: last[name] for name in wanted} == wanted
    assert [each["RANK"] for each in found.values()] == ["0", "1", "2", "3", "4", "5"]
    assert len({(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in found.values()}) == 1


def test_the_master_may_be_given_or_asked_for_by_address(spawn: Spawn) -> None:
    procs = spawn(1)
    ranks = procs.spawn("ranks", Rank)
    setup_torch_elastic_env(procs, "node7", 1234)
    found = ranks.variables.call_one().get()
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("node7", "1234")
    asyncio.run(setup_torch_elastic_env_async(procs, use_ipaddr="ipv4"))
    assert ranks.variables.call_one().get()["MASTER_ADDR"].count(".") == 3


def test_wrong_arguments_are_refused_at_the_call(spawn: Spawn) -> None:
    procs = spawn(1)
    with pytest.raises(AssertionError, match="both"):
        setup_torch_elastic_env(procs, master_addr="node7")
    with pytest.raises(TypeError, match="ProcMesh"):
        setup_torch_elastic_env(4)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="'ipv5'"):
        setup_torch_elastic_env(procs, use_ipaddr="ipv5")  # type: ignore[arg-type]

    async def blocks() -> None:
        setup_torch_elastic_env(procs)

    with pytest.raises(RuntimeError, match="setup_torch_elastic_env_async"):
        asyncio.run(blocks())


@needs_torch
@pytest.mark.may_keep("threads", "descriptors")
@pytest.mark.timeout(120)
def test_a_process_group_needs_no_arguments(spawn: Spawn) -> None:
    procs = spawn({"gpus": 3})
    ranks = procs.spawn("ranks", Rank)
    setup_torch_elastic_env(procs)
    assert ranks.total.call().get().values() == [3.0, 3.0, 3.0]


def test_a_script_and_a_module_run_as_a_rank(spawn: Spawn, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import os, sys\nassert __name__ == '__main__'\nopen(os.path.join({str(tmp_path)!r},"
        " 'rank' + os.environ['RANK']), 'w').write(' '.join(sys.argv[1:]))\n"
    )
    ranks: Any = spawn(2).spawn("ranks", SPMDActor)
    assert ranks.main.call("node7", 1234, [str(script), "--steps", "3"]).get().values() == [
        True,
        True,
    ]
    assert [(tmp_path / f"rank{rank}").read_text() for rank in range(2)] == ["--steps 3"] * 2
    first = ranks.flatten("rank").slice(rank=0)
    assert first.main.call_one("node7", 1234, ["-m", "base64", "-e", str(script)]).get() is True
    with pytest.raises(ValueError, match="No script or module specified"):
        first.main.call_one("node7", 1234, ["-m"]).get()
