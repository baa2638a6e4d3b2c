"""Every public object says, and is found by, a public module and name."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import subprocess
import sys
from types import FunctionType, ModuleType

import cloudpickle
import pytest

from helpers.each import for_each

PACKAGES = [
    "monarch",
    "monarch.actor",
    "monarch.actor.concurrent",
    "monarch.config",
    "monarch.data",
    "monarch.errors",
    "monarch.job",
    "monarch.notebook",
    "monarch.queues",
    "monarch.rdma",
    "monarch.service",
    "monarch.spmd",
    "monarch.supervision",
    "monarch.testing",
    "monarch.trust",
]
WITH_TORCH = [
    "monarch.builtins",
    "monarch.memory",
    "monarch.parallel.pipelining",
    "monarch.profiler",
    "monarch.python_local_mesh",
    "monarch.random",
    "monarch.simulator",
    "monarch.tensor_engine",
    "monarch.timer",
    "monarch.timer.execution_timer",
]
has_torch = importlib.util.find_spec("torch") is not None
WITH_LIGHTNING = ["monarch.lightning"] if importlib.util.find_spec("lightning") is not None else []


def exported(package: ModuleType) -> dict[str, object]:
    names = getattr(package, "__all__", None) or [
        name for name in dir(package) if not name.startswith("_") and name != "lazy_names"
    ]
    return {name: getattr(package, name) for name in names}


@for_each("name", [*PACKAGES, *(WITH_TORCH if has_torch else []), *WITH_LIGHTNING])
def test_what_a_package_exports_has_a_public_name_by_which_it_is_found(name: str) -> None:
    objects = {
        key: value
        for key, value in exported(importlib.import_module(name)).items()
        if isinstance(value, (type, FunctionType)) and value.__module__.startswith("monarch")
    }
    assert {
        key: value.__module__
        for key, value in objects.items()
        if value.__module__ not in PACKAGES + WITH_TORCH + WITH_LIGHTNING
    } == {}
    for value in objects.values():
        found = importlib.import_module(value.__module__)
        assert getattr(found, value.__qualname__) is value
        assert pickle.loads(pickle.dumps(value)) is value
        assert cloudpickle.loads(cloudpickle.dumps(value)) is value
        assert value.__module__.encode() in cloudpickle.dumps(value), "by name"


@pytest.mark.slow
def test_names_do_not_depend_on_what_was_imported_first() -> None:
    program = """
import importlib, sys
from helpers.each import for_each
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for key in getattr(package, "__all__", None) or dir(package):
        found = getattr(package, key)
        if getattr(found, "__module__", "").startswith("monarch") and hasattr(found, "__qualname__"):
            print(name, key, found.__module__, found.__qualname__)
"""
    outputs = []
    for order in (PACKAGES, PACKAGES[::-1]):
        result = subprocess.run(
            [sys.executable, "-c", program, *order], capture_output=True, text=True, timeout=120
        )
        assert result.returncode == 0, result.stderr
        outputs.append(sorted(result.stdout.splitlines()))
    assert outputs[0] == outputs[1]
    assert "monarch.actor this_host monarch.actor this_host" in outputs[0]
    assert "monarch Extent monarch.actor Extent" in outputs[0]
