"""Flags of torch that a program sets hold for what it issues, on the ranks and in this order."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from helpers.each import for_each
from helpers.waiting import wait_until

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from monarch import Stream, inspect, no_mesh, remote
from monarch.tensor_engine import coalescing, record
from monarch.tensor_engine.planning import settings
from monarch.tensor_engine.planning.settings import FLAGS, Scope

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]

seen: list[Any] = []
OTHER: dict[Any, Any] = {
    torch.float32: torch.float64,
    False: True,
    True: False,
    "none": "ieee",
    "tf32": "ieee",
    "highest": "medium",
}


@torch.library.custom_op("tests_settings::look", mutates_args=())
def look(x: torch.Tensor) -> torch.Tensor:
    """Note what holds where it runs."""
    seen.append(settings.current())
    return x.clone()


@look.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def as_torch_starts() -> None:
    for flag in FLAGS.values():
        flag.set(flag.default)


@pytest.fixture(autouse=True)
def _as_torch_starts() -> Iterator[None]:
    seen.clear()
    yield
    as_torch_starts()


@contextmanager
def dtype(new: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(new)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


WAYS: dict[str, Callable[[], Any]] = {
    "ones": lambda: torch.ones(3),
    "zeros": lambda: torch.zeros(3),
    "empty": lambda: torch.empty(3),
    "full": lambda: torch.full((3,), 0.1),
    "tensor": lambda: torch.tensor([0.1, 0.2]),
    "arange": lambda: torch.arange(0.0, 1.0, 0.3),
    "linspace": lambda: torch.linspace(0, 1, 7),
    "logspace": lambda: torch.logspace(0, 1, 7),
    "eye": lambda: torch.eye(3),
    "rand": lambda: torch.rand(3),
    "randn": lambda: torch.randn(3),
    "hann_window": lambda: torch.hann_window(5),
    "new module": lambda: torch.nn.Linear(2, 2).weight.detach(),
    "integers divided": lambda: torch.arange(3) / 7,
    "integers times a number": lambda: torch.arange(3) * 0.1,
    "sine of integers": lambda: torch.arange(3).sin(),
    "a condition": lambda: torch.where(torch.arange(3) > 1, 0.1, 0.2),
}


@for_each("name", list(WAYS))
def test_each_way_to_make_a_tensor_has_the_default_dtype_of_the_program(
    mesh: Any, name: str
) -> None:
    with dtype(torch.float64):
        made = WAYS[name]()
    there = inspect(made)
    assert there.dtype == made.dtype == torch.float64
    if name not in ("rand", "randn", "empty", "new module"):
        with no_mesh.activate(), dtype(torch.float64):
            assert torch.equal(there, WAYS[name]())


@pytest.mark.both
def test_what_was_issued_before_and_after_a_change_has_its_own_precision(mesh: Any) -> None:
    before = torch.ones(2)
    with dtype(torch.float64):
        between = torch.ones(2) / 3
    with dtype(torch.bfloat16):
        other = torch.ones(2)
    after = torch.ones(2)
    kinds = [value.dtype for value in inspect((before, between, other, after))]
    assert kinds == [torch.float32, torch.float64, torch.bfloat16, torch.float32]


@for_each("name", [name for name in FLAGS if name != "cpu_fp16_reduction"])  # some CPUs have none
def test_every_flag_holds_on_the_rank_while_the_operation_runs(mesh: Any, name: str) -> None:
    settings.read_all()
    flag, x = FLAGS[name], torch.ones(2)
    value = (False, False) if type(flag.default) is tuple else OTHER[flag.default]
    flag.set(value)
    issued = settings.current()
    y = look(x)
    as_torch_starts()
    seen.clear()
    inspect(y)
    assert dict(issued)[name] == value
    assert seen == [issued] * 2
    assert settings.current() == ()


def test_the_names_that_torch_gives_its_flags_end_in_those_that_travel(mesh: Any) -> None:
    settings.read_all()
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    ways: dict[str, Callable[[], Any]] = {
        "set_float32_matmul_precision": lambda: torch.set_float32_matmul_precision("medium"),
        "use_deterministic_algorithms": lambda: torch.use_deterministic_algorithms(True),
        "warn_only": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        "set_deterministic_debug_mode": lambda: torch.set_deterministic_debug_mode("error"),
        "fp32_precision": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
        "matmul.allow_tf32": lambda: setattr(cuda.matmul, "allow_tf32", True),
        "cudnn.allow_tf32": lambda: setattr(cudnn, "allow_tf32", False),
        "cudnn.benchmark": lambda: setattr(cudnn, "benchmark", True),
        "enable_flash_sdp": lambda: cuda.enable_flash_sdp(False),
        "bf16 reduction": lambda: setattr(
            cuda.matmul, "allow_bf16_reduced_precision_reduction", False
        ),
        "mkldnn.enabled": lambda: setattr(torch.backends.mkldnn, "enabled", False),
    }
    first = settings.current()
    for name, change in ways.items():
        change()
        assert settings.current() != first, name
        as_torch_starts()
        torch.backends.fp32_precision = "none"  # type: ignore[attr-defined]
        cudnn.allow_tf32 = True  # which torch keeps beside the new names
        assert settings.current() == first, name


read: list[Any] = []


@torch.library.custom_op("tests_settings::read_old_names", mutates_args=())
def read_old_names(x: torch.Tensor) -> torch.Tensor:
    """Note what torch's older names say where it runs; with new ones set, they may raise."""
    try:
        read.append((torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()))
    except RuntimeError:
        read.append("raises")
    return x.clone()


