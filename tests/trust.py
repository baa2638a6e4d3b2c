"""How far the tests can be trusted: `python -m tests.trust --runs 20 --load 8`.

Repeats the tests of README's command, while `--load` processes compute and a program of `gate.strangers`
makes and drops segments, semaphores, folders and processes. Prints what failed, what was flaky, how
often, and how long each run took. What follows ``--`` goes to pytest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))  # as pytest has it

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
_SECOND_TRY = re.compile(r"second try, alone: (.+) passed")


@contextmanager
def loaded(count: int) -> Iterator[None]:
    """`count` processes that compute, and one that makes what a leak check might take for a test's."""
    from gate.strangers import stranger

    with ExitStack() as stack:
        for _ in range(count):
            computing = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(computing.wait)
            stack.callback(computing.kill)
        if count:
            stack.enter_context(stranger())
        yield


def one_run(options: list[str]) -> tuple[int, str]:
    """Runs pytest once; its exit status, and all that it has said."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trust", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="default: 20")
    parser.add_argument("--load", type=int, default=8, help="processes that compute; default: 8")
    parser.add_argument(
        "options", nargs="*", help="for pytest, behind --; default: -n 3 --dist loadfile"
    )
    given = parser.parse_args(argv)
    green = 0
    times: list[float] = []
    failed: Counter[str] = Counter()
    flaky: Counter[str] = Counter()
    with loaded(given.load):
        for number in range(1, given.runs + 1):
            begun = time.monotonic()
            status, said = one_run(given.options or ["-n", "3", "--dist", "loadfile"])
            times.append(time.monotonic() - begun)
            green += status == 0
            failed.update(_FAILED.findall(said))
            flaky.update(_SECOND_TRY.findall(said))
            last = said.rstrip().rpartition("\n")[2].strip("= ")
            print(f"run {number}: status {status}, {times[-1]:.0f} s: {last}", flush=True)
            if status:
                print(said[-20_000:], flush=True)
    print(
        f"{green} of {given.runs} runs green at a load of {given.load}; seconds:"
        f" {min(times):.0f} to {max(times):.0f}, median {sorted(times)[len(times) // 2]:.0f}"
    )
    for what, counted in (("failed", failed), ("flaky", flaky)):
        for test, times_told in counted.most_common():
            print(f"{what} {times_told} times: {test}")
    return int(green < given.runs)


if __name__ == "__main__":
    sys.exit(main())
