"""What another user has put into a shared folder: through it, nothing of ours is lost or written.

That user really is another one. What he plants are a folder `.monarch` of his, or links in ours,
from the time when he could write it; they lead to files of ours.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from helpers.each import for_each
from helpers.strangers import STRANGER, given_to_stranger, needs_another_user, plant
from helpers.waiting import wait_until
from monarch import _engine_log, _ours
from monarch._core.hub.prints import NO_AUTHOR
from monarch._core.net import unix
from monarch._core.processes.output import Output, Source
from monarch._new_python import main_of
from monarch.config import configured
from monarch.debugger.editors import Editors
from monarch.environments import venv
from monarch.errors import JobError
from monarch.job import current, worker_main
from monarch.job.base import logs as job_logs
from monarch.job.base import telemetry as job_telemetry
from monarch.job.base.cache import CacheFile
from monarch.job.kubernetes import manifest as kubernetes_manifest
from monarch.job.ray import control as ray_control
from monarch.logs import keep
from monarch.sync.store import base_folder
from monarch.telemetry.query import FoundRows
from monarch.telemetry.run_file import write_run
from monarch.tools import debug, metrics, report

if TYPE_CHECKING:
    from helpers.jobs import Home

pytestmark = needs_another_user

pytest.importorskip("duckdb").connect().close()  # whose threads stay

PID = os.getpid()
NAME = "20200101-120000_1.txt"  # as a report is called


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user may write, in which this program works."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # that of the test is closed to others
    folder.chmod(0o777)
    (folder / "here").mkdir()
    (folder / "here").chmod(0o777)
    monkeypatch.chdir(folder / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    for known in ("_files", "_kept_of"):
        monkeypatch.setattr(keep, known, {})
    monkeypatch.setattr(_ours, "_said", set())
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def thesis(shared: Path) -> Path:
    """A folder of ours, with files that are called as some of Monarch's are."""
    thesis = shared / "thesis"
    for number in range(30):
        for name in ("chapter.txt", "client_1.log", f"2020010{number % 10}-1200{number:02}_1.txt"):
            path = thesis / f"part{number}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine")
            os.utime(path, (number, number))
            (thesis / f"{number}_{name}").write_text("mine")
            (thesis / name).write_text("mine")
    return thesis


def content(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (path.read_text() if path.is_file() else "", path.lstat().st_mode)
        for path in folder.rglob("*")
    }  # fmt: skip


def log_of_engine() -> None:
    with configured(file_log_level="info"):
        _engine_log.write_to_file("client", "program")
    if _engine_log._handler is not None:
        _engine_log._let_go().stream.close()


def log_of_rank() -> None:
    kept: list[Any] = []
    service = SimpleNamespace(
        keep_output=lambda peer, files: kept.append(files),
        tell_client=lambda peer, text: print(text),
        hub=SimpleNamespace(poller=SimpleNamespace(call_later=lambda seconds, call: None)),
    )
    record = keep.KeepLogs(os.getcwd(), ".monarch/logs/job", "job", 1000, 3)
    keep._keep(service, SimpleNamespace(peer=PID), record)  # type: ignore[arg-type]
    source = Source("trainers", 0, "gpus=0", "machine", 0, 1, True, "uid.0")
    kept[0].put(Output(source, "stdout", 1.0, [(NO_AUTHOR, "a line")]), lambda: None)
    kept[0].close()


def use_job() -> None:
    saved = CacheFile(".monarch/job_state.pkl")
    for use in (saved.read, lambda: saved.write(b"a job"), saved.remove):
        with suppress(JobError, OSError), saved.locked():
            use()


def run_of_job() -> None:
    nothing: Any = SimpleNamespace(collect=lambda needs, seconds: FoundRows({}, {}, {}))
    write_run(".monarch/logs/job/run.duckdb", nothing, {}, 1.0)


def forget_program() -> None:
    job_telemetry._forget(Path(".monarch/logs/job/clients"))


