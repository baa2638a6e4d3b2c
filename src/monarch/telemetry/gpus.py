"""GPUs as rows: of NVIDIA through NVML, by the module `pynvml`.

Those of AMD come from the files of the kernel's driver, which need no library.

A host without such devices imports nothing, and opens nothing: two look-ups of paths are all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .._extras import of_extra
from .._namedtuple import NamedTuple
from .ids import host_id, proc_id
from .registry import AGENT, Asked, Incomplete, produces

Row = tuple[Any, ...]

NVIDIA = ("/dev/nvidiactl", "/dev/dxg")
"""One of these is there where there is a driver; the second in Windows' subsystem for Linux."""

_NVIDIA, _AMD, _AMD_ID = "NVIDIA", "AMD", "0x1002"
_SYSTEM = Path("/sys")
_loading = threading.Lock()
_nvml: Any = None


class Gpu(NamedTuple):
    """A device.

    Attributes:
        used: Bytes of its memory.
        busy: Percent of the time in which something ran, lately.
        celsius: Its temperature.
        watts: What it draws.
        processes: Bytes of its memory by process; None where the driver does not tell.
    """

    vendor: str
    number: int
    uuid: str
    name: str
    total: int | None
    used: int | None
    busy: float | None
    celsius: float | None
    watts: float | None
    processes: dict[int, int | None]


@produces("gpus", AGENT)
def _gpus(asked: Asked) -> Iterator[Row]:
    host = host_id(asked.description.agent.host)
    for gpu in _found(asked):
        yield (
            host, asked.now_us, gpu.vendor, gpu.number, gpu.uuid, gpu.name, gpu.total, gpu.used, gpu.busy, gpu.celsius, gpu.watts,
            len(gpu.processes),
        )  # fmt: skip


@produces("gpu_processes", AGENT)
def _processes(asked: Asked) -> Iterator[Row]:
    description = asked.description
    ours = {pid: address for address, pid in description.pids.items()}
    for gpu in _found(asked):
        for pid, used in gpu.processes.items():
            proc = proc_id(ours[pid]) if pid in ours else None
            yield (
                host_id(description.agent.host), asked.now_us, gpu.vendor, gpu.number, gpu.uuid,
                pid, proc, used,
            )  # fmt: skip


def _found(asked: Asked) -> Iterator[Gpu]:
    """Once for all tables of a question.

    Raises:
        Incomplete: There are devices that can't be asked.
    """
    if "gpus" not in asked.scratch:
        asked.scratch["gpus"] = list(of_amd())
    yield from asked.scratch["gpus"]
    if _has_nvidia():
        if "nvml" not in asked.scratch:
            asked.scratch["nvml"] = list(of_nvidia())
        yield from asked.scratch["nvml"]


def present() -> bool:
    """Return whether this host has GPUs, by look-ups of paths alone."""
    return _has_nvidia() or bool(_cards(_SYSTEM))


def _has_nvidia() -> bool:
    return any(map(os.path.exists, NVIDIA))


def figures() -> Row:
    """Look at the GPUs of this host; a driver may take its time, or for ever.

    Returns:
        In per cent, how busy the lowest, the median and the highest of them is, then the same of
        their memory in use; None where no GPU tells it.
    """
    found = list(of_amd(processes=None))
    if _has_nvidia():
        with suppress(Incomplete):  # the table `gpus` says why
            found += of_nvidia()
    memory = (100 * gpu.used / gpu.total for gpu in found if gpu.total and gpu.used is not None)
    return *spread(gpu.busy for gpu in found if gpu.busy is not None), *spread(memory)


