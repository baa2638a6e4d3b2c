"""Actor classes that are replaced by others where they are spawned: `patch_actor`."""

from __future__ import annotations

from collections.abc import Callable

Patches = dict[type, list[type]]
"""The replacements of each class; the last is in force."""

_own: Patches = {}

# replaced where several procs are in one process
patches: Callable[[], Patches] = lambda: _own  # noqa: E731
"""Those of this proc."""


def resolve(cls: type) -> type:
    """The class to spawn for `cls`: that of the innermost patch, or itself."""
    stack = patches().get(cls)
    return stack[-1] if stack else cls


def active() -> list[tuple[type, type]]:
    """Every patch in force, for procs that are spawned now."""
    return [(cls, stack[-1]) for cls, stack in patches().items() if stack]


def install(active: list[tuple[type, type]]) -> None:
    """Apply the patches that were in force when this proc was spawned."""
    for original, mock in active:
        patches().setdefault(original, []).append(mock)
