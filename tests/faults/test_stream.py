"""Streams between hosts over real sockets, under every kind of trust: what gets through, and how
they end.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.certificates import authority
from helpers.streams import Net
from helpers.waiting import wait_until
from monarch._core.net import dial
from monarch._core.net.trust import TRUST_ALL, Trust, trust_for
from monarch.config import configured
from monarch.errors import AddressError
from monarch.trust import make_secret

MIB = 1024 * 1024
_CA = authority()

TRUSTS = {
    "open": trust_for(TRUST_ALL, secret=None),
    "secret": trust_for(secret=make_secret()),
    "certificates": trust_for(_CA.pem, _CA.sign("host").both),
}
WAYS = [
    ("ipc", "open"),
    ("inproc", "open"),
    ("tcp", "open"),
    ("tcp", "secret"),
    ("tcp", "certificates"),
]


@pytest.fixture
def net() -> Iterator[Net]:
    with Net() as net:
        yield net


@pytest.fixture(params=WAYS, ids="-".join)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Trust]:
    """An address to listen on, and the trust that it is used with."""
    scheme, kind = request.param
    address = {
        "ipc": f"ipc://{tmp_path}/socket",
        "inproc": f"inproc://{random.getrandbits(32)}",
        "tcp": "tcp://127.0.0.1:0",
    }[scheme]
    return address, TRUSTS[kind]


# bytes


def test_bytes_arrive_as_they_were_written_both_ways_at_once(
    net: Net, way: tuple[str, Trust]
) -> None:
    caller, guest = net.pair(*way)
    draw = random.Random(5)
    sizes = [
        0,
        1,
        5,
        16 * 1024,
        16 * 1024 + 1,
        300_000,
        *(draw.randrange(1, 40_000) for _ in range(200)),
        3 * MIB,
    ]
    chunks = [os.urandom(size) for size in sizes]
    for side in (caller, guest):
        for start in range(0, len(chunks), 7):
            side.stream.write([memoryview(bytearray(chunk)) for chunk in chunks[start : start + 7]])
    expected = b"".join(chunks)
    assert guest.wait_bytes(len(expected)) == expected
    assert caller.wait_bytes(len(expected)) == expected
    assert caller.stream.queued == guest.stream.queued == 0


def test_what_is_written_before_the_peer_is_known_goes_out_first(
    net: Net, way: tuple[str, Trust]
) -> None:
    door = net.listen(*way)
    caller = net.connect(door, way[1])
    caller.stream.write([b"first,"])
    caller.wait_ready().stream.write([b"second"])
    assert door.wait_guest().wait_bytes(12) == b"first,second"


def test_memory_of_other_types_is_sent_as_its_bytes(net: Net, way: tuple[str, Trust]) -> None:
    caller, guest = net.pair(*way)
    caller.stream.write([memoryview(b"12345678").cast("Q"), memoryview(b"abcd").cast("B", (2, 2))])
    assert guest.wait_bytes(12) == b"12345678abcd"


def test_what_several_threads_write_is_not_mixed_up(net: Net, way: tuple[str, Trust]) -> None:
    caller, guest = net.pair(*way)

    def work(number: int) -> None:
        for _ in range(200):
            caller.stream.write([bytes([number]), bytes([number]) * 6999])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    received = guest.wait_bytes(4 * 200 * 7000)
    pieces = {received[start : start + 7000] for start in range(0, len(received), 7000)}
    assert pieces == {bytes([number]) * 7000 for number in range(4)}


def test_a_peer_that_does_not_read_blocks_no_other_and_gets_everything_in_the_end(
    net: Net, way: tuple[str, Trust]
) -> None:
    caller, guest = net.pair(*way)
    guest.stream.pause()
    net.settle()
    data = os.urandom(32 * MIB)
    drained = threading.Event()
    caller.stream.on_drained = drained.set
    caller.stream.write([data])
    caller.stream.write([b"end"])
    wait_until(lambda: 0 < caller.stream.queued < len(data), what="a full socket")
    assert not drained.is_set()
    guest.stream.write([b"the other way is free"])
    assert caller.wait_bytes(21) == b"the other way is free"
    guest.stream.resume()
    assert guest.wait_bytes(len(data) + 3) == data + b"end"
    assert drained.wait(20)
    assert caller.stream.queued == 0


def test_nothing_is_handed_on_while_paused(net: Net, way: tuple[str, Trust]) -> None:
    caller, guest = net.pair(*way)
    guest.stream.pause()
    net.settle()
    caller.stream.write([b"x" * 100])
    assert caller.stream.flush(10)
    net.settle()
    assert not guest.received
    guest.stream.resume()
    guest.wait_bytes(100)


# ends


def test_what_was_flushed_arrives_though_the_stream_is_closed_at_once(
    net: Net, way: tuple[str, Trust]
) -> None:
    caller, guest = net.pair(*way)
    guest.stream.write([b"x" * 5 * MIB])  # unread when the caller closes
    data = os.urandom(5 * MIB)
    caller.stream.write([data, b"farewell"])
    assert caller.stream.flush(20)
    caller.stream.close()
    assert guest.wait_bytes(len(data) + 8).endswith(b"farewell")
    reason, final = guest.wait_closed()
    assert not final
    assert "clos" in reason or "broke" in reason or "written" in reason
    assert caller.end is None, "who closes is not told"


def test_flushing_a_peer_that_does_not_read_is_given_up_in_time(
    net: Net, way: tuple[str, Trust]
) -> None:
    caller, guest = net.pair(*way)
    guest.stream.pause()
    caller.stream.write([bytes(64 * MIB)])
    assert caller.stream.flush(0.2) is False
    assert caller.stream.queued > 0


def test_flushing_waits_for_the_other_host_and_not_only_for_the_own_kernel(net: Net) -> None:
    caller, guest = net.pair("tcp://127.0.0.1:0", TRUSTS["secret"])
    guest.stream.pause()
    net.settle()
    sock = caller.stream._sock
    assert sock is not None
    while unacknowledged(sock) < 200_000:  # once the other kernel takes no more, ours keeps it
        caller.stream.write([bytes(16 * 1024)])
        assert caller.stream.queued == 0
    assert caller.stream.flush(0.3) is False
    guest.stream.resume()
    assert caller.stream.flush(20) is True


def unacknowledged(sock: socket.socket) -> int:
    return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), "little")


def test_the_end_is_told_once_and_writing_after_it_is_harmless(
    net: Net, way: tuple[str, Trust]
) -> None:
    caller, guest = net.pair(*way)
    guest.stream.close()
    caller.wait_closed()
    caller.stream.write([b"x" * MIB])
    caller.stream.resume()
    caller.stream.close()
    assert caller.stream.flush(1) is False
    assert caller.stream.queued == 0
    assert guest.end is None


def test_a_peer_that_ends_while_it_is_paused_costs_no_time_and_is_told_of_on_resume(
    net: Net, way: tuple[str, Trust]
) -> None:
    caller, guest = net.pair(*way)
    guest.stream.pause()
    net.settle()
    caller.stream.write([b"last words"])
    assert caller.stream.flush(10)
    caller.stream.close()
    net.settle()
    turns = 0
    original = net.poller._timeout

    def counted() -> float | None:
        nonlocal turns
        turns += 1
        return original()

    net.poller._timeout = counted  # type: ignore[method-assign]
    threading.Event().wait(0.2)
    assert turns < 50, "the poller must not spin"
    guest.stream.resume()
    assert guest.wait_closed()
    assert guest.received == b"last words"


def test_closing_in_the_middle_of_a_callback_ends_it_there(
    net: Net, way: tuple[str, Trust]
) -> None:
    caller, guest = net.pair(*way)
    guest.data = lambda chunk: guest.stream.close()  # type: ignore[method-assign]
    caller.stream.write([b"x" * MIB])
    caller.wait_closed()
    assert guest.end is None


def test_a_stream_that_is_closed_before_it_is_ready_tells_nothing(
    net: Net, way: tuple[str, Trust]
) -> None:
    door = net.listen(*way)
    inboxes = [net.connect(door, way[1]) for _ in range(20)]
    for inbox in inboxes:
        inbox.stream.close()
    net.connect(door, way[1]).wait_ready()
    assert not any(inbox.is_ready and inbox.end for inbox in inboxes)
    for inbox in inboxes:
        assert ", closed, " in repr(inbox.stream)


# connecting


def refusal(net: Net, address: str, trust: Trust = TRUSTS["secret"]) -> tuple[str, bool]:
    return net.connect(address, trust).wait_closed()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_no_listener_is_no_final_answer(net: Net, tmp_path: Path) -> None:
    for address in (f"tcp://127.0.0.1:{free_port()}", f"ipc://{tmp_path}/none"):
        reason, final = refusal(net, address)
        assert "not up yet" in reason
        assert not final


@pytest.mark.parametrize("address", ["tcp://*:1", "tcp://localhost:0"])
def test_what_cannot_be_dialed_is_a_final_answer(net: Net, address: str) -> None:
    reason, final = refusal(net, address)
    assert "cannot be dialed" in reason
    assert final


def test_an_unknown_name_is_final_and_a_failed_lookup_is_not(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(code: int) -> None:
        def fail(*args: object, **named: object) -> None:
            raise socket.gaierror(code, "what the resolver says")

        monkeypatch.setattr(socket, "getaddrinfo", fail)

    answer(socket.EAI_NONAME)
    assert refusal(net, "tcp://nobody.invalid:1") == (
        "its name could not be resolved: what the resolver says",
        True,
    )
    answer(socket.EAI_AGAIN)
    assert refusal(net, "tcp://nobody.invalid:1") == (
        "its name could not be resolved: what the resolver says",
        False,
    )


def test_a_resolver_that_hangs_holds_up_no_other_and_is_given_up(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial, "CONNECT_TIMEOUT", 0.3)
    go_on = threading.Event()
    asked: list[object] = []

    def hang(*args: object, **named: object) -> list[object]:
        asked.append(args)
        go_on.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        lost = [net.connect(f"tcp://host-{number}:1", TRUSTS["secret"]) for number in range(50)]
        net.pair(f"inproc://{random.getrandbits(32)}", TRUSTS["secret"])
        for inbox in lost:
            reason, final = inbox.wait_closed()
            assert "its address" in reason
            assert not final
        assert len(asked) <= 8, "a thread per name would be a thread per host"
    finally:
        go_on.set()


def test_a_name_with_several_addresses_is_tried_until_one_answers(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = net.listen("tcp://127.0.0.1:0", TRUSTS["secret"])
    port = door.channel.port
    dead = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.9", port))
    good = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **named: [dead, good])
    net.connect(f"tcp://some-name:{port}", TRUSTS["secret"]).wait_ready()


def test_a_host_that_does_not_answer_is_given_up(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "CONNECT_TIMEOUT", 0.3)
    with socket.socket() as full, socket.socket() as one, socket.socket() as two:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (one, two):  # the kernel answers no more
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        reason, final = refusal(net, f"tcp://127.0.0.1:{full.getsockname()[1]}")
    assert "nothing answered" in reason
    assert not final


def test_a_host_that_connects_and_says_nothing_is_given_up(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial, "GREETING_TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        reason, final = refusal(net, f"tcp://127.0.0.1:{silent.getsockname()[1]}")
    assert "did not say who it is" in reason
    assert not final


# listening


def test_a_free_port_is_chosen_and_told(net: Net) -> None:
    door = net.listen("tcp://127.0.0.1:0", TRUSTS["secret"])
    assert door.channel.port > 0
    assert door.channel.name == f"tcp://127.0.0.1:{door.channel.port}"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_everywhere_means_every_address(net: Net, host: str) -> None:
    if host == "[::1]" and not socket.has_ipv6:
        pytest.skip("this system has no IPv6")
    door = net.listen("tcp://*:0", TRUSTS["secret"])
    net.connect(f"tcp://{host}:{door.channel.port}", TRUSTS["secret"]).wait_ready()


def test_one_address_is_advertised_and_another_bound(net: Net) -> None:
    port = free_port()
    door = net.listen(f"tcp://outside.example:7@tcp://127.0.0.1:{port}", TRUSTS["secret"])
    assert door.channel.name == "tcp://outside.example:7"
    net.connect(f"tcp://127.0.0.1:{port}", TRUSTS["secret"]).wait_ready()


def test_an_inherited_socket_is_adopted(net: Net) -> None:
    inherited = socket.create_server(("127.0.0.1", 0))
    port = inherited.getsockname()[1]
    door = net.listen(f"tcp://localhost:fd{inherited.detach()}", TRUSTS["secret"])
    assert door.channel.name == f"tcp://localhost:{port}"
    net.connect(f"tcp://127.0.0.1:{port}", TRUSTS["secret"]).wait_ready()


def test_an_inherited_socket_that_is_bound_and_does_not_listen_yet_is_adopted(net: Net) -> None:
    inherited = socket.socket()
    inherited.bind(("127.0.0.1", 0))
    port = inherited.getsockname()[1]
    door = net.listen(f"tcp://localhost:fd{inherited.detach()}", TRUSTS["secret"])
    assert door.channel.name == f"tcp://localhost:{port}"
    net.connect(f"tcp://127.0.0.1:{port}", TRUSTS["secret"]).wait_ready()


def test_what_is_no_bound_tcp_socket_is_not_adopted(net: Net) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        with pytest.raises(AddressError, match="cannot listen"):
            net.listen(f"tcp://localhost:fd{sock.fileno()}", TRUSTS["secret"])
        assert sock.getsockname()[1] != 0, "still open, and not ours"
    with socket.socket() as sock:
        with pytest.raises(AddressError, match="no TCP socket that is bound to a port"):
            net.listen(f"tcp://localhost:fd{sock.fileno()}", TRUSTS["secret"])
        assert sock.getsockname()[1] == 0, "still open, and not ours"
    with pytest.raises(AddressError, match="cannot listen"):
        net.listen("tcp://localhost:fd987", TRUSTS["secret"])


def test_an_address_that_is_taken_is_refused(net: Net, tmp_path: Path) -> None:
    for address in (
        "tcp://127.0.0.1:0",
        f"ipc://{tmp_path}/taken",
        f"inproc://{random.getrandbits(32)}",
    ):
        door = net.listen(address, TRUSTS["secret"])
        with pytest.raises(AddressError, match="in use"):
            net.listen(door.channel.name, TRUSTS["secret"])
        net.connect(door, TRUSTS["secret"]).wait_ready()


def test_an_address_of_another_host_is_refused_with_the_way_to_advertise_it(net: Net) -> None:
    with pytest.raises(AddressError, match="dial@bind"):
        net.listen("tcp://192.0.2.7:0", TRUSTS["secret"])


def test_a_dead_socket_file_is_replaced_and_other_files_left_alone(
    net: Net, tmp_path: Path
) -> None:
    path = tmp_path / "worker"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    door = net.listen(f"ipc://{path}", TRUSTS["secret"])
    net.connect(door, TRUSTS["secret"]).wait_ready()
    assert path.stat().st_mode & 0o077 == 0
    door.listener.close()
    assert not path.exists()
    path.write_text("data")
    with pytest.raises(AddressError, match="in use"):
        net.listen(f"ipc://{path}", TRUSTS["secret"])
    assert path.read_text() == "data"


def test_streams_outlive_the_listener_and_no_other_gets_in(
    net: Net, way: tuple[str, Trust]
) -> None:
    door = net.listen(*way)
    caller = net.connect(door, way[1]).wait_ready()
    guest = door.wait_guest()
    door.listener.close()
    door.listener.close()
    assert "not up yet" in net.connect(door, way[1]).wait_closed()[0]
    guest.stream.write([b"still here"])
    assert caller.wait_bytes(10) == b"still here"


# knobs


def sockets_of(net: Net, monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Both sockets of a new TCP stream."""
    caller, guest = net.pair("tcp://127.0.0.1:0", TRUSTS["secret"])
    found = [caller.stream._sock, guest.stream._sock]
    return [sock for sock in found if sock is not None]


