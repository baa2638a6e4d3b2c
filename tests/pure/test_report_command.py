"""`monarch report`: what is in it, and that no secret is."""

from __future__ import annotations

import json
import os
import stat
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from monarch import trust
from monarch.tools import report
from monarch.tools.__main__ import main
from monarch.tools.redact import redactor

Pack = Callable[..., dict[str, str]]

SECRET = trust.make_secret()
OF_FILE = "correct horse battery staple"
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nq83vEjRWeJCrze8S\n-----END RSA PRIVATE"
    " KEY-----"
)
LEAKS = {
    "MONARCH_SECRET": SECRET,
    "WANDB_API_KEY": "wandb-0123456789",
    "MY_PASSWORD": "hunter2hunter2",
    "GITHUB_TOKEN": "ghp_abcdefghijklmnop",
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "DATABASE_DSN": "postgres://admin:swordfish@db/prod",
    "SSH_PRIVATE_KEY": PEM,
}
UNKNOWN = {  # in the text only, so that they must be seen as what they are
    'config = {"password": "opensesame1"}': "opensesame1",
    "api_key=k-123-456-789 given": "k-123-456-789",
    "Authorization: Bearer abc.def-ghi_jkl": "abc.def-ghi_jkl",
    "redis://user:tomato99@cache:6379/0": "tomato99",
    "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl": "c2lnbmF0dXJl",
    "key sk-proj1234567890abc": "sk-proj1234567890abc",
    "hf_AbCdEfGhIjKlMnOp": "hf_AbCdEfGhIjKlMnOp",
    "secret: 'two-words'": "two-words",
    trust.make_secret() + " was given": "",
    "digest " + "0123456789abcdef" * 4: "0123456789abcdef" * 4,
}


