"""Fixtures of all tiers.

Tests below `procs/` and `slow/` use processes: each of them ends with a leak check.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import hypothesis
import pytest

from gate import choice, second_try, shuffle, together
from gate.choice import PROCESS_TIERS
from helpers.ahead import ran_ahead
from helpers.processes import heed_signals

__all__ = ["ran_ahead"]  # a fixture

HERE = Path(__file__).parent
PROCESSES, LOCAL = "processes", "local"  # what `spawn` starts procs as
MESHES = ("far_hosts", "spawn")  # fixtures that give either
# What the tests of a file share on processes, by the fixture that gives either.
SHARED = {"far_hosts": "cluster", "two_ranks": "pair_of_processes"}
# Fixtures that start processes: a test that asks for one of them besides `spawn` has its procs as
# processes, too.
OF_PROCESSES = frozenset(
    ("_booted", "cluster", "home", "kubernetes", "pair_of_processes", "slurm", "ssh")
)

# How long an example takes says more about who else uses the machine than about the code. Examples
# are random, but not in CI: Hypothesis itself sees to that where the variable CI is set.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

# Procs import the shared actor classes by name, and tests `benchmarks`, whatever way pytest was
# started. Set before anything boots.
for _folder in (str(HERE.parent), str(HERE)):
    if _folder not in sys.path:
        sys.path.insert(0, _folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [_folder, os.environ.get("PYTHONPATH")])
    )

if TYPE_CHECKING:
    from helpers.faults import Faults
    from helpers.jobs import Home
    from helpers.kubernetes import Kubernetes
    from helpers.slurm import Slurm
    from helpers.ssh import Ssh
    from helpers.workers import Cluster
    from monarch.actor import HostMesh, ProcMesh


class Spawn(Protocol):
    """`spawn(2)`, `spawn({"gpus": 2, "z": 2})`: procs on this host that are stopped when the test
    ends; as `spawn_far` on each host of the cluster.
    """

    def __call__(self, per_host: int | Mapping[str, int] = 1, **options: Any) -> ProcMesh: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-leak-check",
        action="store_true",
        help="skip the leak check at the end of tests with processes",
    )
    choice.add_options(parser)
    shuffle.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    heed_signals()
    config.addinivalue_line(
        "markers",
        "may_keep(*kinds): this test leaves 'threads' or 'descriptors' on purpose (a controller"
        " lives as long as its client)",
    )
    config.addinivalue_line(
        "markers",
        "both: tests of what the core promises: with `--all`, `spawn` gives them processes, and then"
        " procs of `monarch.testing.local`, as it always does to those in tests/promises.py",
    )
    config.addinivalue_line(
        "markers",
        "processes(why): `spawn` gives these tests processes: they need signals, descriptors, memory"
        " of their own, or what else `monarch.testing.local` can't give",
    )
    choice.configure(config)
    second_try.register(config)
    # of pytest-xdist, which would begin with the files that have the most tests
    config.option.loadscopereorder = False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    from promises import is_named, is_promised

    item = metafunc.definition
    if not _may_be_local(item) or _tier(item) not in PROCESS_TIERS:
        return
    # a promise is held on processes
    promised, named = is_promised(item.nodeid), is_named(item.nodeid)
    if named or item.get_closest_marker("both"):
        kinds = [PROCESSES, LOCAL] if promised or _runs_everything(item.config) else [LOCAL]
        metafunc.parametrize(_mesh_of(item), kinds, indirect=True)


def _runs_everything(config: pytest.Config) -> bool:
    return bool(config.option.all)


def _may_be_local(item: pytest.Function) -> bool:
    """Whether what `spawn` gives to a test may be procs of `monarch.testing.local`."""
    mark = item.get_closest_marker("processes")
    if mark is not None and not (mark.args and isinstance(mark.args[0], str) and mark.args[0]):
        raise pytest.UsageError(f"{item.nodeid}: the mark `processes` takes the reason: why")
    return mark is None and bool(_mesh_of(item)) and OF_PROCESSES.isdisjoint(item.fixturenames)


def _mesh_of(item: pytest.Function) -> str:
    return next((name for name in MESHES if name in item.fixturenames), "")


def _on_processes(item: pytest.Item) -> bool:
    """Whether a test may start processes. One that may not, and does, fails:
    `helpers/in_process.py`."""
    if _tier(item) not in PROCESS_TIERS:
        return False
    if not isinstance(item, pytest.Function) or not _may_be_local(item):
        return True
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get(_mesh_of(item)) == PROCESSES


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Importing hundreds of files makes a million objects that stay: the garbage collector, which
    would look at all of them again and again, does so once, at the end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return choice.is_ignored(config, collection_path) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    choice.mark(items, lambda item: _on_processes(item) or _tier(item) == "browser")
    choice.in_thirds(config, items)
    if config.option.shuffle:
        shuffle.shuffle(config.option.shuffle, items)
    elif hasattr(config, "workerinput"):
        # one of several: files whose tests take milliseconds come last, so that nobody is left
        # alone with a long one
        sizes = Counter(item.path for item in items)
        items.sort(key=lambda item: (_turn(item), -sizes[item.path], item.path))


def _turn(item: pytest.Item) -> int:
    if _tier(item) in ("slow", "fuzz", "browser"):
        return 0
    if not _on_processes(item):
        return 3
    # once a host has imported torch, each of its procs costs more
    return 2 if _with_torch(item) else 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return together.make_scheduler(config, log)


_TOOLS = ("pytest", "helpers.actors", "helpers.scripts", "helpers.waiting", "helpers.workers")
_patch = pytest.MonkeyPatch()
_file: Path | None = None  # of the test that ran last
_silent = False  # whether the I/O thread of this process has stopped to answer


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Procs start with torch if the client has it, and here it has: all files are imported before
    the first test. Each host would import it, for over a second, also for tests that have nothing
    to do with it. So the mark `torch` says which do. What classes of actors in tests stand beside,
    each proc would import by itself: over half of all that the tests compute.
    """
    if _silent:  # each test that is left would run into its time limit
        if hasattr(item.config, "workerinput"):
            os._exit(70)  # a fresh worker takes its place
        pytest.exit("the I/O thread of this process does not answer", returncode=70)
    _freeze_modules(item.path)
    for name in ("MONARCH_HOST", "MONARCH_MACHINE"):  # of a worker that a test was
        os.environ.pop(name, None)
    _patch.undo()
    if _on_processes(item):
        from monarch._core.mesh import launch

        usual, with_torch = launch._preload, _with_torch(item)
        tools = _TOOLS if with_torch else (*_TOOLS, "helpers.without_torch")
        _patch.setattr(
            launch,
            "_preload",
            lambda: (*(name for name in usual() if with_torch or name != "torch"), *tools),
        )


