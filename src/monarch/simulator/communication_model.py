"""Times of collectives, under the names of Monarch 0.7 and by the formulas of `collectives`.

Programs, and `ir`, call it to find how long moving a tensor takes. It needs a `NetworkConfig` only;
in the rest of the simulator the network is part of a `Machine`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from . import collectives
from .collectives import Layout
from .machine import MACHINES, Link, Machine

_BYTES = {
    "float64": 8, "int64": 8, "int16": 2, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1,
    "bool": 1,
}  # fmt: skip
_OTHERS = 4  # bytes, of float32, int32 and unknown types
_REDUCTIONS = ("all_reduce", "sum", "avg", "product", "min", "max")


@dataclasses.dataclass
class NetworkConfig:
    """A model of the network between devices.

    Attributes:
        intra_node_bandwidth_gbs: GB/s between two devices of one host.
        inter_node_bandwidth_gbs: GB/s of one device's share of the network.
        single_hop_latency_us: Microseconds until the first byte arrives.
        gpus_per_node: Devices of one host.
        contention_factor: Which part of the bandwidth is left where all send to all, more than 0
            and at most 1.
    """

    intra_node_bandwidth_gbs: float = 900.0
    inter_node_bandwidth_gbs: float = 50.0
    single_hop_latency_us: float = 2.0
    gpus_per_node: int = 8
    contention_factor: float = 0.5

    def _machine(self, part: float = 1.0) -> Machine:
        latency = self.single_hop_latency_us * 1e-6
        return dataclasses.replace(
            MACHINES["h100"],
            host=Link(latency, self.intra_node_bandwidth_gbs * 1e9 * part),
            network=Link(latency, self.inter_node_bandwidth_gbs * 1e9 * part),
        )


def tensor_size_bytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a tensor; an unknown dtype counts 4 bytes an element."""
    return math.prod(shape) * _BYTES.get(dtype.removeprefix("torch."), _OTHERS)


def estimate_collective_time_us(
    reduce_type: str,
    tensor_shape: Sequence[int],
    dtype_str: str,
    num_devices: int,
    config: NetworkConfig | None = None,
) -> int:
    """Microseconds that a collective takes, rounded up.

    Args:
        reduce_type: ``"all_reduce"``, or the name of a reduction; ``"all_gather"``,
            ``"reduce_scatter"``, ``"all_to_all"``.
        tensor_shape: Of the tensor that each device has before.
        dtype_str: Such as ``"float32"``.
        num_devices: How many take part; they fill hosts one after the other.
        config: None for the default.

    Raises:
        ValueError: There is no such collective, or `num_devices` is not positive.
    """
    if num_devices < 1:
        raise ValueError(f"num_devices is a positive number, got {num_devices!r}")
    config = config or NetworkConfig()
    size = tensor_size_bytes(tensor_shape, dtype_str)
    layout: Layout = collectives.layout_of(range(num_devices), config.gpus_per_node)
    if reduce_type in _REDUCTIONS:
        seconds = collectives.all_reduce(size, layout, config._machine())
    elif reduce_type in ("all_gather", "stack"):
        seconds = collectives.all_gather(size, layout, config._machine())
    elif reduce_type == "reduce_scatter":
        seconds = collectives.all_to_all(size, layout, config._machine())
    elif reduce_type == "all_to_all":
        seconds = collectives.all_to_all(size, layout, config._machine(config.contention_factor))
    else:
        wanted = ", ".join((*_REDUCTIONS, "all_gather", "stack", "reduce_scatter", "all_to_all"))
        raise ValueError(f"reduce_type is one of {wanted}; got {reduce_type!r}")
    return _microseconds(seconds)


def estimate_send_time_us(
    tensor_shape: Sequence[int], dtype_str: str, config: NetworkConfig | None = None
) -> int:
    """Microseconds that a tensor takes to a device of another host, rounded up."""
    machine = (config or NetworkConfig())._machine()
    return _microseconds(
        collectives.transfer(tensor_size_bytes(tensor_shape, dtype_str), 1, False, machine)
    )


def _microseconds(seconds: float) -> int:
    # to a picosecond: what floats add is not a microsecond
    return math.ceil(round(seconds * 1e6, 6))
