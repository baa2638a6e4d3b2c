"""Tensors and arrays in messages: what arrives, that it is the receiver's own, and that its memory
is not copied about.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo
from helpers.waiting import wait_until
from monarch.actor import Actor, Channel, Port, context, endpoint, this_proc

np = pytest.importorskip("numpy", reason="sends arrays; numpy is not installed")
pytest.importorskip("torch", reason="sends tensors; torch is not installed")

import torch  # noqa: E402  # only where it is installed
from torch import nn  # noqa: E402

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.torch

SMALL = 10  # elements: travels inside the pickle
MIDDLE = 50_000  # out of band, through the socket
LARGE = 300_000  # out of band, in a shared-memory segment
SIZES = pytest.mark.parametrize("size", [SMALL, MIDDLE, LARGE])

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="sends tensors of a GPU; there is none here"
)


@pytest.fixture(scope="module", autouse=True)
def _torch_has_its_threads() -> None:
    """torch starts its pool on first use, which is no leak of the test that happens to do it."""
    torch.ones(1 << 20).sum()


def echo(spawn: Spawn) -> Any:
    return spawn(1).spawn("echo", Echo).say


class Worker(Actor):
    def __init__(self) -> None:
        self.held: Any = None

    @endpoint
    def add_rank(self, value: Any) -> Any:
        value += context().actor_instance.rank.rank
        return value

    @endpoint
    def set_first(self, values: Any) -> Any:
        """Writes through the first of several views."""
        values[0].fill_(7)
        return [value.tolist() for value in values]

    @endpoint
    def one_storage(self, *tensors: torch.Tensor) -> bool:
        return len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1

    @endpoint
    def place(self, tensor: torch.Tensor) -> tuple[str, int]:
        return tensor.device.type, tensor.data_ptr() % 16

    @endpoint
    def hold(self, value: Any) -> None:
        self.held = value

    @endpoint
    def held_sum(self) -> float:
        return float(self.held.sum())

    @endpoint
    def mapped_bytes(self) -> int:
        """Address space that segments of messages take in this process."""
        return mapped_bytes()

    @endpoint
    def use_default_device(self, device: str | None) -> None:
        torch.set_default_device(device)

    @endpoint
    def return_then_change(self, size: int) -> Any:
        self.held = torch.zeros(size)
        return self.held

    @endpoint
    def change_held(self) -> None:
        self.held.fill_(1)

    @endpoint
    def train_a_step(self, model: nn.Module, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        train_a_step(model, batch)
        return model.state_dict()

    @endpoint
    def send_to(self, port: Port[Any], value: Any) -> None:
        port.send(value)

    @endpoint
    def tensors_to_validate(self) -> int:
        of_2_15 = getattr(torch._utils, "_get_sparse_tensors_to_validate", None)
        return len(of_2_15() if of_2_15 else torch._utils._sparse_tensors_to_validate)


def mapped_bytes() -> int:
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "memfd:monarch " in line:
            start, _, end = line.split()[0].partition("-")
            total += int(end, 16) - int(start, 16)
    return total


def train_a_step(model: nn.Module, batch: torch.Tensor) -> None:
    """By hand: the first step of an optimizer of torch imports its compiler, which takes
    seconds.
    """
    loss: Any = model(batch).sum()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=0.1)


def same(got: torch.Tensor, sent: torch.Tensor) -> bool:
    return (
        type(got) is type(sent)
        and got.dtype is sent.dtype
        and got.stride() == sent.stride()
        and got.requires_grad == sent.requires_grad
        and got.shape == sent.shape
        and bool(got.eq(sent).all())
    )


# what arrives


@SIZES
def test_every_dtype_arrives_as_it_was(spawn: Spawn, size: int) -> None:
    say = echo(spawn)
    # fmt: off
    dtypes = [
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
        torch.float8_e4m3fn, torch.float8_e5m2,
    ]
    # fmt: on
    sent = [(torch.arange(size) % 100).to(dtype) for dtype in dtypes]
    for tensor, got in zip(sent, say.call_one(sent).get(), strict=True):
        assert got.dtype is tensor.dtype
        assert got.view(torch.uint8).equal(tensor.view(torch.uint8)), tensor.dtype
        alone = say.call_one(tensor).get()
        assert alone.dtype is tensor.dtype
        assert alone.view(torch.uint8).equal(tensor.view(torch.uint8)), tensor.dtype


@SIZES
def test_views_keep_their_geometry(spawn: Spawn, size: int) -> None:
    base = torch.arange(float(size))
    table = base.view(2, -1)
    image = torch.ones(1, 3, 4, 4).to(memory_format=torch.channels_last)
    views = [
        base[3:], base[::2], table.t(), table[1], table[:, 1:3], base[4], base[0:1].expand(5, 1),
        base.as_strided((3, 3), (1, 1)), image, torch.tensor(3.5), base[5:5],
    ]  # fmt: skip
    got = echo(spawn).call_one(views).get()
    for view, arrived in zip(views, got, strict=True):
        assert same(arrived, view)
        assert arrived.storage_offset() == view.storage_offset()
    assert got[8].is_contiguous(memory_format=torch.channels_last)


def test_an_expanded_tensor_takes_no_more_than_its_storage(spawn: Spawn) -> None:
    huge = torch.tensor([4.0]).expand(10**12)
    got = echo(spawn).call_one(huge).get()
    assert got.shape == huge.shape
    assert got[10**11].item() == 4.0


def test_tensors_without_elements_keep_shape_and_dtype(spawn: Spawn) -> None:
    sent = [
        torch.empty(0),
        torch.empty(3, 0, 2, dtype=torch.int8),
        torch.ones(LARGE)[:0],
        nn.Parameter(torch.empty(0)),
    ]
    got = echo(spawn).call_one(sent).get()
    for tensor, arrived in zip(sent, got, strict=True):
        assert same(arrived, tensor)


def test_a_leaf_that_requires_a_gradient_arrives_as_one(spawn: Spawn) -> None:
    sent = torch.ones(3, requires_grad=True)
    sent.grad = torch.ones(3)
    got = echo(spawn).call_one(sent).get()
    assert same(got, sent)
    assert got.is_leaf
    assert got.grad is None


def test_the_history_of_a_tensor_stays_behind(spawn: Spawn) -> None:
    weight = torch.ones(3, requires_grad=True)
    got = echo(spawn).call_one(weight * 2).get()
    assert got.requires_grad
    assert got.is_leaf
    got.sum().backward()
    assert got.grad.tolist() == [1, 1, 1]
    assert weight.grad is None


def test_what_is_computed_without_gradients_is_sent_without(spawn: Spawn) -> None:
    assert (
        not echo(spawn)
        .call_one((torch.ones(3, requires_grad=True) * 2).detach())
        .get()
        .requires_grad
    )


@SIZES
def test_parameters_keep_their_type(spawn: Spawn, size: int) -> None:
    sent = [nn.Parameter(torch.ones(size)), nn.Parameter(torch.ones(size), requires_grad=False)]
    for parameter, got in zip(sent, echo(spawn).call_one(sent).get(), strict=True):
        assert type(got) is nn.Parameter
        assert same(got, parameter)
        assert got.is_leaf


def test_attributes_of_tensors_and_parameters_come_along(spawn: Spawn) -> None:
    tensor = torch.ones(3)
    tensor.note = "mine"  # type: ignore[attr-defined]
    parameter = nn.Parameter(torch.ones(3))
    parameter.shard = 4  # type: ignore[attr-defined]
    got = echo(spawn).call_one([tensor, parameter]).get()
    assert (got[0].note, got[1].shard) == ("mine", 4)
    assert type(got[1]) is nn.Parameter


def test_hooks_stay_behind_and_the_sender_is_warned(spawn: Spawn) -> None:
    say = echo(spawn)
    sent: Any = torch.ones(3, requires_grad=True)
    sent.register_hook(lambda gradient: gradient * 2)
    with pytest.warns(UserWarning, match="hook"):
        answer = say.call_one(sent)
    got = answer.get()
    assert same(got, sent)
    got.sum().backward()
    assert got.grad.tolist() == [1, 1, 1]


def test_meta_tensors_stay_meta(spawn: Spawn) -> None:
    got = echo(spawn).call_one(torch.empty(10**9, 7, dtype=torch.bfloat16, device="meta")).get()
    assert got.device.type == "meta"
    assert (tuple(got.shape), got.dtype) == ((10**9, 7), torch.bfloat16)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_tensors_stay_sparse(spawn: Spawn) -> None:
    worker = spawn(1).spawn("worker", Worker)
    dense = torch.tensor([[0.0, 1, 0, 2], [3, 0, 0, 0]])
    sent = [
        dense.to_sparse(), dense.to_sparse().requires_grad_(), dense.to_sparse_csr(), dense.to_sparse_csc(),
        dense.to_sparse_bsr((2, 2)), dense.to_sparse_bsc((1, 2)),
        torch.sparse_coo_tensor(
            torch.tensor([[0, 0]]), torch.tensor([1.0, 2.0]), (3,), is_coalesced=False, check_invariants=True
        ),
    ]  # fmt: skip
    worker.hold.call_one(sent).get()
    assert worker.tensors_to_validate.call_one().get() == 0, "torch holds on to these for good"
    for tensor, got in zip(sent, echo(spawn).call_one(sent).get(), strict=True):
        assert got.layout is tensor.layout
        assert got.requires_grad == tensor.requires_grad
        assert got.to_dense().equal(tensor.to_dense())
        if tensor.layout is torch.sparse_coo:
            assert got.is_coalesced() == tensor.is_coalesced()


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated", "ignore:torch.quantize_per_tensor")
def test_quantized_tensors_arrive_quantized(spawn: Spawn) -> None:
    weights = torch.rand(4, 4)
    sent = [
        torch.quantize_per_tensor(weights, 0.1, 3, torch.quint8),
        torch.quantize_per_channel(weights, torch.full((4,), 0.1), torch.zeros(4), 0, torch.qint8),
    ]
    for tensor, got in zip(sent, echo(spawn).call_one(sent).get(), strict=True):
        assert got.qscheme() == tensor.qscheme()
        assert got.int_repr().equal(tensor.int_repr())
        assert got.dequantize().equal(tensor.dequantize())


def test_lazily_conjugated_and_negated_tensors_keep_their_values(spawn: Spawn) -> None:
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    conjugated, negated = numbers.conj(), numbers.conj().imag
    assert conjugated.is_conj()
    assert negated.is_neg()
    got = echo(spawn).call_one([conjugated, negated]).get()
    assert got[0].equal(conjugated)
    assert got[1].equal(negated)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_arrive_nested(spawn: Spawn) -> None:
    got = echo(spawn).call_one(torch.nested.nested_tensor([torch.ones(2), torch.ones(3) * 2])).get()
    assert got.is_nested
    assert [part.tolist() for part in got.unbind()] == [[1, 1], [2, 2, 2]]


class Tagged(torch.Tensor):
    """A subclass with nothing of its own but its name."""


@pytest.mark.processes("segments of shared memory")
def test_subclasses_arrive_as_themselves(spawn: Spawn) -> None:
    sent = torch.ones(LARGE).as_subclass(Tagged)
    got = echo(spawn).call_one(sent).get()
    assert type(got) is Tagged
    assert same(got, sent)
    assert mapped_bytes() > 0, "its memory came as any other tensor's"


def test_storages_can_be_sent_by_themselves(spawn: Spawn) -> None:
    tensor: Any = torch.arange(6, dtype=torch.int16)
    untyped, typed = echo(spawn).call_one([tensor.untyped_storage(), tensor._typed_storage()]).get()
    assert type(untyped) is torch.UntypedStorage
    assert list(untyped) == list(tensor.untyped_storage())
    assert type(typed) is torch.TypedStorage
    assert typed._untyped_storage.data_ptr() == untyped.data_ptr()


def test_torch_s_small_types_arrive_as_they_were(spawn: Spawn) -> None:
    sent = [
        torch.bfloat16,
        torch.device("cuda", 3),
        torch.Size([2, 3]),
        torch.strided,
        torch.channels_last,
    ]
    assert echo(spawn).call_one(sent).get() == sent


def test_tensors_travel_inside_of_what_only_cloudpickle_can_send(spawn: Spawn) -> None:
    weights = torch.arange(float(LARGE))
    double = echo(spawn).call_one(lambda: weights * 2).get()
    assert double().equal(weights * 2)


def test_an_argument_that_torch_cannot_pickle_is_refused_at_the_call(spawn: Spawn) -> None:
    say = echo(spawn)
    with pytest.raises(RuntimeError, match="not serializable|invalid python storage"):
        say.call_one(torch._efficientzerotensor((3,)))
    assert say.call_one(1).get() == 1


# modules


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(batch))
        return result


def test_modules_arrive_whole_with_their_ties(spawn: Spawn) -> None:
    model, batch = Tied(), torch.ones(2, 4)
    got = echo(spawn).call_one(model).get()
    assert got(batch).equal(model(batch))
    assert got.second.weight is got.first.weight
    assert got.steps.tolist() == [0]


def test_a_trained_state_dict_comes_back_and_the_sender_s_model_did_not_move(spawn: Spawn) -> None:
    model, batch = Tied(), torch.ones(2, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = spawn(1).spawn("worker", Worker).train_a_step.call_one(model, batch).get()
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    train_a_step(model, batch)
    assert list(state) == list(before)
    for name, value in model.state_dict().items():
        assert state[name].allclose(value), name
    assert not state["first.weight"].equal(before["first.weight"])
    assert (
        state["first.weight"].untyped_storage().data_ptr()
        == state["second.weight"].untyped_storage().data_ptr()
    )
    model.load_state_dict(state)


# storages


@SIZES
def test_views_of_one_storage_stay_views_of_one_storage(spawn: Spawn, size: int) -> None:
    base = torch.zeros(size)
    worker = spawn(1).spawn("worker", Worker)
    assert worker.one_storage.call_one(base, base.view(2, -1), base.view(torch.int32)).get()
    assert worker.set_first.call_one([base[1:3], base[:4]]).get() == [[7, 7], [0, 7, 7, 0]]
    assert base.sum() == 0
    first, second = echo(spawn).call_one((base[1:], base.view(2, -1))).get()
    first[0] = 7
    assert second[0, 1] == 7


def test_the_same_object_twice_stays_one_object(spawn: Spawn) -> None:
    tensor, parameter = torch.ones(3), nn.Parameter(torch.ones(3))
    got = echo(spawn).call_one([tensor, parameter, tensor, parameter, parameter.data]).get()
    assert got[0] is got[2]
    assert got[1] is got[3]
    assert got[4].data_ptr() == got[1].data_ptr()


@pytest.mark.processes("segments of shared memory")
def test_a_storage_travels_whole_and_once(spawn: Spawn) -> None:
    base = torch.zeros(LARGE)
    worker = spawn(1).spawn("worker", Worker)
    worker.hold.call_one([base, base[1:], base[7], base.view(2, -1), nn.Parameter(base)]).get()
    assert 4 * LARGE <= worker.mapped_bytes.call_one().get() < 5 * LARGE


@pytest.mark.processes("segments of shared memory")
def test_what_arrived_keeps_its_memory_alive_and_lets_go_of_it(spawn: Spawn) -> None:
    worker = spawn(1).spawn("worker", Worker)
    worker.hold.call_one(torch.ones(LARGE)[: LARGE // 2]).get()
    assert worker.mapped_bytes.call_one().get() >= 4 * LARGE
    assert worker.held_sum.call_one().get() == LARGE // 2
    worker.hold.call_one(None).get()
    wait_until(lambda: worker.mapped_bytes.call_one().get() == 0, what="the segment to be unmapped")


@pytest.mark.parametrize("odd", [1, 2, 5, 11])
def test_tensors_are_aligned_wherever_they_lie_in_a_message(spawn: Spawn, odd: int) -> None:
    say = echo(spawn)
    # with it the frame has memory of its own, and the tensor's lies somewhere in there
    text = b"x" * (200_000 + odd)
    _, got = say.call_one((text, torch.ones(MIDDLE // 2))).get()
    assert got.sum() == MIDDLE // 2
    assert got.data_ptr() % 16 == 0


def test_tensors_arrive_on_the_cpu_with_any_default_device_of_the_receiver(spawn: Spawn) -> None:
    worker = spawn(1).spawn("worker", Worker)
    worker.use_default_device.call_one("meta").get()
    for size in (SMALL, LARGE):
        assert worker.place.call_one(torch.ones(size)).get() == ("cpu", 0)
        assert (
            worker.add_rank.call_one(nn.Parameter(torch.ones(size), requires_grad=False))
            .get()
            .sum()
            == size
        )


# isolation


@SIZES
def test_each_rank_may_write_to_what_it_got(spawn: Spawn, size: int) -> None:
    workers = spawn(4).spawn("workers", Worker)
    sent = torch.zeros(size)
    for _ in range(2):
        got = workers.add_rank.call(sent).get().values()
        assert [value.unique().tolist() for value in got] == [[0], [1], [2], [3]]
        assert len({value.untyped_storage().data_ptr() for value in got}) == 4
        assert sent.sum() == 0


@SIZES
def test_actors_of_one_process_do_not_share_what_they_send_each_other(
    spawn: Spawn, size: int
) -> None:
    class Here(Actor):
        @endpoint
        def ask_neighbour(self, size: int) -> tuple[float, float]:
            mine = torch.zeros(size)
            neighbour = this_proc().spawn("neighbour", Worker)
            neighbour.hold.call_one(mine).get()
            neighbour.change_held.call_one().get()  # fills it with ones
            changed: float = neighbour.held_sum.call_one().get()
            return float(mine.sum()), changed

    assert spawn(1).spawn("here", Here).ask_neighbour.call_one(size).get() == (0, size)


@SIZES
def test_a_receiver_does_not_see_what_the_sender_changes_later(spawn: Spawn, size: int) -> None:
    workers = spawn(2).spawn("workers", Worker)  # not there yet: the first message waits for it
    sent = torch.ones(size)
    for expected in (1, 2, 3):
        answer = workers.hold.call(sent)
        sent.fill_(expected + 1)
        answer.get()
        assert workers.held_sum.call().get().values() == [size * expected] * 2


@SIZES
def test_a_caller_does_not_see_what_the_actor_changes_later(spawn: Spawn, size: int) -> None:
    worker = spawn(1).spawn("worker", Worker)
    got = worker.return_then_change.call_one(size).get()
    worker.change_held.call_one().get()
    assert got.sum() == 0
    got.fill_(5)  # and it is the caller's to write to
    assert worker.held_sum.call_one().get() == size


def test_what_arrived_can_be_sent_on(spawn: Spawn) -> None:
    say = echo(spawn)
    value = torch.arange(float(LARGE))
    for _ in range(3):
        value = say.call_one(value).get()
    assert value.equal(torch.arange(float(LARGE)))


@SIZES
def test_ports_carry_tensors(spawn: Spawn, size: int) -> None:
    port, receiver = Channel[Any].open()
    spawn(2).spawn("workers", Worker).send_to.call(port, torch.ones(size)).get()
    assert [receiver.recv().get().sum() for _ in range(2)] == [size, size]


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_tensor_over_read_only_memory_arrives_writable(spawn: Spawn) -> None:
    sent = torch.from_numpy(np.frombuffer(bytes(LARGE), dtype=np.uint8))
    got = echo(spawn).call_one(sent).get()
    got.add_(1)
    assert got.sum() == LARGE
    assert sent.sum() == 0


# arrays


@SIZES
def test_arrays_arrive_as_they_were_and_writable(spawn: Spawn, size: int) -> None:
    table = np.arange(float(size)).reshape(2, -1)
    sent = [
        table, table.T, table[:, ::2], np.asfortranarray(table), np.array(3.5), np.zeros((0, 3)),
        np.array(["a", "bc"]), np.array([{"a": 1}, None], dtype=object), np.zeros(3, dtype=[("x", "i4"), ("y", "f8")]),
        table.astype(np.complex64), np.array(["2026-01-01"], dtype="M8[D]"),
    ]  # fmt: skip
    for array, got in zip(sent, echo(spawn).call_one(sent).get(), strict=True):
        assert got.dtype == array.dtype
        assert got.shape == array.shape
        assert (got == array).all()
        assert got.flags.writeable


@SIZES
def test_each_rank_may_write_to_the_array_it_got(spawn: Spawn, size: int) -> None:
    sent = np.zeros(size)
    got = spawn(4).spawn("workers", Worker).add_rank.call(sent).get().values()
    assert [np.unique(value).tolist() for value in got] == [[0], [1], [2], [3]]
    assert sent.sum() == 0


@SIZES
def test_a_receiver_does_not_see_what_the_sender_does_to_its_array_later(
    spawn: Spawn, size: int
) -> None:
    workers = spawn(2).spawn("workers", Worker)
    sent = np.ones(size)
    answer = workers.hold.call(sent)
    sent.fill(9)
    answer.get()
    assert workers.held_sum.call().get().values() == [size, size]


# GPUs


@needs_gpu
@SIZES
def test_a_gpu_s_tensor_arrives_on_the_cpu(spawn: Spawn, size: int) -> None:
    sent = torch.arange(float(size), device="cuda")
    worker = spawn(1).spawn("worker", Worker)
    assert worker.place.call_one(sent).get() == ("cpu", 0)
    got = worker.add_rank.call_one(sent).get()
    assert got.device.type == "cpu"
    assert got.equal(sent.cpu())


@needs_gpu
def test_a_gpu_s_views_parameters_and_modules_arrive_on_the_cpu_with_their_ties(
    spawn: Spawn,
) -> None:
    base = torch.zeros(LARGE, device="cuda")
    model = Tied().cuda()
    got = echo(spawn).call_one([base, base[1:], nn.Parameter(base), model, base.to_sparse()]).get()
    assert {tensor.device.type for tensor in (*got[:3], *got[3].parameters(), got[4])} == {"cpu"}
    assert len({tensor.untyped_storage().data_ptr() for tensor in got[:3]}) == 1
    assert type(got[2]) is nn.Parameter
    assert got[3].second.weight is got[3].first.weight
    assert got[3](torch.ones(2, 4)).allclose(
        model(torch.ones(2, 4, device="cuda")).cpu(), atol=1e-4
    )


@needs_gpu
def test_a_receiver_does_not_see_what_the_gpu_writes_later(spawn: Spawn) -> None:
    worker = spawn(1).spawn("worker", Worker)
    sent = torch.ones(LARGE, device="cuda")
    answer = worker.hold.call_one(sent)
    sent.fill_(9)
    answer.get()
    assert worker.held_sum.call_one().get() == LARGE


# imports


def test_a_program_that_sends_no_tensor_does_not_import_torch() -> None:
    program = (
        "import sys, monarch.actor, monarch.tensor_engine\n"
        "from monarch._core.wire.pickling import dumps\n"
        "dumps([1, {'a': object()}, sys.version_info])\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
