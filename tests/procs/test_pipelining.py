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

from helpers.modules import PlusSum
from monarch import OpaqueRef, Stream, get_active_stream, inspect, remote
from monarch.actor import ProcMesh, this_host
from monarch.parallel.pipelining import PipelineParallelism, get_parameter_udf
from monarch.tensor_engine import OpaqueModule, RemoteException

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]

ROWS, MICRO, STEPS = 8, 2, 3


@pytest.fixture(scope="module")
def procs(_booted: None) -> Iterator[ProcMesh]:
    procs = this_host().spawn_procs(per_host={"stage": 4})
    with procs.activate():
        inspect(torch.ones(1))
    yield procs
    procs.stop().get()


@pytest.fixture
def meshes(procs: ProcMesh, _process_test: None) -> list[Any]:
    with procs.activate() as mesh:
        return [mesh.slice(stage=stage) for stage in range(4)]


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
def test_a_network_in_three_stages_learns_as_in_one_process(
    meshes: list[Any], schedule: str
) -> None:
    loss_list: list[Any] = []
    net = stages()
    pipeline = PipelineParallelism(
        meshes[:3], net, Stream("compute"), Stream("travel"), schedule,
        batch_size=ROWS, microbatch_size=MICRO, loss_fn=nn.functional.mse_loss, loss_list=loss_list,
    )  # fmt: skip
    pipeline.initialize()
    pipeline.configure_optimizers(
        {"lr": 0.05}, lambda config, parameters: torch.optim.Adam(parameters, **config)
    )
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
        meshes[:2],
        [[first], [second]],
        batch_size=4,
        microbatch_size=4,
        loss_fn=nn.functional.mse_loss,
    )
    pipeline.initialize()
    pipeline.run(x, y)
    assert first.weight.grad is not None
    once = inspect(first.weight.grad)
    pipeline.run(x, y)
    torch.testing.assert_close(inspect(first.weight.grad), once * 2)
    with pytest.raises(ValueError, match="4 rows"):
        pipeline.run(x[:2], y)


@pytest.mark.parametrize("schedule", ["dora-dfs", "1f1b"])
def test_gradients_add_up_where_parameters_share_one(meshes: list[Any], schedule: str) -> None:
    here, there = PlusSum(), PlusSum()
    x, y = torch.randn(4, 2), torch.zeros(4, 2)
    nn.functional.mse_loss(here(x), y).backward()
    loss_fn = nn.functional.mse_loss
    pipeline = PipelineParallelism(
        meshes[:1], [[there]], schedule=schedule, batch_size=4, microbatch_size=1, loss_fn=loss_fn
    )
    pipeline.initialize()
    pipeline.run(x, y)
    for ours, theirs in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(inspect(ours.grad), theirs.grad)


def test_sizes_that_do_not_fit_are_refused(meshes: list[Any]) -> None:
    def make(stages: Any, rows: int, micro: int, **options: Any) -> None:
        PipelineParallelism(
            meshes[:2],
            stages,
            batch_size=rows,
            microbatch_size=micro,
            loss_fn=nn.functional.mse_loss,
            **options,
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
    with pytest.raises(TypeError, match="loss_fn"):
        PipelineParallelism(meshes[:2], [one, one])


# stages that were made on the ranks


def part(number: int) -> nn.Module:
    """A stage; the same numbers wherever it is made."""
    torch.manual_seed(number)
    return [
        nn.Sequential(nn.Linear(4, 8), nn.Tanh()),
        nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)),
        nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True)),
        nn.Linear(8, 1),
    ][number]


@remote(propagate=lambda number: OpaqueRef(None))
def part_there(number: int) -> OpaqueRef:
    return OpaqueRef(part(number))


@remote(propagate=lambda module: OpaqueRef(None))
def optimizer_there(module: OpaqueRef) -> OpaqueRef:
    return OpaqueRef(torch.optim.SGD(module.value.parameters(), lr=0.1, momentum=0.9))


@remote(propagate="inspect")
def step_there(optimizer: OpaqueRef) -> None:
    optimizer.value.step()
    optimizer.value.zero_grad()


@remote(propagate=lambda: OpaqueRef(None))
def loss_there() -> OpaqueRef:
    return OpaqueRef(nn.MSELoss())