def spread(values: Iterable[float]) -> Row:
    """The lowest, the median and the highest; None for each where there are no values."""
    if not (ordered := sorted(values)):
        return (None,) * 3
    last = len(ordered) - 1
    return ordered[0], (ordered[last // 2] + ordered[(last + 1) // 2]) / 2, ordered[-1]


def of_nvidia() -> Iterator[Gpu]:
    """The GPUs that NVML knows.

    Raises:
        Incomplete: NVML, or its module, is not there, or does not work.
    """
    nvml = _load()
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = _or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, device)
            rates = _or_none(nvml, nvml.nvmlDeviceGetUtilizationRates, device)
            milliwatts = _or_none(nvml, nvml.nvmlDeviceGetPowerUsage, device)
            processes: dict[int, int | None] = {}
            for get in (
                nvml.nvmlDeviceGetComputeRunningProcesses,
                nvml.nvmlDeviceGetGraphicsRunningProcesses,
            ):
                processes.update(
                    (each.pid, each.usedGpuMemory) for each in _or_none(nvml, get, device) or ()
                )
            yield Gpu(
                _NVIDIA, index, _text(nvml.nvmlDeviceGetUUID(device)), _text(nvml.nvmlDeviceGetName(device)),
                memory and memory.total, memory and memory.used, rates and rates.gpu,
                _or_none(nvml, nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU),
                milliwatts / 1000 if milliwatts is not None else None, processes,
            )  # fmt: skip
    except nvml.NVMLError as error:  # it has fallen off the bus, say
        raise Incomplete(f"NVML: {error}") from None


def _load() -> Any:
    global _nvml
    with _loading:
        if _nvml is None:
            missing = "NVIDIA's GPUs are asked by nvidia-ml-py: pip install 'pymonarch[gpu]'"
            module = of_extra("pynvml", missing, Incomplete)
            try:
                module.nvmlInit()
            except module.NVMLError as error:
                raise Incomplete(f"NVML: {error}") from None
            _nvml = module
    return _nvml


def _or_none(nvml: Any, get: Callable[..., Any], *args: Any) -> Any:
    """Return a value, or None where the device, or this user, is not told it.

    Other errors are raised.
    """
    try:
        return get(*args)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
        return None


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def of_amd(system: Path = _SYSTEM, processes: Path | None = Path("/proc")) -> Iterator[Gpu]:
    """The GPUs of the kernel's driver amdgpu.

    Args:
        system: Where the kernel shows devices.
        processes: Where it shows processes; None: those are not looked for, which takes long.
    """
    cards = _cards(system)
    if not cards:
        return
    used = _memory_by_card(processes) if processes is not None else {}
    for index, card in enumerate(
        sorted(cards, key=lambda card: int(card.name.removeprefix("card")))
    ):
        device = card / "device"
        bus = device.resolve().name
        celsius, watts = _sensor(device, "temp1_input"), _sensor(device, "power1_average")
        busy = _number(device / "gpu_busy_percent")
        yield Gpu(
            _AMD, index, _read(device / "unique_id") or bus, _read(device / "product_name") or bus,
            _number(device / "mem_info_vram_total"), _number(device / "mem_info_vram_used"), busy,
            celsius / 1e3 if celsius is not None else None, watts / 1e6 if watts is not None else None, used.get(bus, {}),
        )  # fmt: skip


def _cards(system: Path) -> list[Path]:
    cards = [
        card
        for card in system.glob("class/drm/card[0-9]*")
        if card.name.removeprefix("card").isdigit()
    ]
    return [card for card in cards if _read(card / "device/vendor") == _AMD_ID]


def _memory_by_card(processes: Path) -> dict[str, dict[int, int | None]]:
    """Bytes by process, by the card's address on its bus.

    A process has a file for each context that it has opened.
    """
    contexts: dict[tuple[str, int, str], int] = {}
    for file in processes.glob("[0-9]*/fdinfo/*"):
        text = _read(file) or ""
        if "drm-driver:" in text:
            fields = dict(
                line.replace("\t", " ").split(":", 1) for line in text.splitlines() if ":" in line
            )
            bus = fields.get("drm-pdev", "").strip()
            context = fields.get("drm-client-id", "").strip()
            words = fields.get("drm-memory-vram", "0").split()
            size = int(words[0]) * (
                1024 if words[1:] == ["KiB"] else 1 << 20 if words[1:] == ["MiB"] else 1
            )
            # of files that share a context each has it
            contexts[bus, int(file.parts[-3]), context] = size
    found: dict[str, dict[int, int | None]] = {}
    for (bus, pid, _), size in contexts.items():
        of_card = found.setdefault(bus, {})
        of_card[pid] = (of_card.get(pid) or 0) + size
    return found


def _sensor(device: Path, name: str) -> int | None:
    found = map(_number, device.glob(f"hwmon/hwmon*/{name}"))
    return next((value for value in found if value is not None), None)


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text is not None and text.isdigit() else None


def _read(path: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return None
