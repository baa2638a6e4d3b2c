"""The table of `benchmarks.rl_beside_ray`, and how long the example of reinforcement learning is."""

from __future__ import annotations

from benchmarks.rl_beside_ray import ROOT, lines_of, table

SOURCE = '''
"""A docstring."""

# a comment
one = 1


def two() -> int:
    """Another one."""
    return one  # with a comment
'''


def test_lines_of_code_leave_out_prose() -> None:
    assert lines_of(SOURCE) == 3


def test_the_example_of_reinforcement_learning_stays_small() -> None:
    files = (ROOT / "examples" / "rl").glob("*.py")
    assert 100 < sum(lines_of(path.read_text()) for path in files) < 900


def test_rows_are_medians_and_more_than_one_is_better() -> None:
    rounds = {
        "monarch": [{"samples/s": each, "buffer": 1.0} for each in (100.0, 300.0, 200.0)],
        "ray": [{"samples/s": 100.0, "buffer": 3.0}],
    }
    told = table({"rounds": rounds, "lines": {"monarch": 100, "ray": 150}}).splitlines()
    assert told[2:] == [
        "| samples/s | 200 | 100 | 2.00 |",
        "| buffer | 1 | 3 | 3.00 |",
        "| lines | 100 | 150 | 1.50 |",
    ]
