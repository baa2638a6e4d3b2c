"""How ranks meet by ``env://`` without a port that is open to others.

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


class _Finder:
    """Has a function called with a module, once that is imported; it finds nothing."""

    def __init__(self, name: str, call: Callable[[Any], object]) -> None:
        self._name, self._call = name, call

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find the module, and have it loaded with the call behind that."""
        if name != self._name:
            return None
        from importlib.machinery import PathFinder

        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                self._call(module)

            loader.exec_module = exec_module
        return spec


def once_imported(name: str, call: Callable[[Any], object]) -> None:
    """Call a function with a module, now or once it has been imported."""
    if name in sys.modules:
        call(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, call))


def meet(place: Place, store: Callable[[Any, Any], Any]) -> None:
    """Have ``init_process_group()`` use a store, where the variables say this place.

    Args:
        place: What the variables say.
        store: Makes the store, of the module `torch.distributed` and a time limit.
    """
    if not _stores:
        once_imported("torch.distributed.rendezvous", _watch)
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
