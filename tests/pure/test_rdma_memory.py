"""Which objects are memory, and what is said about those that are not."""

from __future__ import annotations

import array
import gc
import mmap
from typing import Any

import pytest

from monarch.rdma.memory import memory_of

np = pytest.importorskip("numpy", reason="looks at arrays; numpy is not installed")


def content(data: Any) -> bytes:
    memory = memory_of(data, "use")
    return bytes(memory.read(0, memory.nbytes))


@pytest.mark.parametrize(
    "data",
    [
        b"constant",
        bytearray(b"variable"),
        memoryview(bytearray(b"0123456789"))[2:7],
        memoryview(bytearray(8)).cast("f"),
        array.array("d", [1.0, 2.0]),
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(12)[4:9],
        np.array(7.0),
        np.array([1 + 2j, 3 - 4j]),
        np.array(["2026-08-22"], dtype="M8[D]"),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array([1.5], dtype=np.float16),
        np.ones((2, 3), order="F")[:1, :1],
    ],
    ids=lambda data: f"{type(data).__name__}-{getattr(data, 'dtype', '')}",
)
def test_any_contiguous_buffer_is_memory(data: Any) -> None:
    assert content(data) == (data.tobytes() if hasattr(data, "tobytes") else bytes(data))


def test_what_is_written_is_in_the_object() -> None:
    data = np.zeros(4, dtype=np.int16)
    memory_of(data, "use").write(2, memoryview(b"\x01\x00\x02\x00"))
    assert data.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("data", "readonly"),
    [(b"x", True), (bytearray(b"x"), False), (memoryview(b"x"), True), (np.ones(1), False)],
)
def test_whether_it_may_be_written_is_known(data: Any, readonly: bool) -> None:
    assert memory_of(data, "use").readonly is readonly


def test_a_write_protected_array_is_read_only() -> None:
    data = np.ones(3)
    data.flags.writeable = False
    assert memory_of(data, "use").readonly


@pytest.mark.parametrize(
    ("data", "fix"),
    [
        (np.ones((3, 4)).T, ".copy()"),
        (np.ones(8)[::2], ".copy()"),
        (memoryview(bytearray(8))[::2], ".copy()"),
        (np.arange("2026-01-01", "2026-01-05", dtype="M8[D]")[::2], ".copy()"),
    ],
)
def test_strided_memory_is_refused_with_what_fixes_it(data: Any, fix: str) -> None:
    with pytest.raises(ValueError, match="contiguous") as caught:
        memory_of(data, "RDMABuffer(data)")
    assert fix in str(caught.value)
    assert "RDMABuffer(data)" in str(caught.value)


@pytest.mark.parametrize("data", ["text", 3, None, [1, 2], np.array([None, object()])])
def test_what_is_no_memory_is_refused_as_a_type_and_as_a_value(data: Any) -> None:
    with pytest.raises(TypeError):
        memory_of(data, "use")
    with pytest.raises(ValueError):
        memory_of(data, "use")


@pytest.mark.parametrize("data", [b"", bytearray(), np.ones((3, 0))])
def test_empty_memory_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="empty"):
        memory_of(data, "use")


def test_memory_that_is_in_use_can_not_be_resized() -> None:
    data = bytearray(10)
    memory = memory_of(data, "use")
    with pytest.raises(BufferError):
        data.append(1)
    del memory
    data.append(1)


def test_a_view_keeps_the_memory_that_it_shows() -> None:
    data = mmap.mmap(-1, mmap.PAGESIZE)
    data[:3] = b"abc"
    view = memory_of(data, "use").read(0, 3)
    del data
    gc.collect()
    assert bytes(view) == b"abc"


class TestTensors:
    torch: Any = None

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        self.torch = pytest.importorskip("torch", reason="looks at tensors; torch is not installed")

    def test_a_tensor_of_any_shape_and_type_is_memory(self) -> None:
        torch = self.torch
        for tensor in (
            torch.arange(6).reshape(2, 3),
            torch.tensor(2.5),
            torch.ones(3, dtype=torch.bfloat16),
            torch.tensor([True, False]),
            torch.arange(10)[3:7],
            torch.nn.Parameter(torch.ones(2)),
        ):
            assert content(tensor) == bytes(
                tensor.detach().contiguous().view(-1).view(torch.uint8).tolist()
            )

    def test_the_memory_stays_when_the_tensor_is_gone(self) -> None:
        tensor = self.torch.arange(1000)
        memory = memory_of(tensor, "use")
        expected = bytes(tensor.view(self.torch.uint8).tolist())
        tensor.data = self.torch.zeros(1)
        del tensor
        gc.collect()
        assert bytes(memory.read(0, memory.nbytes)) == expected

    def test_a_strided_tensor_is_refused_with_what_fixes_it(self) -> None:
        with pytest.raises(ValueError, match=r"contiguous.*\.contiguous\(\)"):
            memory_of(self.torch.ones(3, 4).T, "use")

    def test_a_tensor_without_memory_of_its_own_is_refused(self) -> None:
        torch = self.torch
        with pytest.raises(ValueError):
            memory_of(torch.ones(2, device="meta"), "use")
        with pytest.raises(ValueError, match="sparse"):
            memory_of(torch.eye(3).to_sparse(), "use")
        with pytest.raises(ValueError, match="resolve_conj"):
            memory_of(torch.ones(2, dtype=torch.complex64).conj(), "use")