ACTS: dict[str, Callable[[], object]] = {
    "report": lambda: _engine_log.keep_report("a failure"),
    "log of the engine": log_of_engine,
    "log of a rank": log_of_rank,
    "entries for editors": lambda: Editors._write_entries(SimpleNamespace(_ports={})),  # type: ignore[arg-type]
    "token": lambda: metrics._token(Path(".monarch/metrics.token")),
    "job": use_job,
    "context": lambda: current.use_context("mine"),
    "end of a context": lambda: current.remove_context("default"),
    "label of a job": lambda: job_logs.label(Path(".monarch/x"), "job", "a job", True),
    "run of a job": run_of_job,
    "end of a program": forget_program,
    "logs for a report of a bug": lambda: list(report._parts()),
}

FOLDERS = [
    "failures", "engine", "engine/program", "logs", "logs/job", "logs/job/machine", "logs/job/clients", "default", "mine",
]  # fmt: skip
FILES = [
    f"engine/program/client_{PID}.log", "logs/job/machine/trainers_0.log", "logs/job/machine/trainers_0.jsonl",
    "logs/job/job.json", "logs/job/run.duckdb", f"logs/job/clients/{PID}", "launch.json", f"launch.json.{PID}",
    "metrics.token", "job_state.pkl", "job_state.pkl.lock", f".job_state.pkl.{PID}", "default/spec", "default/state.pkl",
    "mine/spec",
]  # fmt: skip


