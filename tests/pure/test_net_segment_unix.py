from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.leaks import nothing_left
from monarch._core.net import segment as lane
from monarch._core.net import unix
from monarch._core.net.segment import SEGMENT_SIZE, Segment, make_segment, map_segment
from monarch._core.wire.address import ProcAddress, random_name
from monarch._core.wire.frame import split_segment


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


def descriptors_of_segments() -> int:
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += "memfd:monarch " in os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
    return found


def mappings_of_segments() -> int:
    with open("/proc/self/maps") as maps:
        return sum("memfd:monarch " in line for line in maps)


# segments


@settings(max_examples=25)
@given(st.lists(st.integers(0, 3 * SEGMENT_SIZE), min_size=1, max_size=6))
def test_buffers_come_out_of_a_segment_as_they_went_in(sizes: list[int]) -> None:
    sizes.append(SEGMENT_SIZE)
    buffers = [os.urandom(size) for size in sizes]
    segment = Segment(buffers)
    memory = map_segment(os.dup(segment.fd))
    assert [bytes(part) for part in split_segment(memory, sizes)] == buffers


def test_buffers_of_any_kind_fit_a_segment() -> None:
    size = SEGMENT_SIZE
    segment = make_segment([b"a" * size, bytearray(b"b" * size), memoryview(b"c" * size)])
    assert segment is not None
    parts = split_segment(map_segment(os.dup(segment.fd)), [size] * 3)
    assert [bytes(part[:1]) for part in parts] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("sizes", "lane_taken"),
    [
        ([], False),
        ([SEGMENT_SIZE - 1], False),
        ([SEGMENT_SIZE], True),
        ([SEGMENT_SIZE // 2] * 2, True),
        ([SEGMENT_SIZE // 2, SEGMENT_SIZE // 2 - 1], False),
    ],
)
def test_only_messages_with_enough_bytes_take_the_lane(sizes: list[int], lane_taken: bool) -> None:
    assert (make_segment([b"x" * size for size in sizes]) is not None) == lane_taken


def test_receivers_of_one_segment_do_not_see_what_others_write() -> None:
    segment = Segment([b"old" * SEGMENT_SIZE])
    first, second = (map_segment(os.dup(segment.fd)) for _ in range(2))
    first[:3] = b"new"
    assert bytes(second[:3]) == b"old"
    second[3:6] = b"2nd"
    assert bytes(first[:6]) == b"newold"
    late = map_segment(os.dup(segment.fd))
    assert bytes(late[:6]) == b"oldold"


def test_the_sender_does_not_see_what_receivers_write_nor_they_what_it_writes() -> None:
    data = bytearray(b"old" * SEGMENT_SIZE)
    segment = Segment([data])
    memory = map_segment(os.dup(segment.fd))
    data[:3] = b"own"
    memory[3:6] = b"his"
    assert bytes(memory[:3]) == b"old"
    assert os.pread(segment.fd, 6, 0) == b"oldold"


def test_a_segment_is_gone_with_its_last_user() -> None:
    segment = Segment([b"x" * SEGMENT_SIZE])
    first, second = (map_segment(os.dup(segment.fd)) for _ in range(2))
    fd = segment.fd
    del segment
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(fd)
    assert mappings_of_segments() == 2
    part = first[10:20]
    del first
    assert mappings_of_segments() == 2  # a part holds the whole
    del part
    assert mappings_of_segments() == 1
    assert bytes(second[:1]) == b"x"
    del second
    assert (mappings_of_segments(), descriptors_of_segments()) == (0, 0)


def test_received_buffers_hold_no_descriptors() -> None:
    segment = Segment([b"x" * SEGMENT_SIZE])
    received = [map_segment(os.dup(segment.fd)) for _ in range(3)]
    held = descriptors_of_segments()
    received.clear()
    del segment  # a failed test keeps its variables
    assert held == 1  # the sender's


def test_mapping_a_segment_closes_the_descriptor_it_is_given() -> None:
    segment = Segment([b"x" * SEGMENT_SIZE])
    fd = os.dup(segment.fd)
    memory = map_segment(fd)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(fd)
    assert bytes(memory[:1]) == b"x"


def test_a_descriptor_that_cannot_be_mapped_is_closed() -> None:
    read, write = os.pipe()
    with pytest.raises((OSError, ValueError)):
        map_segment(read)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(read)
    os.close(write)


def test_a_segment_has_no_name_and_is_not_inherited_by_programs() -> None:
    segment = Segment([b"x" * SEGMENT_SIZE])
    assert not os.get_inheritable(segment.fd)
    assert os.readlink(f"/proc/self/fd/{segment.fd}").endswith("(deleted)")


@pytest.mark.parametrize(
    "call",
    [
        "memfd_create",
        "ftruncate",
        "pwrite",
    ],
)
def test_without_room_for_a_segment_the_socket_is_used_with_one_warning(
    call: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object) -> Any:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(lane, "_warned", set())
        patch.setattr(lane.os, call, refuse)  # type: ignore[attr-defined]  # the module it imported
        assert make_segment([b"x" * SEGMENT_SIZE]) is None
        assert make_segment([b"x" * SEGMENT_SIZE]) is None
    assert len([record for record in caplog.records if "no shared memory" in record.message]) == 1
    assert (mappings_of_segments(), descriptors_of_segments()) == (0, 0)


def test_a_write_that_the_system_cuts_short_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:100_000], offset))
        buffers = [os.urandom(SEGMENT_SIZE + 5), os.urandom(17)]
        segment = Segment(buffers)
    parts = split_segment(map_segment(os.dup(segment.fd)), [len(buffer) for buffer in buffers])
    assert [bytes(part) for part in parts] == buffers


