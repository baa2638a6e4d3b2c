"""What runs: by default the tests that start no process and those that hold a promise.

A *process test* starts processes, or waits for some: it has the mark `process`, which conftest puts
on it. One that holds a promise by `tests/promises.py` has the mark `promise` as well. `addopts` of
pyproject.toml leaves out the other process tests, and those that take long. `--all` runs everything;
so does naming files, folders or tests, as who asks for a test wants to see it run. A quarter of the
files have no test for a plain run, and say so in their text: it does not import these.

Of what mostly proves other programs again, or each page by itself, or takes long, `--rest` runs one
third, where CI_TURN says which; of a process test with several ids a third of these, at least one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from helpers import effort
from helpers.effort import TURN, part_of
from promises import TESTS, is_promised

TESTS_FOLDER = Path(__file__).parent.parent
PROMISED_FILES = frozenset(test.partition("::")[0] for test in TESTS)
BY_DEFAULT = "promise or not (process or slow)"
"""As in `addopts`."""
IN_THIRDS = frozenset(
    f"test_{name}.py"
    for name in (
        "debugger_notebook",
        "demo",
        "hostile_names",
        "jupyter",
        "jupyterlab",
        "kubernetes_forward",
        "kubernetes_job",
        "links_netns",
        "logs_notebook",
        "machines",
        "marimo",
        "notebook",
        "notebook_interrupt",
        "ray_control",
        "ray_job",
        "rdma_machines",
        "rl",
        "skypilot_job",
        "slurm_job",
        "ssh_job",
        "tensor_start",
        "torch_machines",
        "worker_processes",
    )
)
"""Files about Slurm, ssh, Ray, Kubernetes' stand-in and notebooks, networks of namespaces, torch's
compiler and DataLoader, every demo, and the example of many roles."""
TIERS_IN_THIRDS = frozenset(("browser", "slow"))
TOGETHER = frozenset(
    f"test_{name}.py"
    for name in (
        "dashboard_charts",
        "dashboard_links",
        "demo_phone",
        "names_of_0_7",
        "pictures",
        "ray_job",
        "typing",
    )
)
"""Files whose tests share something that is costly to make: of these a run does all or nothing."""
TIERS_OF_A_PLAIN_RUN = frozenset(("bench", "pure"))
"""All of these folders runs there, so `--rest` does not read them."""
PROCESS_TIERS = ("procs", "slow", "faults", "fuzz")
FIXTURES_OF_BOTH = ("spawn", "spawn_far", "far_hosts", "two_ranks", "pair", "mesh")
"""Of these tiers, only a test that asks for one of them may start no process."""
_THESE = "|".join(FIXTURES_OF_BOTH)
ASKS_FOR_THESE = re.compile(
    rf"""\b({_THESE}):|(usefixtures|getfixturevalue)\([^)]*["']({_THESE})["']"""
)
ALL_LEFT_OUT = re.compile(
    r"^pytestmark = (\[\n(    .*\n)*?    |\[.*?)?pytest\.mark\.(processes|slow)\b", re.MULTILINE
)
OF_OTHERS = frozenset(("kubernetes", "slurm", "ssh"))
"""Fixtures that start what such files are about. A test elsewhere that asks for one counts too."""


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("choice of tests")
    group.addoption(
        "--all",
        action="store_true",
        help="run every test; by default process tests that hold no promise (tests/promises.py) and"
        " slow ones are left out, unless files or tests are named",
    )
    group.addoption(
        "--rest",
        action="store_true",
        help="run what a plain `pytest` leaves out, and nothing else: both together are --all",
    )


def configure(config: pytest.Config) -> None:
    option = config.option
    if option.markexpr != BY_DEFAULT:
        return  # `-m` on the command line is a choice as well
    if option.rest:
        option.markexpr = f"not ({BY_DEFAULT})"
    elif option.all or config.args_source is pytest.Config.ArgsSource.ARGS:
        option.markexpr = ""
    option.all = option.markexpr != BY_DEFAULT
    effort.short = effort.IN_CI or not option.all


def mark(items: list[pytest.Item], is_process_test: Callable[[pytest.Item], bool]) -> None:
    """Put the marks on; of a promised function with many ids on the first one, which takes the
    least of what all would say.
    """
    begun: set[str] = set()
    for item in items:
        process = is_process_test(item)
        if process:
            item.add_marker("process")
        function = item.nodeid.partition("[")[0]
        promised = item.nodeid in TESTS or (is_promised(item.nodeid) and function not in begun)
        if promised:
            item.add_marker("promise")
        elif item.get_closest_marker("slow") and item.path.parent.name in TIERS_OF_A_PLAIN_RUN:
            raise pytest.UsageError(f"{item.nodeid} is slow: --rest would not find it here")
        elif not (process or item.get_closest_marker("slow")) and has_nothing_by_default(item.path):
            raise pytest.UsageError(
                f"{item.nodeid} starts no process: a plain run would not find it here"
                " (`has_nothing_by_default` of tests/gate/choice.py)"
            )
        begun.add(function)


def is_ignored(config: pytest.Config, path: Path) -> bool:
    """Whether a folder has nothing for `--rest`, or a file nothing for a plain run."""
    if config.option.rest:
        return path.name in TIERS_OF_A_PLAIN_RUN and path.is_dir()
    return (
        config.option.markexpr == BY_DEFAULT
        and path.suffix == ".py"
        and has_nothing_by_default(path)
    )


@cache
def has_nothing_by_default(path: Path) -> bool:
    """Whether all tests of a file are process tests or slow, as its text shows, and none holds a
    promise. Where the text is not plain the answer is no, and the file is imported.

    `mark` refuses a test that this would lose: at the latest, `--rest` does in CI.
    """
    if not path.is_relative_to(TESTS_FOLDER) or not path.name.startswith("test_"):
        return False
    file = path.relative_to(TESTS_FOLDER)
    if f"tests/{file.as_posix()}" in PROMISED_FILES:
        return False
    return file.parts[0] == "browser" or (
        file.parts[0] in PROCESS_TIERS and only_on_processes(path.read_text())
    )


def only_on_processes(text: str) -> bool:
    """Whether the text of a file of these tiers shows that each test of it is a process test, or
    slow.
    """
    return not ASKS_FOR_THESE.search(text) or ALL_LEFT_OUT.search(text) is not None


def in_thirds(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out two thirds of what is done in thirds, of each such function's ids as well."""
    if not config.option.rest or TURN is None:
        return
    others = [item for item in items if _proves_others(item)]
    variants: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in set(items).difference(others):
        if item.get_closest_marker("process"):
            variants[item.nodeid.partition("[")[0]].append(item)
    files = sorted({item.path for item in others if item.path.name in TOGETHER})
    together = part_of(files)
    kept = {*part_of(item for item in others if item.path not in files)}
    kept.update(item for item in others if item.path in together)
    for ids in variants.values():
        ids.sort(key=lambda item: item.nodeid)
        kept.update(part_of(ids) or [ids[int(TURN) % len(ids)]])
    left_out = {*others, *chain(*variants.values())} - kept
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]


def _proves_others(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return (
        item.path.name in IN_THIRDS
        or item.path.parent.name in TIERS_IN_THIRDS
        or item.get_closest_marker("slow") is not None
        or "[torchrun" in item.nodeid
        or not OF_OTHERS.isdisjoint(fixtures)
    )
