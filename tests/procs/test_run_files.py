"""Where `monarch run` puts files of output: other users read none, and lead none elsewhere."""

from __future__ import annotations

import re
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.strangers import STRANGER, given_to_stranger, needs_another_user
from monarch.spmd import rank
from monarch.spmd.options import options_of, parser

if TYPE_CHECKING:
    from helpers.jobs import Home

PRINTS = "print('a secret')\n"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.processes("the command, and its files")
def test_output_goes_into_a_fresh_folder_and_not_through_links(home: Home) -> None:
    shared = home.folder / "shared"
    planted = shared / "none" / "attempt_0" / "0" / "stdout.log"
    planted.parent.mkdir(parents=True)
    thesis = home.folder / "thesis"
    thesis.write_text("mine")
    planted.symlink_to(thesis)
    shared.chmod(0o1777)
    (home.folder / "script.py").write_text(PRINTS)
    said = [
        home.monarch("run", option, "1", "script.py", env={"TMPDIR": str(shared)})
        for option in ("--tee", "--redirects")
    ]
    assert thesis.read_text() == "mine"
    for each in said:
        told = re.search("files of output are in (.+), on each host", each)
        assert told is not None, each
        folder = Path(told[1])
        assert folder.parent == shared and mode(folder) == 0o700
        file = folder / "none" / "attempt_0" / "0" / "stdout.log"
        assert file.read_text() == "a secret\n" and mode(file) == 0o600
    assert len({*shared.glob("monarch_run_*")}) == len(said)


@pytest.mark.processes("the command, and its files")
def test_files_in_a_folder_that_was_named_are_private_and_follow_no_link(home: Home) -> None:
    folder = home.folder / "logs" / "none" / "attempt_0" / "0"
    folder.mkdir(parents=True)
    (folder / "stderr.log").symlink_to(home.folder / "thesis")
    (home.folder / "script.py").write_text(PRINTS)
    ran = ("run", "--log-dir", "logs", "--tee")
    assert "files of output" not in home.monarch(*ran, "1", "script.py")
    assert mode(folder / "stdout.log") == 0o600
    said = home.monarch(*ran, "2", "script.py", exit_code=1)
    assert "stderr.log" in said and not (home.folder / "thesis").exists()


@pytest.mark.processes("the command, and its files")
def test_an_error_that_a_script_records_is_in_no_file_that_others_can_see(home: Home) -> None:
    (home.folder / "script.py").write_text(
        "import os\nwhere = os.environ['TORCHELASTIC_ERROR_FILE']\n"
        "open(where, 'w').write('a secret')\nprint(os.readlink(where), os.path.isfile(where))\n"
    )
    said = home.monarch("run", "script.py")
    assert "/memfd:monarch-error (deleted) True" in said
    assert not [*home.temporary.glob("*error*")]


@needs_another_user
@pytest.mark.parametrize("what", ["folder", "link"])
def test_a_folder_of_this_name_that_another_user_has_made_is_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    taken = tmp_path / "monarch_run_1"
    if what == "link":
        taken.symlink_to(tmp_path)
    else:
        taken.mkdir(mode=0o700)
    assert given_to_stranger(taken).lstat().st_uid == STRANGER
    tees = options_of(parser("run").parse_args(["--tee", "3", "script.py"]))
    with pytest.raises(
        PermissionError, match=f"{taken} (belongs to|is a link that) user {STRANGER}"
    ):
        rank._Streams(tees, 0, 0, rank.Attempt(0, taken.name, "localhost", 1, False))
    assert list(tmp_path.rglob("none")) == []