# unix sockets


@pytest.fixture
def address() -> Iterator[ProcAddress]:
    address = ProcAddress(random_name(), random_name())
    yield address
    unix.release_all(address.host)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Where the folders of hosts are, for this test.

    (The path of a socket has 107 bytes, which `tmp_path` may take up.)
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        places = [Path(folder, "first"), Path(folder, "second")]
        for place in places:
            place.mkdir()
        monkeypatch.setattr(unix, "PLACES", tuple(map(str, places)))
        yield places


def test_a_process_is_reached_under_its_address(address: ProcAddress) -> None:
    with unix.listen(address) as listener, unix.connect(address) as sock:
        accepted, _ = listener.accept()
        with accepted:
            sock.send(b"hello")
            assert accepted.recv(100) == b"hello"
            assert not sock.getblocking()
            assert not listener.getblocking()


def test_nothing_listens_at_an_address_before_and_after(address: ProcAddress) -> None:
    with pytest.raises(ConnectionRefusedError):
        unix.connect(address)
    unix.listen(address).close()
    with pytest.raises(ConnectionRefusedError):
        unix.connect(address)


def test_an_address_belongs_to_one_listener_at_a_time(address: ProcAddress) -> None:
    with unix.listen(address):
        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
            unix.listen(address)
    unix.release(address)
    unix.listen(address).close()


def test_no_other_user_may_enter_where_processes_listen(address: ProcAddress) -> None:
    with unix.listen(address):
        path = Path(unix.path_of(address))
    assert path.name == address.proc
    found = path.parent.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, os.geteuid())


