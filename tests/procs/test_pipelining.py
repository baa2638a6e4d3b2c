"""Networks trained in stages on several meshes: the same numbers as in one process."""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
from torch import nn

from monarch import Stream, inspect
from monarch.actor import ProcMesh, this_host
from monarch.parallel.pipelining import PipelineParallelism

pytestmark = pytest.mark.may_keep("threads", "descriptors")  # torch's

ROWS, MICRO, STEPS = 8, 2, 3


@pytest.fixture(scope="module")
def procs(_booted: None) -> Iterator[ProcMesh]:
    procs = this_host().spawn_procs(per_host={"stage": 3})
    with procs.activate():
        inspect(torch.ones(1))
    yield procs
    procs.stop().get(timeout=30)


@pytest.fixture
def meshes(procs: ProcMesh, _process_test: None) -> list[Any]:
    with procs.activate() as mesh:
        return [mesh.slice(stage=stage) for stage in range(3)]


def stages() -> list[list[nn.Module]]:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    return [
        [nn.Embedding(10, 8)],
        [nn.LayerNorm(8), block, nn.Tanh()],
        [nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 1)],
    ]


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(100 + step)
    words = torch.randint(10, (ROWS,))
    return words, words.float().reshape(-1, 1).sin()


def train_here() -> tuple[list[float], list[torch.Tensor]]:
    net = nn.Sequential(*[module for stage in stages() for module in stage])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    losses = []
    for step in range(STEPS):
        x, y = batch(step)
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [parameter.detach() for parameter in net.parameters()]


@pytest.mark.parametrize("schedule", ["dora-dfs", "1f1b"])
def test_a_network_in_three_stages_learns_as_in_one_process(meshes: list[Any], schedule: str) -> None:
    loss_list: list[Any] = []
    net = stages()
    pipeline = PipelineParallelism(
        meshes, net, Stream("compute"), Stream("travel"), schedule,
        batch_size=ROWS, microbatch_size=MICRO, loss_fn=nn.functional.mse_loss, loss_list=loss_list,
    )  # fmt: skip
    pipeline.initialize()
    pipeline.configure_optimizers({"lr": 0.05}, lambda config, parameters: torch.optim.Adam(parameters, **config))
    losses = [pipeline.run(*batch(step)) for step in range(STEPS)]
    expected, parameters = train_here()
    assert [inspect(loss).item() for loss in losses] == pytest.approx(expected, abs=1e-5)
    assert len(loss_list) == STEPS * ROWS // MICRO
    found = [inspect(each) for stage in net for module in stage for each in module.parameters()]
    for ours, theirs in zip(found, parameters, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_without_optimizers_gradients_add_up(meshes: list[Any]) -> None:
    with meshes[0].activate():
        first = nn.Linear(4, 4)  # made where it lives
        x = torch.ones(4, 4)
    with meshes[1].activate():
        second = nn.Linear(4, 1)
        y = torch.zeros(4, 1)
    pipeline = PipelineParallelism(
        meshes[:2], [[first], [second]], batch_size=4, microbatch_size=4, loss_fn=nn.functional.mse_loss
    )
    pipeline.initialize()
    pipeline.run(x, y)
    assert first.weight.grad is not None
    once = inspect(first.weight.grad)
    pipeline.run(x, y)
    torch.testing.assert_close(inspect(first.weight.grad), once * 2)
    with pytest.raises(ValueError, match="4 rows"):
        pipeline.run(x[:2], y)


def test_sizes_that_do_not_fit_are_refused(meshes: list[Any]) -> None:
    def make(stages: Any, rows: int, micro: int, **options: Any) -> None:
        PipelineParallelism(
            meshes[:2], stages, batch_size=rows, microbatch_size=micro, loss_fn=nn.functional.mse_loss, **options
        )

    one: list[nn.Module] = [nn.Linear(1, 1)]
    with pytest.raises(ValueError, match="divided"):
        make([one, one], 8, 3)
    with pytest.raises(ValueError, match="1 stages and 2 meshes"):
        make([one], 8, 2)
    with pytest.raises(ValueError, match="dora-dfs"):
        make([one, one], 8, 2, schedule="magic")
    with pytest.raises(TypeError, match="nn.Module"):
        make([one, ["module"]], 8, 2)
