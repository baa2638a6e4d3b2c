"""The table of modules that only Monarch 0.7 has: each leads to what stands for it, or says so."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.each import for_each
from helpers.homes_of_0_7 import HOMES, HOMES_WITH_TORCH
from monarch.compat import instead_of, table
from monarch.compat.native import fake_sync_state, get_active_proc_meshes

if TYPE_CHECKING:
    from conftest import Spawn

HAS_TORCH = importlib.util.find_spec("torch") is not None


@for_each("module", sorted(table().modules))
def test_every_module_of_the_table_can_be_imported_and_lacks_what_it_lacks(module: str) -> None:
    if not HAS_TORCH and module.startswith(("parallel.", "timer.")):
        return  # in a package that needs it
    found = importlib.import_module(f"monarch.{module}")
    assert not hasattr(found, "__wrapped__")
    if table().modules[module] == "":
        assert not hasattr(found, "Anything")
        with pytest.raises(ImportError, match=re.escape(instead_of(module, "Anything"))):
            exec(f"from monarch.{module} import Anything")
        with pytest.raises(AttributeError, match=re.escape(instead_of(module, "Anything"))):
            found.Anything


@for_each("home", sorted({**HOMES, **(HOMES_WITH_TORCH if HAS_TORCH else {})}))
def test_a_home_of_0_7_has_the_names_that_stand_for_something(home: str) -> None:
    names = {**HOMES, **HOMES_WITH_TORCH}[home]
    exec(f"from {home} import {', '.join(names.split())}")


def test_the_table_refers_to_what_is_there() -> None:
    modules, renamed, instead = table()
    for key in instead:
        known = key in modules or importlib.util.find_spec(f"monarch.{key}") or "." not in key
        assert known, f"{key} is neither a module nor a name"
    for name in (*renamed, *instead):
        assert not instead_of("", name).startswith("@")
    for name in renamed:
        if not renamed[name].startswith("tensor_engine") or HAS_TORCH:
            exec(f"from monarch.actor_mesh import {name}")


def test_a_pickle_looks_through_the_modules_and_finds_none_in_the_way() -> None:
    """It asks every module that was imported for an object that does not say where it is from."""
    importlib.import_module("monarch.controller")
    importlib.import_module("monarch._src.actor.allocator")
    importlib.import_module("monarch.common.borrows")

    class Anonymous:
        __module__ = None  # type: ignore[assignment]
        __qualname__ = "ProcessAllocator"

    with pytest.raises(pickle.PicklingError):
        pickle.dumps(Anonymous)


def test_a_name_that_needs_a_missing_package_says_so_and_stops_no_pickle() -> None:
    program = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import pickle
import monarch.common.borrows, monarch._src.actor.endpoint
class Unknown:
    __module__, __qualname__ = None, "Nonsense"
try:
    pickle.dumps(Unknown)
except pickle.PicklingError:
    print("no pickle")
for name in ("Borrow", "Nonsense"):
    try:
        exec(f"from monarch.common.borrows import {name}")
    except ImportError as error:
        print(error)
print(hasattr(monarch.common.borrows, "Borrow"))
from monarch._src.actor.endpoint import ActorEndpoint, Endpoint
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    needs = "import of torch halted; None in sys.modules\n"
    assert done.stdout == f"no pickle\n{needs}{needs}False\n", done.stderr


def test_nothing_of_the_table_is_read_before_a_program_asks() -> None:
    program = """
import sys, monarch, monarch.actor
from monarch import compat
try:
    import monarch_of_others
except ImportError:
    pass
assert compat.table.cache_info().currsize == 0
assert "configparser" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_commands_of_0_7_are_installed() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    scripts = project["scripts"]
    assert {"monarch", "monarch-dashboard", "monarch-tui", "monarch_bootstrap"} <= set(scripts)
    for place in scripts.values():
        module, _, name = place.partition(":")
        assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize(
    ("script", "says"), [("tui", "Watch a program"), ("dashboard", "Open the")]
)
def test_a_script_is_the_word_of_the_command(script: str, says: str) -> None:
    program = f"from monarch.compat.scripts import {script}; {script}()"
    result = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, timeout=60
    )
    assert f"monarch {script}" in result.stdout
    assert says in result.stdout


def test_the_running_loop_is_hidden_from_a_block() -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        with fake_sync_state(), pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        assert asyncio.get_running_loop() is loop

    asyncio.run(body())


def test_the_proc_meshes_that_were_spawned_and_not_stopped_are_known(spawn: Spawn) -> None:
    before = get_active_proc_meshes()
    procs = spawn(2)
    assert [mesh for mesh in get_active_proc_meshes() if mesh not in before] == [procs]
    procs.stop().get()
    assert get_active_proc_meshes() == before


def test_each_difference_has_a_reason() -> None:
    page = Path(__file__).parents[2] / "docs" / "differences.md"
    tables = [row for row in page.read_text().splitlines() if row.startswith("| ")]
    rows = [[cell.strip() for cell in row[2:-1].split(" | ")] for row in tables]
    assert len(rows) > 300
    assert [row for row in rows if len(row) != 4 or not row[3]] == []
