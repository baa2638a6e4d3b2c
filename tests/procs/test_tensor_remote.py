"""Remote functions: what they get, what comes back, how their results are known before they have
run.
"""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, union-attr, no-untyped-call, arg-type"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from helpers.kept_values import values_kept

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

import monarch
from monarch import call_on_shard_and_fetch, fetch_shard, inspect, remote
from monarch.tensor_engine import RemoteException, function_resolvers

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


def same(x: Any, *args: Any, **kwargs: Any) -> Any:
    return torch.empty_like(x)


@remote(propagate=same)
def scaled(x: Any, factor: float, *, plus: Any = 0) -> Any:
    return x * factor + plus


@pytest.mark.both
def test_a_function_runs_on_each_rank_with_its_tensors(mesh: Any) -> None:
    x = torch.ones(2) * mesh.rank("gpus")
    y = scaled(x, 3.0, plus=torch.ones(2))
    assert y.shape == (2,)
    assert inspect(y, gpus=1).tolist() == [4.0, 4.0]
    assert inspect((y + 1).sum()).item() == 4.0


@pytest.mark.both
def test_functions_are_found_by_name_or_sent(mesh: Any) -> None:
    x = torch.full((2,), 4.0)
    offset = 10
    assert inspect(remote("torch.sqrt", propagate=same)(x)).tolist() == [2.0, 2.0]
    assert inspect(remote(torch.ops.aten.neg.default, propagate=same)(x)).tolist() == [-4.0, -4.0]
    assert inspect(remote(lambda x: x + offset, propagate=same)(x)).tolist() == [14.0, 14.0]
    assert inspect(remote(torch.sqrt, propagate=same)(x)).tolist() == [2.0, 2.0]
    with pytest.raises(RemoteException, match="failed to resolve function"):
        inspect(remote("no_such_module.f", propagate=same)(x))
    with pytest.raises(TypeError, match="dotted name"):
        remote(3).call()


def test_a_resolver_can_be_added(mesh: Any) -> None:
    def by_key(function: Any) -> Any:
        return "torch.neg" if function == ("my", "negation") else None

    function_resolvers.insert(0, by_key)
    try:
        assert inspect(remote(("my", "negation"), propagate=same)(torch.ones(1))).item() == -1
    finally:
        function_resolvers.remove(by_key)


def test_without_a_rule_the_first_call_tells(mesh: Any) -> None:
    def split(x: Any, count: int) -> Any:
        return {"parts": list(x.chunk(count)), "total": x.sum(), "count": count}

    function = remote(split)
    x = torch.arange(4.0) + mesh.rank("gpus")
    for _ in range(2):
        result = function(x, 2)
        assert [part.shape for part in result["parts"]] == [(2,), (2,)]
        assert result["count"] is None
        assert inspect(result["total"], gpus=1).item() == 10.0
    assert len(function(x, 4)["parts"]) == 4
    result["parts"][0].add_(100)
    assert inspect(x).tolist() == [100.0, 101.0, 2.0, 3.0]


def test_without_a_rule_a_function_runs_once(mesh: Any) -> None:
    x = torch.zeros(1)

    def add_one(x: Any) -> Any:
        return x.add_(1)

    function = remote(add_one)
    assert function(x) is x
    assert function(x) is x
    for rank in range(2):
        assert inspect(x, gpus=rank).item() == 2


def test_rules_say_what_is_written_and_shared(mesh: Any) -> None:
    x = torch.zeros(4)

    @remote(propagate=lambda x: (x.add_(1), x[:2]))
    def write(x: Any) -> Any:
        return x.add_(1), x[:2]

    same_x, half = write(x)
    assert same_x is x
    half.add_(5)
    assert inspect(x).tolist() == [6.0, 6.0, 1.0, 1.0]

    @remote(propagate=lambda x: x.add_(1))
    def fail(x: Any) -> Any:
        raise ValueError("no")

    fail(x)
    for spoilt in (x, half):
        with pytest.raises(RemoteException, match="ValueError: no"):
            inspect(spoilt)


