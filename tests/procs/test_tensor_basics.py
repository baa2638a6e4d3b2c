"""Distributed tensors: meshes, activation, operations, errors, fetching."""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, union-attr, no-untyped-call, arg-type"

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from helpers.effort import shortened
from helpers.kept_values import values_kept
from helpers.waiting import wait_until

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch  # only where it is installed
from torch import nn
from torch.utils.checkpoint import checkpoint

import monarch
from monarch import Stream, fetch_shard, get_active_mesh, inspect, no_mesh, remote, slice_mesh
from monarch.actor import Actor, ProcMesh, endpoint, this_host
from monarch.tensor_engine import (
    OperatorError,
    RemoteException,
    TensorError,
    distribute,
    spawn_tensor_engine,
)

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("descriptors"),  # torch's
]


@pytest.fixture(scope="module", autouse=True)
def _torch_has_its_threads() -> None:
    """torch starts its pool on first use, which is no leak of the test that happens to do it."""
    torch.ones(1 << 20).sum()


def fails(size: int = 4) -> Any:
    """Pick an element that only rank 0 has: the value could not be computed on rank 1."""
    rank = get_active_mesh().rank("gpus")
    return torch.zeros(2).index_select(0, rank.reshape(1) * 5)


# meshes and activation


@pytest.mark.both
def test_an_operation_runs_on_every_rank(mesh: Any) -> None:
    total = torch.ones(2, 3) + torch.ones(2, 3)
    assert type(total) is monarch.Tensor
    for rank in range(2):
        assert inspect(total, gpus=rank).tolist() == [[2.0] * 3] * 2


def test_ranks_differ_by_their_rank(spawn: Spawn) -> None:
    procs = spawn({"hosts": 2, "gpus": 2})
    with procs.activate() as mesh:
        hosts, gpus = procs.rank_tensor("hosts"), procs.rank_tensors()["gpus"]
        both = mesh.rank(("gpus", "hosts"))
        value = hosts * 10 + gpus
        for host in range(2):
            for gpu in range(2):
                assert inspect((value, both), hosts=host, gpus=gpu)[0].item() == 10 * host + gpu
                assert inspect(both, {"hosts": host, "gpus": gpu}).item() == 2 * gpu + host
        assert inspect(mesh.process_idx(), hosts=1, gpus=0).item() == 2
        assert mesh.to_tensor().tolist() == [[0, 1], [2, 3]]
        with pytest.raises(KeyError):
            mesh.rank("tp")


@pytest.mark.both
def test_activations_nest_and_end_with_their_block(pair: ProcMesh) -> None:
    procs = pair
    with pytest.raises(ValueError, match="no device mesh is active"):
        get_active_mesh()
    waiting = procs.activate()
    assert type(torch.ones(1)) is torch.Tensor
    with waiting as mesh:
        assert get_active_mesh() is mesh
        with procs.slice(gpus=0).activate() as inner:
            assert get_active_mesh() is inner
            assert torch.ones(1).mesh is inner
            with no_mesh.activate():
                assert type(torch.ones(1)) is torch.Tensor
        assert torch.ones(1).mesh is mesh
    assert type(torch.ones(1)) is torch.Tensor


def test_an_exception_ends_an_activation(pair: ProcMesh) -> None:
    with pytest.raises(KeyError), pair.activate():
        raise KeyError
    assert type(torch.ones(1)) is torch.Tensor


def test_operations_follow_their_arguments_with_any_mesh_active(mesh: Any) -> None:
    x = torch.ones(2)
    with no_mesh.activate():
        y = x * 3
        assert y.mesh is mesh
    with mesh.slice(gpus=0).activate():
        assert inspect(y + x, gpus=1).tolist() == [4.0, 4.0]


def test_a_mesh_made_twice_is_the_same_mesh(spawn: Spawn) -> None:
    procs = spawn({"hosts": 2, "gpus": 2})
    view = procs.rename(gpus="tp")
    with procs.activate() as mesh:
        assert mesh.slice(hosts=0) is mesh.slice(hosts=0)
        assert view._device_mesh is mesh.rename(gpus="tp")
        with mesh.slice(hosts=1).activate():
            x = torch.ones(1)
        with procs.slice(hosts=1).activate():
            assert inspect(x + torch.ones(1), gpus=1).item() == 2
        split = mesh.flatten("all").split(all=("a", "b"), a=4)
        assert split.sizes == {"a": 4, "b": 1}


