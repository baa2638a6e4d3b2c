"""Seeds, of meshes and ranks, that derive from that of the program.

They derive from names as well that are the same in each run. `_generators` says which have one.
"""

from __future__ import annotations

from collections import Counter
from typing import Any


def derive(seed: object, *names: object) -> int:
    """Return a seed that nothing but `seed` and the names determine."""
    from hashlib import blake2b  # few programs have a seed

    text = repr((seed, *map(str, names))).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") >> 1  # 63 bits


_meshes: Counter[tuple[str, str]] = Counter()  # by owner and name


def of_mesh(seed: int | None, owner: object, name: str) -> dict[str, int]:
    """The setting of a mesh that is about to start; the second of its name has another seed."""
    if seed is None:
        return {}
    key = str(owner), name
    _meshes[key] += 1
    return {"seed": derive(seed, *key, _meshes[key])}


def of_rank(settings: dict[str, Any], *names: object) -> dict[str, Any]:
    """Give a rank the settings of its mesh, with a seed of its own where that has one."""
    seed = settings.get("seed")
    return settings if seed is None else {**settings, "seed": derive(seed, *names)}
