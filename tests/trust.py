"""How far the tests can be trusted: `python -m tests.trust --runs 20 --load 8`.

Repeats the tests of README's command, while `--load` processes compute and a program of `gate.strangers`
makes and drops segments, semaphores, folders and processes. With `--at-once 3` three runs go on side
by side: the workers of the others are part of each one's load then, and fewer processes only compute.
Prints what failed, what was flaky, how often, how long each run took, and what those that were
flaky have said. What follows ``--`` goes to
pytest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))  # as pytest has it

WORKERS = 3  # of pytest in each run, as README has it
OPTIONS = ["-n", str(WORKERS), "--dist", "loadfile"]

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
_SECOND_TRY = re.compile(r"second try, alone: (.+) passed")
_BOTH_TRIES = re.compile(r"^=+ flaky: .*?(?=^=+ flaky =)", re.MULTILINE | re.DOTALL)


@contextmanager
def loaded(count: int, strange: bool) -> Iterator[None]:
    """`count` processes that compute, and one that makes what a leak check might take for a test's."""
    from gate.strangers import stranger

    with ExitStack() as stack:
        for _ in range(count):
            computing = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(computing.wait)
            stack.callback(computing.kill)
        if strange:
            stack.enter_context(stranger())
        yield


def one_run(command: Sequence[str]) -> tuple[int, float, str]:
    """Runs a program once; its exit status, how many seconds it took, and all that it has said."""
    begun = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, time.monotonic() - begun, done.stdout


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trust", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="default: 20")
    parser.add_argument("--load", type=int, default=8, help="beside each run; default: 8")
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side; default: 1")
    parser.add_argument(
        "options", nargs="*", help=f"for pytest, behind --; default: {' '.join(OPTIONS)}"
    )
    given = parser.parse_args(argv)
    command = [sys.executable, "-m", "pytest", *(given.options or OPTIONS)]
    green = 0
    times: list[float] = []
    failed: Counter[str] = Counter()
    flaky: Counter[str] = Counter()
    computing = max(given.load - WORKERS * (given.at_once - 1), 0)
    with (
        loaded(computing, strange=given.load > 0),
        ThreadPoolExecutor(given.at_once) as side_by_side,
    ):
        runs = [side_by_side.submit(one_run, command) for _ in range(given.runs)]
        for number, run in enumerate(as_completed(runs), 1):
            status, took, said = run.result()
            times.append(took)
            green += status == 0
            failed.update(_FAILED.findall(said))
            flaky.update(told := _SECOND_TRY.findall(said))
            last = said.rstrip().rpartition("\n")[2].strip("= ")
            print(
                f"run {number}: status {status}, {took:.0f} s: {last}",
                *told,
                sep="\n  ",
                flush=True,
            )
            if status:
                print(said[-20_000:], flush=True)
            elif both := _BOTH_TRIES.search(said):
                print(both[0][:20_000], flush=True)
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