def test_an_engine_starts_on_a_slice(spawn: Spawn) -> None:
    procs = spawn(3)
    with procs.slice(gpus=slice(1, 3)).activate() as part:
        x = part.process_idx()
        assert inspect(x).item() == 1
    with procs.activate() as mesh:
        assert mesh.slice(gpus=slice(1, 3)) is part
        assert inspect(mesh.process_idx(), gpus=2).item() == 2
    assert inspect(x, gpus=1).item() == 2


@pytest.mark.both
def test_a_thread_has_its_own_active_mesh(mesh: Any) -> None:
    seen: list[Any] = []

    def other() -> None:
        seen.append(type(torch.ones(1)))
        with mesh.slice(gpus=1).activate() as mine:
            seen.append(torch.ones(1).mesh is mine)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [torch.Tensor, True]
    assert torch.ones(1).mesh is mesh


def test_a_task_has_its_own_active_mesh(pair: ProcMesh) -> None:
    procs = pair

    async def work(part: Any, turns: Any) -> bool:
        with part.activate() as mesh:
            before = torch.ones(1).mesh is mesh
            await turns()
            return before and torch.ones(1).mesh is mesh

    async def local(turns: Any) -> bool:
        await turns()
        return type(torch.ones(1)) is torch.Tensor

    async def main() -> list[bool]:
        arrived = 0
        everybody = asyncio.Event()

        async def turns() -> None:
            nonlocal arrived
            arrived += 1
            if arrived == 3:
                everybody.set()
            await everybody.wait()

        return list(
            await asyncio.gather(
                work(procs.slice(gpus=0), turns), work(procs.slice(gpus=1), turns), local(turns)
            )
        )

    assert asyncio.run(main()) == [True, True, True]
    assert type(torch.ones(1)) is torch.Tensor


class Controller(Actor):
    @endpoint
    def compute(self, procs: ProcMesh) -> float:
        with procs.activate():
            return float(inspect(torch.ones(3).sum() * 2))

    @endpoint
    def on_own_procs(self) -> float:
        procs = this_host().spawn_procs(per_host={"gpus": 2})
        with procs.activate():
            result = float(inspect(procs.rank_tensor("gpus") + 1, gpus=1))
        procs.stop().get()
        return result


def test_an_actor_can_be_the_controller(spawn: Spawn) -> None:
    controller = spawn(1).spawn("controller", Controller)
    assert controller.compute.call_one(spawn(2)).get() == 6.0
    assert controller.on_own_procs.call_one().get() == 2.0


def test_an_engine_ends_and_a_new_one_starts(spawn: Spawn) -> None:
    procs = spawn(2)
    with procs.activate() as mesh:
        x = torch.ones(1)
        mesh.exit()
        mesh.exit()
        with pytest.raises(RuntimeError, match="has exited"):
            x + 1
    with procs.activate() as again:
        assert again is not mesh
        assert inspect(torch.ones(1) + 1).item() == 2


def test_two_engines_on_the_same_procs_are_strangers(spawn: Spawn) -> None:
    procs = spawn(1)
    with procs.activate():
        x = torch.ones(1)
    with spawn_tensor_engine(procs).activate():
        y = torch.ones(1)
        assert inspect(y).item() == 1
    with pytest.raises(TensorError, match="WRONG_MESH"):
        x.add(y)


# tensors


def test_metadata_is_known_at_once(mesh: Any) -> None:
    x = torch.zeros(2, 3, dtype=torch.float64)
    y = x.t()[1:]
    assert (y.shape, y.stride(), y.dtype, y.storage_offset()) == ((2, 2), (1, 3), torch.float64, 1)
    assert (len(y), y.numel(), y.is_contiguous(), y.requires_grad) == (2, 4, False, False)
    assert y.device == torch.device("cpu")
    assert "(2, 2)" in repr(y)
    assert "gpus" in f"{y}"


def batch_norm_statistics() -> Any:
    norm = nn.BatchNorm1d(3)
    norm(torch.arange(12.0).reshape(4, 3))
    return norm.running_mean


def batch_norm_gradient() -> Any:
    norm = nn.BatchNorm1d(3)
    norm(torch.arange(12.0).reshape(4, 3)).square().sum().backward()  # no gradient of what it gets
    return norm.weight.grad


def transformer_gradient() -> Any:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    layer(torch.ones(2, 3, 8)).sum().backward()
    return layer.linear1.weight.grad


def checkpointed_gradient() -> Any:
    weight = torch.ones(3, 3, requires_grad=True)
    x = torch.ones(2, 3, requires_grad=True)
    checkpoint(lambda x: (x @ weight).relu(), x, use_reentrant=False).sum().backward()
    return weight.grad


