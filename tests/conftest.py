"""Fixtures of all tiers. Tests below `procs/` and `slow/` use processes: each of them ends with a leak check."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import hypothesis
import pytest

HERE = Path(__file__).parent
PROCESS_TIERS = ("procs", "slow", "faults", "fuzz")
DEFAULT_TIMEOUT = 60

# How long an example takes says more about who else uses the machine than about the code. Examples are random, but not in CI: Hypothesis
# itself sees to that where the variable CI is set.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

# Procs import the shared actor classes by name, whatever way pytest was started. Set before anything boots.
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))

if TYPE_CHECKING:
    from helpers.faults import Faults
    from helpers.jobs import Home
    from helpers.slurm import Slurm
    from helpers.workers import Cluster
    from monarch.actor import ProcMesh


class Spawn(Protocol):
    """`spawn(2)`, `spawn({"gpus": 2, "z": 2})`: procs on this host that are stopped when the test ends; as `spawn_far` on
    each host of the cluster.
    """

    def __call__(self, per_host: int | Mapping[str, int] = 1, **options: Any) -> ProcMesh: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-leak-check", action="store_true", help="skip the leak check at the end of tests with processes"
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the run in the background has it, and every program of a test, ignore these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    config.addinivalue_line(
        "markers",
        "may_keep(*kinds): this test leaves 'threads' or 'descriptors' on purpose (a controller lives as long as its client)",
    )
    config.addinivalue_line("markers", "slow: takes many seconds")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(DEFAULT_TIMEOUT))


def _uses_processes(item: pytest.Item) -> bool:
    try:
        return item.path.relative_to(HERE).parts[0] in PROCESS_TIERS
    except ValueError:
        return False


@pytest.fixture(scope="session")
def _booted(request: pytest.FixtureRequest) -> None:
    """Starts what stays for the whole run, so that the first test to use it does not look as if it leaked it."""
    import monarch.actor
    from helpers.actors import Echo
    from helpers.faults import Faults
    from monarch._core.net.waiter import put_back, take_waiter
    from monarch.actor import get_or_spawn_controller, this_host

    procs = this_host().spawn_procs(per_host={"warm_up": 2})
    echo = procs.spawn("warm_up", Echo)
    answer = echo.say.call("hello")
    answer.get(timeout=30)
    get_or_spawn_controller("warm_up", Echo).get(timeout=30).say.call_one("hello").get(timeout=30)
    if not request.config.getoption("--no-leak-check"):
        # The threads that run callbacks, pass on output and call the fault hook; the link that tells of a death.
        answer.add_done_callback(lambda _: None)
        echo.slice(warm_up=0).show.call_one("warm up").get(timeout=30)
        previous = monarch.actor.unhandled_fault_hook
        monarch.actor.unhandled_fault_hook = hook = Faults()
        echo.slice(warm_up=1).exit_at_once.broadcast()
        hook.wait_for(1)
        monarch.actor.unhandled_fault_hook = previous
    procs.stop().get(timeout=30)
    put_back(take_waiter())  # is made when a thread first has to wait, which a fast answer may spare it


@pytest.fixture
def faults() -> Iterator[Faults]:
    """What reached the client's fault hook during the test. Tests that do not ask for it must cause none."""
    import monarch.actor
    from helpers.faults import Faults

    previous = monarch.actor.unhandled_fault_hook
    hook = Faults()
    monarch.actor.unhandled_fault_hook = hook
    yield hook
    monarch.actor.unhandled_fault_hook = previous


@pytest.fixture(autouse=True)
def _process_test(request: pytest.FixtureRequest) -> Iterator[None]:
    if not _uses_processes(request.node):
        yield
        return
    request.getfixturevalue("_booted")
    from helpers.leaks import take_snapshot, wait_settled

    asked_for_faults = "faults" in request.fixturenames
    hook: Faults = request.getfixturevalue("faults")
    before = take_snapshot()
    marker = request.node.get_closest_marker("may_keep")
    kept = marker.args if marker else ()
    yield
    if not request.config.getoption("--no-leak-check"):
        left = wait_settled(before, threads_may_stay="threads" in kept, descriptors_may_stay="descriptors" in kept)
        assert not left, "left behind by this test:\n  " + "\n  ".join(left)
    if not asked_for_faults:
        assert len(hook) == 0, f"faults that the test did not expect:\n{hook.reports()}"


@pytest.fixture
def spawn(_process_test: None) -> Iterator[Spawn]:
    from monarch.actor import this_host

    spawned: list[ProcMesh] = []

    def spawn_procs(per_host: int | Mapping[str, int] = 1, **options: Any) -> ProcMesh:
        sizes = {"gpus": per_host} if isinstance(per_host, int) else dict(per_host)
        procs = this_host().spawn_procs(per_host=sizes, **options)
        spawned.append(procs)
        return procs

    yield spawn_procs
    for procs in reversed(spawned):
        procs.stop().get(timeout=30)


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A folder for programs that use jobs. A test must end its jobs: what is left at its end is a failure."""
    from helpers.jobs import Home

    home = Home(tmp_path_factory.mktemp("home"), Path(tempfile.mkdtemp(prefix="mt")), uuid.uuid4().hex)
    try:
        yield home
        home.wait_nothing_left()
    finally:
        home.end_everything()
        shutil.rmtree(home.temporary)


@pytest.fixture(scope="session")
def slurm_of_session() -> Iterator[Slurm]:
    from helpers.slurm import running_slurm, why_not

    if reason := why_not():
        pytest.skip(reason)
    with running_slurm() as slurm:
        yield slurm


@pytest.fixture
def slurm(slurm_of_session: Slurm, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """A Slurm of three nodes, which all have the folders of `home`. A test must end its jobs: what is left is a failure."""
    for name, value in slurm_of_session.environment.items():
        monkeypatch.setenv(name, value)
    yield slurm_of_session
    left = slurm_of_session.ask("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%i %j %T").strip()
    slurm_of_session.ask("scancel", "--user=root")
    slurm_of_session.wait_idle()
    home.wait_nothing_left()
    assert not left, f"jobs that a test has left: {left}"


@pytest.fixture(scope="module")
def cluster(_booted: None) -> Iterator[Cluster]:
    """Three hosts on this machine, attached, and shut down after the last test of a file."""
    from helpers.workers import attached_cluster

    with attached_cluster(3) as started:
        yield started


@pytest.fixture
def spawn_far(cluster: Cluster, _process_test: None) -> Iterator[Spawn]:
    spawned: list[ProcMesh] = []

    def spawn_procs(per_host: int | Mapping[str, int] = 1, **options: Any) -> ProcMesh:
        sizes = {"gpus": per_host} if isinstance(per_host, int) else dict(per_host)
        procs = cluster.hosts.spawn_procs(per_host=sizes, **options)
        spawned.append(procs)
        return procs

    yield spawn_procs
    for procs in reversed(spawned):
        procs.stop().get(timeout=30)
