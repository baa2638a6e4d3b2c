"""The command line: `python -m benchmarks list | run | compare | show | update-readme`, from the
repository's root.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks import commits, environments, machine, report, results
from benchmarks.catalog import FLOOR_WORKLOAD, GROUPS, WORKLOADS, Workload, select
from benchmarks.environments import Environment, EnvironmentProblem
from benchmarks.progress import Progress
from benchmarks.runner import Settings, run_suite
from benchmarks.targets import TARGETS, describe_should

RESULTS = Path(__file__).parent / "results"
LATEST = RESULTS / "latest.json"
SHOWN = [LATEST, RESULTS / "payload.json", RESULTS / "processes.json"]  # in the pages
PLOT = "docs/benchmarks.png"
TABLES = "docs/benchmarks.md"


progress = Progress()


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        # now, not after an hour
        if getattr(options, "plot", None) is not None and find_spec("matplotlib") is None:
            raise ValueError("--plot needs matplotlib: pip install -e '.[benchmarks]'")
        return int(options.act(options))
    except (EnvironmentProblem, ValueError, FileNotFoundError) as problem:
        progress.say(f"benchmarks: {problem}")
        return 2
    except KeyboardInterrupt:
        progress.say("benchmarks: interrupted, nothing stored")
        return 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure this package against another."
    )
    top.set_defaults(act=lambda _: print_help(top))
    commands = top.add_subparsers(metavar="COMMAND")
    commands.add_parser("list", help="list the workloads and their targets").set_defaults(
        act=list_workloads
    )
    _add_run(commands.add_parser("run", help="run workloads in turn, and report"))
    _add_compare(
        commands.add_parser(
            "compare", help="run workloads under two commits of this package, and report"
        )
    )
    show = commands.add_parser("show", help="report on a stored result")
    show.add_argument(
        "result",
        nargs="?",
        type=Path,
        default=LATEST,
        help="default: benchmarks/results/latest.json",
    )
    _add_outputs(show)
    show.set_defaults(act=lambda options: present(results.load(options.result), options))
    update = commands.add_parser(
        "update-readme", help=f"rewrite the blocks of README.md and {TABLES} from stored results"
    )
    update.add_argument(
        "results",
        nargs="*",
        type=Path,
        default=SHOWN,
        help=f"default: {', '.join(path.name for path in SHOWN)} of benchmarks/results",
    )
    update.add_argument("--root", type=Path, default=environments.REPOSITORY)
    update.set_defaults(act=update_readme)
    return top


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "names",
        nargs="*",
        default=["core"],
        help=f"workloads or groups: {', '.join(GROUPS)} (default: core)",
    )
    compared = run.add_mutually_exclusive_group()
    compared.add_argument(
        "--against",
        default=environments.DEFAULT_AGAINST,
        metavar="PYTHON_OR_SPEC",
        help=(
            "an interpreter, a venv, or a pip requirement, which gets a venv here; 'none' for no"
            f" comparison (default {environments.DEFAULT_AGAINST})"
        ),
    )
    compared.add_argument(
        "--baseline-src", type=Path, metavar="DIR", help="another checkout of this package"
    )
    _add_settings(run, "store the result there (full runs: latest.json)")
    run.set_defaults(act=run_workloads)


def _add_compare(compare: argparse.ArgumentParser) -> None:
    compare.add_argument("old", metavar="REV", help="a commit, a branch, a tag, HEAD~3, ...")
    compare.add_argument("new", metavar="REV", nargs="?", help="default: the working tree as it is")
    compare.add_argument(
        "--workloads",
        nargs="+",
        dest="names",
        default=["core"],
        help="workloads or groups (default: core)",
    )
    _add_settings(compare, "store the result there")
    compare.set_defaults(act=compare_commits)


def _add_settings(command: argparse.ArgumentParser, about_save: str) -> None:
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="multiply operation counts; below 1 for a quick look",
    )
    command.add_argument(
        "--timeout-factor",
        type=float,
        default=1.0,
        help="stretch every time limit, for slow machines",
    )
    command.add_argument("--save", type=Path, metavar="FILE", help=about_save)
    _add_outputs(command)


def _add_outputs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--json", metavar="FILE", help="write one JSON line per workload; '-' for stdout"
    )
    command.add_argument(
        "--plot", type=Path, metavar="FILE", help=f"draw the ratios, e.g. {PLOT} (needs matplotlib)"
    )
    command.add_argument(
        "--markdown", action="store_true", help="print markdown instead of the table"
    )


def print_help(top: argparse.ArgumentParser) -> int:
    top.print_help()
    return 0


def list_workloads(_: argparse.Namespace) -> int:
    rows = [["workload", "group", "unit", "must", "should", "what"]]
    rows.append(
        [FLOOR_WORKLOAD.name, "always", FLOOR_WORKLOAD.unit, "-", "-", FLOOR_WORKLOAD.title]
    )
    for workload in WORKLOADS:
        target = TARGETS.get(workload.name)
        promises = (
            ["-", "-"]
            if target is None
            else [f"{target.must:g}x", describe_should(target, workload.unit)]
        )
        rows.append([workload.name, workload.group, workload.unit, *promises, workload.title])
    print(report.align(rows, right={3}))
    return 0


def run_workloads(options: argparse.Namespace) -> int:
    workloads = selected(options)
    this, other = environments.this_environment(), contestant(options)
    return measure(
        workloads, this, other, options, complete=set(options.names) & {"core", "all"} != set()
    )


def compare_commits(options: argparse.Namespace) -> int:
    workloads = selected(options)
    revisions = [options.old] if options.new is None else [options.old, options.new]
    with commits.checked_out(revisions) as found:
        new = found[1] if len(found) > 1 else commits.working_tree()
        return measure(workloads, new, found[0], options, complete=False)


def selected(options: argparse.Namespace) -> tuple[Workload, ...]:
    workloads = select(options.names)
    if options.rounds < 1 or options.scale <= 0:
        raise ValueError("--rounds must be at least 1 and --scale above 0")
    return workloads


def measure(
    workloads: tuple[Workload, ...],
    this: Environment,
    other: Environment | None,
    options: argparse.Namespace,
    complete: bool,
) -> int:
    """Run, store and report. `complete` results become the latest one."""
    described = machine.describe()
    payload = environments.common_payload([this, other] if other else [this])
    settings = Settings(options.rounds, options.scale, payload, options.timeout_factor)
    floor, rows = run_suite(workloads, this, other, settings, progress)
    measured = results.Report(
        machine=described,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        rounds=options.rounds,
        scale=options.scale,
        payload=payload,
        this=this.label,
        other=other.label if other else None,
        floor=floor,
        rows=rows,
    )
    store(measured, options, complete)
    present(measured, options)
    return 1 if any(row.this.error is not None for row in rows) else 0


def contestant(options: argparse.Namespace) -> Environment | None:
    if options.baseline_src is not None:
        return environments.checkout(options.baseline_src)
    return (
        None if options.against == "none" else environments.against(options.against, progress.say)
    )


def store(measured: results.Report, options: argparse.Namespace, complete: bool) -> None:
    """Save where asked; without being asked, only what deserves to be called the latest result."""
    path: Path | None = options.save
    if path is None and complete and measured.scale == 1 and measured.other is not None:
        path = LATEST
    if path is not None:
        results.save(measured, path)
        progress.say(f"stored in {path}")


def present(measured: results.Report, options: argparse.Namespace) -> int:
    print(report.markdown(measured) if options.markdown else report.table(measured))
    note = report.reference_note(measured)
    if note is not None:
        progress.say(note)
    if options.json is not None:
        text = "".join(f"{line}\n" for line in results.to_lines(measured))
        (
            sys.stdout.write(text)
            if options.json == "-"
            else Path(options.json).write_text(text, encoding="utf-8")
        )
    if options.plot is not None:
        from benchmarks import plot  # only here: matplotlib is an extra

        plot.draw(measured, options.plot)
    return 0


def update_readme(options: argparse.Namespace) -> int:
    root: Path = options.root
    first, *others = reports = [results.load(path) for path in options.results]
    blocks = {
        root / "README.md": report.summary(reports, PLOT),
        root / TABLES: "\n\n".join(
            [report.markdown(first, Path(PLOT).name), *map(report.markdown, others)]
        ),
    }
    texts = {
        page: report.update_block(page.read_text(encoding="utf-8"), block)
        for page, block in blocks.items()
    }
    for page, text in texts.items():
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