def in_bfloat16() -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.ones(4, 4) @ torch.ones(4, 4)


OPERATIONS: list[Callable[[], Any]] = [
    lambda: nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4)).relu(),
    lambda: torch.ones(2, 3) @ torch.ones(3, 2),
    lambda: torch.cat([torch.ones(2), torch.zeros(3)]),
    lambda: torch.stack(list(torch.arange(6).reshape(2, 3)))[:, [0, 2]],
    lambda: nn.functional.scaled_dot_product_attention(*[torch.ones(1, 2, 4, 8)] * 3),
    lambda: torch.arange(4).split(2)[1] + torch.arange(0.0, 2.0, 1.0),
    lambda: torch.topk(torch.tensor([3.0, 1.0, 2.0]), 2),
    lambda: torch.func.grad(lambda x: (x * x).sum())(torch.ones(3)),
    lambda: torch.func.vmap(lambda x: x * 2)(torch.ones(3)),
    lambda: torch.full((2,), 7) // 2,
    lambda: torch.ones(2, dtype=torch.int32) / 2,
    lambda: nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 2])),
    lambda: torch.linalg.svd(torch.eye(3))[1],
    lambda: torch.from_numpy(pytest.importorskip("numpy").ones(3)) + 1,
    lambda: torch.ones(3).index_fill(0, torch.tensor([1]), 5.0),
    lambda: nn.functional.layer_norm(torch.arange(6.0).reshape(2, 3), (3,)),
    lambda: nn.functional.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3)),
    lambda: batch_norm_statistics(),
    lambda: batch_norm_gradient(),
    lambda: transformer_gradient(),
    lambda: checkpointed_gradient(),
    lambda: in_bfloat16(),
    lambda: torch.compile(lambda x: x * 2 + 1, backend="eager")(torch.ones(3)),
    lambda: torch._foreach_add([torch.ones(2), torch.ones(3)], 1)[1],
    lambda: torch.arange(4.0).resize_(2),
    lambda: torch.where(torch.arange(4.0) > 1, torch.arange(4.0), 0.0),
    lambda: torch.einsum("ij,kj->ik", torch.ones(2, 3), torch.ones(4, 3)),
]


def test_operations_give_what_they_give_locally(mesh: Any) -> None:
    for operation in OPERATIONS:
        result = inspect(operation(), gpus=1)
        with no_mesh.activate():
            torch.testing.assert_close(result, operation())


def test_numbers_that_are_conjugated_when_they_are_read_can_be_viewed_as_real(
    pair: ProcMesh,
) -> None:
    def compute() -> list[Any]:
        x = torch.tensor([1 + 2j, 3 - 1j])
        y = torch.arange(4.0, requires_grad=True)
        torch.fft.hfft(y).pow(2).sum().backward()
        return [torch.view_as_real(x.conj().resolve_conj()), x.conj().imag, x.conj().real, y.grad]

    expected = [each.tolist() for each in compute()]
    with pair.activate():
        assert [each.tolist() for each in inspect(compute())] == expected


def test_gradients_that_are_zero_can_be_fetched(mesh: Any) -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    torch.sgn(x).sum().backward()
    assert inspect(x.grad).tolist() == [0.0, 0.0]


def test_in_place_operations_and_assignments(mesh: Any) -> None:
    x = torch.zeros(3, 2)
    row = x[1]
    row += 2
    x[0, 1] = 5
    x[2].copy_(torch.tensor([7.0, 8.0]))
    y = x.add_(1)
    assert y is x
    assert inspect(x).tolist() == [[1.0, 6.0], [3.0, 3.0], [8.0, 9.0]]
    assert inspect(row, gpus=1).tolist() == [3.0, 3.0]


def test_operations_that_change_the_geometry_in_place(mesh: Any) -> None:
    x = torch.arange(6).reshape(2, 3)
    same = x.detach()
    x.t_()
    x.unsqueeze_(0)
    assert x.shape == (1, 3, 2)
    assert inspect(x).tolist() == [[[0, 3], [1, 4], [2, 5]]]
    assert (same.shape, inspect(same).tolist()) == ((2, 3), [[0, 1, 2], [3, 4, 5]])
    assert inspect(x + 1).tolist() == [[[1, 4], [2, 5], [3, 6]]]


