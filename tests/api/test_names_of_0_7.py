"""A program that imports every public name of Monarch 0.7 runs here, whichever it imports first."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers import homes_of_0_7, names_of_0_7
from helpers.names_of_0_7 import WITH_TORCH, WITHOUT_TORCH
from monarch.actor import Actor, ChannelTransport, endpoint

pytestmark = pytest.mark.slow  # an interpreter for each module


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, str]]:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(names_of_0_7.__file__))],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, dict[str, str]] = json.loads(result.stdout)
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_each_module_imported_first_has_its_names(
    outcomes: dict[str, dict[str, str]], module: str
) -> None:
    assert outcomes["without torch"][module] == ""


@pytest.mark.parametrize("module", WITH_TORCH)
def test_each_module_that_needs_torch_imported_first_has_its_names(
    outcomes: dict[str, dict[str, str]], module: str
) -> None:
    pytest.importorskip("torch")
    assert outcomes["with torch"][module] == ""


def test_one_program_imports_every_name(tmp_path: Path) -> None:
    modules = [*WITHOUT_TORCH.items(), *homes_of_0_7.HOMES.items()]
    if importlib.util.find_spec("torch") is not None:
        modules += WITH_TORCH.items()
        modules += homes_of_0_7.HOMES_WITH_TORCH.items()
    lines = [
        f"from {module} import {name}"
        for module, names in modules
        if module not in names_of_0_7.REFUSED
        for name in names.split()
    ]
    program = tmp_path / "program.py"
    program.write_text("\n".join([*lines, "print('all of it')"]))
    result = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=100
    )
    assert result.stdout == "all of it\n", result.stderr


def test_the_scheduler_of_meta_is_an_import_error_that_names_others() -> None:
    with pytest.raises(ImportError, match="ProcessJob"):
        importlib.import_module("monarch.job.meta")


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("monarch.tools.commands", "stop", "bounce"),
        ("monarch.tools.commands", "torchx_runner", "job_of"),
        ("monarch.tools.config.defaults", "component_fn", "Config.appdef"),
    ],
)
def test_what_is_not_there_says_what_to_use_when_it_is_called(
    module: str, name: str, instead: str
) -> None:
    with pytest.raises(NotImplementedError, match=instead):
        _call(getattr(importlib.import_module(module), name))


def _call(function: Any) -> None:
    """With as many arguments as it must have."""
    parameters = (
        [] if inspect.isclass(function) else inspect.signature(function).parameters.values()
    )
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind < 2
    ]
    called = function(*required)
    if inspect.iscoroutine(called):
        asyncio.run(called)


# names that have to mean the same


class Store(Actor):
    @endpoint
    def get(self) -> int:
        return 1

    def helper(self) -> int:
        return 2


class Replacement(Store):
    pass


def test_the_endpoints_of_a_class_are_found_by_endpoint_property() -> None:
    kind = importlib.import_module("monarch._src.actor.endpoint").EndpointProperty
    assert [name for name in dir(Store) if isinstance(getattr(Store, name), kind)] == ["get"]

    class ServiceEndpoint(kind):  # type: ignore[misc, valid-type]  # as an RL library extends it
        def __init__(
            self, method: Any, propagate: Any, explicit_response_port: bool, *, router: str
        ) -> None:
            super().__init__(method, propagate, explicit_response_port)
            self.router = router

    assert ServiceEndpoint(Store.helper, None, False, router="r").method is Store.helper


def test_the_class_that_is_spawned_under_a_patch_can_be_asked_for() -> None:
    mock = importlib.import_module("monarch._src.actor.mock")
    with mock.patch_actor(Store, Replacement) as patched:
        assert patched is mock.get_actor_class(Store) is Replacement
    assert mock.get_actor_class(Store) is Store


def test_the_factory_of_simulated_tensors_can_be_asked_for() -> None:
    pytest.importorskip("torch")
    mock = importlib.import_module("monarch._src.actor.mock")

    def factory(procs: Any) -> None: ...

    assert mock.get_tensor_engine_factory(Store) is None
    with mock.patch_tensor_engine(Store, factory) as patched:
        assert patched is mock.get_tensor_engine_factory(Store) is factory
    with mock.patch_tensor_engine(Store):
        assert callable(mock.get_tensor_engine_factory(Store))


def test_a_bind_spec_is_what_enable_transport_takes() -> None:
    spec = importlib.import_module("monarch._rust_bindings.monarch_hyperactor.channel").BindSpec
    assert spec("tcp") == spec(ChannelTransport.TcpWithHostname) != spec("unix")
    assert ChannelTransport.parse(spec("unix")) is ChannelTransport.Unix
    assert str(spec("tcp://1.2.3.4:5")) == "tcp://1.2.3.4:5"
    with pytest.raises(ValueError, match="BindSpec: 'bogus'"):
        spec("bogus")
