"""Import paths that only programs for Monarch 0.7 need: modules that are elsewhere here, or nowhere.

`homes.txt` is the table of them: where the names of a module are found, which names are called
otherwise, and what to write instead of the rest. Nothing is read or imported before a program asks
for such a module. It can be imported in any case; a name that stands for nothing here is an
ImportError, or an AttributeError, that says what to write.

`native` has the few functions that 0.7's private modules offer and no public module needs;
`scripts` has its commands.

Imports `_core.actors`, `actor`, `tools`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, NamedTuple

_ROOT = "monarch."
_START = "from monarch._core.processes.proc import main\nmain()\n"
_PROGRAM = "bootstrap_main"  # is run by ``python -m``, so no package


class Table(NamedTuple):
    """The table of homes.

    Attributes:
        modules: Modules of 0.7, and where their names are found, in this order.
        renamed: Names, and what they are here.
        instead: Names and modules, and what to write in their place.
    """

    modules: Mapping[str, str]
    renamed: Mapping[str, str]
    instead: Mapping[str, str]


@cache
def table() -> Table:
    """Read the table, once."""
    import configparser  # here: few programs need it

    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names have capitals
    parser.read(os.path.join(os.path.dirname(__file__), "homes.txt"), encoding="utf-8")
    return Table(*(parser[section] for section in Table._fields))


def instead_of(module: str, name: str) -> str:
    """Say what to write in the place of a name that stands for nothing here.

    Args:
        module: Of 0.7, below `monarch`.
        name: In it.
    """
    texts = table().instead
    parts = module.split(".")
    places = [name, *(".".join(parts[:count]) for count in range(len(parts), 0, -1))]
    text = next((texts[place] for place in places if place in texts), "nothing stands for it here")
    return texts[text[1:]] if text.startswith("@") else text


class _Homes:
    """Finds and loads the modules of the table.

    (The base classes of `importlib.abc` cost 8 ms to import.)
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(_ROOT):
            return None
        home = name.removeprefix(_ROOT)
        modules, loader = table().modules, self
        if home in modules:
            return ModuleSpec(name, loader, is_package=self.is_package(name))  # type: ignore[arg-type]
        parent, _, leaf = home.rpartition(".")
        if parent in modules:  # also ``from parent import leaf``, as it has no such attribute
            for source in modules[parent].split():
                import_module(_ROOT + source)  # has it raise what `find` does not
            raise ModuleNotFoundError(f"{name}: {instead_of(parent, leaf)}")
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        home = module.__name__.removeprefix(_ROOT)
        modules, renamed, _ = table()

        def find(name: str) -> Any:
            try:
                if name in renamed and modules[home]:
                    source, _, actual = renamed[name].rpartition(".")
                    return getattr(import_module(_ROOT + source), actual)
                for source in () if name.startswith("__") else modules[home].split():
                    found = getattr(import_module(_ROOT + source), name, None)
                    if found is not None:
                        return found
                why = instead_of(home, name)
            except ModuleNotFoundError as error:
                why = str(error)  # of torch; pickle asks every module for any name
            raise AttributeError(f"{module.__name__}.{name}: {why}")

        # PEP 562, for a module made by hand
        module.__getattr__ = find  # type: ignore[method-assign]

    def get_source(self, name: str) -> str:
        # what `python -m monarch._src.actor.bootstrap_main` runs
        return "" if self.is_package(name) else _START

    def get_code(self, name: str) -> CodeType:
        return compile(self.get_source(name), f"<{name} of 0.7>", "exec")

    def is_package(self, name: str) -> bool:
        """A package asks `find_spec` for a name that it lacks, which knows what to say."""
        return not name.endswith(_PROGRAM)


def bootstrap_module() -> str:
    """Return the module by which programs know that a process becomes a proc; an alias."""
    return f"{_ROOT}_src.actor.{_PROGRAM}"


def install() -> None:
    """Make the modules importable."""
    if not any(isinstance(finder, _Homes) for finder in sys.meta_path):
        sys.meta_path.append(_Homes())