def test_views_in_inference_mode_are_what_they_are_views_of(mesh: Any) -> None:
    net, x = nn.Linear(2, 2), torch.ones(2, 2)
    with torch.inference_mode():
        views = [x.detach(), x[0], x.t(), x.view(4), *x.unbind(), net.state_dict()["weight"]]
        version = x._version
        views[1].add_(1)
        assert not any(view.is_inference() for view in views)
        assert (net(x)[0] + torch.tensor([1.0, 2.0])[0]).is_inference()
        assert torch.ones(2)[:1].is_inference()
        assert inspect(x).tolist() == [[2.0, 2.0], [1.0, 1.0]]
    assert x._version == version + 1
    assert inspect(views[4]).tolist() == [2.0, 2.0]
    (net(x)[0].sum() + views[0].sum()).backward()


def test_in_inference_mode_a_result_may_be_its_argument(mesh: Any) -> None:
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    with torch.inference_mode():
        flat = x.flatten()
        kept = [x.float(), x.to(torch.float32), x.cpu(), x.type_as(y), *torch.broadcast_tensors(x)]
        assert all(each is x for each in kept)
        assert flat.flatten() is flat
        assert x.to(torch.float64) is not x
        assert inspect(nn.functional.mse_loss(x, y)).item() == 1
        assert inspect(nn.functional.l1_loss(x, y)).item() == 1
        assert inspect(torch.masked.sum(x, 0)).tolist() == [2, 2, 2]
        assert torch.feature_dropout(x, 0.0, train=True) is x  # p is no part of the plan's key
        assert inspect(torch.feature_dropout(x, 1.0, train=True)).tolist() == inspect(y).tolist()
        assert inspect(nn.Dropout(0.5).eval()(x)).tolist() == inspect(x).tolist()


def test_what_is_resized_to_hold_a_result_has_its_shape(mesh: Any) -> None:
    out = torch.empty(0)
    same = out.detach()
    assert torch.add(torch.arange(3.0), 1, out=out) is out
    assert (out.shape, inspect(out).tolist()) == ((3,), [1, 2, 3])
    assert same.shape == (0,)
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.int64)
    found = torch.sort(torch.tensor([[3.0, 1.0], [1.0, 2.0]]), out=(values, indices))
    assert found.values is values
    assert values.shape == indices.shape == (2, 2)
    assert inspect((values * 1, indices))[1].tolist() == [[1, 0], [0, 1]]
    for length in (2, 3, 4):
        torch.arange(0.0, length, out=out.resize_(0))
        assert (out.shape, inspect(out).tolist()) == ((length,), list(range(length)))
    out.resize_(1).fill_(7)
    assert (out.shape, inspect(out + 1).tolist()) == ((1,), [8])


def test_numbers_of_which_only_the_type_matters_make_one_plan(mesh: Any) -> None:
    x = torch.ones(2)
    many: list[Any] = [
        lambda number: x.clamp(min=number),
        lambda number: x.clamp(max=number, min=0.0),
        lambda number: x.clone().clamp_(number, None),
        lambda number: torch.nan_to_num(x, nan=number, posinf=number),
        lambda number: torch._foreach_add([x, x], [number, 2 * number])[1],
        lambda number: x * complex(number, 1.0),
        lambda number: x.add(x, alpha=number),
    ]
    for function in many:
        function(1.0)
        before = len(mesh.engine.plans)
        for step in range(2, 5):
            found = inspect(function(step / 10))
            with no_mesh.activate():
                there, x = x, torch.ones(2)
                assert found.tolist() == function(step / 10).tolist()
            x = there
        assert len(mesh.engine.plans) == before
    assert inspect(x.clamp(min=1)).dtype is torch.float32
    whole = torch.ones(2, dtype=torch.int64)
    assert [whole.clamp(min=bound).dtype for bound in (2, 2.5, 3)] == [
        torch.int64,
        torch.float32,
        torch.int64,
    ]


def test_numbers_and_shapes_do_not_get_mixed_up(mesh: Any) -> None:
    x = torch.ones(2, dtype=torch.int64)
    for number, dtype in [
        (2, torch.int64),
        (2.0, torch.float32),
        (3, torch.int64),
        (3.5, torch.float32),
        (True, torch.int64),
    ]:
        y = x * number
        assert (y.dtype, inspect(y).tolist()) == (dtype, [number] * 2)
    for end in (1.0, 3.0, 2.0):
        assert inspect(torch.arange(0.0, end)).tolist() == list(range(int(end)))