def test_inspect_means_that_there_is_no_result(mesh: Any) -> None:
    x = torch.zeros(1)
    assert remote(lambda x: x.add_(1), propagate="inspect")(x) is None
    assert inspect(x).item() == 1
    with pytest.raises(NotImplementedError):
        remote(same, propagate="mocked")
    with pytest.raises(TypeError, match="propagate"):
        remote(same, propagate="magic")


def test_a_rule_that_lies_is_found_out(mesh: Any) -> None:
    x = torch.ones(2)
    for lie, match in [
        (lambda x: torch.empty(3), "shape"),
        (lambda x: x.double(), "float64"),
        (lambda x: (x, x.clone()), "unexpected number of returns"),
    ]:
        result = remote(lambda x: x + 1, propagate=lie)(x)
        with pytest.raises(RemoteException, match=match):
            inspect(result[1] if isinstance(result, tuple) else result)


@pytest.mark.processes("ranks have an environment of their own")
def test_call_gives_what_each_rank_returned(mesh: Any) -> None:
    x = torch.ones(2) * mesh.rank("gpus")

    def describe(x: Any, text: str, here: Any) -> Any:
        import os

        return text, x.sum().item(), x * 2, os.environ["RANK"], here.dims["gpus"].rank, here.sizes

    values = remote(describe).call(x, "hi", mesh).get()
    assert [values.item(gpus=rank)[:2] for rank in range(2)] == [("hi", 0.0), ("hi", 2.0)]
    assert values.item(gpus=1)[2].tolist() == [2.0, 2.0]
    assert values.item(gpus=1)[3:] == ("1", 1, {"gpus": 2})
    with mesh.slice(gpus=1).activate():
        assert remote(describe).call_one(x, "one", mesh).get()[:2] == ("one", 2.0)
    answers = remote(lambda x: x.sum().item()).stream(x)
    assert sorted(answer.get() for answer in answers) == [0.0, 2.0]
    assert remote(lambda: 5).choose().get() == 5
    assert call_on_shard_and_fetch(
        remote(lambda x: x + 1), x, shard={"gpus": 1}
    ).get().tolist() == [2.0, 2.0]


def test_broadcast_is_one_way(mesh: Any) -> None:
    x = torch.zeros(1)
    remote(lambda x: x.add_(3)).broadcast(x)
    assert inspect(x, gpus=1).item() == 3


@pytest.mark.both
def test_a_failure_is_told_and_can_be_lived_with(mesh: Any) -> None:
    def fail_on_one(x: Any) -> Any:
        if x.item() == 1:
            raise KeyError("gone")
        return x

    rank = mesh.rank("gpus")
    with pytest.raises(RemoteException, match="KeyError: 'gone'") as caught:
        remote(fail_on_one).call(rank).get()
    assert caught.value.rank == 1
    with pytest.raises(RemoteException):
        remote(fail_on_one).rref(rank)
    bad = remote(fail_on_one, propagate=same)(rank)
    with pytest.raises(RemoteException):
        remote(lambda x: 1).call(bad).get()
    assert remote(lambda x: 1).call(rank).get().item(gpus=0) == 1


def test_wrong_calls_are_refused_at_once(mesh: Any, spawn: Spawn) -> None:
    x = torch.ones(1)
    with pytest.raises(TypeError, match="LOCAL_TENSOR"):
        scaled(inspect(x), 2)
    with pytest.raises(ValueError, match="requires exactly 1"):
        remote(lambda: 1).call_one()
    with mesh.slice(gpus=0).activate():
        y = torch.ones(1)
        with pytest.raises(TypeError, match="WRONG_MESH"):
            scaled(x, 2, plus=y)
        assert remote(lambda x: x.item()).call(x).get().values() is not None
    with pytest.raises(ValueError, match="subset"):
        remote(lambda y: 1).call(y)
    with monarch.no_mesh.activate(), pytest.raises(ValueError, match="no device mesh is active"):
        remote(lambda: 1).call()


