"""Inputs for targets: any bytes, and valid ones with edits."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

import hypothesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ._target import Target

_MOST_EDITS = 6
_LONGEST = 4096  # bytes of noise
_INTERESTING = (
    b"\0",
    b"\xff",
    b"\xff" * 8,
    b"\0" * 8,
    b"\x80",
    b"\x7f" + b"\xff" * 7,
    b"\x01",
    b"{",
    b'"',
    b"\n",
)
_before: deque[bytes] = deque(maxlen=5)  # a process may end some time after what it was told


class FuzzFailure(AssertionError):
    """What a target raised, and how to do it again."""


def run_plain(target: Target, seed: int, count: int) -> None:
    """Give a target `count` inputs that follow from `seed`.

    Raises:
        FuzzFailure: One of them did what none may do.
    """
    chance = random.Random(seed)
    for _ in range(count):
        once(target, _edited(target.samples, chance))


def run_clever(target: Target, seed: int, count: int) -> None:
    """Have Hypothesis look for an input with which the target fails, and for the smallest such."""

    @hypothesis.seed(seed)
    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(_inputs(target.samples))
    def search(data: bytes) -> None:
        once(target, data)

    search()


def once(target: Target, data: bytes) -> None:
    try:
        target.check(data)
    except Exception as error:
        again = f'python -m tests.fuzz --target "{target.name}" --again'
        before = "".join(f"\n  {each.hex()}" for each in _before)
        raise FuzzFailure(
            f"{type(error).__name__}: {error}\nagain: {again} {data.hex()}\n"
            f"the inputs before that, of any target, the last one last:{before}"
        ) from error
    finally:
        _before.append(data)


def _inputs(samples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    noise = st.binary(max_size=_LONGEST)
    edits = st.lists(
        st.tuples(st.integers(0, 2**16), st.integers(0, 3), st.binary(max_size=9)),
        max_size=_MOST_EDITS,
    )
    whole = st.lists(st.sampled_from(samples), min_size=1, max_size=3).map(b"".join)
    return st.one_of(noise, st.builds(_apply, whole, edits))


def _edited(samples: Sequence[bytes], chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(_LONGEST))
    data = b"".join(chance.choices(samples, k=chance.randint(1, 3)))
    piece: Callable[[], bytes] = lambda: (  # noqa: E731
        chance.choice(_INTERESTING)
        if chance.random() < 0.5
        else chance.randbytes(chance.randint(1, 4))
    )
    edits = [
        (chance.randrange(2**16), chance.randrange(4), piece())
        for _ in range(chance.randint(0, _MOST_EDITS))
    ]
    return _apply(data, edits)


def _apply(data: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    for where, how, piece in edits:
        at = where % (len(data) + 1)
        if how == 0:  # overwrite
            data = data[:at] + piece + data[at + len(piece) :]
        elif how == 1:  # insert
            data = data[:at] + piece + data[at:]
        elif how == 2:  # leave out
            data = data[:at] + data[at + len(piece) :]
        else:  # the line goes dead
            data = data[:at]
    return data
