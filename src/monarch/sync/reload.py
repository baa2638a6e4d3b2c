"""New code in a process that runs.

Changed modules of a workspace are executed again, and what uses them gets the new objects.

1. The modules are executed anew, those that others import first. One that fails keeps its old code,
   as a whole.
2. ``from module import name``, in other modules of the workspace, gets the new object, if it still
   had the old one.
3. Functions that are held elsewhere, as callbacks, run the new code.
4. Objects of their classes, actors among them, take the new class and keep what they hold. Classes
   derived from them elsewhere take the new base.

What can't be done is said. A frame that runs goes on with the code that it has begun.
"""

from __future__ import annotations

import ast
import enum
import gc
import importlib
import importlib.util
import linecache
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from .._answering import answer_on_thread
from .._core.plane import ControlRequest, handles
from .._namedtuple import NamedTuple

_one_at_a_time = threading.Lock()

_Kept = list[tuple[str, str]]


class Reload(NamedTuple):
    """Reload modules.

    Client ──▶ procs. Answer: names of those that were, the number of objects with new code, and
    what could not be: name, why.

    Attributes:
        folder: Of the workspace, on this host.
        changed: Paths in it.
    """

    folder: str
    changed: list[str]


@handles(Reload)
def _reload(service: Any, request: ControlRequest, record: Reload) -> None:
    def work() -> Any:
        with _one_at_a_time:
            return reload(record.folder, record.changed)

    answer_on_thread(request, "monarch-reload", work)  # modules run what they like


def reload(folder: str, changed: list[str]) -> tuple[list[str], int, _Kept]:
    """See `Reload`."""
    known = {
        path[len(folder) + 1 :]: module
        for module in list(sys.modules.values())
        if isinstance(path := getattr(module, "__file__", None), str)
        and path.startswith(f"{folder}/")
    }
    kept: _Kept = []
    wanted: dict[str, ModuleType] = {}
    for path in changed:
        if path in known:
            module = known[path]
            name = module.__name__
            if not os.path.exists(f"{folder}/{path}"):
                kept.append((name, "its file is gone"))
            elif not path.endswith(".py"):
                kept.append((name, "an extension module can't be loaded twice: new procs have it"))
            elif sys.modules.get(name) is not module or getattr(module, "__spec__", None) is None:
                kept.append((name, "it was not imported by this name"))
            else:
                wanted[name] = module
    if not wanted:
        return [], 0, kept
    importlib.invalidate_caches()
    linecache.checkcache()
    before: dict[str, dict[str, Any]] = {}
    for name in _in_order(wanted):
        old = dict(vars(wanted[name]))
        try:
            importlib.reload(wanted[name])
        except (Exception, SystemExit) as error:
            vars(wanted[name]).clear()
            vars(wanted[name]).update(old)
            kept.append((name, f"{type(error).__name__}: {error}"))
        else:
            before[name] = old
    for module in known.values():
        _bind_again(module, before)
    return list(before), _carry_over(before, kept), kept


def _in_order(modules: Mapping[str, ModuleType]) -> Iterator[str]:
    """Order modules so that imported ones come before those that import them."""
    done: set[str] = set()

    def visit(name: str) -> Iterator[str]:
        if name in modules and name not in done:
            done.add(name)
            for needed, _, _ in _imports(modules[name]):
                yield from visit(needed)
            yield name

    for name in modules:
        yield from visit(name)


def _imports(module: ModuleType) -> list[tuple[str, str, str]]:
    """List the imports of a module: from which module, which name of it, as what.

    The last two are empty where it is the module itself.
    """
    found = []
    try:
        with open(module.__file__ or "", "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return []
    package = getattr(module, "__package__", None) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(each.name, "", "") for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            try:
                source = importlib.util.resolve_name(source, package)
            except (ImportError, ValueError):
                continue
            for each in node.names:
                found.append((source, each.name, each.asname or each.name))
                found.append((f"{source}.{each.name}", "", ""))  # it may be a module
    return found


def _bind_again(module: ModuleType, before: Mapping[str, Mapping[str, Any]]) -> None:
    """Give a module the reloaded objects in place of the old ones that it still has."""
    namespace = vars(module)
    for source, name, own in _imports(module):
        if source in before and name:
            old, new = before[source], vars(sys.modules[source])
            for had, mine in [(each, each) for each in old] if name == "*" else [(name, own)]:
                if had in old and had in new and mine in namespace and namespace[mine] is old[had]:
                    namespace[mine] = new[had]


def _carry_over(before: Mapping[str, Mapping[str, Any]], kept: _Kept) -> int:
    """Have functions and objects from before the reload run the new code; how many objects do."""
    classes: dict[type, type] = {}
    for name, old in before.items():
        new = vars(sys.modules[name])
        for key, value in old.items():
            if getattr(value, "__module__", None) == name and key in new and value is not new[key]:
                _pair(f"{name}.{key}", value, new[key], classes, kept)
    for old_class, new_class in classes.items():
        derived: type
        for derived in type.__subclasses__(old_class):
            if derived not in classes:
                try:
                    derived.__bases__ = tuple(
                        new_class if each is old_class else each for each in derived.__bases__
                    )
                except TypeError as error:
                    name = f"{derived.__module__}.{derived.__qualname__}"
                    kept.append((name, f"it can't take its new base: {error}"))
    count = 0
    refused: dict[type, list[str]] = defaultdict(list)
    for each in gc.get_objects() if classes else ():
        new_type = classes.get(type(each))
        if new_type is not None:
            try:
                each.__class__ = new_type
                count += 1
            except TypeError as error:
                refused[new_type].append(str(error))
    for each, texts in refused.items():
        why = f"{len(texts)} objects of the old class: {texts[0]}"
        kept.append((f"{each.__module__}.{each.__qualname__}", why))
    return count


def _pair(name: str, old: Any, new: Any, classes: dict[type, type], kept: _Kept) -> None:
    if isinstance(old, FunctionType) and isinstance(new, FunctionType):
        try:
            old.__code__ = new.__code__
        except ValueError as error:  # it has other variables of an outer function
            kept.append((name, f"where it is held: {error}"))
        else:
            old.__defaults__ = new.__defaults__
            old.__kwdefaults__ = new.__kwdefaults__
            old.__doc__ = new.__doc__
    elif isinstance(old, type) and isinstance(new, type) and not issubclass(old, enum.Enum):
        classes[old] = new
        for key, value in vars(old).items():
            if (
                isinstance(value, type)
                and value.__qualname__ == f"{old.__qualname__}.{key}"
                and key in vars(new)
            ):
                _pair(f"{name}.{key}", value, vars(new)[key], classes, kept)


HANDLERS = (_reload,)
