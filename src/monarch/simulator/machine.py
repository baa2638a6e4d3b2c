"""A model of a machine: the rates and delays that a prediction is made from.

Some are built in, from data sheets; `measure` finds those of the machine at hand. Nothing here
imports torch.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_WIDTHS = {"float64": 8, "complex64": 8, "complex128": 16, "float32": 4, "int64": 8, "int32": 4}
_NARROW = 2  # bytes of the element types not in there: halves, bytes, booleans


@dataclasses.dataclass(frozen=True)
class Link:
    """A way from one rank to another.

    Attributes:
        latency: Seconds until the first byte arrives.
        bandwidth: Bytes per second and direction.
    """

    latency: float
    bandwidth: float


@dataclasses.dataclass(frozen=True)
class Machine:
    """A model of a machine: devices, links between them, and the controller's overhead.

    All rates are those that programs reach, not those of data sheets.

    Attributes:
        name: What it is.
        source: Where the numbers are from.
        flops: Floating-point operations per second of matrix products, by the name of the dtype.
        vector: Simple operations per second (an addition is one) outside of matrix products.
        bandwidth: Bytes per second, of memory.
        fresh: Seconds per byte of a new tensor, where memory comes from the operating system; 0
            where it is kept.
        overhead: Seconds that a worker takes for each operation, of any size.
        kernel: Seconds that the smallest piece of work takes on the device.
        issue: Seconds that the controller takes for each instruction.
        delay: Seconds from the controller to a worker.
        answer: Seconds for a question and its answer, with nothing to be waited for.
        fetch_bandwidth: Bytes per second from a worker to the controller.
        host: Between ranks of one host.
        network: Between hosts; the share of one rank.
        trees: Whether collectives may use trees, as NCCL does, and not only rings, as gloo does.
        asynchronous: Whether a worker goes on while its device computes.
        memory: Bytes that each rank has.
        block: Bytes of the smallest piece of memory; all others are multiples.
    """

    name: str
    source: str
    flops: Mapping[str, float]
    vector: float
    bandwidth: float
    fresh: float
    overhead: float
    kernel: float
    issue: float
    delay: float
    answer: float
    fetch_bandwidth: float
    host: Link
    network: Link
    trees: bool
    asynchronous: bool
    memory: float
    block: int

    def flops_of(self, dtype: str) -> float:
        """Return the rate for matrix products of a dtype, in operations per second.

        Where it is not known, it is that of the nearest dtype that is at least as wide.

        Args:
            dtype: Name of the type, such as ``"bfloat16"``.
        """
        if dtype in self.flops:
            return self.flops[dtype]
        width = _width(dtype)
        wider = [rate for name, rate in self.flops.items() if _width(name) >= width]
        return max(wider) if wider else min(self.flops.values())

    def replace(self, **changes: Any) -> Machine:
        """Return a copy of the machine with other values for some attributes.

        An example is ``machine.replace(network=Link(5e-6, 12.5e9))``.

        Args:
            **changes: New values of attributes, by name.
        """
        return dataclasses.replace(self, **changes)

    def save(self, path: str | Path) -> None:
        """Write the machine as JSON.

        Args:
            path: Path of the file.
        """
        Path(path).write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")


def _width(dtype: str) -> int:
    return _WIDTHS.get(dtype, _NARROW)


def load(path: str | Path) -> Machine:
    """Read what `Machine.save`, or ``python -m monarch.simulator profile``, has written.

    Args:
        path: Path of the file.

    Returns:
        The machine.

    Raises:
        ValueError: It is not a machine.
    """
    try:
        values = json.loads(Path(path).read_text())
        values.update({name: Link(**values[name]) for name in ("host", "network")})
        return Machine(**values)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} does not describe a machine: {error}") from None


# What programs reach of what data sheets promise, as a rule; measure where it matters.
_MATMUL = 0.7
_MEMORY = 0.85
_LINK = 0.8
_GB, _TERA = 1e9, 1e12


def _gpu(
    name: str,
    source: str,
    half: float,
    single: float,
    memory_rate: float,
    memory: float,
    nvlink: float,
    nic: float,
) -> Machine:
    """A GPU from its data sheet.

    Args:
        name: Name of the machine.
        source: Where the figures come from.
        half: TFLOPS of dense bfloat16 (or float16) matrix products.
        single: TFLOPS of float32, not TF32: that is what torch uses unless it is told otherwise.
        memory_rate: GB/s.
        memory: GB.
        nvlink: GB/s and direction to the other GPUs of the host.
        nic: GB/s and direction to other hosts, per GPU: not of the data sheet, but of the usual
            server with this GPU.
    """
    flops = {"float32": single, "float16": half, "bfloat16": half}
    return Machine(
        name=name, source=source, flops={dtype: _MATMUL * _TERA * rate for dtype, rate in flops.items()},
        # the sheet counts a multiplication and an addition at a time
        vector=_MATMUL * _TERA * single / 2,
        bandwidth=_MEMORY * _GB * memory_rate, fresh=0.0, overhead=10e-6, kernel=2e-6, issue=15e-6, delay=100e-6, answer=300e-6,
        fetch_bandwidth=2 * _GB, host=Link(3e-6, _LINK * _GB * nvlink), network=Link(8e-6, _LINK * _GB * nic), trees=True,
        asynchronous=True, memory=_GB * memory, block=512,
    )  # fmt: skip


MACHINES: dict[str, Machine] = {
    machine.name: machine
    for machine in (
        _gpu("v100", "NVIDIA V100 data sheet, SXM2, 32 GB; DGX-1: 4 x 100 Gb/s for 8", 125, 15.7, 900, 32, 150, 6.25),
        _gpu("a100", "NVIDIA A100 data sheet, SXM4, 80 GB; DGX A100: 8 x 200 Gb/s for 8", 312, 19.5, 2039, 80, 300, 25),
        _gpu("h100", "NVIDIA H100 data sheet, SXM5, 80 GB; DGX H100: 8 x 400 Gb/s for 8", 989, 67, 3350, 80, 450, 50),
        _gpu("h200", "NVIDIA H200 data sheet, SXM, 141 GB; DGX H200: 8 x 400 Gb/s for 8", 989, 67, 4800, 141, 450, 50),
        _gpu("b200", "NVIDIA DGX B200 data sheet, per GPU; 8 x 400 Gb/s for 8", 2250, 75, 8000, 180, 900, 50),
        _gpu("l4", "NVIDIA L4 data sheet; PCIe 4.0 x16 between GPUs, 100 Gb/s for 4", 121, 30.3, 300, 24, 32, 3.1),
        _gpu("mi300x", "AMD MI300X data sheet; 7 links of 64 GB/s, 8 x 400 Gb/s for 8", 1307, 163.4, 5300, 192, 448, 50),
        Machine(
            name="cpu", source="two cores of a virtual machine (AMD EPYC), two ranks at once; measure your own",
            flops={"float32": 130e9, "float64": 65e9, "bfloat16": 300e9, "float16": 20e9}, vector=30e9, bandwidth=20e9, fresh=0.1e-9,
            overhead=6e-6, kernel=1.5e-6, issue=15e-6, delay=0.3e-3, answer=0.6e-3, fetch_bandwidth=1 * _GB,
            host=Link(60e-6, 1 * _GB), network=Link(100e-6, 1 * _GB), trees=False, asynchronous=False,
            memory=12 * _GB, block=64,
        ),
    )
}  # fmt: skip
"""Machines that are built in, by name."""


def machine_of(what: str | Path | Machine) -> Machine:
    """A machine, by its name or from a file.

    Raises:
        ValueError: There is none of that name.
        TypeError: It is something else.
    """
    if isinstance(what, Machine):
        return what
    if isinstance(what, Path) or (isinstance(what, str) and what.endswith(".json")):
        return load(what)
    if not isinstance(what, str):
        raise TypeError(f"a machine is a Machine, a name, or the path of a JSON file; got {what!r}")
    if what not in MACHINES:
        raise ValueError(
            f"there is no machine {what!r}; there are {', '.join(sorted(MACHINES))}, and files"
            " *.json"
        )
    return MACHINES[what]
