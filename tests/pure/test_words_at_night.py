"""What operators are told when something is not as it should be: by its text."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest

from monarch._core.wire.link_records import Hello, why_apart
from monarch.errors import JobError
from monarch.job import LocalJob, ssh_text
from monarch.job.cache import needs_room


def test_a_full_disk_at_the_start_of_a_job_is_an_error_of_the_job() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", ".monarch/job_state.pkl")
    with pytest.raises(JobError, match=r"LocalJob.* can't be started, as a disk is full: .*\.pkl"):
        with needs_room(LocalJob(hosts=["workers"])):
            raise full
    with pytest.raises(PermissionError):
        with needs_room("job"):
            raise PermissionError(errno.EACCES, "Permission denied")


def test_versions_that_differ_name_the_client_where_it_has_no_address() -> None:
    ours, theirs = Hello("8g2ka7x", "", "", "0.1.0"), Hello("1", "tcp://h1:1", "", "0.2.0")
    told = "tcp://h1:1 runs pymonarch 0.2.0, and the host of the client pymonarch 0.1.0: upgrade"
    assert why_apart("the host of the client", ours, theirs).startswith(told)
    told = "the host of the client runs pymonarch 0.1.0, and tcp://h1:1 pymonarch 0.2.0"
    assert why_apart("tcp://h1:1", theirs, ours).startswith(told)


def test_a_folder_of_another_user_is_named_as_such(tmp_path: Path) -> None:
    there = tmp_path / "folder"
    there.mkdir()
    keeper = ssh_text.keeper(str(there)).replace("[ -O ", "[ ! -O ")  # as for another user
    done = subprocess.run(
        ["sh", "-c", keeper], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, f"{ssh_text.OTHERS}\n")
