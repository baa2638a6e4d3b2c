"""What `monarch.toml` may say, and what an error in it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from monarch.job import JobError, hosts_from_config


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MONARCH_HOSTS", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_variable_that_names_nothing_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "monarch.toml").write_text("[hosts.trainers]\nprocesses = 1\n")
    monkeypatch.setenv("MONARCH_HOSTS", "nowhere.toml")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.toml"):
        hosts_from_config("trainers")


def test_the_file_is_found_from_a_folder_below_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "monarch.toml").write_text("[hosts.others]\nprocesses = 1\n")
    (folder / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(folder / "a" / "b")
    with pytest.raises(KeyError, match=r"trainers.*others"):
        hosts_from_config("trainers")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[hosts.trainers", "not valid TOML"),
        ("hosts = 1", "no table"),
        ("[hosts]\ntrainers = 1", "expected a table"),
        ("[hosts.trainers]", "either `workers` or `processes`"),
        (
            "[hosts.trainers]\nprocesses = 1\nworkers = ['tcp://a:1']",
            "either `workers` or `processes`",
        ),
        ("[hosts.trainers]\nprocesses = 1\nprocess = 2", "process makes no sense"),
        ("[hosts.trainers]\nprocesses = 1\nca = 'x'", "ca makes no sense"),
        ("[hosts.trainers]\nprocesses = 0", "at least 1"),
        ("[hosts.trainers]\nprocesses = 'two'", "'two'"),
        ("[hosts.trainers]\nworkers = []", "list of addresses"),
        ("[hosts.trainers]\nworkers = 'tcp://a:1'", "list of addresses"),
        ("[hosts.trainers]\nworkers = ['tcp://a:1']\nca = 1", "path of a file"),
    ],
)
def test_an_error_in_the_file_names_the_file_and_what_is_wrong(
    folder: Path, text: str, says: str
) -> None:
    path = folder / "monarch.toml"
    path.write_text(text)
    with pytest.raises((JobError, KeyError)) as caught:
        hosts_from_config("trainers")
    assert str(path) in str(caught.value)
    assert says in str(caught.value)
