"""Tries what this package does on the GPUs of this host: ``python -m monarch.doctor_gpu``.

It is `monarch doctor --gpu` for a machine that has torch and this package alone.

Imports `gpu_checks`, which needs torch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from . import gpu_checks
from ._words import aligned, bare, draw, named
from .errors import MonarchError
from .gpu_checks.check import FAILED, OUTCOMES, Result, apart, examine, reason

_LOOKS = 120.0  # seconds to import torch and to start CUDA
Rows = Sequence[tuple[str, ...]]
"""A name, an outcome, seconds and words for each check."""


def main(
    argv: Sequence[str] | None = None,
    show: Callable[[Rows], None] = lambda rows: print(*aligned(rows), sep="\n"),
) -> None:
    """Run all checks; a terminal shows which one is under way.

    Exits with status 0; 1 if a check has failed, or none could run.

    Args:
        argv: Options; by default those of the process.
        show: Prints the table.
    """
    parser = argparse.ArgumentParser(prog="python -m monarch.doctor_gpu", description=__doc__)
    parser.add_argument("--device", default="", help="cuda or cpu; by default what there is")
    parser.add_argument("--json", action="store_true", help="print JSON, for other programs")
    options = parser.parse_args(argv)
    results, is_shown = list[Result](), bare(sys.stderr).isatty()
    try:
        machine = apart(_LOOKS, gpu_checks.survey, options.device)
    except (MonarchError, ImportError) as error:  # of torch, which all checks need
        sys.exit(f"error: {reason(error)}")
    for number, check in enumerate(gpu_checks.CHECKS, 1):
        line = f"{number} of {len(gpu_checks.CHECKS)}: {check.name}"
        draw(line if is_shown else "")
        results.append(examine(check, machine))
        draw("\r\x1b[K" if is_shown else "")
    counts = Counter(result.outcome for result in results)
    checks = [result._asdict() for result in results]
    told = {**machine._asdict(), "checks": checks, "failed": counts[FAILED]}
    if options.json:
        print(json.dumps(told, indent=2))
    else:
        print(named(machine.about))
        show([(r.name, r.outcome, f"{r.seconds:.1f} s", named(r.words)) for r in results])
        print(f"on {machine.device}:", *(f"{counts[each]} {each}" for each in OUTCOMES))
    sys.exit(counts[FAILED] > 0)


if __name__ == "__main__":
    main()