def test_keepalive_and_congestion_control_are_as_configured(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    available = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    with configured(channel_tcp_keepalive_idle="7s", channel_tcp_congestion=available[-1]):
        both = sockets_of(net, monkeypatch)
    assert len(both) == 2
    for sock in both:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 7
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
        assert name == available[-1]


def test_an_unknown_congestion_control_is_an_error_that_names_the_knob(net: Net) -> None:
    door = net.listen("tcp://127.0.0.1:0", TRUSTS["secret"])
    with configured(channel_tcp_congestion="no_such_thing"):
        with pytest.raises(ValueError, match=r"channel_tcp_congestion.*no_such_thing"):
            net.listen("tcp://127.0.0.1:0", TRUSTS["secret"])
        reason, final = net.connect(door, TRUSTS["secret"]).wait_closed()
    assert "channel_tcp_congestion" in reason
    assert final


def test_keepalive_can_be_switched_off(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    with configured(channel_tcp_keepalive_idle="0s"):
        for sock in sockets_of(net, monkeypatch):
            assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_stream_says_who_and_how_it_is(net: Net, way: tuple[str, Trust]) -> None:
    caller, guest = net.pair(*way)
    assert caller.stream.peer.startswith(way[0].partition("://")[0])
    assert repr(caller.stream) == f"<ByteStream: {caller.stream.peer}, open, 0 bytes queued>"
    assert "127.0.0.1:" in guest.stream.peer or "process" in guest.stream.peer
    caller.stream.close()
    assert "closed" in repr(caller.stream)
