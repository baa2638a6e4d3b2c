"""Instructions that are sent together, and recorded functions."""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, union-attr, no-any-return, no-untyped-call, arg-type"

from __future__ import annotations

import gc
import importlib
import threading
from typing import Any

import pytest

from helpers.actors import Echo
from helpers.kept_values import values_kept
from helpers.waiting import wait_until

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
from torch import nn

from monarch import Stream, coalescing, fetch_shard, inspect, reduce, remote
from monarch.actor import ProcMesh
from monarch.tensor_engine import (
    RemoteException,
    TensorError,
    instructions,
    record,
    spawn_tensor_engine,
)
from monarch.tensor_engine.worker import worker_collectives

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("descriptors", "threads"),  # torch's
]


@remote(propagate=lambda tensor, factor: torch.empty_like(tensor))
def scale(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    return tensor * factor


@remote(propagate=lambda tensor: tensor.add_(1))
def fail_to_write(tensor: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("told to fail")


@remote(propagate="inspect")
def note(seen: str) -> None:
    _noted.append(seen)


_noted: list[str] = []


def _programs() -> int:
    from monarch.tensor_engine.worker.worker import workers

    return sum(len(worker._shared.programs) for worker in workers().values())


def _take_noted() -> list[str]:
    noted = _noted.copy()
    _noted.clear()
    return noted


def spoil(mesh: Any) -> torch.Tensor:
    """Fails on rank 1."""
    return torch.zeros(2).index_select(0, torch.tensor([5]) * mesh.rank("gpus"))


# coalescing


@pytest.mark.processes("a list that the ranks do not share")
def test_nothing_is_sent_before_the_block_ends(mesh: Any) -> None:
    remote(_take_noted).call().get()
    with coalescing():
        note("in")
        # whose instructions are its own
        thread = threading.Thread(target=_note_outside, args=(mesh,))
        thread.start()
        thread.join()
    assert [list(each) for each in remote(_take_noted).call().get().values()] == [
        ["outside", "in"]
    ] * 2


def _note_outside(mesh: Any) -> None:
    with mesh.activate():
        note("outside")
        fetch_shard(None).get()


def test_what_is_made_in_a_block_is_used_after_it(mesh: Any) -> None:
    base = torch.ones(2)
    with coalescing():
        total = base
        for _ in range(300):
            total = total + 1
        with coalescing():
            view = total[:1]
        total.add_(1)
    assert inspect(total).tolist() == [302, 302]
    assert inspect(view).tolist() == [302]


@pytest.mark.both
def test_a_block_that_raises_has_done_nothing(mesh: Any) -> None:
    base = torch.ones(2)
    made, views = [], []

    def block() -> None:
        with coalescing():
            made.append(base + 1)
            views.append(base[:1])
            base.add_(10)
            raise KeyError

    with pytest.raises(KeyError):
        block()
    with pytest.raises(TensorError, match=r"DROPPED(.|\n)*coalescing\(\), which raised"):
        made[0].add(1)
    assert inspect(base).tolist() == [1, 1]


def raise_in_block(block: Any) -> None:
    def raising() -> None:
        with coalescing():
            block()
            raise KeyError

    with pytest.raises(KeyError):
        raising()


def test_views_of_what_was_there_before_are_void_with_a_block_that_raises(mesh: Any) -> None:
    base = torch.ones(2)
    views: list[Any] = []
    raise_in_block(lambda: views.extend([base[:1], base.view(2, 1)]))
    for view in views:
        with pytest.raises(TensorError, match=r"DROPPED(.|\n)*coalescing\(\), which raised"):
            view.add(1)
    assert not base.dropped
    assert inspect(base[1:]).tolist() == [1]


def test_program_and_ranks_agree_on_numbers_after_a_block_that_raised(
    mesh: Any,
) -> None:
    step, view = torch.tensor(3.0), torch.tensor([1.0])

    def block() -> None:
        step.add_(1)
        step.mul_(2)
        assert step.item() == 8
        view[0].fill_(9)

    raise_in_block(block)
    for tensor, expected in ((step, 3), (view, 1)):
        assert tensor.item() == inspect(tensor).item() == expected
    step.add_(1)
    assert step.item() == inspect(step).item() == 4


def test_an_optimizer_goes_on_after_a_block_that_raised(mesh: Any) -> None:
    def train(disturbed: bool) -> list[float]:
        weight = torch.full((2,), 1.0, requires_grad=True)
        optimizer = torch.optim.Adam([weight], lr=0.1)
        for _ in range(3):
            weight.grad = torch.full((2,), 0.5)
            optimizer.step()
            if disturbed:
                raise_in_block(optimizer.step)
        return inspect(weight.detach()).tolist()

    assert train(True) == train(False)


def test_shapes_that_were_changed_in_place_are_as_before_after_a_block_that_raised(
    mesh: Any,
) -> None:
    x, y, z = torch.arange(6).view(2, 3), torch.ones(2), torch.empty(0)

    def block() -> None:
        x.t_().unsqueeze_(0)
        y.data = torch.zeros(5)
        torch.add(y, 1, out=z)
        assert (x.shape, y.shape, z.shape) == ((1, 3, 2), (5,), (5,))

    raise_in_block(block)
    assert (x.shape, y.shape, z.shape) == ((2, 3), (2,), (0,))
    assert inspect((x, y, z, x + 1))[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert inspect(y + 1).tolist() == [2, 2]


def test_what_ends_in_a_block_that_raises_is_ended(mesh: Any) -> None:
    other = Stream("other")
    x, y = torch.ones(1), torch.ones(1)
    (used, first), (unused, second) = other.borrow(x, mutable=True), other.borrow(y, mutable=True)

    def block() -> None:
        with other.activate():
            used.add_(5)  # for the first time
        second.drop()

    raise_in_block(block)
    with other.activate():
        used.add_(1)
    first.drop()
    del unused
    assert inspect((x, y))[0].item() == 2
    before = max(remote(values_kept).call().get().values())
    kept = [torch.ones(1) for _ in range(20)]

    def free() -> None:
        kept.clear()
        torch.ones(1)

    raise_in_block(free)
    assert max(remote(values_kept).call().get().values()) <= before + 2


def test_nothing_is_fetched_in_a_block(mesh: Any) -> None:
    tensor = torch.ones(2)
    actors = mesh.procs.spawn("echo", Echo)
    for fetch in (
        lambda: inspect(tensor),
        lambda: remote(values_kept).call(),
        lambda: actors.say.call(tensor),
    ):
        with pytest.raises(NotImplementedError, match=r"coalescing\(\)"), coalescing():
            fetch()
    assert inspect(tensor).tolist() == [1, 1]
    actors.stop().get()


def test_a_block_belongs_to_one_engine(mesh: Any) -> None:
    second = spawn_tensor_engine(mesh.procs)

    def block() -> None:
        with coalescing():
            torch.ones(1)
            with second.activate():
                torch.ones(1)

    with pytest.raises(ValueError, match="one tensor engine"):
        block()
    second.exit()


def test_a_borrow_ends_in_the_block_in_which_it_began(mesh: Any) -> None:
    other = Stream("other")
    tensor = torch.ones(2)
    with pytest.raises(RuntimeError, match="must be dropped in there"), coalescing():
        other.borrow(tensor, mutable=True)
    assert inspect(tensor.add_(1)).tolist() == [2, 2]
    with coalescing():
        lent, borrow = other.borrow(tensor, mutable=True)
        with borrow, other.activate():
            lent.add_(1)
    assert inspect(tensor).tolist() == [3, 3]


# recording


class Counted:
    """A function, recorded, and how often it was run."""

    def __init__(self, function: Any, verify: bool = True) -> None:
        self.runs = 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.runs += 1
            return function(*args, **kwargs)

        self.recorded = record(counted, verify=verify)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.recorded(*args, **kwargs)


@pytest.mark.both
def test_a_recorded_function_is_run_twice_and_then_replayed(mesh: Any) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        for _ in range(10):
            x = x * 2 + y
        return {"sum": x.sum(), "x": x, "name": "it"}

    counted = Counted(function)
    for step in range(5):
        x, y = torch.full((3,), float(step)), torch.ones(3) + mesh.rank("gpus")
        found, expected = counted(x, y), function(x, y)
        assert found["name"] == "it"
        for rank in range(2):
            for name in ("sum", "x"):
                assert (
                    inspect(found[name], gpus=rank).tolist()
                    == inspect(expected[name], gpus=rank).tolist()
                )
    assert counted.runs == 2
    unverified = Counted(function, verify=False)
    for _ in range(3):
        unverified(x, y)
    assert unverified.runs == 1


def test_there_is_a_recording_for_each_kind_of_arguments(mesh: Any) -> None:
    counted = Counted(lambda x, factor=1, flag=False: x * factor + (1 if flag else 0), verify=False)
    x = torch.ones(2)
    for args, kwargs in [
        ((x,), {}),
        ((x, 2), {}),
        ((x,), {"flag": True}),
        ((torch.ones(3),), {}),
        ((x.double(),), {}),
    ]:
        before = counted.runs
        counted(*args, **kwargs)
        counted(*args, **kwargs)
        assert counted.runs == before + 1
    with pytest.raises(TypeError, match="can be hashed"):
        counted(x, [1, {2}])
    other = Stream("other")
    with other.activate():
        before = counted.runs
        y = counted(torch.ones(2), 2)
        assert counted.runs == before + 1
    assert y.stream is other
    assert inspect(y).tolist() == [2, 2]


def test_arguments_that_share_memory_are_another_kind(mesh: Any) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    counted = Counted(function, verify=False)
    x, y = torch.zeros(2), torch.zeros(2)
    assert inspect(counted(x, y)).tolist() == [1, 1]
    assert inspect(counted(x, y)).tolist() == [2, 2]
    assert inspect(counted(x, x)).tolist() == [6, 6]
    assert inspect(counted(x, x[:])).tolist() == [8, 8]
    assert counted.runs == 3


def test_captures_belong_to_the_recording(mesh: Any) -> None:
    weight = torch.ones(2)
    counted = Counted(lambda x: x + weight)
    for _ in range(3):
        assert inspect(counted(torch.zeros(2))).tolist() == inspect(weight).tolist()
        weight.add_(1)
    assert counted.runs == 2
    assert inspect(counted(weight)).tolist() == [8, 8]  # another kind: it is its own capture
    assert counted.runs == 3
    weight.drop()
    with pytest.raises(TensorError, match="DROPPED"):
        counted(torch.zeros(2))


@pytest.mark.parametrize("verify", [True, False])
def test_a_first_call_may_take_what_it_captures(mesh: Any, verify: bool) -> None:
    weight, other = torch.ones(2), torch.full((2,), 5.0)
    function = record(lambda x: (x * 10 + weight, x, weight), verify=verify)
    for _ in range(3):
        for given in (weight, other):
            made, argument, captured = function(given)
            assert inspect(made).tolist() == inspect(given * 10 + weight).tolist()
            assert argument is given
            assert captured is weight
    grow = record(lambda x, y: (x.add_(weight), y.add_(1), None)[-1], verify=verify)
    for expected in (3, 7, 15):
        version = weight._version
        grow(weight, weight.detach())
        assert weight._version > version
        assert inspect(weight).tolist() == [expected] * 2
    grow(other, other)
    assert inspect(other).tolist() == [21, 21]


def test_an_argument_that_was_kept_can_be_used_after_a_recording(mesh: Any) -> None:
    kept: list[Any] = []
    x, stream = torch.ones(2), Stream("other")
    with stream.activate():
        y = torch.ones(3)

    @record
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        kept.extend([x, y])
        return x + 1

    for _ in range(3):
        assert inspect(function(x, y)).tolist() == [2, 2]
    x.add_(1)
    assert inspect(kept[0] + 1).tolist() == [3, 3]
    assert inspect(kept[3]).tolist() == [1, 1, 1]
    with torch.inference_mode():
        assert inspect(function(torch.ones(2), y)).tolist() == [2, 2]


def test_writes_reach_arguments_captures_and_their_views(mesh: Any) -> None:
    total = torch.zeros(2)
    view = total[:1]

    @record
    def function(x: torch.Tensor) -> None:
        x.mul_(2)
        total[1:].add_(x[0])

    x = torch.ones(1)
    version = x._version
    for _ in range(4):
        function(x)
    assert inspect(x).tolist() == [16]
    assert inspect(total).tolist() == [0, 2 + 4 + 8 + 16]
    assert inspect(view).tolist() == [0]
    assert x._version >= version + 4


def test_results_may_be_arguments_captures_views_and_share_memory(mesh: Any) -> None:
    capture = torch.zeros(2)

    @record
    def function(x: torch.Tensor) -> Any:
        x.add_(1)
        made = x + 1
        return x, x.detach(), x[:1], made, made[:1], made, capture

    x = torch.zeros(2)
    for step in range(1, 4):
        same, detached, view, made, made_view, again, captured = function(x)
        assert same is x
        assert detached is not x
        versions = x._version, made._version
        (view if step == 2 else detached).add_(0)
        made_view.add_(0)
        assert (x._version, made._version) == (versions[0] + 1, versions[1] + 1)
        assert captured is capture
        assert again is made
        made.add_(10)
        assert inspect(made_view).tolist() == [step + 11]
        assert inspect(view).tolist() == [step]
        made.drop()
        assert made_view.dropped
        assert not x.dropped
    x.drop()
    assert view.dropped


def test_a_graph_notices_that_a_replay_has_written_to_what_it_saved(mesh: Any) -> None:
    weight, state, untouched = torch.ones(2), torch.ones(2), torch.ones(2)

    @record
    def function(given: torch.Tensor) -> torch.Tensor:
        weight[:1].add_(1)
        state.detach().mul_(2)
        untouched.data.add_(1)  # as in torch: autograd does not notice
        return given.add_(1) + untouched

    given = torch.ones(2)
    for _ in range(3):
        function(given)
    for saved, is_noticed in ((weight, True), (state, True), (given, True), (untouched, False)):
        x = torch.ones(2, requires_grad=True)
        loss = (x * saved).sum()
        function(given)
        if is_noticed:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            loss.backward()
    assert inspect(weight).tolist() == [8, 1]


def test_a_recorded_function_changes_the_shape_of_nothing_from_elsewhere(mesh: Any) -> None:
    captured, out = torch.ones(2, 3), torch.empty(0)
    for function in (
        lambda x: x.t_(),
        lambda x: x.add(captured.t_().sum()),
        lambda x: torch.add(x, 1, out=out),
        lambda x: setattr(captured, "data", x + 1),
    ):
        with pytest.raises(
            NotImplementedError, match="changes the shape of a tensor from elsewhere"
        ):
            record(function)(x := torch.ones(2, 3))
        assert x.shape == captured.shape == (2, 3)
        assert out.shape == (0,)
    assert inspect(captured.sum()).item() == 6
    transposed = record(lambda x: x.detach().t_() + 1)
    for _ in range(3):
        assert transposed(captured).shape == (3, 2)


def test_what_is_made_and_not_returned_is_void(mesh: Any) -> None:
    kept = []

    @record
    def function(x: torch.Tensor) -> torch.Tensor:
        kept.append(x + 1)
        return kept[-1] + 1

    assert inspect(function(torch.zeros(1))).tolist() == [2]
    with pytest.raises(TensorError, match=r"DROPPED(.|\n)*does not return it"):
        kept[0].add(1)
    record(lambda x: kept.append(x[:1]))(x := torch.ones(2))
    with pytest.raises(TensorError, match=r"DROPPED(.|\n)*does not return it"):
        kept[-1].add(1)
    assert inspect(x).tolist() == [1, 1]


def test_a_method_is_recorded_for_each_instance(mesh: Any) -> None:
    class Net(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.weight = torch.full((2,), scale)

        @record
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    nets = [Net(2.0), Net(3.0)]
    for _ in range(3):
        assert [inspect(net(torch.ones(2))).tolist() for net in nets] == [[2, 2], [3, 3]]


def test_a_function_that_changes_its_mind_diverges(mesh: Any) -> None:
    runs: list[None] = []

    @record
    def function(x: torch.Tensor) -> torch.Tensor:
        runs.append(None)
        return x.sum(0) if len(runs) == 2 else x * 3

    x = torch.ones(2)
    function(x)
    with pytest.raises(RuntimeError, match=r"diverges(.|\n)*-aten::mul(.|\n)*\+aten::sum"):
        function(x)
    assert inspect(x).tolist() == [1, 1]

    steps: list[None] = []

    @record
    def counting(x: torch.Tensor) -> torch.Tensor:
        steps.append(None)
        return scale(x, float(len(steps)))  # a number that is no argument

    counting(x)
    with pytest.raises(RuntimeError, match="diverges"):
        counting(x)

    @record
    def capturing(x: torch.Tensor) -> torch.Tensor:
        return x + tensors[-1]

    tensors = [torch.ones(2)]
    capturing(x)
    tensors.append(torch.ones(2))
    with pytest.raises(RuntimeError, match=r"diverges(.|\n)*from elsewhere"):
        capturing(x)


def test_gradients_do_not_pass(mesh: Any) -> None:
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(TensorError, match="REQUIRES_GRAD"):
        record(lambda x: x.detach())(weight)
    with pytest.raises(TensorError, match="REQUIRES_GRAD"):
        record(lambda x: x * weight)(torch.ones(2))


def test_a_step_of_training_is_recorded(mesh: Any) -> None:
    def train(recorded: bool, steps: int = 6) -> list[float]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = net(x).pow(2).mean()
            loss.backward()
            for parameter in net.parameters():
                parameter.grad.reduce_("gpus", "avg")
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        batch = torch.ones(3, 4) * (1 + mesh.rank("gpus"))
        losses = [step(batch)]  # in which momentum is made
        run = record(step) if recorded else step
        losses += [run(batch * (1 + index / 10)) for index in range(steps)]
        return [inspect(loss).item() for loss in losses]

    found, expected = train(True), train(False)
    assert found == pytest.approx(expected)
    assert len(set(found)) == len(found)


def test_random_numbers_constants_and_functions_are_fresh_each_time(mesh: Any) -> None:
    @record
    def function(x: torch.Tensor) -> Any:
        constant = torch.tensor([1.0, 2.0])
        constant.add_(x)
        return torch.rand(4), constant, scale(constant, 10.0), mesh.rank("gpus")

    seen = set()
    for step in range(4):
        noise, constant, scaled, rank = function(torch.full((2,), float(step)))
        seen.add(tuple(inspect(noise).tolist()))
        assert inspect(constant).tolist() == [step + 1, step + 2]
        assert inspect(scaled).tolist() == [10 * (step + 1), 10 * (step + 2)]
        assert inspect(rank, gpus=1).item() == 1
    assert len(seen) == 4


def test_what_the_controller_knows_of_arguments_is_no_part_of_a_recording(mesh: Any) -> None:
    with pytest.raises(RuntimeError, match="depends on values"):
        record(lambda x: x.item())(torch.tensor(3.0))
    record(lambda x: x.add_(1))(step := torch.tensor(3.0))
    with pytest.raises(RuntimeError, match="depends on values"):
        step.item()
    counting = record(lambda step: count(step))
    for _ in range(3):
        counting(step := torch.tensor(3.0))
        with pytest.raises(RuntimeError, match="depends on values"):
            step.item()
        assert inspect(step).item() == 4


@remote(propagate="inspect")
def count(step: torch.Tensor) -> None:
    step.add_(1)


def test_recordings_go_over_meshes_and_streams(mesh: Any) -> None:
    other = Stream("other")
    first, second = mesh.slice(gpus=0), mesh.slice(gpus=1)

    @record
    def function(x: torch.Tensor) -> Any:
        lent, borrow = other.borrow(x, mutable=True)
        with borrow, other.activate():
            lent.mul_(3)
            total = reduce(lent, "gpus", "sum")
            total.add_(1)
        moved = x.slice_mesh(gpus=0).to_mesh(second)
        with first.activate():
            here = torch.ones(1)
        return total, moved + 1, here, x.slice_mesh(gpus=1).to_mesh(first, stream=other)

    x = torch.ones(2) + mesh.rank("gpus")
    for step in range(1, 5):
        total, moved, here, back = function(x)
        assert total.stream is other is back.stream
        assert inspect(total).tolist() == [3**step * 3 + 1] * 2
        assert inspect(moved).tolist() == [3**step + 1] * 2
        assert inspect(here).tolist() == [1]
        assert inspect(back).tolist() == [3**step * 2] * 2
    assert inspect(x).tolist() == [81, 81]


def test_what_was_borrowed_before_is_used_in_a_recording(mesh: Any) -> None:
    other = Stream("other")
    tensor = torch.ones(2)
    lent, borrow = other.borrow(tensor, mutable=True)

    @record
    def function() -> None:
        lent.mul_(2)

    with other.activate():
        for _ in range(3):
            function()
    borrow.drop()
    assert inspect(tensor).tolist() == [8, 8]
    with other.activate(), pytest.raises(TensorError, match="DROPPED"):
        function()


@remote(propagate=lambda tensor, group: torch.empty_like(tensor))
def sum_over(tensor: torch.Tensor, group: Any) -> torch.Tensor:
    total = tensor.clone()
    torch.distributed.all_reduce(total, group=group)
    return total


@pytest.mark.processes("groups of torch.distributed")
def test_a_process_group_may_be_made_in_a_recording(mesh: Any) -> None:
    function = record(lambda x: sum_over(x, mesh.process_group("gpus")))
    for step in range(4):
        assert inspect(function(torch.full((2,), float(step)))).tolist() == [2 * step] * 2


def test_each_move_can_be_recorded_but_for_these() -> None:
    set_up = {"define_groups", "define_routes", "make_groups", "note_end"}
    assert worker_collectives.MOVERS.keys() - instructions.MOVES.keys() == set_up | {
        "lend",
        "export",
        "import",
    }


# errors


def test_an_error_in_a_recording_fails_its_results_and_what_it_writes(mesh: Any) -> None:
    written, untouched = torch.zeros(2), torch.zeros(2)

    @record
    def function(index: torch.Tensor) -> Any:
        early = untouched + 1
        written.add_(1)
        return early, torch.zeros(2).index_select(0, index), reduce(early, "gpus", "sum")

    for _ in range(2):
        for result in function(torch.tensor([1])):
            inspect(result)
    results = function(torch.tensor([5]) * mesh.rank("gpus"))
    for result in (*results, written):
        with pytest.raises(RemoteException, match="index_select") as caught:
            inspect(result)
        assert caught.value.rank == 1
        assert any("test_tensor_recording" in line.file for line in caught.value.controller_frames)
    assert inspect(untouched).tolist() == [0, 0]
    results = function(torch.tensor([0]))  # what it writes to stays spoiled
    with pytest.raises(RemoteException, match="index_select"):
        inspect(results[0])
    assert inspect(torch.ones(1)).tolist() == [1]


def test_a_failed_argument_fails_all_results_and_no_rank_waits_for_ever(mesh: Any) -> None:
    other = Stream("other")

    @record
    def function(x: torch.Tensor) -> Any:
        total = reduce(x, "gpus", "sum")
        lent, borrow = other.borrow(total, mutable=True)
        with borrow, other.activate():
            lent.add_(1)
        return total, scale(x, 2.0)

    for _ in range(2):
        function(torch.ones(1))
    total, scaled = function(spoil(mesh))
    for rank in range(2):
        for result in (total, scaled):
            with pytest.raises(RemoteException, match="index_select"):
                inspect(result, gpus=rank)
    assert inspect(function(torch.ones(1))[0]).tolist() == [3]


def test_a_write_that_fails_on_another_stream_comes_back(mesh: Any) -> None:
    other = Stream("other")

    @record
    def function(x: torch.Tensor) -> torch.Tensor:
        lent, borrow = other.borrow(x, mutable=True)
        with borrow, other.activate():
            fail_to_write(lent)
        return x + 1

    x = torch.ones(1)
    result = function(x)
    for spoiled in (result, x):
        with pytest.raises(RemoteException, match="told to fail"):
            inspect(spoiled)


def test_a_function_that_raises_leaves_nothing(mesh: Any) -> None:
    made = []

    @record
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        made.append(x + 1)
        raise KeyError("told to raise")

    x = torch.zeros(1)
    with pytest.raises(KeyError):
        function(x)
    assert made[0].dropped
    assert inspect(x).tolist() == [0]


def test_nothing_is_fetched_in_a_recording(mesh: Any) -> None:
    with pytest.raises(NotImplementedError, match="recorded function"):
        record(lambda x: inspect(x))(torch.ones(1))


# together


def test_recordings_in_recordings_and_in_blocks(mesh: Any) -> None:
    inner = record(lambda x: x + 1)
    outer = record(lambda x: inner(inner(x)) * 2)
    with coalescing():
        results = [outer(torch.zeros(1)) for _ in range(4)]
        total = results[0] + results[3]
    assert inspect(total).tolist() == [8]


def test_what_was_made_in_a_block_may_end_in_a_recording(mesh: Any) -> None:
    other = Stream("other")
    recorded = record(lambda x: x + 1)
    before = max(remote(values_kept).call().get().values())
    with coalescing():
        x = torch.ones(1)
        made = [torch.ones(1) for _ in range(20)]
        total = sum(made)
        lent, borrow = other.borrow(x, mutable=True)
        with other.activate():
            lent.add_(1)

        @record
        def function(x: torch.Tensor) -> torch.Tensor:
            if borrow.is_open:
                made.clear()
                borrow.drop()
            return x + 1

        result = function(total)
    assert inspect((x, result, recorded(result)))[2].item() == 22
    assert max(remote(values_kept).call().get().values()) <= before + 5


def test_what_is_held_back_outlives_the_templates_of_its_time(
    mesh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarch.tensor_engine.controller.engine._PLANS", 4)
    x = torch.arange(40)

    def picked(first: int) -> Any:
        return sum(x[index] * index for index in range(first, first + 20))

    with coalescing():
        found = picked(0)
    assert inspect(found).item() == sum(index**2 for index in range(20))
    recorded = record(lambda: picked(0))
    for _ in range(3):
        assert inspect(recorded()).item() == sum(index**2 for index in range(20))
        picked(20)


def test_recordings_of_kinds_that_are_not_used_any_more_are_forgotten(
    mesh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarch.tensor_engine.recording.recording._KINDS", 3)
    counted = Counted(lambda x, step: x + step, verify=False)
    for step in range(10):
        counted(torch.ones(1), step)
        assert inspect(counted(torch.ones(1), 0)).item() == 1  # that of what is used is kept
    assert counted.runs == 10
    gc.collect()
    torch.ones(1)
    assert max(remote(_programs).call().get().values()) <= 4


def test_replays_leave_nothing_on_the_ranks(mesh: Any) -> None:
    @record
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = x + torch.ones(2)
        return x

    x = torch.zeros(2)
    for _ in range(3):
        x = function(x)
    fetch_shard(x).get()
    before = remote(values_kept).call().get()
    for _ in range(20):
        x = function(x)
    after = remote(values_kept).call().get()
    assert max(after.values()) <= max(before.values()) + 2
    assert min(remote(_programs).call().get().values()) >= 1
    del function
    gc.collect()

    def forgotten() -> bool:
        torch.ones(1)
        return max(remote(_programs).call().get().values()) == 0

    wait_until(forgotten, what="the program is forgotten")


def test_the_old_path_is_an_alias() -> None:
    module = importlib.import_module("monarch.common._coalescing")
    assert module.compile is record
    assert module.coalescing is coalescing


def test_a_move_to_another_engine_is_not_recorded_and_harms_nothing(
    mesh: Any, pair: ProcMesh
) -> None:
    other = spawn_tensor_engine(pair)

    @record
    def move(tensor: Any) -> Any:
        return tensor.to_mesh(other)

    tensor = torch.ones(2)
    with pytest.raises(NotImplementedError, match="to another engine can't be recorded"):
        move(tensor)
    assert inspect(tensor.to_mesh(other) + 1).tolist() == [2, 2]
    other.exit()


def test_autocast_makes_another_recording(mesh: Any) -> None:
    x, weight = torch.ones(2, 2), torch.ones(2, 2)
    product = record(lambda x: x @ weight)
    for _ in range(3):
        assert product(x).dtype is torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = product(x)
    assert found.dtype is torch.bfloat16
    assert inspect(found).dtype is torch.bfloat16


def test_minus_zero_is_not_zero_to_a_recording(mesh: Any) -> None:
    copysign = record(lambda x, sign: torch.copysign(x, sign))
    for _ in range(3):
        assert inspect(copysign(torch.ones(1), 0.0)).item() == 1
    assert inspect(copysign(torch.ones(1), -0.0)).item() == -1