@pytest.mark.parametrize("whose", ["theirs", "ours, once open"])
def test_links_of_others_lead_to_no_file_of_ours(
    whose: str, shared: Path, thesis: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (thesis / NAME).write_text("mine")
    before = content(thesis)
    heres = {planted: shared / str(n) / ".monarch" for n, planted in enumerate([*FOLDERS, *FILES])}
    for here in heres.values():
        (here.parent if whose == "theirs" else here).mkdir(parents=True)
        (here.parent if whose == "theirs" else here).chmod(0o777)
    leads = {planted: thesis if planted in FOLDERS else thesis / NAME for planted in heres}
    plant(*((here / planted, str(leads[planted])) for planted, here in heres.items()))
    for planted, here in heres.items():
        if whose != "theirs":
            here.chmod(0o700)
        monkeypatch.chdir(here.parent)
        for name, act in ACTS.items():
            with suppress(JobError, OSError, ValueError):
                act()
            assert content(thesis) == before, f"{name}, where {planted} was planted"


@pytest.mark.parametrize(
    "planted", ["their folder", "their open folder", "their link", "a link", "an open folder"]
)
def test_where_the_folder_is_not_ours_files_go_to_the_state_folder(
    planted: str, shared: Path, thesis: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Path(".monarch").absolute()
    if planted == "their link":
        plant((here, str(thesis)))
    elif planted == "a link":  # he may have moved it here
        here.symlink_to(thesis)
    else:
        plant((here, "")) if "their" in planted else here.mkdir()
        here.chmod(0o777 if "open" in planted else 0o755)
    before, theirs = content(thesis), content(here)
    for act in ("report", "log of the engine", "log of a rank"):
        ACTS[act]()
    state = shared / "state" / "monarch"
    assert [path.read_text() for path in (state / "failures").iterdir()] == ["a failure"]
    assert (
        "settings that differ" in (state / "engine" / "program" / f"client_{PID}.log").read_text()
    )
    assert "a line" in (state / "logs" / "job" / "machine" / "trainers_0.log").read_text()
    assert {path.stat().st_mode & 0o077 for path in (state, *state.rglob("*"))} == {0}
    assert (content(thesis), content(here)) == (before, theirs)
    said = capsys.readouterr()
    for text in (said.err, said.out):  # of this process, and of the agent that keeps output
        (line,) = text.splitlines()
        assert re.fullmatch(rf"monarch: {here} .*; until then, files go to {state}", line) or (
            line.startswith(f"monarch: others may write {here} ")
        )


def test_a_token_that_another_user_has_put_there_is_not_used(shared: Path) -> None:
    place = Path(".monarch/metrics.token").absolute()
    plant((place.parent, ""))
    place.write_text("known to him")
    given_to_stranger(place)
    with pytest.raises(JobError, match=f"{place.parent} belongs to user {STRANGER}"):
        metrics._token(Path(".monarch/metrics.token"))


def test_a_report_of_a_bug_has_no_file_of_ours_that_a_link_names(shared: Path) -> None:
    secret = shared / "keys"
    secret.mkdir(mode=0o700)
    (secret / "key.log").write_text("a secret")
    engine = Path(".monarch", "engine")
    engine.mkdir(parents=True, mode=0o700)
    engine.chmod(0o777)
    plant(((engine / "program").absolute(), str(secret)))
    engine.chmod(0o700)
    texts = {name: text for name, _, text in report._parts()}
    assert "a secret" not in str(texts)
    assert "is not used" in texts[".monarch/engine/program/key.log"]


def test_only_files_of_our_names_are_removed_of_those_that_are_too_many(shared: Path) -> None:
    kept = []
    for folder, name in (("failures", "{}-120000_1.txt"), ("engine/program{}", "client_1.log")):
        for number in range(20200101, 20200131):
            place = Path(".monarch", folder.format(number))
            place.mkdir(parents=True, mode=0o700, exist_ok=True)
            (place / name.format(number)).touch()
            kept.append(place / f"notes {number}.txt")
            kept[-1].write_text("mine")
    _engine_log.keep_report("a failure")
    log_of_engine()
    assert len(list(Path(".monarch/failures").glob("*-*.txt"))) == 20
    assert len(list(Path(".monarch/engine").glob("*/client_*.log"))) <= 20
    assert [path.read_text() for path in kept] == ["mine"] * len(kept)


def test_a_folder_that_is_moved_while_it_is_open_is_still_the_one_written(
    shared: Path, thesis: Path
) -> None:
    before = content(thesis)
    with _ours.place("failures") as folder:
        Path(".monarch").rename("moved")
        plant((Path(".monarch").absolute(), str(thesis)))
        folder.replace(NAME, b"a report")
        folder.remove("chapter.txt")
    assert content(thesis) == before
    assert Path("moved", "failures", NAME).read_text() == "a report"


@pytest.mark.parametrize("planted", ["folder", "link"])
def test_caches_among_temporary_files_are_not_where_another_user_leads(
    planted: str, shared: Path, thesis: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MONARCH_SYNC_FOLDER", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "cache"))
    lead = str(thesis) if planted == "link" else ""
    environments = shared / "cache" / "monarch" / "environments"
    plant((shared / f"monarch-sync-{os.getuid()}", lead), (environments, lead))
    before = content(thesis)
    for make in (base_folder, lambda: venv.made_once("digest", lambda folder, lock: None)):
        with pytest.raises(PermissionError, match=rf"user {STRANGER} .*MONARCH_SYNC_FOLDER"):
            make()
    assert content(thesis) == before


def test_what_is_no_socket_in_a_folder_of_sockets_stays(
    shared: Path, thesis: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix, "PLACES", (str(shared), str(shared / "here")))
    plant((shared / "monarch-theirs", str(thesis)))
    (shared / "monarch-ours").mkdir(mode=0o700)
    (shared / "monarch-ours" / "notes.txt").write_text("mine")
    os.utime(shared / "monarch-ours", (0, 0))
    before = content(thesis)
    for host in ("theirs", "ours"):
        unix.release_all(host)
    unix.release_abandoned()
    assert content(thesis) == before
    assert (shared / "monarch-ours" / "notes.txt").read_text() == "mine"


PROGRAM = """
    import os, sys
    from monarch.actor import Actor, endpoint, this_host

    class Trainer(Actor):
        @endpoint
        def end(self) -> None:
            print("a line", flush=True)
            os._exit(3)

    if __name__ == "__main__":
        procs = this_host().spawn_procs({"gpus": 1}, name="trainers")
        procs.spawn("trainer", Trainer).end.broadcast()
        sys.stdin.readline()  # the end of the program is that of the fault
"""


IMPORTS = """
    import sys
    from monarch.actor import Actor, BootstrapCommand, default_bootstrap_cmd, endpoint, this_host

    class Teller(Actor):
        @endpoint
        def path(self) -> list[str]:
            import optional_and_not_installed

    if __name__ == "__main__":
        default = default_bootstrap_cmd()
        for command in (None, default.with_env({"OMP_NUM_THREADS": "3"})):
            with this_host().spawn_procs(name="trainers", bootstrap_command=command) as procs:
                try:
                    procs.spawn("teller", Teller).path.call_one().get()
                except Exception as error:
                    print("No module named" in str(error))
"""
MODULES = (
    "monarch",
    "ctypes",
    "json",
    "socket",
    "select",
    "pickle",
    "runpy",
    "optional_and_not_installed",
)


@pytest.fixture
def owned(shared: Path) -> Path:
    """A file that is made where a module is imported that another user has put into the folder."""
    owned = shared / "owned"
    for name in MODULES:
        planted = given_to_stranger(shared / "here") / f"{name}.py"
        planted.write_text(f"open({str(owned)!r}, 'a').write({name!r})\n")
        given_to_stranger(planted)
    return owned


@pytest.mark.processes("a program elsewhere, with procs that are forked, and executed")
def test_no_process_of_a_program_imports_from_the_working_directory_of_others(
    shared: Path, owned: Path
) -> None:
    (shared / "elsewhere").mkdir()
    script = shared / "elsewhere" / "program.py"
    script.write_text(textwrap.dedent(IMPORTS))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.returncode) == ("True\nTrue\n", 0), done.stderr
    assert not owned.exists(), owned.read_text()


@pytest.mark.processes("interpreters that end at once")
@for_each(
    "code",
    (main_of(worker_main.__name__), main_of(ray_control.__name__), kubernetes_manifest._WORKER),
)
def test_no_worker_imports_from_the_working_directory_of_others(code: str, owned: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "in main" in done.stderr  # which has no arguments
    assert not owned.exists(), owned.read_text()


@pytest.mark.processes("a program that fails, with its agent, which keeps output")
def test_a_program_that_fails_in_a_shared_folder_loses_nothing(home: Home) -> None:
    thesis = home.folder / "thesis"
    thesis.mkdir()
    for number in range(40):
        (thesis / f"20200101-1200{number}_1.txt").write_text("mine")
    here = home.folder / ".monarch"
    here.mkdir()
    for name in ("failures", "engine", "logs"):
        (here / name).symlink_to(thesis)
    given_to_stranger(here)
    before = content(thesis)
    state = home.folder / "state"
    wanted = {"XDG_STATE_HOME": str(state), "MONARCH_FILE_LOG": "info"}
    out = home.run(PROGRAM, env={**wanted, "HYPERACTOR_MESH_ENABLE_FILE_CAPTURE": "1"}, exit_code=1)
    assert content(thesis) == before
    (kept,) = (state / "monarch" / "failures").iterdir()
    assert "Unhandled monarch error" in kept.read_text()
    assert list((state / "monarch" / "engine").glob("*/client_*.log"))
    wait_until(
        lambda: [path.read_text() for path in state.glob("monarch/logs/*/*/trainers_0.log")],
        what="the line in its file",
    )
    told = [line for line in out.splitlines() if f"{here} belongs to user {STRANGER}" in line]
    assert told and all(line.endswith(f"files go to {state}/monarch") for line in told), out


def test_the_history_of_the_debugger_is_for_its_user_alone(
    shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(shared))
    before = os.umask(0)
    try:
        history = Path(debug._own_history() or "")
        assert history == shared / ".monarch" / "debug_history"
        assert [path.stat().st_mode & 0o777 for path in (history.parent, history)] == [0o700, 0o600]
        history.chmod(0o644)  # as an older version made it
        assert debug._own_history() and history.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    (kept := shared / "thesis").write_text("all of it")
    history.unlink()
    history.symlink_to(kept)
    os.lchown(history, STRANGER, STRANGER)
    assert debug._own_history() is None and "is a link that user" in capsys.readouterr().err
    history.unlink()
    given_to_stranger(history.parent)
    assert debug._own_history() is None and "belongs to user" in capsys.readouterr().err
    assert kept.read_text() == "all of it" and [*history.parent.iterdir()] == []
