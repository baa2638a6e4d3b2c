"""The leak check that ends every test of this folder finds what it is there to find."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from gate.strangers import stranger
from helpers.leaks import leaks_since, take_snapshot, wait_settled


def test_nothing_is_found_where_nothing_was_left() -> None:
    assert wait_settled(take_snapshot()) == []


def test_a_process_that_is_left_is_found() -> None:
    before = take_snapshot()
    program = "import sys; print('here', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert any(f"process {child.pid}" in line for line in leaks_since(before))
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
    assert wait_settled(before) == []


def test_a_descriptor_that_is_left_is_found() -> None:
    before = take_snapshot()
    descriptor = os.open("/dev/null", os.O_RDONLY)
    assert any(
        "descriptors of this process" in line and "/dev/null" in line
        for line in leaks_since(before)
    )
    os.close(descriptor)
    assert wait_settled(before) == []


def test_a_thread_that_is_left_is_found_by_its_name() -> None:
    before = take_snapshot()
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="forgotten")
    thread.start()
    assert any("forgotten" in line for line in leaks_since(before))
    end.set()
    thread.join()
    assert wait_settled(before) == []


def test_a_shared_memory_segment_that_is_named_after_this_process_is_found() -> None:
    before = take_snapshot()
    segment = Path("/dev/shm", f"monarch_test_{os.getpid()}")
    segment.touch()
    assert any(segment.name in line for line in leaks_since(before))
    segment.unlink()
    assert wait_settled(before) == []


def test_a_shared_memory_segment_that_a_descendant_has_mapped_is_found() -> None:
    before = take_snapshot()
    program = """if True:
        import sys
        from multiprocessing.shared_memory import SharedMemory

        memory = SharedMemory(create=True, size=8)
        print(memory.name, flush=True)
        sys.stdin.read()
        memory.close()
        memory.unlink()
    """
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()
        assert any(line.endswith(f"/dev/shm/{name}") for line in leaks_since(before))
        assert child.stdin is not None
        child.stdin.close()
    assert wait_settled(before) == []


def test_what_another_program_makes_meanwhile_is_no_leak() -> None:
    # as another worker of pytest, torch's DataLoader elsewhere, or another user would
    with stranger() as made:
        before = take_snapshot()
        for _ in range(3):
            assert made(), "the other program has ended"
            assert leaks_since(before) == []