def test_old_templates_are_forgotten(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monarch.tensor_engine.controller.engine._PLANS", 8)
    x = torch.zeros(30)
    total = sum(x[index] + index for index in range(30)) + sum(x[index] for index in range(30))
    assert inspect(total).item() == sum(range(30))
    assert len(mesh.engine.plans) <= 9


def test_a_shape_error_is_raised_at_once_and_harms_nothing(
    mesh: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    x = torch.ones(2, 3)
    with pytest.raises(RuntimeError, match="dim"):
        x @ x
    with pytest.raises(RuntimeError):
        x + torch.ones(4)
    assert inspect(x + 1).tolist() == [[2.0] * 3] * 2
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.sum().item(), lambda x: float(x.sum()), lambda x: bool(x.any()), lambda x: torch.equal(x, x),
        lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: x.unique(), lambda x: x.tolist(), lambda x: x.numpy(),
        lambda x: torch.from_dlpack(x),
    ],
)  # fmt: skip
def test_what_needs_values_says_what_to_do_instead(mesh: Any, use: Any) -> None:
    x = torch.rand(3)
    with pytest.raises(Exception, match="inspect|fetch_shard"):
        use(x)


def test_reading_a_number_is_named_as_programs_write_it(mesh: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^item\(\), float\(\), bool\(\)"):
        bool(torch.rand(()) > 1)


def test_a_number_that_the_program_put_in_can_be_read_back(mesh: Any) -> None:
    step = torch.tensor(0.0)
    step += 1
    assert step.item() == 1.0
    step.mul_(4).add_(1)
    assert (step / 2).item() == 2.5
    assert inspect(step, gpus=1).item() == 5.0
    step += mesh.rank("gpus")
    with pytest.raises(Exception, match="inspect"):
        step.item()
    assert inspect(step, gpus=1).item() == 6.0


def test_pickling_a_distributed_tensor_is_an_error(mesh: Any) -> None:
    with pytest.raises(TypeError, match="inspect"):
        pickle.dumps(torch.ones(1))


def test_deepcopy_copies_on_the_ranks(mesh: Any) -> None:
    layer = nn.Linear(2, 2)
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.weight.add_(1)
    weight, copied = inspect((layer.weight, other.weight))
    with no_mesh.activate():
        torch.testing.assert_close(copied, weight + 1)
    assert other.weight.requires_grad


def test_copy_shares_the_memory(mesh: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    other = copy.copy(x)
    assert other.requires_grad
    assert other.is_leaf
    with torch.no_grad():
        other.add_(1)
    assert inspect(x).tolist() == [2.0, 2.0]


# mistakes


@pytest.mark.parametrize("use", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_local_tensors_that_are_made_where_a_mesh_is_active_say_what_to_do_instead(
    mesh: Any, use: Any
) -> None:
    x = inspect(torch.ones(2))
    with pytest.raises(RuntimeError, match=r"torch\.load.*no_mesh.*distribute"):
        use(x)
    with no_mesh.activate():
        assert use(x).tolist() == [1.0, 1.0]


def test_each_mistake_shows_the_operation_the_argument_and_the_way_out(pair: ProcMesh) -> None:
    local = torch.ones(2)
    with pair.activate() as mesh:
        x = torch.ones(2)
        with mesh.slice(gpus=0).activate():
            elsewhere = torch.ones(2)
        gone = torch.ones(2)
        gone.drop()
        for other, label, way_out in [
            (local, "LOCAL_TENSOR", "no_mesh"),
            (elsewhere, "WRONG_MESH", "to_mesh"),
            (gone, "DROPPED", "gone.drop()"),
        ]:
            with pytest.raises(TensorError) as called:
                x.add(other)
            with pytest.raises(OperatorError) as operator:
                x + other
            with pytest.raises(OperatorError):
                other + x
            for error in (called, operator):
                text = str(error.value)
                assert "aten::add.Tensor(., ERROR_0)" in text
                assert f"ERROR_0: {label}" in text
                assert way_out in text
        with pytest.raises(TypeError, match="LOCAL_TENSOR"):
            local.add(1)
        with pytest.raises(OperatorError, match="LOCAL_TENSOR"):
            local == local  # noqa: B015  # what it raises is the point
        with pytest.raises(TensorError, match=r"ERROR_0.*(?s:.)*ERROR_1"):
            torch.cat([local, x, gone])
        assert inspect(x).tolist() == [1.0, 1.0]


def test_fetched_values_are_local_tensors(mesh: Any) -> None:
    value = inspect(torch.ones(3))
    assert type(value) is torch.Tensor
    with no_mesh.activate():
        assert (value + 1).tolist() == [2.0] * 3


# fetching


def test_fetched_values_can_be_printed_where_a_mesh_is_active(mesh: Any) -> None:
    fetched = inspect(torch.full((), 1.5))
    assert f"{fetched:.3f}" == "1.500"
    assert fetched.numpy() == 1.5
    assert float(fetched) == 1.5


def test_fetching_keeps_the_structure_of_what_is_asked_for(mesh: Any) -> None:
    x = torch.ones(1, requires_grad=True)
    got = fetch_shard({"a": [x, 3], "b": (x * 2, None)}).get()
    assert got["a"][1] == 3
    assert got["b"][1] is None
    assert (got["a"][0].item(), got["b"][0].item()) == (1.0, 2.0)
    assert not got["a"][0].requires_grad
    assert fetch_shard(None).get() is None


def test_each_rank_gets_its_part_of_what_is_split(mesh: Any) -> None:
    with no_mesh.activate():
        batch = {"x": torch.arange(8.0).reshape(4, 2), "y": torch.arange(4)}
        weight = torch.arange(4.0).reshape(2, 2).requires_grad_()
    placed = distribute(batch, split="gpus")
    assert placed["x"].shape == (2, 2)
    assert inspect(placed["x"], gpus=1).tolist() == [[4, 5], [6, 7]]
    assert inspect(placed["y"], gpus=0).tolist() == [0, 1]
    columns = distribute(weight, split={"gpus": -1})
    assert inspect(columns, gpus=1).tolist() == [[1], [3]]
    torch.autograd.backward(columns.sum())
    assert columns.is_leaf
    assert inspect(columns.grad, gpus=0).tolist() == [[1], [1]]


def test_what_can_not_be_split_evenly_is_refused(mesh: Any) -> None:
    with no_mesh.activate():
        odd, scalar = torch.zeros(3, 2), torch.tensor(1.0)
    with pytest.raises(
        ValueError, match=r"\[3, 2\].*2 ranks can't share the 3 elements.*drop_last"
    ):
        distribute(odd, split="gpus")
    with pytest.raises(ValueError, match=r"dimension 0 of a tensor of shape \[\]"):
        distribute(scalar, split="gpus")
    with pytest.raises(KeyError, match="'dp'.*gpus"):
        distribute(odd, split="dp")
    with pytest.raises(ValueError, match=r"is distributed already.*no_mesh\.activate\(\)"):
        distribute([torch.zeros(2)], split="gpus")


def test_only_tensors_are_distributed(mesh: Any) -> None:
    with no_mesh.activate():
        layer = nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"Linear.*load_state_dict\(distribute"):
        distribute(layer)
    made = nn.Linear(2, 2)
    made.load_state_dict(distribute(layer.state_dict()))
    assert inspect(made.bias).tolist() == layer.bias.tolist()


HIDING: dict[str, Any] = {
    "MeshSliceTensor": lambda x: x.slice_mesh(gpus=1),
    "Linear": lambda x: nn.Linear(2, 2),
    "SGD": lambda x: torch.optim.SGD([x]),
    "generator": lambda x: nn.Linear(2, 2).parameters(),
    "map": lambda x: map(torch.sin, [x]),
    "set": lambda x: {x},
}


@pytest.mark.parametrize("kind", HIDING)
@pytest.mark.parametrize("function", [fetch_shard, inspect, distribute])
def test_what_hides_tensors_is_refused_not_passed_over(mesh: Any, kind: str, function: Any) -> None:
    x = torch.ones(2)
    with pytest.raises(TypeError, match=f"in lists, tuples and dicts, got a {kind}"):
        function([x, HIDING[kind](x)])


def test_what_has_no_tensors_is_fetched_as_it_is(mesh: Any) -> None:
    given = {"x": torch.ones(2), "names": {"a"}, "layer": nn.ReLU(), "step": 3, "none": None}
    found = inspect(given)
    assert found.pop("x").tolist() == [1.0, 1.0]
    assert found == {key: given[key] for key in ("names", "layer", "step", "none")}


def test_a_part_of_a_tensor_is_moved_and_not_sent(mesh: Any) -> None:
    part = torch.ones(2).slice_mesh(gpus=1)
    with pytest.raises(TypeError, match="move it with to_mesh"):
        remote(repr)(part)
    with pytest.raises(TypeError, match="move it with to_mesh"):
        remote(repr).call(part)
    assert inspect(part.to_mesh(mesh.slice(gpus=0))).tolist() == [1.0, 1.0]


def test_coordinates_are_a_dict_or_keywords(mesh: Any) -> None:
    with pytest.raises(TypeError, match=r"coordinates.*gpus.*got 1"):
        inspect(torch.ones(1), 1)
    assert inspect(torch.ones(1), {"gpus": 1}).tolist() == [1.0]


def test_a_mesh_is_sliced_by_calling_it_as_it_was_once(mesh: Any) -> None:
    with pytest.deprecated_call(match="slice"):
        assert mesh(gpus=1) is mesh.slice(gpus=1)


def test_coordinates_are_checked(mesh: Any) -> None:
    x = torch.ones(1)
    with pytest.raises(KeyError, match="tp"):
        fetch_shard(x, tp=0)
    with pytest.raises(IndexError):
        fetch_shard(x, gpus=99)
    with mesh.split(gpus=("a", "b"), a=1).activate() as other:
        y = torch.ones(1)
        with pytest.raises(ValueError, match="b"):
            fetch_shard(y, a=0)
        with pytest.raises(TypeError, match="WRONG_MESH"):
            fetch_shard([x, y])
        assert other.sizes == {"a": 1, "b": 2}
    with pytest.raises(TypeError, match="LOCAL_TENSOR"):
        fetch_shard(inspect(x))


def test_many_fetches_may_be_under_way(mesh: Any) -> None:
    x = torch.zeros(())
    futures = []
    for _ in range(50):
        x = x + 1
        futures.append(fetch_shard(x))
    assert [future.get().item() for future in futures] == list(range(1, 51))


def test_a_view_is_fetched_without_the_rest(mesh: Any) -> None:
    row = torch.arange(1_000_000).reshape(1000, 1000)[3]
    value = inspect(row)
    assert value.untyped_storage().nbytes() == 8000


# failures


def test_what_failed_is_told_with_both_sides_of_it(mesh: Any) -> None:
    bad = fails()
    later = bad + 1
    with pytest.raises(RemoteException) as caught:
        inspect(later, gpus=1)
    error = caught.value
    assert error.rank == 1
    assert "index_select" in str(error)
    assert "failed asynchronously on rank 1" in str(error)
    assert "in fails" in str(error)
    assert "out of range" in error.worker_error_string
    assert f"issued at {__file__}:{fails.__code__.co_firstlineno + 3}" in str(error)


def test_ranks_import_the_module_of_a_custom_operator(mesh: Any) -> None:
    from helpers.custom_operators import thrice

    assert inspect(thrice(torch.ones(2))).tolist() == [3.0, 3.0]


def register() -> Any:
    library = torch.library.Library("tests_of_basics", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    return library


@pytest.mark.processes("ranks that have not imported what the program has")
def test_an_operation_that_ranks_do_not_know_fails_alone_until_they_do(mesh: Any) -> None:
    library = register()
    try:
        with pytest.raises(
            RemoteException, match=r"tests_of_basics::twice.*not known here.*bootstrap"
        ):
            inspect(torch.ops.tests_of_basics.twice(torch.ones(2)))
        assert inspect(torch.ones(1)).tolist() == [1.0]
        monarch.remote(lambda: setattr(torch, "kept_by_a_test", register())).call().get()
        assert inspect(torch.ops.tests_of_basics.twice(torch.ones(2))).tolist() == [2.0, 2.0]
    finally:
        library._destroy()


def test_what_depends_on_a_failure_fails_whichever_rank_is_asked(mesh: Any) -> None:
    bad = fails()
    good = torch.ones(2)
    later = fetch_shard(bad + good)
    for _ in range(2):
        with pytest.raises(RemoteException):
            later.get()
    with pytest.raises(RemoteException):
        inspect(bad, gpus=0)
    assert inspect(good * 2, gpus=1).tolist() == [2.0, 2.0]
    mesh.exit()  # what failed was told


def test_a_failed_write_spoils_all_views_of_the_tensor(mesh: Any) -> None:
    x = torch.zeros(2, 2)
    row, other = x[0], torch.zeros(1)
    row += fails()
    for spoilt in (x, row, x[1]):
        with pytest.raises(RemoteException):
            inspect(spoilt)
    assert inspect(other).tolist() == [0.0]


def test_leaving_an_engine_tells_of_a_failure_that_was_not_seen(mesh: Any) -> None:
    fails()
    with pytest.raises(RemoteException):
        mesh.exit()
    assert inspect(torch.ones(1)).item() == 1
    mesh.exit()


def test_leaving_an_engine_does_not_repeat_what_was_told_where_a_move_has_taken_it(
    mesh: Any,
) -> None:
    def spoilt() -> Any:
        return slice_mesh(fails(), gpus=1).to_mesh(mesh.slice(gpus=0))

    with pytest.raises(RemoteException, match="rank 1"):
        inspect(spoilt())
    spoilt()  # the same operation fails once more, and nobody is told
    with pytest.raises(RemoteException):
        mesh.exit()
    with pytest.raises(RemoteException, match="rank 1"):
        inspect(spoilt())
    mesh.exit()


def test_a_worker_that_dies_ends_every_wait(spawn: Spawn, faults: Any) -> None:
    procs = spawn(2)
    with procs.activate():
        x = torch.ones(1)
        inspect(x)
        procs.slice(gpus=1).spawn("killer", Killer).die.broadcast()
        with pytest.raises(monarch.actor.SupervisionError):
            fetch_until_it_fails(x)
    faults.wait_for(1)


def fetch_until_it_fails(x: Any) -> None:
    for _ in range(100_000):
        inspect(x + 1)


class Killer(Actor):
    @endpoint
    def die(self) -> None:
        import os

        os._exit(1)


# memory


class Slots(Actor):
    @endpoint
    def count(self) -> int:
        return values_kept()


def test_values_are_freed_with_their_handles(spawn: Spawn) -> None:
    procs = spawn(1)
    slots = procs.spawn("slots", Slots)
    with procs.activate():
        kept = torch.ones(2)
        inspect(kept)
        before = slots.count.call_one().get()
        x = kept
        for _ in range(300):
            x = x + kept
        del x
        inspect(kept)
        assert slots.count.call_one().get() == before


def test_dropping_frees_all_views(pair: ProcMesh) -> None:
    with pair.activate():
        x = torch.ones(4)
        half = x[:2]
        alive = weakref.ref(x)
        half.drop()
        half.drop()
        assert x.dropped
        with pytest.raises(TensorError, match="DROPPED"):
            x.sum()
        assert alive() is x
        assert inspect(torch.ones(1)).item() == 1


def test_a_long_loop_keeps_up(pair: ProcMesh) -> None:
    count = shortened(100_000, 20_000)
    with pair.slice(gpus=0).activate() as mesh:
        x = torch.zeros(2)
        for _ in range(count):
            x.add_(1)
        assert inspect(x).tolist() == [count] * 2
        assert len(mesh.engine._settling) <= 5


def test_a_late_instruction_is_sent_without_being_asked_for(spawn: Spawn) -> None:
    procs = spawn(1)
    slots = procs.spawn("slots", Slots)
    with procs.activate():
        inspect(torch.ones(1))
        kept = [torch.ones(1) for _ in range(7)]
        wait_until(
            lambda: slots.count.call_one().get() >= len(kept), what="the last instruction to arrive"
        )


def test_a_number_that_is_read_in_another_way_is_not_known_any_more(mesh: Any) -> None:
    one = torch.tensor(1.0)
    assert one.item() == 1.0
    bits = one.view(torch.int32)
    with pytest.raises(Exception, match="inspect|fetch"):
        bits.item()
    assert inspect(bits).item() == 0x3F800000


def test_a_bad_state_of_random_numbers_harms_nothing_else(mesh: Any) -> None:
    torch.set_rng_state(torch.zeros(3, dtype=torch.uint8))
    assert inspect(torch.ones(1)).item() == 1
    with pytest.raises(RemoteException, match="set_rng_state"):
        mesh.exit()


def test_a_known_number_is_read_in_the_shape_of_its_handle(mesh: Any) -> None:
    one = torch.tensor(5.0)
    row = one.view(1, 1)
    assert (row[0, 0].item(), row.sum(1).item(), (row.t() + 1)[0].item()) == (5.0, 5.0, 6.0)
    row[0].add_(1)
    assert one.item() == inspect(one).item() == 6.0
    assert inspect(one.expand(3).sum(0)).item() == 18.0


def test_who_borrows_a_number_may_change_it(mesh: Any) -> None:
    other, number = Stream("other"), torch.tensor(1.0)
    lent, borrow = other.borrow(number, mutable=True)
    with borrow, other.activate():
        lent.add_(1)
    with pytest.raises(RuntimeError, match="inspect|fetch"):
        number.item()
    assert inspect(number).item() == 2.0


def test_data_has_a_version_of_its_own(mesh: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    y.data.add_(1)  # as in torch: autograd does not notice
    z.backward()
    assert x.grad is not None
