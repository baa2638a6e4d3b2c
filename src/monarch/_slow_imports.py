"""A hint to preload what each proc would else import itself, for a second or more."""

from __future__ import annotations

import sys
from collections.abc import Sequence

# What torch imports when a program first uses an optimizer, DistributedDataParallel or
# torch.compile.
_SLOW = "torch._dynamo"
_HINT = (
    f"monarch: hint: every proc is importing {_SLOW} by itself now: some 800 modules. To import"
    " them once, before procs are "
    f'forked, call monarch.configure(preload=["{_SLOW}"]) before the first spawn_procs().'
)


class _Watcher:
    """A finder that finds nothing, and is gone once it has seen the import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> None:
        if name == _SLOW and self in sys.meta_path:
            sys.meta_path.remove(self)
            print(_HINT, file=sys.stderr)


def watch() -> None:
    """Say the hint on stderr when the import begins, unless it has been done before the fork."""
    if _SLOW not in sys.modules:
        sys.meta_path.insert(0, _Watcher())