def _freeze_modules(path: Path) -> None:
    """The leak check collects garbage after each test: it need not look at modules each time, of
    which torch has a million objects. Tests import more of them, so this is done for each file.
    """
    global _file
    if path != _file:
        _file = path
        gc.collect()
        gc.freeze()


def _with_torch(item: pytest.Item) -> bool:
    return item.get_closest_marker("torch") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A report of a test that has run into its time limit says where the ranks stood, which are
    still there.
    """
    report = yield
    if "Timeout (>" in report.longreprtext and _on_processes(item):
        report.sections.append((f"Stacks of all processes in {call.when}", _stacks()))
    return report


def _stacks() -> str:
    from monarch._core.plane import client
    from monarch.stacks import Stacks
    from monarch.stacks.gather import of_hosts
    from monarch.stacks.model import CLIENT

    try:
        hosts = [agent.host for agent in client().agents]
        # it has a limit of 5 s, which it may not keep
        found = of_hosts(hosts, None, None, False).get()
    except TimeoutError as error:
        global _silent
        _silent = True
        return f"could not be had: {error!r}; this process:\n{_native_stacks()}"
    except Exception as error:
        return f"could not be had: {error!r}"
    ranks = Stacks([proc for proc in found.procs if proc.mesh != CLIENT], found.silent)
    return "\n".join(text for _, text in ranks.lines(everything=True))


def _native_stacks() -> str:
    """Of this process, down to C: it does not answer itself, and nothing that is in Python says
    why.
    """
    # no pipe: this process is stopped while py-spy looks
    with tempfile.TemporaryFile("w+") as file:
        subprocess.run(
            ["py-spy", "dump", "--native", "--pid", str(os.getpid())],
            stdout=file,
            stderr=file,
            check=False,
        )
        file.seek(0)
        found = file.read()
    print(found, file=sys.__stderr__, flush=True)  # at once: the run may never come to its reports
    return found


def _tier(item: pytest.Item) -> str:
    return _tier_of(item.path)


@cache
def _tier_of(path: Path) -> str:
    return path.relative_to(HERE).parts[0] if path.is_relative_to(HERE) else ""


@pytest.fixture(scope="session")
def _booted(request: pytest.FixtureRequest) -> None:
    """Starts what stays for the whole run, so that the first test to use it does not look as if it
    leaked it.
    """
    import monarch.actor
    from helpers.actors import Echo
    from helpers.faults import Faults
    from monarch._core.calls.callbacks import continuation_thread
    from monarch._core.net.waiter import put_back, take_waiter
    from monarch.actor import get_or_spawn_controller, this_host
    from monarch.config import configured

    with configured(host_spawn_ready_timeout="3min"):  # for what each host imports, under any load
        procs = this_host().spawn_procs(per_host={"warm_up": 2})
        echo = procs.spawn("warm_up", Echo)
        answer = echo.say.call("hello")
        answer.get()
    get_or_spawn_controller("warm_up", Echo).get().say.call_one("hello").get()
    if not request.config.getoption("--no-leak-check"):
        # The threads that run callbacks, pass on output and call the fault hook; the link that
        # tells of a death.
        answer.add_done_callback(lambda _: None)
        continuation_thread.jobs()
        echo.slice(warm_up=0).show.call_one("warm up").get()
        previous = monarch.actor.unhandled_fault_hook
        monarch.actor.unhandled_fault_hook = hook = Faults()
        echo.slice(warm_up=1).exit_at_once.broadcast()
        hook.wait_for(1)
        monarch.actor.unhandled_fault_hook = previous
    procs.stop().get()
    # is made when a thread first has to wait, which a fast answer may spare it
    put_back(take_waiter())


@pytest.fixture
def faults() -> Iterator[Faults]:
    """What reached the client's fault hook during the test.

    Tests that do not ask for it must cause none.
    """
    import monarch.actor
    from helpers.faults import Faults

    previous = monarch.actor.unhandled_fault_hook
    hook = Faults()
    monarch.actor.unhandled_fault_hook = hook
    yield hook
    monarch.actor.unhandled_fault_hook = previous


@pytest.fixture(autouse=True)
def _process_test(request: pytest.FixtureRequest) -> Iterator[None]:
    if not _on_processes(request.node):
        if _tier(request.node) in PROCESS_TIERS:
            yield from _in_process_test(request)
        else:
            yield
        return
    request.getfixturevalue("_booted")
    for name, shared in SHARED.items():
        if name in request.fixturenames:
            request.getfixturevalue(shared)  # which is there for the whole file
    from helpers.leaks import take_snapshot, wait_settled

    asked_for_faults = "faults" in request.fixturenames
    hook: Faults = request.getfixturevalue("faults")
    before = take_snapshot()
    marker = request.node.get_closest_marker("may_keep")
    kept = marker.args if marker else ()
    yield
    if not request.config.getoption("--no-leak-check"):
        left = wait_settled(
            before, threads_may_stay="threads" in kept, descriptors_may_stay="descriptors" in kept
        )
        assert not left, "left behind by this test:\n  " + "\n  ".join(left)
    if not asked_for_faults:
        assert len(hook) == 0, f"faults that the test did not expect:\n{hook.reports()}"


def _in_process_test(request: pytest.FixtureRequest) -> Iterator[None]:
    from helpers.in_process import without_processes

    hook: Faults = request.getfixturevalue("faults")
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    with without_processes(request.node.nodeid):
        yield
    # what an actor has set for its own process, which would slow all later tests
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)
    if "faults" not in request.fixturenames:
        assert len(hook) == 0, f"faults that the test did not expect:\n{hook.reports()}"


def _spawning(host: Callable[[], HostMesh], stops: bool) -> Iterator[Spawn]:
    spawned: list[ProcMesh] = []

    def spawn_procs(per_host: int | Mapping[str, int] = 1, **options: Any) -> ProcMesh:
        sizes = {"gpus": per_host} if isinstance(per_host, int) else dict(per_host)
        procs = host().spawn_procs(per_host=sizes, **options)
        spawned.append(procs)
        return procs

    yield spawn_procs
    if stops:
        for procs in reversed(spawned):
            procs.stop().get()


@pytest.fixture
def spawn(request: pytest.FixtureRequest, _process_test: None) -> Iterator[Spawn]:
    from helpers.in_process import local_hosts
    from monarch.actor import this_host

    far, processes = "far_hosts" in request.fixturenames, _on_processes(request.node)
    if far:
        request.getfixturevalue("far_hosts")
    with nullcontext() if far or processes else local_hosts():  # its end is that of the procs
        yield from _spawning(this_host, processes)


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A folder for programs that use jobs.

    A test must end its jobs: what is left at its end is a failure.
    """
    from helpers.jobs import Home

    home = Home(
        tmp_path_factory.mktemp("home"), Path(tempfile.mkdtemp(prefix="mt")), uuid.uuid4().hex
    )
    try:
        yield home
        home.wait_nothing_left()
    finally:
        home.end_everything()
        shutil.rmtree(home.temporary)


