"""How ranks meet by ``env://`` without an open port; and calls once a module is imported.

Scripts import this as well, by `sitecustomize`, so nothing of Monarch is imported.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes 10 ms
    from collections.abc import Callable
    from typing import Any

Place = tuple[str, str]
"""``MASTER_ADDR`` and ``MASTER_PORT``."""

_stores: dict[Place, Callable[[Any, Any], Any]] = {}


class OnceImported(dict[str, "Callable[[Any], object]"]):
    """Functions that get a module once it is imported, by its name; a finder that finds nothing."""

    def call(self, name: str, function: Callable[[Any], object]) -> None:
        """Call a function with a module, now or once it has been imported."""
        if name in sys.modules:
            function(sys.modules[name])
            return
        if not self:
            sys.meta_path.insert(0, self)
        self[name] = function

    def forget(self) -> None:
        """Call none of those that wait."""
        self.clear()
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find the module, and have it loaded with the call behind that."""
        if name not in self:
            return None
        from importlib.machinery import PathFinder

        function = self.pop(name)
        if not self:
            self.forget()
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            load = loader.exec_module
            loader.exec_module = lambda module: (load(module), function(module))
        return spec


_once_imported = OnceImported()


def meet(place: Place, store: Callable[[Any, Any], Any]) -> None:
    """Have ``init_process_group()`` use a store, where the variables say this place.

    Args:
        place: What the variables say.
        store: Makes the store, of the module `torch.distributed` and a time limit.
    """
    if not _stores:
        _once_imported.call("torch.distributed.rendezvous", _watch)
    _stores[place] = store


def _watch(module: Any) -> None:
    by_variables = module._rendezvous_handlers["env"]

    def rendezvous(url: str, timeout: Any = module.default_pg_timeout, **options: Any) -> Any:
        from urllib.parse import parse_qsl, urlsplit

        place = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        if place not in _stores:  # the program has chosen another one
            yield from by_variables(url, timeout=timeout, **options)
            return
        asked = dict(parse_qsl(urlsplit(url).query))
        rank, size = (asked.get(key) or os.environ[key.upper()] for key in ("rank", "world_size"))
        yield _stores[place](sys.modules["torch.distributed"], timeout), int(rank), int(size)

    module._rendezvous_handlers["env"] = rendezvous
