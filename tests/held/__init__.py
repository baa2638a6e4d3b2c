"""Runs a command while threads and processes below it are held at random, each for a moment: races
show that need one of them to be late, as on a machine that is busy with other things.

    python -m tests.held .venv/bin/pytest -n 4 --dist loadfile tests/faults
    python -m tests.held --slots 2 --longest 1 python program.py

Unlike by SIGSTOP, nobody is told: the freezer of control groups (version 1, as root) does it. Tests
that count wake-ups or calls fail under it (`test_idle_procs`, `test_slow_path`, the idle process of
`test_black_boxes`), as may a bound of time that is tighter than it needs to be.
"""
