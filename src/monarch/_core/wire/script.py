"""The script's module as procs have it: `__main__`, which never runs there.

It has the names that travel: the classes of the script that came to the running actor, what stands
in their globals, and what their annotations mention. So `pickle` and `torch.save` find a class by
its name, `typing.get_type_hints` what its annotations say, and `inspect` the file of its source.
Names that came to several actors of a process may differ; each sees its own.
"""

from __future__ import annotations

import pickle
import re
import sys
import types
import weakref
from contextlib import suppress
from importlib.machinery import ModuleSpec
from typing import Any

from cloudpickle import cloudpickle

from . import reducers

Names = dict[str, Any]

brought: weakref.WeakKeyDictionary[type, tuple[Names, Names]] = weakref.WeakKeyDictionary()
"""The globals of the script with which each class has arrived, and the names that it mentions.

The latter are bytes where they are to be imported at their first use.
"""
functions: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
"""The functions of the script that arrived last, by the table of the actor's classes, and name."""

handed: Names = {}
"""What the actor knew that started this process by `multiprocessing`, as bytes."""


class ScriptModule(types.ModuleType):
    """`__main__` of a process that does not run the script."""

    def __init__(self) -> None:
        super().__init__("__main__")
        # under this name, children of `multiprocessing` run nothing in its place
        self.__spec__ = ModuleSpec("__main__", None)
        # `inspect` then asks for lines also where the script's file is not on this host
        self.__loader__ = self.__class__  # type: ignore[assignment]  # it only looks like one

    @property
    def __dict__(self) -> Names:  # type: ignore[override]
        names = {**super().__dict__}
        for name, value in known().items():
            with suppress(ImportError, AttributeError):  # the code that needs those will raise
                names[name] = read(value)
        return names

    def __getattr__(self, name: str) -> Any:
        names = known()
        if name not in names:
            raise AttributeError(f"module '__main__' of a proc has no {name!r}: none was sent here")
        return read(names[name])


def install() -> None:
    """Give this process a `__main__` that stands for the script."""
    if not isinstance(sys.modules["__main__"], ScriptModule):
        sys.modules["__main__"] = sys.modules["__mp_main__"] = ScriptModule()
        reducers.script_names = known


def known() -> Names:
    """Return the names of the script that have arrived: values, or bytes that are yet to be read."""
    own = reducers.own_classes()
    found: Any = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID if own is None else own
    classes: list[type] = [cls for cls in found.copy().values() if cls in brought]
    names = handed | {name: each for (of, name), each in functions.items() if of == id(own)}
    for cls in reversed(classes):  # what the first one uses, the actor's own, is not replaced
        for part in reversed(brought[cls]):
            names.update(part)
    for cls in classes:  # the last of a name is the one that the script has
        own_name = cls.__qualname__
        if brought[cls][1].get(own_name) is cls:
            names[own_name] = cls
    return names


def read(value: Any) -> Any:
    return pickle.loads(value) if type(value) is bytes else value


def globals_of(cls: type) -> Names | None:
    """Return the globals of the script for a class of it; None where this process has none."""
    main = sys.modules["__main__"]
    here = None if isinstance(main, ScriptModule) else vars(main)
    return brought[cls][0] if cls in brought else here


def mentioned(cls: type, home: Names) -> Names:
    """Return what a class needs in its module to be found and read there.

    That is itself, or the class around it, and what those of its annotations name that are text.
    """
    if cls in brought:
        return brought[cls][1]
    outer, nested, _ = cls.__qualname__.partition(".")
    wanted = {outer} if nested or home.get(outer) is cls else set()
    wanted |= named_in(vars(cls).get("__annotations__", {}))
    return {name: home[name] for name in sorted(wanted) if name in home}


def named_in(annotations: Names) -> set[str]:
    """Return the names in those of the annotations that are text."""
    texts = [
        each for each in annotations.values() if type(each) is str or hasattr(each, "__origin__")
    ]
    return set(re.findall(r"[^\W\d]\w*", " ".join(map(str, texts))))
