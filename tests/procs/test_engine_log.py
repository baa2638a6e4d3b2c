"""What the engine did and why, in files for the report of a bug: `_engine_log`, and the knob
`file_log_level`.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.jobs import Home
from helpers.waiting import wait_until
from monarch import _engine_log
from monarch._engine_log import FAILURES, FOLDER, keep_report, write_to_file
from monarch._lazy import note
from monarch._rotating_file import RotatingFile
from monarch.config import configured

PROGRAM = """
    import os, sys
    from monarch.actor import Actor, context, endpoint, this_host

    class Trainer(Actor):
        @endpoint
        def end(self) -> None:
            if context().actor_instance.rank.rank == 1:
                os._exit(3)

    if __name__ == "__main__":
        procs = this_host().spawn_procs({"gpus": 2}, name="trainers")
        procs.spawn("trainer", Trainer).end.broadcast()
        sys.stdin.readline()  # the end of the program is that of the fault
"""

LOST = """
    import sys
    from monarch.actor import attach_to_workers

    hosts = attach_to_workers(workers=[sys.argv[1]])
    hosts.initialized.get()
    hosts.stop().get()
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """The logger of the engine, as it was found again at the end; in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    loggers = [logging.getLogger("monarch.engine"), logging.getLogger("monarch")]
    before = [(each.level, each.propagate, list(each.handlers)) for each in loggers]
    yield loggers[0]
    for each, (level, propagate, handlers) in zip(loggers, before, strict=True):
        for handler in each.handlers:
            if handler not in handlers:
                handler.close()
                if isinstance(stream := getattr(handler, "stream", None), RotatingFile):
                    stream.close()
        each.setLevel(level)
        each.propagate, each.handlers[:] = propagate, handlers


def files(home: Home) -> dict[str, str]:
    """Text of each file, by the name of the process."""
    found = (home.folder / FOLDER).glob("*/*.log")
    return {re.sub(r"_\d+(-mine)?$", "", path.stem): path.read_text() for path in found}


def test_a_program_that_asks_for_nothing_leaves_nothing(home: Home) -> None:
    out = home.run(PROGRAM, exit_code=1)
    assert "non-zero code 3" in out
    assert not (home.folder / ".monarch").exists()


def test_each_process_says_what_it_did_and_why_in_a_file_of_its_own(home: Home) -> None:
    out = home.run(
        PROGRAM, env={"MONARCH_FILE_LOG": "info", "MONARCH_LOG_SUFFIX": "-mine"}, exit_code=1
    )
    assert "monarch.engine" not in out
    text = files(home)
    assert set(text) == {"client", "agent", "trainers[0]", "trainers[1]"}
    assert re.search(r"monarch\.engine\.procs: trainers\[0\] started, process \d+", text["agent"])
    assert re.search(
        r"trainers\[1\] ended \(exited\): .* non-zero code 3; told .*client", text["agent"]
    )
    assert "shuts down: " in text["agent"]
    assert re.search(r"<root> is told: The actor .*Trainer trainer\{'gpus': 1/2\}", text["client"])
    assert all(
        re.search(r"settings that differ from their defaults: {.*'file_log_level': 'info'", each)
        for each in text.values()
    )
    (folder,) = (home.folder / FOLDER).iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(
        path.stat().st_mode & 0o777 == 0o600 and path.stem.endswith("-mine")
        for path in folder.iterdir()
    )


def test_links_to_hosts_are_in_the_log_of_the_agent(home: Home) -> None:
    with home.worker(env={"MONARCH_SECRET": "x" * 40}) as address:
        home.run(LOST, address, env={"MONARCH_FILE_LOG": "info", "MONARCH_SECRET": "x" * 40})
        text = files(home)["agent"]
    assert re.search(rf"links: stream \d+ is dialed to {re.escape(address)}", text)
    assert f"link to {address} is up" in text


def test_a_worker_has_a_log_of_its_own(home: Home) -> None:
    env = {"MONARCH_SECRET": "x" * 40, "MONARCH_FILE_LOG": "info"}
    with home.worker(env=env) as address:
        home.run(LOST, address, env={"MONARCH_SECRET": "x" * 40})
        text = wait_until(lambda: files(home).get("agent", ""), what="the log")
        assert "monarch.engine.host: attached by " in text


def test_a_program_can_have_the_notes_in_its_own_logging(
    engine: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    note("procs", "%s started", "nobody listens")
    engine.setLevel("INFO")
    note("procs", "%s started, %s", "trainers[0]", lambda: "made when it is wanted")
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("monarch.engine.procs", "trainers[0] started, made when it is wanted")
    ]


def test_what_a_note_has_to_compute_is_not_without_a_listener(engine: logging.Logger) -> None:
    note("procs", "%s", lambda: pytest.fail("it was computed"))


def test_a_file_is_rotated_and_has_warnings_of_other_loggers_too(
    engine: logging.Logger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_engine_log, "_MOST_BYTES", 2000)
    with configured(file_log_level="info"):
        write_to_file("client", "program")
    logging.getLogger("monarch.job").warning("a worker was refused")
    text = Path(FOLDER, "program", f"client_{os.getpid()}.log").read_text()
    assert "W monarch.job: a worker was refused" in text
    for number in range(200):
        note("procs", "number %d", number)
    found = sorted(Path(FOLDER, "program").iterdir())
    assert len(found) == 3 and all(path.stat().st_size < 2200 for path in found)
    assert "number 199" in found[0].read_text()
    assert [
        each.message for each in caplog.records if each.name.startswith("monarch.engine")
    ] == [], "not on the console"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of a process with threads
def test_a_forked_child_leaves_the_file_alone_and_handlers_of_the_program_stay(
    engine: logging.Logger,
) -> None:
    mine = logging.handlers.RotatingFileHandler("mine.log")
    logging.getLogger("monarch").addHandler(mine)
    with configured(file_log_level="info"):
        write_to_file("client", "program")
        write_to_file("client", "again")
    pid = os.fork()
    if not pid:
        note("procs", "of the child")
        os._exit(0 if (engine.level, engine.propagate) == (0, True) else 1)
    assert os.waitpid(pid, 0)[1] == 0, "notes of the child go where they would without a file"
    note("procs", "of the parent")
    text = Path(FOLDER, "again", f"client_{os.getpid()}.log").read_text()
    assert "of the parent" in text and "of the child" not in text
    assert "of the parent" not in Path(FOLDER, "program", f"client_{os.getpid()}.log").read_text()
    assert mine in logging.getLogger("monarch").handlers


def test_levels_above_info_leave_out_what_went_as_usual(engine: logging.Logger) -> None:
    with configured(file_log_level="ERROR"):
        write_to_file("client", "program")
    note("procs", "started")
    assert Path(FOLDER, "program", f"client_{os.getpid()}.log").read_text() == ""


def test_a_level_that_is_none_is_said_and_the_program_goes_on(
    engine: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    with configured(file_log_level="loud"):
        write_to_file("client", "program")
    assert (
        capsys.readouterr().err
        == "monarch: file_log_level is one of TRACE, DEBUG, INFO, WARN, WARNING, ERROR, got 'loud':"
        " no log\n"
    )
    assert not Path(".monarch").exists()


def test_a_folder_that_cannot_be_made_is_said_and_the_program_goes_on(
    engine: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(".monarch").write_text("a file")
    with configured(file_log_level="info"):
        write_to_file("client", "program")
    assert capsys.readouterr().err.startswith("monarch: no log of the engine: [Errno 20]")


def test_names_of_files_cannot_lead_elsewhere(engine: logging.Logger) -> None:
    with configured(file_log_level="info"):
        write_to_file("../../evil", "../tcp://host:1")
    assert [str(path.parent) for path in Path(FOLDER).rglob("*.log")] == [f"{FOLDER}/_tcp_host_1"]


def test_files_of_programs_long_ago_are_removed(engine: logging.Logger) -> None:
    for number in range(30):
        file = Path(FOLDER, f"client{number}", "client_1.log")
        file.parent.mkdir(parents=True)
        file.touch()
        os.utime(file, (number, number))
    with configured(file_log_level="info"):
        write_to_file("client", "now")
    assert {path.name for path in Path(FOLDER).iterdir()} == {
        "now",
        *(f"client{each}" for each in range(11, 30)),
    }


def test_the_report_of_a_fault_is_kept_where_the_folder_is_in_use(home: Home) -> None:
    (home.folder / ".monarch").mkdir()
    home.run(PROGRAM, exit_code=1)
    (kept,) = (home.folder / FAILURES).iterdir()
    assert "Unhandled monarch error" in kept.read_text() and "non-zero code 3" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_the_last_reports_are_kept(engine: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_report("nowhere to keep it")
    assert not Path(".monarch").exists()
    Path(".monarch").mkdir()
    for number in range(30):
        monkeypatch.setattr(time, "strftime", lambda _, number=number: f"20260301-1200{number:02}")
        keep_report(f"report {number} \ud800")
    kept = sorted(Path(FAILURES).iterdir())
    assert [path.read_text() for path in kept] == [f"report {number} ?" for number in range(10, 30)]


def test_the_log_of_the_engine_is_not_imported_until_it_is_wanted(home: Home) -> None:
    out = home.run("""
        import sys
        from monarch.actor import this_host
        this_host().spawn_procs({"gpus": 1}).stop().get()
        print("monarch._engine_log" in sys.modules)
        """)
    assert out == "False\n"
