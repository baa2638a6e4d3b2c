"""Each target with the same few hundred inputs; `tests/fuzz` says how to look for more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzz._target import Target
from fuzz.inputs import once, run_clever, run_plain
from fuzz.targets import TARGETS, doors
from helpers.scripts import run_program

SEED = 20261122


@pytest.fixture(autouse=True)
def _doors() -> Iterator[None]:
    yield
    doors.close()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_bytes_do_what_none_may_do(target: Target) -> None:
    run_plain(target, SEED, 3000 // target.weight)
    run_clever(target, SEED, 200 // target.weight + 5)


FOUND = {
    "first frame": [  # a route that is shorter than its header
        "33" + "00" * 7 + "0103" + "00" * 30 + "0b" + "00" * 7 + "686f73740070726f632e302c" + "00" * 7 + "0103"
        + "00" * 12 + "f4" + "00" * 17 + "04" + "00" * 7 + "686f73742c" + "00" * 7 + "01502d" + "00" * 29 + "04"
        + "00" * 7 + "686f7374"
    ],
}  # fmt: skip


def test_what_was_found_once_is_not_found_again() -> None:
    by_name = {target.name: target for target in TARGETS}
    for name, found in FOUND.items():
        for data in found:
            once(by_name[name], bytes.fromhex(data))


def test_what_a_target_finds_is_told_so_that_it_can_be_done_again() -> None:
    """In a process of its own: in one that has run thousands of tests, Hypothesis never came back
    from this.
    """
    run_program("""
        import pytest

        from fuzz._target import Target
        from fuzz.inputs import FuzzFailure, once, run_clever, run_plain

        def check(data):
            if b"\\xff" in data:
                raise ValueError("it has found something")

        target = Target("broken", check, [b"valid"])
        with pytest.raises(FuzzFailure, match=r"--again [0-9a-f]*ff"):
            run_plain(target, 20261122, 1000)
        with pytest.raises(FuzzFailure, match=r"--again ff\\b"):
            run_clever(target, 20261122, 1000)
        with pytest.raises(FuzzFailure, match="ValueError: it has found something"):
            once(target, b"\\xff")
        """)
