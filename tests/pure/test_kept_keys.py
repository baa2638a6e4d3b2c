"""The keys of a kept store: what torch's own store makes of the same calls."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from monarch._kept_store import Keys

dist: Any = pytest.importorskip("torch.distributed")

KEYS = ("a", "b", "c")
VALUES = ("", "1", "22")


def done(store: Any, method: str, arguments: tuple[Any, ...]) -> Any:
    try:
        return getattr(store, method)(*arguments)
    except (RuntimeError, LookupError):  # of a key that is not there
        return RuntimeError


def test_a_kept_store_does_what_the_store_of_torch_does() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    theirs, ours = dist.HashStore(), Keys()
    theirs.set_timeout(timedelta(milliseconds=1))
    for _ in range(600):
        key = chance.choice(KEYS)
        calls: dict[str, tuple[Any, ...]] = {
            "set": (key, chance.choice(VALUES)),
            "get": (key,),
            "check": (chance.sample(KEYS, 2),),
            "compare_set": (key, chance.choice(VALUES), chance.choice(VALUES)),
            "delete_key": (key,),
            "num_keys": (),
            "add": (f"count {key}", chance.randrange(-3, 9)),
        }
        method = chance.choice([*calls])
        assert done(ours, method, calls[method]) == done(theirs, method, calls[method]), calls