@read_old_names.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


OLD_NAMES: dict[str, tuple[Callable[[], Any], Any]] = {
    "nothing": (lambda: None, (True, "highest")),
    "cudnn": (lambda: setattr(torch.backends.cudnn, "allow_tf32", False), (False, "highest")),
    "medium": (lambda: torch.set_float32_matmul_precision("medium"), (True, "medium")),
    "matmul": (lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True), (True, "high")),
    "a new name": (
        lambda: setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee"),  # type: ignore[attr-defined]
        "raises",
    ),
}


@for_each("name", list(OLD_NAMES))
def test_older_names_of_flags_read_on_ranks_as_in_the_program(mesh: Any, name: str) -> None:
    settings.read_all()
    change, told = OLD_NAMES[name]
    x = torch.ones(2)
    change()
    read.clear()
    y = read_old_names(x)
    with no_mesh.activate():
        read_old_names(torch.ones(2))
    here = read.pop()
    as_torch_starts()
    inspect(y)
    assert here == told
    assert read == [told] * len(read) != []
    assert settings.current() == ()


def test_flags_change_within_a_recorded_function_and_between_its_replays(mesh: Any) -> None:
    one = torch.ones(1)

    @record
    def mixed(x: torch.Tensor) -> Any:
        with dtype(torch.float64):
            wide = torch.ones(1) / 3
        return x / 3, wide, torch.ones(1)

    def kinds() -> list[Any]:
        return [value.dtype for value in inspect(mixed(one))]

    here = [torch.float32, torch.float64, torch.float32]
    assert [kinds() for _ in range(4)] == [here] * 4
    with dtype(torch.bfloat16):
        here[2] = torch.bfloat16
        assert [kinds() for _ in range(3)] == [here] * 3
    here[2] = torch.float32
    assert kinds() == here
    Stream("another")  # operations run side by side from now on
    assert kinds() == here


def test_coalesced_operations_keep_the_flags_of_their_moment(mesh: Any) -> None:
    with coalescing():
        first = torch.ones(1)
        with dtype(torch.float64):
            second = torch.ones(1)
        third = torch.ones(1)
    assert [x.dtype for x in inspect((first, second, third))] == [
        torch.float32,
        torch.float64,
        torch.float32,
    ]


def test_empty_memory_is_filled_on_the_ranks_where_the_program_wants_it(mesh: Any) -> None:
    torch.use_deterministic_algorithms(True)
    filled = torch.empty(100)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.empty(100)
    torch.use_deterministic_algorithms(False)
    assert [str(number) for number in inspect(filled).tolist()] == ["nan"] * 100


@pytest.mark.processes("flags are those of a process, and here each rank has its own")
def test_what_a_function_has_set_on_its_rank_holds_for_what_the_program_left_alone(
    spawn: Spawn,
) -> None:
    procs = spawn(1)
    with procs.activate():
        remote(torch.set_default_dtype).call_one(torch.bfloat16).get()
        with dtype(torch.float64):
            assert inspect(torch.ones(1)).dtype == torch.float64
        assert remote(torch.get_default_dtype).call_one().get() == torch.bfloat16


def test_operations_of_other_settings_wait_for_those_that_run() -> None:
    scope = Scope()
    started, goes_on = threading.Event(), threading.Event()
    found: dict[str, Any] = {}

    def wide() -> None:
        started.set()
        goes_on.wait()
        found["wide"] = torch.ones(1).dtype

    def plain() -> None:
        found["plain"] = torch.ones(1).dtype

    threads = [
        threading.Thread(
            daemon=True, target=scope.around(wide, (("default_dtype", torch.float64),))
        )
    ]
    threads[0].start()
    started.wait()
    scope.around(lambda: None, (("default_dtype", torch.float64),))()  # runs beside it
    threads.append(threading.Thread(daemon=True, target=scope.around(plain, ())))
    threads[1].start()
    wait_until(lambda: bool(scope._free._waiters), what="the second")  # type: ignore[attr-defined]
    goes_on.set()
    for thread in threads:
        thread.join()
    assert found == {"wide": torch.float64, "plain": torch.float32}
    assert torch.get_default_dtype() == torch.float32


def test_a_flag_that_a_rank_does_not_take_fails_the_operation_and_leaves_the_others() -> None:
    scope = Scope()
    wrong = scope.around(lambda: None, (("default_dtype", torch.float64), ("cuda_matmul", "no")))
    with pytest.raises(RuntimeError, match="no"):
        wrong()
    assert torch.get_default_dtype() == torch.float32
    assert scope.around(torch.get_default_dtype, ())() == torch.float32


@pytest.mark.processes("what torch starts with is seen in a new interpreter")
def test_the_table_says_what_torch_starts_with() -> None:
    code = (
        "from monarch.tensor_engine.planning.settings import FLAGS;"
        "print([n for n, flag in FLAGS.items() if flag.get() != flag.default])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
