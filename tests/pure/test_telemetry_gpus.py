"""GPUs as rows: by NVML, as far as its Python module goes, and by the files of AMD's driver."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from monarch.telemetry import gpus
from monarch.telemetry.gpus import of_amd, of_nvidia
from monarch.telemetry.registry import Incomplete


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_NoPermission(NVMLError):
    pass


def not_supported(*args: Any) -> Any:
    raise NVMLError_NotSupported("Not Supported")


def recorder(**other: Any) -> ModuleType:
    """`pynvml` as far as it is used, of a host with two GPUs."""
    module = ModuleType("pynvml")
    processes = {
        0: [
            SimpleNamespace(pid=11, usedGpuMemory=5 << 30),
            SimpleNamespace(pid=12, usedGpuMemory=None),
        ],
        1: [],
    }
    vars(module).update(
        NVMLError=NVMLError,
        NVMLError_NotSupported=NVMLError_NotSupported,
        NVMLError_NoPermission=NVMLError_NoPermission,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(total=80 << 30, used=6 << 30),
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=40 + device, memory=3),
        nvmlDeviceGetPowerUsage=lambda device: 250_500,
        nvmlDeviceGetTemperature=lambda device, sensor: 51,
        nvmlDeviceGetComputeRunningProcesses=processes.__getitem__,
        nvmlDeviceGetGraphicsRunningProcesses=lambda device: [],
        nvmlDeviceGetUUID=lambda device: b"GPU-%d" % device,  # bytes, as older versions give them
        nvmlDeviceGetName=lambda device: "H100",
    )
    vars(module).update(other)
    return module


def use(monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    monkeypatch.setattr(gpus, "_nvml", None)
    monkeypatch.setitem(sys.modules, "pynvml", module)


def test_gpus_of_nvidia_have_their_memory_load_and_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, recorder())
    first, second = of_nvidia()
    assert first._asdict() == {
        "vendor": "NVIDIA", "number": 0, "uuid": "GPU-0", "name": "H100", "total": 80 << 30, "used": 6 << 30, "busy": 40,
        "celsius": 51, "watts": 250.5, "processes": {11: 5 << 30, 12: None},
    }  # fmt: skip
    assert (second.number, second.busy, second.processes) == (1, 41, {})


def test_what_a_gpu_does_not_tell_is_missing_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    use(
        monkeypatch,
        recorder(
            nvmlDeviceGetPowerUsage=not_supported, nvmlDeviceGetUtilizationRates=not_supported
        ),
    )
    first, _ = of_nvidia()
    assert (first.watts, first.busy, first.used) == (None, None, 6 << 30)


def test_why_gpus_of_nvidia_can_not_be_asked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*args: Any) -> Any:
        raise NVMLError("GPU is lost")

    use(monkeypatch, None)
    with pytest.raises(Incomplete, match=r"pip install 'pymonarch\[gpu\]'"):
        list(of_nvidia())
    use(monkeypatch, recorder(nvmlInit=lost))
    with pytest.raises(Incomplete, match="NVML: GPU is lost"):
        list(of_nvidia())
    use(monkeypatch, recorder(nvmlDeviceGetHandleByIndex=lost))
    with pytest.raises(Incomplete, match="NVML: GPU is lost"):
        list(of_nvidia())


def test_figures_of_all_gpus_are_the_lowest_the_median_and_the_highest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = {0: 100, 1: 0, 2: 60, 3: 40}
    more = {
        "nvmlDeviceGetCount": lambda: 4,
        "nvmlDeviceGetUtilizationRates": lambda device: SimpleNamespace(gpu=busy[device]),
        "nvmlDeviceGetComputeRunningProcesses": lambda device: [],
    }
    use(monkeypatch, recorder(**more))
    monkeypatch.setattr(gpus, "NVIDIA", (os.devnull,))
    assert gpus.present() and gpus.figures() == (0, 50, 100, 7.5, 7.5, 7.5)
    use(monkeypatch, recorder(**more, nvmlDeviceGetMemoryInfo=not_supported))
    assert gpus.figures() == (0, 50, 100, None, None, None)
    use(monkeypatch, None)  # the extra is not installed
    assert gpus.figures() == (None,) * 6


def test_the_module_of_nvml_has_all_that_is_asked_of_it() -> None:
    real = pytest.importorskip(
        "pynvml", reason="nvidia-ml-py is not installed: pip install 'pymonarch[gpu]'"
    )
    assert [
        name for name in vars(recorder()) if not name.startswith("__") and not hasattr(real, name)
    ] == []


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_gpus_of_amd_are_read_from_the_files_of_the_kernel(tmp_path: Path) -> None:
    system, processes = tmp_path / "sys", tmp_path / "proc"
    bus = system / "devices/0000:c1:00.0"
    for name, text in {
        "vendor": "0x1002", "unique_id": "a1b2", "product_name": "MI300X", "gpu_busy_percent": "73", "mem_info_vram_total": "1000",
        "mem_info_vram_used": "600", "hwmon/hwmon3/temp1_input": "45500", "hwmon/hwmon3/power1_average": "120000000",
    }.items():  # fmt: skip
        write(bus / name, text + "\n")
    write(system / "devices/0000:00:02.0/vendor", "0x8086\n")  # of somebody else
    drm = system / "class/drm"
    for name, device in (("card1", bus), ("card0", system / "devices/0000:00:02.0")):
        (drm / name).mkdir(parents=True)
        (drm / name / "device").symlink_to(device)
    (drm / "card1-DP-1").mkdir()
    context = (
        "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{}\ndrm-pdev:\t0000:c1:00.0\ndrm-memory-vram:\t{}"
        " KiB\n"
    )
    for pid, fd, client, size in ((7, 3, 1, 100), (7, 4, 1, 100), (7, 5, 2, 50), (8, 3, 3, 10)):
        write(processes / str(pid) / "fdinfo" / str(fd), context.format(client, size))
    write(processes / "9/fdinfo/1", "pos:\t0\n")
    [gpu] = of_amd(system, processes)
    assert gpu._asdict() == {
        "vendor": "AMD", "number": 0, "uuid": "a1b2", "name": "MI300X", "total": 1000, "used": 600, "busy": 73,
        "celsius": 45.5, "watts": 120.0, "processes": {7: 150 * 1024, 8: 10 * 1024},
    }  # fmt: skip


def test_without_such_devices_nothing_is_read(tmp_path: Path) -> None:
    assert list(of_amd(tmp_path, tmp_path / "nowhere")) == []
