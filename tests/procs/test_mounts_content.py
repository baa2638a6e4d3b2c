"""Content of mounts that goes by RDMA: what the side with the files does, on one machine. Between
machines it is in tests/faults/test_mounts_rdma.py.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from monarch.actor import this_host
from monarch.mounts.content import LARGE
from monarch.mounts.source import FolderSource
from monarch.rdma import RDMABuffer

pytestmark = pytest.mark.usefixtures("_process_test")


@pytest.fixture
def source(tmp_path: Path) -> Any:
    with this_host().spawn_procs() as procs:
        yield procs.spawn("content", FolderSource, [str(tmp_path)], [])


def test_a_block_is_written_to_who_asks_as_far_as_the_file_goes(
    source: Any, tmp_path: Path
) -> None:
    content = os.urandom(LARGE + 1000)
    (tmp_path / "file").write_bytes(content)
    memory = bytearray(LARGE)
    buffer = RDMABuffer(memory)
    attributes, same, size = source.put.call_one("file", 0, LARGE, buffer).get()
    assert (attributes.size, same, size) == (len(content), False, LARGE)
    assert memory == content[:LARGE]
    assert source.put.call_one("file", LARGE, LARGE, buffer).get()[2] == 1000
    assert memory == content[LARGE:] + content[1000:LARGE]
    assert source.put.call_one("file", 2 * LARGE, LARGE, buffer).get()[2] == 0
    assert source.put.call_one("missing", 0, LARGE, buffer).get() == errno.ENOENT


def test_a_block_comes_with_the_answer_where_it_cannot_be_written(
    source: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    buffer = RDMABuffer(bytearray(LARGE))
    buffer.drop().get()
    answer = source.put.call_one("file", 0, LARGE, buffer).get()
    assert bytes(answer[2]) == b"content"