def test_tensors_inside_of_other_objects_arrive(mesh: Any) -> None:
    class Box:
        def __init__(self, content: Any) -> None:
            self.content = content

    box = Box(mesh.rank("gpus"))
    assert remote(lambda box: box.content.item()).call(box).get().item(gpus=1) == 1


@pytest.mark.both
def test_large_arguments_are_sent_as_they_are_now(mesh: Any) -> None:
    np = pytest.importorskip("numpy")
    data = np.ones(100_000)
    total = remote(
        lambda data: torch.tensor(data.sum()),
        propagate=lambda data: torch.empty((), dtype=torch.float64),
    )(data)
    data[:] = 0
    assert inspect(total).item() == 100_000


def test_a_fetch_of_results_keeps_the_order(mesh: Any) -> None:
    x = torch.zeros(1)
    futures = []
    for _ in range(20):
        scaled(x.add_(1), 1.0)
        futures.append(fetch_shard(x))
    assert [future.get().item() for future in futures] == list(range(1, 21))


@remote(propagate=lambda start: monarch.OpaqueRef(None))
def make_list(start: Any) -> Any:
    return monarch.OpaqueRef([start.item()])


@remote(propagate=lambda ref, x: torch.empty((), dtype=torch.int64))
def append_and_sum(ref: Any, x: Any) -> Any:
    ref.value.append(x)
    return torch.tensor(sum(ref.value))


def test_objects_can_stay_on_the_ranks(mesh: Any) -> None:
    ref = make_list(mesh.rank("gpus"))
    assert inspect(append_and_sum(ref, 5), gpus=1).item() == 6
    assert inspect(append_and_sum(ref, 10), gpus=1).item() == 16
    assert remote(lambda ref: len(ref.value)).call(ref).get().item(gpus=0) == 3
    with pytest.raises(RuntimeError, match="attempting to access"):
        ref.value
    with pytest.raises(RuntimeError, match="attempting to create"):
        monarch.OpaqueRef(3)


@pytest.mark.processes("groups of torch.distributed")
def test_functions_can_use_process_groups(mesh: Any) -> None:
    group = mesh.process_group("gpus")
    assert group.size() == 2

    def add_up(x: Any, group: Any) -> Any:
        import torch.distributed as dist

        dist.all_reduce(x, group=group)
        return x

    x = torch.ones(2) + mesh.rank("gpus")
    assert inspect(remote(add_up, propagate=lambda x, group: x.add_(0))(x, group)).tolist() == [
        3.0,
        3.0,
    ]
    group.drop()
    with pytest.raises(TypeError, match="dropped"):
        remote(add_up).call(x, group)


def test_ranks_are_seeded_alike_or_apart(mesh: Any) -> None:
    from monarch.builtins.random import (
        get_rng_state_remote,
        set_manual_seed_remote,
        set_rng_state_remote,
    )

    def draws() -> list[Any]:
        return [inspect(drawn, gpus=rank).tolist() for rank in (0, 1)]

    set_manual_seed_remote(5)
    drawn = torch.rand(2)
    assert draws()[0] == draws()[1]
    set_manual_seed_remote(5, mesh.process_idx())
    state = get_rng_state_remote()
    drawn = torch.rand(2)
    first = draws()
    assert first[0] != first[1]
    set_rng_state_remote(state)
    drawn = torch.rand(2)
    assert draws() == first


def test_ranks_that_do_not_agree_about_results_are_found_out(mesh: Any) -> None:
    def different(x: Any, how: str) -> Any:
        if x.item() == 0:
            return x + 1
        return {"shape": torch.ones(3), "type": x + 1.5, "same": x, "count": (x + 1, x)}[how]

    rank = mesh.rank("gpus")
    for how, shown in [
        ("shape", r"\(3,\)"),
        ("type", "float32"),
        ("same", "of its arguments"),
        ("count", "tuple of"),
    ]:
        with pytest.raises(
            ValueError, match=rf"different(.|\n)*rank 0: a torch.int64(.|\n)*rank 1:.*{shown}"
        ):
            remote(different)(rank, how)
    agreeing = remote(lambda x: torch.ones(3).narrow(0, x.item(), 2))(rank)  # each its own part
    assert inspect(agreeing, gpus=1).tolist() == [1.0, 1.0]