def points(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(200 + step)
    x = torch.randn(ROWS, 4)
    return x, x.sum(1, keepdim=True).sin()


def train_parts_here() -> tuple[list[float], list[list[torch.Tensor]]]:
    parts = [part(number) for number in range(4)]
    parameters = [parameter for each in parts for parameter in each.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        x, y = points(step)
        loss = nn.functional.mse_loss(nn.Sequential(*parts)(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [[parameter.detach() for parameter in each.parameters()] for each in parts]


def on(mesh: Any, stream: Any, make: Any, *args: Any) -> Any:
    with mesh.activate(), stream.activate():
        return make(*args)


@pytest.mark.parametrize("schedule", ["dora-dfs", "1f1b"])
def test_stages_of_all_kinds_learn_as_in_one_process(meshes: list[Any], schedule: str) -> None:
    compute = Stream("compute")
    module = on(meshes[1], compute, OpaqueModule, part, 1)
    ref = on(meshes[2], compute, part_there, 2)
    loss = on(meshes[3], compute, loss_there)
    last = on(meshes[3], compute, OpaqueModule, part, 3)
    stages: list[list[Any]] = [[part(0)], [module], [ref], [nn.Identity(), last]]
    pipeline = PipelineParallelism(
        meshes, stages, compute, Stream("travel"), schedule, ROWS, MICRO, loss
    )
    pipeline.initialize()
    pipeline.configure_optimizers(
        0.1, lambda rate, parameters: torch.optim.SGD(parameters, lr=rate, momentum=0.9)
    )
    losses = [pipeline.run(*points(step)) for step in range(STEPS)]
    expected, parameters = train_parts_here()
    assert [inspect(each).item() for each in losses] == pytest.approx(expected, abs=1e-5)
    for stage, theirs in enumerate(parameters):
        for ours, each in zip(pipeline.parameters(stage), theirs, strict=True):
            torch.testing.assert_close(inspect(ours), each, atol=1e-5, rtol=1e-4)


def test_what_is_in_an_opaque_ref_is_trained_on_its_ranks(meshes: list[Any]) -> None:
    refs = [on(meshes[number], get_active_stream(), part_there, number) for number in range(4)]
    optimizers = [optimizer_there(ref) for ref in refs]
    pipeline = PipelineParallelism(
        meshes,
        [[ref] for ref in refs],
        batch_size=ROWS,
        microbatch_size=MICRO,
        loss_fn=nn.MSELoss(),
    )
    losses = []
    for step in range(STEPS):
        losses.append(pipeline.run(*points(step)))
        for optimizer in optimizers:
            step_there(optimizer)
    expected, parameters = train_parts_here()
    assert [inspect(each).item() for each in losses] == pytest.approx(expected, abs=1e-5)
    for name, theirs in zip(("weight", "bias"), parameters[3], strict=True):
        ours = inspect(get_parameter_udf(refs[3], name, tuple(theirs.shape)))
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_a_parameter_of_an_opaque_stage_is_read_and_written(meshes: list[Any]) -> None:
    expected = part(1).state_dict()["1.weight"].tolist()
    with meshes[0].activate():
        ref = part_there(1)
        weight = get_parameter_udf(ref, "1.weight", (8, 8))
        assert inspect(weight).tolist() == expected
        weight.fill_(2.0)
        assert inspect(get_parameter_udf(ref, "1.weight", (8, 8))).tolist() == [[2.0] * 8] * 8
        with pytest.raises(RemoteException, match="height"):
            inspect(get_parameter_udf(ref, "1.height", (8, 8)))
        with pytest.raises(RemoteException, match=r"shape \(8, 9\)"):
            inspect(get_parameter_udf(ref, "1.weight", (8, 9)))


def test_what_is_no_module_or_lives_elsewhere_is_refused(meshes: list[Any]) -> None:
    def run(ref: Any) -> Any:
        pipeline = PipelineParallelism(
            meshes[:1], [[ref]], batch_size=2, microbatch_size=1, loss_fn=nn.functional.mse_loss
        )
        return inspect(pipeline.run(torch.ones(2, 4), torch.ones(2, 1)))

    with meshes[0].activate():
        loss = optimizer_there(part_there(0))
    with pytest.raises(RemoteException, match="a torch.nn.Module in it, got SGD"):
        run(loss)
    with meshes[1].activate():
        elsewhere = part_there(0)
    with pytest.raises(ValueError, match=r"ranks \(0,\), .* ranks \(1,\)"):
        run(elsewhere)
