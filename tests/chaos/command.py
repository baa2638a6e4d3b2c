"""Runs a campaign from the command line: progress on a terminal, a summary as JSON, a report of
what went wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO

from chaos.campaign import WEIGHTS, Campaign, ChaosFailure, Options

_EVERY = 30.0  # seconds between lines of progress where there is no terminal


def main(arguments: list[str] | None = None) -> int:
    given = _parse(arguments)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder = given.folder or Path(tempfile.mkdtemp(prefix="monarch-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    terminal = _set_output_aside(folder / "output")
    options = Options(
        given.seed,
        given.threads,
        given.operations,
        given.patience,
        {**WEIGHTS, **dict(given.weight)},
        folder,
    )
    print(f"seed {options.seed}, folder {folder}", file=terminal)
    campaign = Campaign(options, terminal)
    start = time.monotonic()
    finished = threading.Event()
    progress = threading.Thread(
        target=_show_progress, args=(campaign, terminal, start, finished), daemon=True
    )
    progress.start()
    error: Exception | None = None
    try:
        campaign.run(given.first_round, _limit(given, start))
    except ChaosFailure as failure:
        error = failure
    except Exception as failure:  # a fault of the test itself
        traceback.print_exc(file=terminal)
        error = failure
    finished.set()
    progress.join()
    summary: dict[str, object] = {
        "seed": options.seed,
        "violation": None if error is None else str(error),
    }
    seconds = time.monotonic() - start
    summary |= {
        "seconds": round(seconds, 1),
        "operations_per_second": round(campaign.tally.total / seconds, 1),
    }
    text = json.dumps(summary | campaign.tally.as_dict(), indent=2)
    print(text if error is None else f"VIOLATION\n{error}", file=terminal)
    (folder / "summary.json").write_text(text + "\n")
    return 0 if error is None else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="Random faults, with an oracle."
    )
    parser.add_argument(
        "--seed", type=int, default=random.randrange(2**32), help="what is chosen follows from it"
    )
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="no new round starts after that (default: 1)"
    )
    parser.add_argument("--rounds", type=int, help="at most so many rounds")
    parser.add_argument("--first-round", type=int, default=0, help="to see one round again")
    parser.add_argument(
        "--threads", type=int, default=1, help="trees at once, one client thread each (default: 1)"
    )
    parser.add_argument(
        "--operations", type=int, default=150, help="in each episode (default: 150)"
    )
    parser.add_argument(
        "--patience", type=float, default=30.0, help="seconds that a wait may last (default: 30)"
    )
    parser.add_argument("--weight", type=_weight, action="append", default=[], metavar="OPERATION=NUMBER",
                        help=f"how often: {', '.join(f'{name}={weight:g}' for name, weight in WEIGHTS.items())}")  # fmt: skip
    parser.add_argument(
        "--folder",
        type=Path,
        help="where summary.json, logs, journals and output go (default: a new one)",
    )
    return parser.parse_args(arguments)


def _weight(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    if name not in WEIGHTS:
        raise argparse.ArgumentTypeError(f"no operation {name!r}; there are {', '.join(WEIGHTS)}")
    return name, float(number)


def _limit(given: argparse.Namespace, start: float) -> Callable[[int], bool]:
    def goes_on(done: int) -> bool:
        within = time.monotonic() - start < given.minutes * 60
        return within and (given.rounds is None or done < given.rounds)

    return goes_on


def _set_output_aside(path: Path) -> IO[str]:
    """What procs print (tracebacks that are meant to be there) goes to a file; returns the stderr
    that was.
    """
    terminal = os.fdopen(os.dup(2), "w", buffering=1)
    sys.stderr.flush()
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    return terminal


def _show_progress(
    campaign: Campaign, terminal: IO[str], start: float, finished: threading.Event
) -> None:
    on_terminal = terminal.isatty()
    while not finished.wait(1.0 if on_terminal else _EVERY):
        tally = campaign.tally.as_dict()
        seconds = time.monotonic() - start
        waits = sorted(tally["longest_wait_seconds"].items(), key=lambda item: -item[1])[:4]
        line = (
            f"{seconds:6.0f} s  {tally['operations']} operations,"
            f" {tally['operations'] / seconds:.0f}/s, {tally['episodes']} episodes,"
            f" {sum(tally['faults'].values())} faults, longest waits: "
            + ", ".join(f"{kind} {longest:.2f} s" for kind, longest in waits)
        )
        terminal.write(f"\r\x1b[K{line}" if on_terminal else line + "\n")
        terminal.flush()
    if on_terminal:
        terminal.write("\n")
