"""What a terminal is told while hosts are waited for."""

from __future__ import annotations

import pytest

from monarch._patterns.attach_progress import progress_line


@pytest.mark.parametrize(
    ("missing", "total", "expected"),
    [
        (
            ["tcp://node9:26600", "tcp://node4:26600", "tcp://node7:26600"],
            16,
            "waiting for 3 of 16 hosts: node4, node7, node9; 12 s of 60 s",
        ),
        (
            ["tcp://[fd00::7]:1", "ipc:///run/w"],
            2,
            "waiting for 2 of 2 hosts: [fd00::7], ipc:///run/w; 12 s of 60 s",
        ),
        (
            ["tcp://a:1", "tcp://a:2"],
            2,
            "waiting for 2 of 2 hosts: tcp://a:1, tcp://a:2; 12 s of 60 s",
        ),
        (
            [f"tcp://n{number}:1" for number in range(10)],
            10,
            "waiting for 10 of 10 hosts: n0, n1, n2, n3, n4, n5, n6, n7 and 2 more; 12 s of 60 s",
        ),
    ],
)
def test_the_line_names_machines_and_says_how_long_the_wait_may_be(
    missing: list[str], total: int, expected: str
) -> None:
    assert progress_line(missing, total, 12.2, 60.0) == expected