@pytest.mark.parametrize("how", ["others may enter it", "it is another user's", "it is a link"])
def test_a_folder_that_may_be_another_users_is_not_used(
    how: str, address: ProcAddress, places: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with unix.listen(address):
        folder = Path(unix.path_of(address)).parent
        if how == "others may enter it":
            folder.chmod(0o755)
        elif how == "it is a link":
            folder.rename(places[0] / "elsewhere")
            folder.symlink_to("elsewhere")
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(ConnectionRefusedError):
            unix.connect(address)


def test_processes_listen_elsewhere_where_the_usual_place_is_taken_or_full(
    address: ProcAddress, places: list[Path]
) -> None:
    (places[0] / f"monarch-{address.host}").mkdir(mode=0o777)
    with unix.listen(address), unix.connect(address):
        assert Path(unix.path_of(address)).is_relative_to(places[1])


def test_what_ended_programs_have_left_is_removed_and_nothing_else(places: list[Path]) -> None:
    live, dead, young, open_to_all = (
        ProcAddress(name, "agent") for name in ("live", "dead", "young", "open")
    )
    with unix.listen(live):
        for address in (dead, young, open_to_all):
            unix.listen(address).close()
        for name in ("live", "dead"):
            (places[0] / f"monarch-{name}" / f"agent{unix.MEETING}").touch()
        (places[0] / "monarch-open").chmod(0o755)
        (places[0] / "monarch.log").touch()
        others = "groups-3x", "results"  # as a plane makes for a while; a user's own
        for name in others:
            (places[0] / f"monarch-{name}").mkdir(mode=0o700)
        (places[0] / "monarch-results" / "loss").touch()
        for name in ("live", "dead", "open", *others):
            os.utime(places[0] / f"monarch-{name}", (0, 0))
        unix.release_abandoned()
        assert {path.name for path in places[0].iterdir()} == {
            "monarch-live",
            "monarch-young",
            "monarch-open",
            "monarch.log",
            "monarch-groups-3x",
            "monarch-results",
        }
        assert (places[0] / "monarch-results" / "loss").exists()
        assert (places[0] / "monarch-live" / f"agent{unix.MEETING}").exists()
        with unix.connect(live):
            pass


def test_another_process_cannot_take_a_listening_address(address: ProcAddress) -> None:
    script = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
    with unix.listen(address):
        done = subprocess.run(
            [sys.executable, "-c", script, unix.path_of(address)],
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert done.returncode != 0
    assert b"in use" in done.stderr


def test_connections_that_were_made_survive_the_end_of_the_listener(address: ProcAddress) -> None:
    listener = unix.listen(address)
    with unix.connect(address) as sock:
        accepted, _ = listener.accept()
        listener.close()
        with accepted:
            accepted.send(b"still here")
            assert sock.recv(100) == b"still here"


def test_a_full_backlog_says_try_again(
    address: ProcAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix, "BACKLOG", 0)
    with unix.listen(address):
        waiting: list[socket.socket] = []

        def fill() -> None:
            for _ in range(100):
                waiting.append(unix.connect(address))

        try:
            with pytest.raises(BlockingIOError):
                fill()
        finally:
            for sock in waiting:
                sock.close()
        assert waiting


def test_the_peer_is_known_by_its_process_id() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert unix.check_peer(here) == os.getpid()


@pytest.mark.parametrize("side", ["connect", "accept"])
def test_a_peer_of_another_user_is_refused(
    side: str, address: ProcAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unix.listen(address) as listener:
        if side == "accept":
            with unix.connect(address):
                accepted, _ = listener.accept()
                monkeypatch.setattr(os, "geteuid", lambda: 12345)
                with accepted, pytest.raises(unix.PeerRefused, match="12345"):
                    unix.check_peer(accepted)
            return
        path = unix.path_of(address)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        monkeypatch.setattr(unix, "path_of", lambda address: path)  # as if it could be entered
        with pytest.raises(unix.PeerRefused, match=f"process {os.getpid()}"):
            unix.connect(address)


def test_the_kernels_word_counts_and_not_the_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Credentials:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED)
            return struct.pack("3i", 42, os.geteuid() + 1, 0)

    with pytest.raises(unix.PeerRefused, match="process 42"):
        unix.check_peer(Credentials())  # type: ignore[arg-type]


def test_a_process_of_another_user_is_none_that_was_looked_for() -> None:
    assert issubclass(unix.PeerRefused, ConnectionRefusedError)


def test_buffers_become_wide_enough_for_a_burst(address: ProcAddress) -> None:
    with (
        unix.listen(address),
        unix.connect(address) as sock,
        socket.socket(socket.AF_UNIX) as usual,
    ):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            assert sock.getsockopt(socket.SOL_SOCKET, option) >= usual.getsockopt(
                socket.SOL_SOCKET, option
            )
