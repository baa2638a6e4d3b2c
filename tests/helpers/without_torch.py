"""What hosts import for tests without the mark `torch`: a proc of these can't import torch.

Each would import it by itself, for over a second. With the mark the host does so, once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_HOST = os.getpid()


class _Refusal(Loader):
    def exec_module(self, module: ModuleType) -> None:
        raise RuntimeError(
            "a proc imports torch, and its test lacks the mark `torch`: put `pytest.mark.torch` on"
            " the test, or into the `pytestmark` of its file, and the host imports it for all procs"
        )


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch" or os.getpid() == _HOST:
            return None
        found = PathFinder.find_spec(fullname)
        return found and ModuleSpec(fullname, _Refusal(), origin=found.origin)


sys.meta_path.insert(0, _Finder())