@pytest.fixture(scope="session")
def fuse() -> None:
    from helpers.fuse import lacking

    if reason := lacking():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def slurm_of_session() -> Iterator[Slurm]:
    from helpers.slurm import running_slurm, why_not

    if reason := why_not():
        pytest.skip(reason)
    with running_slurm() as slurm:
        yield slurm


@pytest.fixture
def slurm(slurm_of_session: Slurm, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """A Slurm of three nodes, which all have the folders of `home`.

    A test must end its jobs: what is left is a failure.
    """
    for name, value in slurm_of_session.environment.items():
        monkeypatch.setenv(name, value)
    yield slurm_of_session
    left = slurm_of_session.ask("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%i %j %T").strip()
    slurm_of_session.ask("scancel", "--user=root")
    slurm_of_session.wait_idle()
    home.wait_nothing_left()
    assert not left, f"jobs that a test has left: {left}"


@pytest.fixture(scope="session")
def ssh_of_session() -> Iterator[Ssh]:
    from helpers.ssh import running_ssh, why_not

    if reason := why_not():
        pytest.skip(reason)
    with running_ssh() as ssh:
        yield ssh


@pytest.fixture
def ssh(ssh_of_session: Ssh, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ssh]:
    """Machines `a`, `b` and `here`, which ssh reaches by the file that SSH_CONFIG names.

    What a test leaves there is a failure.
    """
    monkeypatch.setenv("SSH_CONFIG", ssh_of_session.config)
    yield ssh_of_session
    try:
        ssh_of_session.wait_nothing_left()
    finally:
        home.end_everything()
        ssh_of_session.end_everything()


@pytest.fixture(scope="session")
def kubernetes_of_session() -> Iterator[Kubernetes]:
    from helpers.kubernetes import running_kubernetes

    with running_kubernetes() as kubernetes:
        yield kubernetes


@pytest.fixture
def kubernetes(kubernetes_of_session: Kubernetes, home: Home) -> Iterator[Kubernetes]:
    """A Kubernetes whose nodes are this machine.

    A test must end its jobs: what is left is a failure.
    """
    yield kubernetes_of_session
    left = kubernetes_of_session.clear()
    assert not left, f"left in Kubernetes by this test: {left}"


@pytest.fixture(scope="module")
def cluster(_booted: None) -> Iterator[Cluster]:
    """Three hosts on this machine, attached, and shut down after the last test of a file."""
    from helpers.workers import attached_cluster

    with attached_cluster(3) as started:
        yield started


@pytest.fixture
def far_hosts(request: pytest.FixtureRequest, _process_test: None) -> Iterator[HostMesh]:
    """Three hosts beside that of the client: of the cluster, or of `monarch.testing.local`."""
    from helpers.in_process import local_hosts

    if _on_processes(request.node):
        yield request.getfixturevalue("cluster").hosts
    else:
        with local_hosts(3) as hosts:
            yield hosts


@pytest.fixture
def spawn_far(far_hosts: HostMesh, request: pytest.FixtureRequest) -> Iterator[Spawn]:
    yield from _spawning(lambda: far_hosts, _on_processes(request.node))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's chromium, for one file of tests, which are skipped where there is none."""
    from helpers.browsers import chromium

    with chromium() as found:
        yield found