def test_a_first_call_that_fails_spoils_what_it_has_written_to(mesh: Any) -> None:
    def write_and_fail(x: Any, rank: Any) -> Any:
        x.add_(1)
        if rank.item() == 1:
            raise ValueError("too late")
        return x + 1

    x, other = torch.zeros(2), torch.zeros(2)
    with pytest.raises(RemoteException, match="too late"):
        remote(write_and_fail)(x, mesh.rank("gpus"))
    with pytest.raises(RemoteException, match="too late"):
        inspect(x)
    assert inspect(other).tolist() == [0.0, 0.0]


def test_a_first_call_can_not_write_to_what_is_lent(mesh: Any) -> None:
    from monarch import Stream

    x = torch.zeros(4)
    lent, borrow = Stream("reader").borrow(x)
    values = counts(mesh)
    with pytest.raises(TypeError, match="MUTATING_BORROW"):
        remote(lambda x: x.add_(1))(x)
    half = remote(lambda x: x[2:])(x)  # reading is no harm
    assert inspect(half).tolist() == [0.0, 0.0]
    del lent
    borrow.drop()
    x.add_(5)
    assert inspect(half).tolist() == [5.0, 5.0]  # it shares the memory of the tensor, not of a copy
    del half
    fetch_shard(None).get()
    assert counts(mesh) <= values


def counts(mesh: Any) -> int:
    """How many values a rank keeps at most."""
    return int(max(remote(values_kept).call().get().values()))


def test_a_rule_changes_the_shape_of_nothing_in_place(mesh: Any) -> None:
    x = torch.ones(2, 3)
    with pytest.raises(NotImplementedError, match=r"in place, from \(2, 3\) to \(3, 2\)"):
        remote(lambda x: x.t_(), propagate=lambda x: x.t_())(x)
    assert inspect(x).shape == x.shape == (2, 3)


def turn(first: Any, pair: Any, *, how: str = "") -> Any:
    if how == "transpose":
        pair["second"].t_()
    if how == "data":
        pair["second"].data = torch.zeros(5)
    if how == "resize and fail":
        pair["second"].resize_(7)
        raise RuntimeError("too late")
    return first + 1


@pytest.mark.parametrize(
    "rule", [None, lambda first, pair, how="": torch.empty_like(first)], ids=["first call", "rule"]
)
@pytest.mark.parametrize("how", ["transpose", "data", "resize and fail"])
def test_a_function_that_changes_the_shape_of_an_argument_in_place_fails(
    mesh: Any, rule: Any, how: str
) -> None:
    first, second, other = torch.zeros(2), torch.ones(2, 3), torch.ones(2, 3)
    view = second[0]
    says = (
        "too late"
        if how.endswith("fail")
        else r"turn changed the shape .* argument 'pair' in place, from \(2, 3\)"
    )
    with pytest.raises(RemoteException, match=says):
        inspect(remote(turn, propagate=rule)(first, {"second": second}, how=how))
    for spoiled in (second + 1, view) if how != "data" else (second + 1,):
        with pytest.raises(RemoteException, match=says):
            inspect(spoiled)
    assert inspect(first).tolist() == [0.0, 0.0]
    assert inspect(other).tolist() == [[1.0] * 3] * 2


def test_a_later_call_that_changes_a_shape_is_found_out_as_well(mesh: Any) -> None:
    log = make_list(torch.zeros(1))
    x = torch.zeros(2)
    grow = remote(
        lambda x, ref: (ref.value.append(0), x.unsqueeze_(0) if len(ref.value) > 2 else x, x + 1)[
            -1
        ]
    )
    assert inspect(grow(x, log)).tolist() == [1.0, 1.0]
    with pytest.raises(RemoteException, match="argument 'x' in place"):
        inspect(grow(x, log))
    with pytest.raises(RemoteException, match="argument 'x' in place"):
        inspect(x)
