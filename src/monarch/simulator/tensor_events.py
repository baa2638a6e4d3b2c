"""The events of a program's tensors, under the names of Monarch 0.7.

They are when each tensor, and its memory, is made, used and dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from traceback import FrameSummary
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import torch


class _OfStorage(NamedTuple):
    """The fields are those of `TensorDeletionEvent`, and `size` in bytes, where it is known."""

    command_id: int
    storage_id: int
    size: int | None
    devices: list[int]
    mesh_ref: int | None
    stream_name: str


class StorageCreationEvent(_OfStorage):
    """Memory is taken on some ranks."""


class StorageDeletionEvent(_OfStorage):
    """Memory is given back: nothing is in it any more."""


class _OfTensor(NamedTuple):
    """The fields are those of `TensorDeletionEvent`, but for the last."""

    command_id: int
    DTensorRef: int
    storage_id: int
    dtype: torch.dtype | None
    dims: tuple[int, ...] | None
    devices: list[int]
    mesh_ref: int | None
    stream_name: str


class TensorCreationEvent(_OfTensor):
    """A tensor is made, in memory of its own or in that of another."""


class TensorAccessEvent(_OfTensor):
    """A tensor is read, written or made."""


class TensorMutationEvent(_OfTensor):
    """A tensor is changed in place."""


class TensorDeletionEvent(NamedTuple):
    """The end of the use of a tensor.

    Attributes:
        command_id: The command that does it; of the simulator's own graphs, the last one before it.
        DTensorRef: Number of the tensor.
        storage_id: Number of its memory.
        dtype: Its type.
        dims: Its shape.
        devices: The ranks that have it.
        mesh_ref: Number of their mesh, after `IRGraph.convert_devices_to_meshes`.
        stream_name: On which stream.
        traceback: Where the program did it.
    """

    command_id: int
    DTensorRef: int
    storage_id: int
    dtype: torch.dtype | None
    dims: tuple[int, ...] | None
    devices: list[int]
    mesh_ref: int | None
    stream_name: str
    traceback: Sequence[FrameSummary]


DataEvent: TypeAlias = (
    StorageCreationEvent
    | TensorCreationEvent
    | TensorAccessEvent
    | TensorMutationEvent
    | TensorDeletionEvent
    | StorageDeletionEvent
)


@dataclass
class BorrowInfo:
    """A tensor of one stream that is lent to another.

    Attributes:
        borrow_id: Its number.
        devices: The ranks that have it.
        src_stream_name: Who lends.
        dst_stream_name: Who borrows.
        create_id: The command that lends it,
        firstuse_id: from which on it is used,
        lastuse_id: after which it is not, and
        drop_id: that has it back.
    """

    borrow_id: int
    devices: list[int]
    src_stream_name: str
    dst_stream_name: str
    create_id: int
    firstuse_id: int | None = None
    lastuse_id: int | None = None
    drop_id: int | None = None


class SendTensorInfo(NamedTuple):
    """A tensor that is moved between ranks, or streams.

    Attributes:
        result_tensor_id: What the receivers have.
        src_devices: The ranks that send,
        src_stream_name: on which stream.
        dst_devices: The ranks that receive,
        dst_stream_name: on which stream.
        result_tensor_dims: Its shape.
    """

    result_tensor_id: int
    src_devices: list[int]
    src_stream_name: str
    dst_devices: list[int]
    dst_stream_name: str
    result_tensor_dims: tuple[int, ...]


@dataclass
class _Storage:
    key: int  # what the caller calls it
    number: int
    size: int | None
    begun: int  # the command that made it
    devices: list[int]
    refs: set[int] = field(default_factory=set)


@dataclass
class _Tensor:
    storage: _Storage
    dtype: torch.dtype | None
    dims: tuple[int, ...] | None
    begun: int


class TensorEvents:
    """Collects the events of a program's tensors.

    Attributes:
        events: All, in order.
        borrows: By number.
        sends: In order.
    """

    def __init__(self) -> None:
        self.events: list[DataEvent] = []
        self.borrows: dict[int, BorrowInfo] = {}
        self.sends: list[SendTensorInfo] = []
        self._tensors: dict[int, _Tensor] = {}
        self._storages: dict[int, _Storage] = {}  # by what the caller calls them
        self._meshes: dict[int, int] = {}  # of tensors of which it was said
        self._count = 0
        self._command = -1  # that of the last events
        self._noted: dict[tuple[Any, ...], int] = {}  # where they are, by what they are of

    def update(
        self, key: int, ref: int, dtype: torch.dtype | None, dims: tuple[int, ...] | None, devices: Sequence[int], stream: str,
        command: int, mutates: bool = False, lent: int | None = None, size: int | None = None, mesh: int | None = None,
    ) -> None:  # fmt: skip
        """A command uses a tensor, or makes it.

        Args:
            key: Of its memory: tensors that share it have the same.
            ref: Number of the tensor.
            dtype: Its type.
            dims: Its shape.
            devices: The ranks that have it.
            stream: Name of the stream.
            command: Number of the command.
            mutates: Whether it is changed in place.
            lent: The tensor that it is borrowed from, and shares memory with.
            size: Bytes of its memory.
            mesh: Number of its mesh.
        """
        if mesh is not None:
            self._meshes[ref] = mesh
        tensor = self._tensors.get(ref)
        if tensor is None:
            tensor = self._tensors[ref] = _Tensor(
                self._storage(key, lent, size, command), dtype, dims, command
            )
            tensor.storage.refs.add(ref)
        storage = tensor.storage
        if storage.begun == command:  # ranks may be named one by one
            storage.devices += [device for device in devices if device not in storage.devices]
            self._note(
                StorageCreationEvent(
                    command, storage.number, storage.size, [*devices], None, stream
                )
            )
        fields = ref, storage.number, dtype, dims
        if tensor.begun == command:
            self._note(TensorCreationEvent(command, *fields, [*devices], None, stream))
        self._note(TensorAccessEvent(command, *fields, [*devices], None, stream))
        if mutates:
            self._note(TensorMutationEvent(command, *fields, [*devices], None, stream))

    def _storage(self, key: int, lent: int | None, size: int | None, command: int) -> _Storage:
        if lent in self._tensors:
            return self._tensors[lent].storage
        if key not in self._storages:
            self._storages[key] = _Storage(key, self._count, size, command, [])
            self._count += 1
        return self._storages[key]

    def delete(
        self,
        ref: int,
        devices: Sequence[int],
        stream: str,
        command: int,
        traceback: Sequence[FrameSummary] = (),
    ) -> None:
        """Note the end of the use of a tensor.

        Raises:
            KeyError: There is none with this number.
        """
        tensor = self._tensors.pop(ref)
        storage = tensor.storage
        fields = ref, storage.number, tensor.dtype, tensor.dims
        self._note(TensorDeletionEvent(command, *fields, [*devices], None, stream, traceback))
        storage.refs.discard(ref)
        if not storage.refs:
            del self._storages[storage.key]
            self._note(
                StorageDeletionEvent(
                    command, storage.number, storage.size, [*storage.devices], None, stream
                )
            )

    def _note(self, event: DataEvent) -> None:
        """Add an event, or its ranks to one that is the same but for them."""
        if event.command_id != self._command:
            self._command = event.command_id
            self._noted.clear()
        what = type(event), getattr(event, "DTensorRef", None), event.storage_id, event.stream_name
        index = self._noted.setdefault(what, len(self.events))
        if index == len(self.events):
            self.events.append(event)
        else:
            other = self.events[index]
            more = [device for device in event.devices if device not in other.devices]
            self.events[index] = other._replace(devices=other.devices + more)

    def number_meshes(self) -> None:
        """Give each event the number of the mesh of its ranks.

        It is the given one, else one for each list of ranks.
        """
        found: dict[tuple[int, ...], int] = {}
        taken = set(self._meshes.values())
        for index, event in enumerate(self.events):
            said = self._meshes.get(getattr(event, "DTensorRef", -1))
            if said is None:
                ranks = tuple(sorted(event.devices))
                if ranks not in found:
                    found[ranks] = next(
                        number for number in range(len(taken) + 1) if number not in taken
                    )
                    taken.add(found[ranks])
                said = found[ranks]
            self.events[index] = event._replace(mesh_ref=said)

    def timeline(self) -> list[dict[str, Any]]:
        """A row for each event."""
        names = [
            "command_id", "storage_id", "DTensorRef", "mesh_ref", "stream_name", "dims", "dtype",
            "size",
        ]  # fmt: skip
        return [
            {"DataEvent": type(event).__name__.removesuffix("Event")}
            | {name: getattr(event, name, "") for name in names}
            for event in self.events
        ]

    def storages(self) -> list[dict[str, Any]]:
        """A row for each storage: the tensors in it, and the commands that have to do with it."""
        by_storage: dict[int, list[Any]] = {}
        for event in self.events:
            by_storage.setdefault(event.storage_id, []).append(event)
        return [_row(number, events) for number, events in by_storage.items()]


def _row(number: int, events: list[Any]) -> dict[str, Any]:
    def commands(kind: type[Any]) -> list[int]:
        return [*dict.fromkeys(event.command_id for event in events if isinstance(event, kind))]

    tensors = [event for event in events if isinstance(event, TensorCreationEvent)]
    made, freed = commands(StorageCreationEvent), commands(StorageDeletionEvent)
    accesses = commands(TensorAccessEvent)
    return {
        "storage_id": number, "DTensorRefs": [event.DTensorRef for event in tensors],
        "dtype": _first(event.dtype for event in tensors), "dims": _first(event.dims for event in tensors),
        "size": _first(event.size for event in events if isinstance(event, StorageCreationEvent)),
        "devices": events[0].devices, "mesh_ref": events[0].mesh_ref, "stream_name": events[0].stream_name,
        "storage_create_id": _first(made), "tensor_create_ids": commands(TensorCreationEvent), "access_ids": accesses,
        "mutation_ids": commands(TensorMutationEvent), "lastuse_id": _first(reversed(accesses)),
        "tensor_deletion_ids": commands(TensorDeletionEvent), "storage_deletion_id": _first(freed),
    }  # fmt: skip


def _first(values: Iterable[Any]) -> Any:
    return next(iter(values), None)
