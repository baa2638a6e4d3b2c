"""Optimizers of torch, with default arguments and others: some steps on a mesh end where they do in
one process.
"""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, no-untyped-call, arg-type, union-attr"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
from torch import nn
from torch.optim import lr_scheduler

from helpers.each import for_each
from monarch import fetch_shard, inspect, no_mesh
from monarch.tensor_engine import distribute
from monarch.tensor_engine.planning.fakes import ValueNotHereError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]

Make = Callable[[Any], torch.optim.Optimizer]


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))


def derive(net: nn.Module) -> torch.Tensor:
    x = torch.arange(12.0).reshape(3, 4) / 10
    loss = nn.functional.cross_entropy(net(x), torch.tensor([0, 1, 1]))
    loss.backward()
    return loss


def train(make: Make, steps: int = 4) -> list[Any]:
    """Parameters after some steps."""
    net = network()
    optimizer = make(net.parameters())
    for step in range(steps):
        optimizer.zero_grad(set_to_none=bool(step % 2))
        derive(net)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return list(net.parameters())


def check_same(ours: Any, theirs: Any) -> None:
    """What was fetched from a mesh is what one process found."""
    torch.testing.assert_close(ours, [each.detach() for each in theirs])


class Split:
    """Two groups of parameters with options of their own, the second added later."""

    def __new__(cls, parameters: Any) -> Any:
        first, *rest = parameters
        optimizer = torch.optim.AdamW([{"params": [first], "lr": 0.5}], lr=0.1)
        optimizer.add_param_group({"params": rest, "weight_decay": 0.3})
        return optimizer


OPTIMIZERS: dict[str, Make] = {
    "SGD": torch.optim.SGD,
    "SGD, momentum": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.1
    ),
    "SGD, nesterov": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, maximize=True
    ),
    "SGD, fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "Adam": torch.optim.Adam,
    "Adam, amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True, weight_decay=0.1),
    "Adam, foreach": lambda p: torch.optim.Adam(p, foreach=True),
    "Adam, fused": lambda p: torch.optim.Adam(p, fused=True),
    "Adam, the rate a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "AdamW": torch.optim.AdamW,
    "Adagrad": torch.optim.Adagrad,
    "RMSprop": torch.optim.RMSprop,
    "RMSprop, centered": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9),
    "Adadelta": torch.optim.Adadelta,
    "Adamax": torch.optim.Adamax,
    "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam,
    "ASGD": torch.optim.ASGD,
    "Rprop": torch.optim.Rprop,
    "groups": Split,
}


@for_each("name", OPTIMIZERS)
def test_an_optimizer_steps_as_in_one_process(mesh: Any, name: str) -> None:
    ours = inspect(train(OPTIMIZERS[name]), gpus=1)
    with no_mesh.activate():
        check_same(ours, train(OPTIMIZERS[name]))


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: lr_scheduler.StepLR(o, 2),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 3),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=5),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1),
    "a function": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.5**step),
    "warm-up": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=2), lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
}


@for_each("name", SCHEDULERS)
def test_a_schedule_changes_the_rate_as_in_one_process(mesh: Any, name: str) -> None:
    def train() -> list[Any]:
        net = network()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        schedule = SCHEDULERS[name](optimizer)
        for _ in range(4):
            optimizer.zero_grad()
            derive(net)
            optimizer.step()
            schedule.step()
        return list(net.parameters())

    ours = inspect(train())
    with no_mesh.activate():
        check_same(ours, train())


def test_a_schedule_that_looks_at_the_loss_gets_it_fetched(mesh: Any) -> None:
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    loss = derive(network())
    with pytest.raises(ValueNotHereError, match="inspect"):
        schedule.step(loss)
    for _ in range(2):
        schedule.step(inspect(loss.detach()).item())
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


def test_gradients_add_up_over_pieces_of_a_batch(mesh: Any) -> None:
    def train() -> list[Any]:
        net = network()
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(2):
            optimizer.zero_grad(set_to_none=False)
            for piece in (torch.arange(12.0).reshape(3, 4) / 10).split(1):
                (net(piece).pow(2).mean() / 3).backward()
            optimizer.step()
        return list(net.parameters())

    ours = inspect(train())
    with no_mesh.activate():
        check_same(ours, train())


def test_gradients_are_clipped_by_norm_and_by_value(mesh: Any) -> None:
    def clip() -> list[Any]:
        net = network()
        derive(net)
        gradients = [parameter.grad for parameter in net.parameters()]
        before = nn.utils.get_total_norm(gradients)
        norms = [
            nn.utils.clip_grad_norm_(net.parameters(), 0.5),
            nn.utils.get_total_norm(gradients),
        ]
        nn.utils.clip_grad_value_(net.parameters(), 0.01)
        return [before, *norms, *gradients]

    ours = inspect(clip())
    with no_mesh.activate():
        check_same(ours, clip())


def test_an_optimizer_may_step_as_each_gradient_is_complete(mesh: Any) -> None:
    def train() -> list[Any]:
        net = network()
        optimizers = {parameter: torch.optim.AdamW([parameter]) for parameter in net.parameters()}

        def step(parameter: Any) -> None:
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in net.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        for _ in range(2):
            derive(net)
        return list(net.parameters())

    ours = inspect(train())
    with no_mesh.activate():
        check_same(ours, train())


@pytest.mark.parametrize("name", ["SGD, momentum", "AdamW", "Adagrad", "NAdam"])
def test_training_goes_on_from_states_that_were_fetched(mesh: Any, name: str) -> None:
    """Saved by one program as local tensors, and loaded by another onto a mesh."""

    def steps(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(2):
            optimizer.zero_grad()
            derive(net)
            optimizer.step()

    net = network()
    optimizer = OPTIMIZERS[name](net.parameters())
    steps(net, optimizer)
    saved = fetch_shard({"net": net.state_dict(), "optimizer": optimizer.state_dict()}).get()
    again = network()
    other = OPTIMIZERS[name](again.parameters())
    again.load_state_dict(distribute(saved["net"]))
    other.load_state_dict(distribute(saved["optimizer"]))
    steps(again, other)
    steps(net, optimizer)
    ours, continued = inspect((list(net.parameters()), list(again.parameters())), gpus=1)
    with no_mesh.activate():
        local = network()
        local_optimizer = OPTIMIZERS[name](local.parameters())
        local.load_state_dict(saved["net"])
        local_optimizer.load_state_dict(saved["optimizer"])
        steps(local, local_optimizer)
        check_same(ours, continued)
        check_same(ours, local.parameters())


def test_an_optimizer_that_searches_says_that_it_needs_values(mesh: Any) -> None:
    net = network()
    optimizer = torch.optim.LBFGS(net.parameters())
    with pytest.raises(ValueNotHereError, match="remote function"):
        optimizer.step(lambda: derive(net))
