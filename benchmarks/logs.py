"""What logs cost calls: `python -m benchmarks.logs`, from the repository's root.

Eight procs print 100,000 lines a second together while the client calls a ninth. In turn, in one
program: the lines go to the agent, which keeps them in files; and the same prints go to /dev/null.
Afterwards the files must have each line. The last rows are of a program that keeps files and prints
nothing, beside one that keeps none.

Each row is there twice: the median latency of a call, which on a busy machine has all that this
machine does in it; and the CPU time that a call takes in the thread of the caller and the process
of the callee together, which has not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks import environments, report
from benchmarks.progress import Progress

PROCS = 8
BURST_S = 0.01
UNITS = ("p50", "CPU")
VARIABLE = "HYPERACTOR_MESH_ENABLE_FILE_CAPTURE"

progress = Progress()


def measure(rate: int, seconds: float, rounds: int, streams: bool) -> None:
    """Be the program that is measured: print p50 of `call_one`, and its CPU time, by round, where
    lines are kept and where they are not.

    Args:
        rate: Lines per second of all procs.
        seconds: Length of a block.
        rounds: How many blocks of each kind.
        streams: Whether the client shows the lines, too (to /dev/null).
    """
    from monarch.actor import Actor, current_rank, endpoint, this_host
    from monarch.logs import flush_logs

    class Prints(Actor):
        def __init__(self) -> None:
            self._lines = 0

        @endpoint
        def run(self, rate: float, seconds: float, null: bool) -> int:
            """Print so many lines a second; the number of those that were not thrown away."""
            kept, other = os.dup(1), os.open(os.devnull if null else "/dev/fd/1", os.O_WRONLY)
            os.dup2(other, 1)
            rank, begun, printed = current_rank().rank, time.monotonic(), 0
            while (now := time.monotonic()) < begun + seconds:
                while printed < (now - begun) * rate:
                    print(
                        "rank",
                        rank,
                        "line",
                        self._lines + printed,
                        "loss 0.123456 throughput 12345.6 tokens/s",
                    )
                    printed += 1
                time.sleep(BURST_S)
            os.dup2(kept, 1)
            os.close(kept)
            os.close(other)
            self._lines += 0 if null else printed
            return printed

    class Answers(Actor):
        @endpoint
        def answer(self) -> None:
            pass

        @endpoint
        def cpu(self) -> float:
            return time.process_time()

    printing = this_host().spawn_procs(per_host={"gpus": PROCS}, name="printing")
    if not streams:
        printing.logging_option(stream_to_client=False).get()
    prints = printing.spawn("prints", Prints)
    answers = this_host().spawn_procs(name="quiet").spawn("answers", Answers)
    for _ in range(1000):
        answers.answer.call_one().get()
    kinds = ("null", "kept")
    medians: dict[str, list[float]] = {kind: [] for kind in kinds}
    cpu: dict[str, list[float]] = {kind: [] for kind in kinds}
    others: dict[str, list[float]] = {kind: [] for kind in kinds}
    lines = 0
    for _ in range(rounds):
        for kind in kinds:
            done = prints.run.call(rate / PROCS, seconds, kind == "null") if rate else None
            callee = answers.cpu.call_one().get()
            caller, client, began = time.thread_time(), time.process_time(), time.monotonic()
            times, end = [], began + seconds * 0.9
            while time.monotonic() < end:
                begun = time.perf_counter()
                answers.answer.call_one().get()
                times.append(time.perf_counter() - begun)
            caller, client = time.thread_time() - caller, time.process_time() - client
            others[kind].append((client - caller) / (time.monotonic() - began))
            cpu[kind].append((caller + answers.cpu.call_one().get() - callee) / len(times))
            lines += sum(done.get().values()) if done is not None and kind == "kept" else 0
            if done is not None:
                done.get()
            medians[kind].append(statistics.median(times))
    flush_logs().get()
    json.dump({"p50": medians, "CPU": cpu, "others": others, "lines": lines}, sys.stderr)


def once(
    folder: str, rate: int, seconds: float, rounds: int, streams: bool, files: bool = True
) -> dict[str, dict[str, list[float]]]:
    """Run the program; raises where a line is missing in its files."""
    code = f"from benchmarks.logs import measure; measure({rate}, {seconds}, {rounds}, {streams})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, VARIABLE: str(int(files)), "PYTHONPATH": str(environments.REPOSITORY),
             "MONARCH_LOG_FILE_COUNT": "1000"},
    )  # fmt: skip
    try:
        told = json.loads(done.stderr.splitlines()[-1])
    except (IndexError, ValueError):
        raise RuntimeError(f"the program failed: {done.stderr}") from None
    if files and rate:
        numbers: Counter[str] = Counter()
        for path in Path(folder).glob(".monarch/logs/*/*/printing_*.log*"):
            numbers.update(path.read_text().count(" line ") * [path.name.split(".")[0]])
        if numbers.total() != told["lines"]:
            raise RuntimeError(
                f"{told['lines']} lines were printed, {numbers.total()} are in the files: {numbers}"
            )
        reached = told["lines"] / (rounds * seconds)
        progress.say(f"{told['lines']:,} lines, {reached:,.0f} a second, all in the files")
    del told["lines"]
    found: dict[str, dict[str, list[float]]] = told
    return found


def row(name: str, control: list[float], measured: list[float]) -> list[str]:
    """Medians, and the median of the ratios of the blocks that followed each other."""
    ratio = statistics.median(
        after / before for before, after in zip(control, measured, strict=True)
    )
    return [
        name,
        *(f"{statistics.median(values) * 1e6:.1f} µs" for values in (control, measured)),
        f"{100 * (ratio - 1):+.1f} %",
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.logs", description="Measure what logs cost calls."
    )
    parser.add_argument(
        "--rate", type=int, default=100_000, help="lines per second of eight procs together"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a block")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each kind")
    options = parser.parse_args(arguments)
    rows = [["call_one", "control", "measured", "cost"]]
    for name, streams in (("kept in files, not shown", False), ("kept in files, and shown", True)):
        with tempfile.TemporaryDirectory() as folder:
            found = once(folder, options.rate, options.seconds, options.rounds, streams)
        for unit in UNITS:
            what = f"{unit}, {options.rate:,} lines/s {name}; /dev/null"
            rows.append(row(what, found[unit]["null"], found[unit]["kept"]))
        shares = [
            f"{100 * statistics.median(found['others'][kind]):.1f} %" for kind in ("null", "kept")
        ]
        progress.say(
            f"the client's other threads ran {shares[0]} of the time, and {shares[1]} with these"
            " lines"
        )
    off: dict[str, dict[bool, list[float]]] = {unit: {False: [], True: []} for unit in UNITS}
    for _ in range(options.rounds):
        for files in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                found = once(folder, 0, options.seconds, 1, True, files)
            for unit, medians in off.items():
                medians[files] += found[unit]["kept"]
    for unit, medians in off.items():
        rows.append(
            row(f"{unit}, nothing printed, files on; files off", medians[False], medians[True])
        )
    print(report.align(rows, right={1, 2, 3}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