@pytest.fixture
def pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Pack:
    """`pack()`: the command in a folder of its own; the files of the report, by name."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*args: str) -> dict[str, str]:
        monkeypatch.setattr(sys, "argv", ["monarch", "report", *args])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code, capsys.readouterr().err
        (path,) = [Path(args[1])] if args else Path().glob("monarch-report-*.tar.gz")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with tarfile.open(path) as archive:
            members = {member.name: archive.extractfile(member) for member in archive.getmembers()}
            return {
                name.removeprefix("monarch-report/"): file.read().decode()
                for name, file in members.items()
                if file
            }

    return run


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def test_a_report_has_versions_configuration_logs_of_the_engine_and_failures(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONARCH_FILE_LOG", "debug")
    write(".monarch/engine/client1/agent_2.log", "link is up")
    write(".monarch/engine/client1/agent_2.log.1", "before that")
    write(".monarch/failures/20260301-120000_1.txt", "Unhandled monarch error")
    write(".monarch/logs/j/workers/workers_0.log", "listening")
    write(".monarch/logs/j/job.json", "{}")
    write(".monarch/logs/j/h0/trainers_0.jsonl", "what an actor has printed")
    write(".monarch/logs/j/h0/trainers_0.log", "what an actor has printed")
    write(".monarch/logs/j/stdout.log", "what a script has printed")
    found = pack()
    assert set(found) == {
        "versions.txt", "configuration.json", ".monarch/engine/client1/agent_2.log", ".monarch/engine/client1/agent_2.log.1",
        ".monarch/failures/20260301-120000_1.txt", ".monarch/logs/j/workers/workers_0.log", ".monarch/logs/j/job.json",
    }  # fmt: skip
    assert found[".monarch/engine/client1/agent_2.log"] == "link is up"
    assert all(
        f"{name} " in found["versions.txt"]
        for name in ("Python", "pymonarch", "torch", "cloudpickle")
    )
    assert os.uname().release in found["versions.txt"]
    assert json.loads(found["configuration.json"])["environment"]["MONARCH_FILE_LOG"] == "debug"


def test_no_secret_is_in_a_report_wherever_it_was(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LEAKS.items():
        monkeypatch.setenv(name, value)
    write(str(tmp_path / ".monarch" / "secret"), OF_FILE + "\n")
    write(str(tmp_path / "elsewhere"), "of another file\n")
    monkeypatch.setenv("MONARCH_SECRET_FILE", str(tmp_path / "elsewhere"))
    planted = "\n".join(
        [
            *LEAKS.values(),
            *UNKNOWN,
            OF_FILE,
            "of another file",
            *(f"x{each}x" for each in LEAKS.values()),
        ]
    )
    write(".monarch/engine/client1/agent_2.log", planted)
    write(f".monarch/engine/{SECRET}/agent.log", "in the name of a folder")
    write(".monarch/failures/1.txt", planted.replace("\n", " | "))
    write(".monarch/logs/j/job.json", json.dumps({"job": planted}))
    write(".monarch/logs/j/workers/w.log", PEM[:60])
    packed = "\n".join(f"{name}\n{text}" for name, text in pack().items())
    secrets = [
        *LEAKS.values(),
        *UNKNOWN.values(),
        OF_FILE,
        "of another file",
        "swordfish",
        "MIIEowIBAAKCAQEA",
    ]
    assert [each for each in secrets if each and each in packed] == []
    assert [each for each in UNKNOWN if each in packed] == []
    assert (
        "MONARCH_SECRET_FILE" in packed
        and "in the name of a folder" in packed
        and "<redacted>" in packed
    )


def test_what_is_no_secret_stays(pack: Pack) -> None:
    plain = (
        "2026-03-01 12:00:00.000 I monarch.engine.procs: trainers[0] started, process"
        " 12345\nActorAddress(proc=ProcAddress(host='10wb3m2ejc808',"
        " proc='client15777-whrd2ek1.0'), uid=2)\njob 0f1e2d3c-0000-4000-8000-000000000001 at"
        " /home/me/Projects/Training2026/very_long_name_of_a_Folder_1/train.py\nlink to"
        " tcp://10.0.0.7:26600 is lost:"
        " no_answer_from_the_other_side_for_30_seconds_or_more\nTokenizers took 3 s, the key is in"
        " the door\n"
    )
    write(".monarch/engine/client1/agent_2.log", plain)
    assert pack()[".monarch/engine/client1/agent_2.log"] == plain


def test_long_files_are_cut_at_their_beginning_and_many_are_left_out(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "_MOST_OF_A_FILE", 100)
    monkeypatch.setattr(report, "_MOST", 250)
    for number in range(5):
        write(f".monarch/engine/c/agent_{number}.log", f"first {'word ' * 50}last {number}")
        os.utime(f".monarch/engine/c/agent_{number}.log", (number, number))
    found = pack()
    assert found[".monarch/engine/c/agent_4.log"].startswith("... the last 100 of 262 bytes\n")
    assert found[".monarch/engine/c/agent_4.log"].endswith("last 4")
    assert ".monarch/engine/c/agent_0.log" not in found and "are left out" in found["left_out.txt"]


def test_links_to_other_files_are_not_followed(pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("of somebody else")
    Path(".monarch/engine/c").mkdir(parents=True)
    Path(".monarch/engine/c/agent.log").symlink_to(tmp_path / "other")
    assert "of somebody else" not in "".join(pack().values())


def test_a_file_that_is_there_is_not_overwritten(
    pack: Pack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine").write_text("keep")
    monkeypatch.setattr(sys, "argv", ["monarch", "report", "-o", "mine"])
    with pytest.raises(SystemExit) as end:
        main()
    assert (
        end.value.code == 1 and "error: [Errno 17] File exists: 'mine'" in capsys.readouterr().err
    )
    assert Path("mine").read_text() == "keep"


def test_a_setting_that_cannot_be_read_does_not_stop_the_report(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "monarch.config.exported", lambda: (_ for _ in ()).throw(ValueError("MONARCH_X: 5 parsecs"))
    )
    assert (
        json.loads(pack("-o", "r.tar.gz")["configuration.json"])["settings"]
        == "MONARCH_X: 5 parsecs"
    )


@pytest.mark.parametrize(
    "piece",
    ["a.", "eyJaaaaaaaa-", "secret", "token=", "x://:", "A1a", "-----BEGIN PRIVATE KEY-----", '"'],
)
def test_no_text_takes_long_to_be_redacted(piece: str) -> None:
    # and not hours, until the time limit of the test
    redactor({}, [])(piece * (200_000 // len(piece)))
