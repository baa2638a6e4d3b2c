"""Who is let in and who is not: over real sockets, with honest peers, strangers, and those who know
the protocol.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import random
import re
import resource
import select
import socket
import ssl
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from helpers.certificates import Identity, authority, self_signed
from helpers.streams import Door, Inbox, Net
from helpers.waiting import PATIENCE, wait_until
from monarch._core.net import dial, greeting, listener
from monarch._core.net.trust import TRUST_ALL, Trust, trust_for
from monarch._core.wire.channel import parse_channel
from monarch.config import configured
from monarch.trust import make_secret, write_secret_file

SECRET = make_secret()
CA = authority()
CA_OTHER = authority("another authority")
HOST = CA.sign("a host")
CERTIFICATES = trust_for(CA.pem, HOST.both)
WITH_SECRET = trust_for(secret=SECRET)
OPEN = trust_for(TRUST_ALL)
LOCAL = "tcp://127.0.0.1:0"
NOBODY = 65534

as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can start a process of another user"
)


@pytest.fixture
def net() -> Iterator[Net]:
    with Net() as net:
        yield net


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is busy with other things a greeting takes its time."""
    for side in (dial, listener):
        monkeypatch.setattr(side, "GREETING_TIMEOUT", PATIENCE)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that waits for strangers only briefly."""
    monkeypatch.setattr(listener, "GREETING_TIMEOUT", 0.3)


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing secret may ever be logged."""
    with caplog.at_level(logging.DEBUG):
        yield
    assert SECRET not in caplog.text
    assert "PRIVATE KEY" not in caplog.text
    assert "Traceback" not in caplog.text, "an internal error"


@contextmanager
def raw(door: Door) -> Iterator[socket.socket]:
    with socket.create_connection(door.address, timeout=PATIENCE) as sock:
        yield sock


def is_refused(sock: socket.socket) -> bytes:
    """What is said until the other side hangs up."""
    said = b""
    try:
        while more := sock.recv(4096):
            said += more
    except OSError:
        pass
    return said


def assert_nobody_got_in(net: Net, door: Door, trust: Trust) -> None:
    """And a friend still does."""
    assert door.guests == []
    net.connect(door, trust).wait_ready().stream.write([b"hello"])
    assert door.wait_guest().wait_bytes(5) == b"hello"


# the wrong peer


def meet(net: Net, ours: Trust, theirs: Trust) -> tuple[Door, str, bool]:
    """A caller with `theirs` at a door with `ours`: what the caller is told.

    For those who do not get in.
    """
    door = net.listen(LOCAL, ours)
    caller = net.connect(door, theirs)
    reason, final = caller.wait_closed()
    assert not caller.is_ready
    net.settle()
    assert_nobody_got_in(net, door, ours)
    return door, reason, final


def test_a_wrong_secret_is_refused_and_both_sides_know_why(
    net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    _, reason, final = meet(net, WITH_SECRET, trust_for(secret=make_secret()))
    assert (reason, final) == ("refused: wrong secret", True)
    assert re.search(
        r"refused a connection from 127\.0\.0\.1:\d+ to tcp://127.0.0.1:\d+: wrong secret",
        caplog.text,
    )


STRANGERS: dict[str, tuple[Callable[[], Trust], str, str]] = {
    # who calls: its trust, what it is told, what the log of the other side says
    "signed by another authority": (
        lambda: trust_for(CA.pem, authority("other").sign("x").both),
        "unknown ca|decrypt|certificate",
        "certificate was not accepted",
    ),
    "self-signed": (
        lambda: trust_for(CA.pem, self_signed().both),
        "unknown ca|certificate",
        "self-signed",
    ),
    "expired": (
        lambda: trust_for(CA.pem, CA.sign("late", expired=True).both),
        "certificate expired",
        "certificate has expired",
    ),
    "for servers only": (
        lambda: trust_for(CA.pem, CA.sign("server", only_for="server").both),
        "certificate",
        "purpose",
    ),
    "with an own authority": (
        lambda: trust_for(CA_OTHER.pem, CA_OTHER.sign("x").both),
        "its certificate was not accepted",
        "unknown ca",
    ),
    "with the secret": (lambda: WITH_SECRET, "certificate required", "has no certificate"),
    "with nothing": (lambda: OPEN, "it speaks TLS", "does not speak TLS"),
}


@pytest.mark.parametrize("who", STRANGERS)
def test_a_stranger_at_a_door_with_certificates_is_told_why_not(
    net: Net, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    trust, told, logged = STRANGERS[who]
    _, reason, final = meet(net, CERTIFICATES, trust())
    assert re.search(told, reason), reason
    assert final
    assert re.search(rf"refused a connection from 127\.0\.0\.1:\d+ to .*{logged}", caplog.text), (
        caplog.text
    )


SERVERS: dict[str, tuple[Callable[[], Trust], str]] = {
    "self-signed": (lambda: trust_for(CA.pem, self_signed().both), "self-signed"),
    "expired": (lambda: trust_for(CA.pem, CA.sign("late", expired=True).both), "expired"),
    "signed by another authority": (
        lambda: trust_for(CA.pem, CA_OTHER.sign("x").both),
        "certificate was not accepted",
    ),
    "for clients only": (
        lambda: trust_for(CA.pem, CA.sign("client", only_for="client").both),
        "purpose",
    ),
    "with the secret": (lambda: WITH_SECRET, "certificate was not accepted"),
    "with nothing": (lambda: OPEN, "does not speak TLS"),
}


@pytest.mark.parametrize("who", SERVERS)
def test_a_caller_with_certificates_talks_to_no_stranger(net: Net, who: str) -> None:
    trust, told = SERVERS[who]
    door = net.listen(LOCAL, trust())
    caller = net.connect(door, CERTIFICATES)
    reason, final = caller.wait_closed()
    assert re.search(told, reason), reason
    assert final
    assert not caller.is_ready
    net.settle()
    assert door.guests == []


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (WITH_SECRET, OPEN, "it speaks TLS"),
        (OPEN, WITH_SECRET, "does not speak TLS"),
        (WITH_SECRET, CERTIFICATES, "certificate was not accepted"),
    ],
)
def test_sides_that_protect_themselves_differently_say_so(
    net: Net, ours: Trust, theirs: Trust, told: str
) -> None:
    _, reason, final = meet(net, ours, theirs)
    assert told in reason
    assert final


def test_an_intermediate_authority_is_followed_and_may_be_the_anchor_itself(net: Net) -> None:
    middle = CA.sign("middle", signs=True)
    leaf = middle.sign("leaf")
    chain = trust_for(CA.pem, leaf.both + middle.pem)
    net.pair(LOCAL, chain)
    door = net.listen(LOCAL, CERTIFICATES)
    net.connect(door, chain).wait_ready()
    net.pair(LOCAL, trust_for(middle.pem, leaf.both))


def test_the_name_in_a_certificate_is_not_compared_with_the_address(net: Net) -> None:
    caller, guest = net.pair(LOCAL, CERTIFICATES)  # "a host", dialed as 127.0.0.1
    caller.stream.write([b"hello"])
    assert guest.wait_bytes(5) == b"hello"


def test_one_program_may_trust_different_peers_differently(net: Net) -> None:
    other = trust_for(CA_OTHER.pem, CA_OTHER.sign("x").both)
    for trust in (CERTIFICATES, other, WITH_SECRET):
        net.pair(LOCAL, trust)


# the binding of the proof to its session


def shake_hands(trust: Trust) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    one, two = socket.socketpair()
    ends: list[ssl.SSLSocket] = []
    thread = threading.Thread(
        target=lambda: ends.append(trust.server_context.wrap_socket(two, server_side=True))
    )
    thread.start()
    client = trust.client_context.wrap_socket(one)
    thread.join()
    return client, ends[0]


def test_the_binding_is_the_same_on_both_sides_and_never_comes_again() -> None:
    seen = set()
    for _ in range(20):
        client, server = shake_hands(WITH_SECRET)
        with client, server:
            binding = client.get_channel_binding("tls-unique")
            assert binding is not None
            assert len(binding) >= 32
            assert binding == server.get_channel_binding("tls-unique")
            server.sendall(b"x")
            client.recv(1)
            assert binding == client.get_channel_binding("tls-unique"), "traffic does not change it"
            assert not client.session_reused
            assert client.version() == "TLSv1.3"
            assert client.session is None or not client.session.has_ticket
            seen.add(binding)
    assert len(seen) == 20


def test_roles_and_secrets_have_proofs_of_their_own() -> None:
    other = trust_for(secret=make_secret())
    proofs = {
        trust.proof(role, b"b") for trust in (WITH_SECRET, other) for role in (b"client", b"server")
    }
    assert len(proofs) == 4
    assert {len(proof) for proof in proofs} == {32}
    assert WITH_SECRET.proof(b"client", b"b") == trust_for(secret=SECRET).proof(b"client", b"b")


class InTheMiddle:
    """Ends TLS on both sides with the public key pair, and passes on what is inside; keeps what it
    has seen.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = self._socket.getsockname()
        self.passed_on = b""
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        any_trust = trust_for(secret="whatever it is, it is not the same")
        caller, _ = self._socket.accept()
        with any_trust.server_context.wrap_socket(caller, server_side=True) as there:
            with any_trust.client_context.wrap_socket(
                socket.create_connection(self._target)
            ) as here:
                try:
                    self._pass_on(there, here)
                except OSError:
                    pass

    def _pass_on(self, one: ssl.SSLSocket, two: ssl.SSLSocket) -> None:
        other = {one: two, two: one}
        while True:
            waiting = [sock for sock in other if sock.pending()] or select.select(
                [*other], [], [], PATIENCE
            )[0]
            for sock in waiting:
                data = sock.recv(4096)
                if not data:
                    return
                self.passed_on += data
                other[sock].sendall(data)

    def close(self) -> None:
        self._socket.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


def test_a_man_in_the_middle_who_passes_the_proofs_on_is_found_out(
    net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    door = net.listen(LOCAL, WITH_SECRET)
    middle = InTheMiddle(door.address)
    caller = net.connect("tcp://{}:{}".format(*middle.address), WITH_SECRET)
    reason, _ = caller.wait_closed()
    middle.close()
    assert len(middle.passed_on) >= 32, "it did pass on the caller's proof"
    assert not caller.is_ready
    assert "refused" in reason
    net.settle()
    assert "wrong secret" in caplog.text
    assert_nobody_got_in(net, door, WITH_SECRET)


def test_it_is_the_binding_that_finds_a_man_in_the_middle(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks the test above: without the binding, the same attack gets through."""
    monkeypatch.setattr(greeting.Greeting, "_binding", lambda self: b"")
    door = net.listen(LOCAL, WITH_SECRET)
    middle = InTheMiddle(door.address)
    caller = net.connect("tcp://{}:{}".format(*middle.address), WITH_SECRET).wait_ready()
    door.wait_guest()
    caller.stream.close()
    middle.close()


class Impostor:
    """Listens with TLS, and answers a proof with whatever `answer` makes of it."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = "tcp://{}:{}".format(*self._socket.getsockname())
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        caller, _ = self._socket.accept()
        with WITH_SECRET.server_context.wrap_socket(caller, server_side=True) as sock:
            sock.sendall(self._answer(sock.recv(32)))
            is_refused(sock)

    def close(self) -> None:
        self._thread.join(PATIENCE)
        self._socket.close()
        assert not self._thread.is_alive()


@pytest.mark.parametrize(
    "answer",
    [lambda proof: b"\1" + proof, lambda proof: b"\1" + bytes(32), lambda proof: b"\1" * 4000],
    ids=["the caller's own proof", "zeros", "too much"],
)
def test_an_impostor_without_the_secret_is_found_out(
    net: Net, answer: Callable[[bytes], bytes]
) -> None:
    impostor = Impostor(answer)
    caller = net.connect(impostor.address, WITH_SECRET)
    caller.stream.write([b"nothing of this may go out"])
    assert caller.wait_closed() == ("it could not prove that it has the secret", True)
    impostor.close()
    assert not caller.received


# bytes that were heard before


class Recorder:
    """A proxy that keeps what the caller said, and may change one bit of it."""

    def __init__(self, target: tuple[str, int], change_after: float = math.inf) -> None:
        self._target = target
        self._change_after = change_after
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = "tcp://{}:{}".format(*self._socket.getsockname())
        self.said = b""
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        caller, _ = self._socket.accept()
        with caller, socket.create_connection(self._target) as target:
            other = {caller: target, target: caller}
            while True:
                for sock in select.select([*other], [], [], PATIENCE)[0]:
                    try:
                        data = sock.recv(65536)
                    except ConnectionError:
                        data = b""
                    if not data:
                        return
                    if sock is caller:
                        self.said += data
                        data = self._changed(data)
                    with suppress(ConnectionError):
                        other[sock].sendall(data)

    def _changed(self, data: bytes) -> bytes:
        if len(self.said) < self._change_after:
            return data
        self._change_after = math.inf
        return data[:-1] + bytes([data[-1] ^ 1])

    def close(self) -> None:
        self._thread.join(PATIENCE)
        self._socket.close()
        assert not self._thread.is_alive()


def record(net: Net, door: Door, trust: Trust) -> bytes:
    """What an honest caller says, from its first byte on, to greet and then to send "open
    sesame".
    """
    recorder = Recorder(door.address)
    caller = net.connect(recorder.address, trust).wait_ready()
    caller.stream.write([b"open sesame"])
    assert door.wait_guest().wait_bytes(11) == b"open sesame"
    caller.stream.close()
    recorder.close()
    door.guests.clear()
    return recorder.said


PROTECTED = {"secret": WITH_SECRET, "certificates": CERTIFICATES}


@pytest.mark.parametrize("kind", PROTECTED)
def test_a_recorded_session_cannot_be_played_again(net: Net, kind: str, impatient: None) -> None:
    trust = PROTECTED[kind]
    door = net.listen(LOCAL, trust)
    said = record(net, door, trust)
    assert b"open sesame" not in said, "it is encrypted"
    with raw(door) as sock:
        sock.sendall(said)
        is_refused(sock)
    assert_nobody_got_in(net, door, trust)


@pytest.mark.parametrize("kind", PROTECTED)
def test_what_was_changed_on_the_way_is_not_handed_on(net: Net, kind: str) -> None:
    door = net.listen(LOCAL, PROTECTED[kind])
    sent = random.Random(1).randbytes(200_000)
    middle = Recorder(door.address, change_after=100_000)
    caller = net.connect(middle.address, PROTECTED[kind]).wait_ready()
    caller.stream.write([sent])
    guest = door.wait_guest()
    reason, final = guest.wait_closed()
    caller.stream.close()
    middle.close()
    assert "mac" in reason.lower(), reason
    assert not final, "a link may try again"
    assert 0 < len(guest.received) < len(sent)
    assert sent.startswith(bytes(guest.received))


@pytest.mark.parametrize("kind", PROTECTED)
def test_a_greeting_that_breaks_off_anywhere_or_has_a_wrong_bit_lets_no_peer_in(
    net: Net, kind: str, impatient: None
) -> None:
    trust = PROTECTED[kind]
    door = net.listen(LOCAL, trust)
    said = record(net, door, trust)
    draw = random.Random(11)
    for _ in range(40):
        end = draw.randrange(len(said))
        wrong = bytearray(said)
        wrong[draw.randrange(len(said))] ^= 1 << draw.randrange(8)
        for data in (said[:end], bytes(wrong)):
            with raw(door) as sock, suppress(OSError):  # it may hang up at any byte
                sock.sendall(data)
                if draw.random() < 0.5:
                    sock.shutdown(socket.SHUT_WR)
                elif draw.random() < 0.3:
                    is_refused(sock)
    assert_nobody_got_in(net, door, trust)


# strangers who know nothing, or everything but the secret


def garbage(draw: random.Random) -> bytes:
    data = draw.randbytes(draw.choice([1, 2, 5, 32, 33, 200, 5000, 70_000]))
    opening = draw.choice(
        [
            b"",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01",
            b"\x16\x03\x03\xff\xff",
            b"\x15\x03",
            bytes(40),
        ]
    )
    return opening + data


@pytest.mark.parametrize("kind", ["secret", "certificates", "open"])
def test_garbage_lets_no_peer_in(net: Net, kind: str, impatient: None) -> None:
    trust = {**PROTECTED, "open": OPEN}[kind]
    door = net.listen(LOCAL, trust)
    draw = random.Random(7)
    for _ in range(60):
        with raw(door) as sock:
            try:
                sock.sendall(garbage(draw))
                if draw.random() < 0.3:
                    is_refused(sock)
                elif draw.random() < 0.3:
                    # reset, not closed
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except ConnectionError:
                pass
    assert_nobody_got_in(net, door, trust)


def test_garbage_in_place_of_the_proof_is_refused_with_one_fixed_answer(
    net: Net, impatient: None
) -> None:
    door = net.listen(LOCAL, WITH_SECRET)
    draw = random.Random(3)
    for size in (32, 33, 1000, 200_000):
        with raw(door) as sock, WITH_SECRET.client_context.wrap_socket(sock) as tls:
            with suppress(OSError):  # it may hang up before it has all
                tls.sendall(draw.randbytes(size))
            assert is_refused(tls) in (bytes(33), b"")
    assert_nobody_got_in(net, door, WITH_SECRET)


def test_a_peer_with_only_the_public_key_pair_gets_nothing_from_a_listener(
    net: Net, impatient: None
) -> None:
    door = net.listen(LOCAL, WITH_SECRET)
    with raw(door) as sock, WITH_SECRET.client_context.wrap_socket(sock) as tls:
        assert tls.recv(4096) == b"", "the caller has to prove first"
    assert_nobody_got_in(net, door, WITH_SECRET)


def test_a_silent_peer_is_dropped(
    net: Net, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    door = net.listen(LOCAL, WITH_SECRET)
    with raw(door) as silent, raw(door) as drip:
        drip.send(b"\x16\x03\x01")
        assert is_refused(silent) == is_refused(drip) == b""
        here = "{}:{}".format(*silent.getsockname())
        wait_until(lambda: here in caplog.text, what="a line about it")
    net.settle()
    assert "it did not say who it is within" in caplog.text


@contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"this system allows {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_two_thousand_who_say_nothing_keep_no_other_out(
    net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    door = net.listen(LOCAL, WITH_SECRET)
    with many_descriptors(6000):
        crowd: list[socket.socket] = []
        try:
            for number in range(2000):
                crowd.append(socket.create_connection(door.address, timeout=PATIENCE))
                if number % 3 == 0:
                    crowd[-1].send(b"\x16")
            assert_nobody_got_in(net, door, WITH_SECRET)
            most = listener.MOST_GREETINGS
            assert len(door.listener._greetings) <= most
            wait_until(
                lambda: sum(map(is_closed, crowd)) >= 2000 - most - 1, what="room for others"
            )
        finally:
            for sock in crowd:
                sock.close()
    assert len(caplog.records) < 50, "a flood must not fill the disk"
    door.listener.close()
    net.settle()
    assert re.search(r"and \d+ more like these", caplog.text)


def is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_listener_that_runs_out_of_descriptors_goes_on_when_there_are_some(
    net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    door = net.listen(LOCAL, WITH_SECRET)
    accept = door.listener._sock.accept
    refusals = iter(range(3))

    class Full:
        """The listening socket of a process that has no descriptor left."""

        def accept(self) -> object:
            if next(refusals, None) is None:
                return accept()
            raise OSError(24, "Too many open files")

        def __getattr__(self, name: str) -> object:
            return getattr(sock, name)

    sock = door.listener._sock
    door.listener._sock = Full()  # type: ignore[assignment]
    net.connect(door, WITH_SECRET).wait_ready()
    assert "Too many open files" in caplog.text


# the same user on the same host


_CALLER = """
import os, socket, sys
user, family, address, proof = eval(sys.argv[1])
os.setuid(user)
sock = socket.socket(family)
sock.settimeout(20)
sock.connect(address)
sock.sendall(proof)
said = b""
try:
    while more := sock.recv(100):
        said += more
        if len(said) == 33 and said[0] == 1:
            break
except ConnectionError:
    pass
print(said[:1].hex())
"""


def call_as(user: int, family: int, address: object, proof: bytes) -> str:
    """The first byte of the answer to a caller that knows the protocol, run as another user."""
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", _CALLER, repr((user, int(family), address, proof))],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@as_root
@pytest.mark.parametrize("address", [LOCAL, "tcp://[::1]:0", "tcp://*:0"])
def test_another_user_of_this_host_is_refused_on_loopback(
    net: Net, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with configured(allow_unauthenticated_tcp="*" in address):
        door = net.listen(address, OPEN)
    family = socket.AF_INET6 if "[" in address else socket.AF_INET
    where = ("::1" if "[" in address else "127.0.0.1", door.channel.port)
    proof = OPEN.proof(b"client", None)
    assert call_as(os.geteuid(), family, where, proof) == "01", "the same bytes from our own user"
    door.wait_guest()
    assert call_as(NOBODY, family, where, proof) == "00"
    wait_until(
        lambda: f"it runs as user {NOBODY}, not as user 0" in caplog.text, what="a line about it"
    )
    assert len(door.guests) == 1


@as_root
def test_another_user_of_this_host_is_refused_on_a_unix_socket(
    net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"/tmp/monarch-test-{random.getrandbits(64):x}"
    door = net.listen(f"ipc://{path}", WITH_SECRET)
    os.chmod(path, 0o777)
    proof = WITH_SECRET.proof(b"client", None)
    assert call_as(os.geteuid(), socket.AF_UNIX, path, proof) == "01"
    door.wait_guest()
    for said in (proof, WITH_SECRET.proof(b"client", b"")):
        assert call_as(NOBODY, socket.AF_UNIX, path, said) == "00"
    wait_until(lambda: caplog.text.count(f"user {NOBODY}") == 1, what="a line about the second")
    assert len(door.guests) == 1


_SERVER = """
import os, socket, sys
user, family, address, proof = eval(sys.argv[1])
os.setuid(user)
door = socket.socket(family)
door.bind(address)
door.listen()
print(door.getsockname()[1] if family == socket.AF_INET else 0, flush=True)
sock, _ = door.accept()
sock.recv(32)
sock.sendall(b"\\1" + proof)
sock.recv(1)
"""


@as_root
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_a_server_of_another_user_gets_nothing_from_us(
    net: Net, family: socket.AddressFamily
) -> None:
    name = f"\0monarch/inproc/0/{random.getrandbits(32)}"
    address: object = ("127.0.0.1", 0) if family == socket.AF_INET else name
    with subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _SERVER, repr((NOBODY, int(family), address, OPEN.proof(b"server", None)))],
        stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        port = int(server.stdout.readline())
        to = (
            f"tcp://127.0.0.1:{port}"
            if family == socket.AF_INET
            else f"inproc://{name.rpartition('/')[2]}"
        )
        caller = net.connect(to, OPEN)
        reason, final = caller.wait_closed()
        assert server.wait(PATIENCE) == 0
    assert f"user {NOBODY}, not as user 0" in reason
    assert final
    assert not caller.is_ready


# what is open, and what is not


@pytest.mark.parametrize("address", ["tcp://*:0", "tcp://0.0.0.0:0", "tcp://[::]:0"])
def test_without_protection_no_host_listens_beyond_loopback_unless_told_to(
    net: Net, address: str
) -> None:
    with pytest.raises(
        ValueError, match=r"open to other hosts.*monarch secret.*allow_unauthenticated_tcp"
    ):
        net.listen(address, OPEN)
    with configured(allow_unauthenticated_tcp=True):
        door = net.listen(address, OPEN)
        net.connect(f"tcp://localhost:{door.channel.port}", OPEN).wait_ready()


def test_without_protection_no_host_dials_beyond_loopback_unless_told_to(net: Net) -> None:
    reason, final = net.connect("tcp://192.0.2.7:26600", OPEN).wait_closed()
    assert "192.0.2.7 is open to other hosts" in reason
    assert final


def test_a_secret_protects_what_old_programs_leave_open(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONARCH_SECRET", SECRET)
    assert trust_for(TRUST_ALL) == WITH_SECRET
    net.listen("tcp://*:0", trust_for(TRUST_ALL))


def test_without_secret_and_certificates_only_unix_sockets_can_be_used(
    net: Net, tmp_path: Path
) -> None:
    trust = trust_for()
    net.pair(f"ipc://{tmp_path}/socket", trust)
    with pytest.raises(ValueError, match="monarch secret"):
        net.listen(LOCAL, trust)
    with pytest.raises(ValueError, match="MONARCH_SECRET"):
        trust.require(parse_channel("tcp://a:1"))
    reason, final = net.connect("tcp://127.0.0.1:1", trust).wait_closed()
    assert "monarch secret" in reason
    assert final


def test_on_a_unix_socket_the_user_counts_and_nothing_else(net: Net, tmp_path: Path) -> None:
    trusts = [OPEN, WITH_SECRET, CERTIFICATES, trust_for(), trust_for(secret=make_secret())]
    for number, ours in enumerate(trusts):
        door = net.listen(f"ipc://{tmp_path}/{number}", ours)
        for theirs in trusts:
            net.connect(door, theirs).wait_ready()


def test_metatls_is_never_in_the_clear(net: Net) -> None:
    with pytest.raises(ValueError, match="needs TLS"):
        net.listen("metatls://127.0.0.1:0", OPEN)
    assert "needs TLS" in net.connect("metatls://127.0.0.1:1", OPEN).wait_closed()[0]
    net.pair("metatls://127.0.0.1:0", WITH_SECRET)


# what programs pass


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def _no_secret_of_the_developer(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.delenv("MONARCH_SECRET", raising=False)
    monkeypatch.delenv("MONARCH_SECRET_FILE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


def test_the_first_secret_found_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_secret_file(home / ".monarch" / "secret")
    in_home = trust_for()
    write_secret_file(home / "other")
    monkeypatch.setenv("MONARCH_SECRET_FILE", str(home / "other"))
    in_file = trust_for()
    monkeypatch.setenv("MONARCH_SECRET", SECRET)
    in_environment = trust_for()
    given = trust_for(secret=make_secret())
    assert len({in_home, in_file, in_environment, given}) == 4
    assert {trust.mode for trust in (in_home, in_file, in_environment, given)} == {"shared secret"}
    assert in_environment == WITH_SECRET
    monkeypatch.setenv("MONARCH_SECRET", f"  {SECRET}\n")
    assert trust_for() == WITH_SECRET


def test_a_secret_file_is_for_its_owner_only_and_never_written_over(home: Path) -> None:
    path = home / "new" / "secret"
    write_secret_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert len(text.strip()) >= 43
    with pytest.raises(FileExistsError, match="left as it is"):
        write_secret_file(path)
    assert path.read_text() == text


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602])
def test_a_secret_that_others_can_read_or_write_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    write_secret_file("~/.monarch/secret")
    path = home / ".monarch" / "secret"
    path.chmod(mode)
    with pytest.raises(ValueError, match=f"mode {mode:o}.*chmod 600") as caught:
        trust_for()
    assert path.read_text().strip() not in str(caught.value)


@as_root
def test_a_secret_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_secret_file(home / "theirs")
    os.chown(home / "theirs", NOBODY, NOBODY)
    monkeypatch.setenv("MONARCH_SECRET_FILE", str(home / "theirs"))
    with pytest.raises(ValueError, match=f"belongs to user {NOBODY}"):
        trust_for()


def test_a_secret_that_cannot_be_read_is_not_the_same_as_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (home / "none", home):
        monkeypatch.setenv("MONARCH_SECRET_FILE", str(path))
        with pytest.raises(ValueError, match="cannot read|is no file"):
            trust_for(TRUST_ALL)


@pytest.mark.parametrize("secret", ["", "short", " " * 40, "fifteen bytes.."])
def test_a_secret_that_is_too_short_is_refused_with_the_way_to_a_good_one(secret: str) -> None:
    with pytest.raises(ValueError, match=r"wanted 16 or more; `monarch secret`") as caught:
        trust_for(secret=secret)
    assert not secret.strip() or secret not in str(caught.value)


BAD = {
    "a path to nothing": (
        (CA.pem, "/no/such/file.pem"),
        r"private_key: .*'/no/such/file.pem': No such file",
    ),
    "a folder": (("/tmp", HOST.both), "ca: .*directory"),
    "ca alone": ((CA.pem, None), "ca was given without private_key"),
    "private_key alone": ((None, HOST.both), "private_key was given without ca"),
    "no certificate in ca": ((HOST.key_pem(), HOST.both), "ca: it holds no certificate"),
    "a certificate without key": ((CA.pem, HOST.pem), "private_key: it holds no key"),
    "a key without certificate": ((CA.pem, HOST.key_pem()), "holds a key and no certificate"),
    "a key of another": ((CA.pem, CA.sign("x").pem + HOST.key_pem()), "do not belong together"),
    "an encrypted key": (
        (CA.pem, HOST.pem + HOST.key_pem(b"password")),
        "encrypted with a password",
    ),
    "a damaged certificate": (
        (CA.pem[:200] + CA.pem[260:], HOST.both),
        "ca: its certificates cannot be read",
    ),
    "a damaged key": (
        (CA.pem, HOST.pem + HOST.key_pem()[:60] + HOST.key_pem()[90:]),
        "private_key: .* cannot be read",
    ),
    "both ways at once": ((TRUST_ALL, HOST.both), "verifies no peer"),
    "a number": ((CA.pem, 3), "wanted a path or PEM text, got int"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_work_is_refused_at_the_call_without_showing_a_key(what: str) -> None:
    (ca, key), message = BAD[what]
    with pytest.raises(ValueError, match=message) as caught:
        trust_for(ca, key)  # type: ignore[arg-type]
    shown = "".join(traceback.format_exception(caught.value))
    assert not any(line in shown for line in HOST.key_pem().splitlines()[1:-1])


def test_a_key_passed_without_its_frame_is_not_shown_as_if_it_were_a_path() -> None:
    bare = "".join(HOST.key_pem().splitlines()[1:-1])
    with pytest.raises(ValueError) as caught:
        trust_for(CA.pem, bare)
    assert bare not in "".join(traceback.format_exception(caught.value))


def test_a_secret_and_certificates_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="not both"):
        trust_for(CA.pem, HOST.both, secret=SECRET)


def write(path: Path, identity: Identity) -> Path:
    path.write_text(identity.both)
    return path


def test_a_trust_travels_to_another_process_with_its_contents(net: Net, home: Path) -> None:
    ca = home / "ca.pem"
    ca.write_text(CA.pem)
    key = write(home / "key.pem", HOST)
    trust = trust_for(ca, str(key))
    pickled = pickle.dumps(trust)
    ca.unlink()
    key.unlink()
    again = pickle.loads(pickled)
    assert again == trust == trust_for(CA.pem, HOST.both)
    door = net.listen(LOCAL, again)
    net.connect(door, CERTIFICATES).wait_ready()
    assert pickle.loads(pickle.dumps(WITH_SECRET)) == WITH_SECRET
    assert SECRET.encode() not in pickle.dumps(WITH_SECRET), "the key that was derived will do"


def test_a_trust_does_not_show_what_it_holds() -> None:
    for trust in (WITH_SECRET, CERTIFICATES, OPEN):
        assert repr(trust) == str(trust) == f"<Trust: {trust.mode}>"


def test_no_key_is_left_in_a_file_or_a_descriptor(home: Path) -> None:
    before = os.listdir("/proc/self/fd")
    trust_for(CA.pem, HOST.both)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_friend_reports_no_problem(net: Net, caplog: pytest.LogCaptureFixture) -> None:
    for trust in (OPEN, WITH_SECRET, CERTIFICATES):
        one, two = net.pair(LOCAL, trust)
        one.stream.write([b"x"])
        two.wait_bytes(1)
    assert caplog.records == []


@pytest.mark.parametrize("paused", [False, True])
def test_what_comes_right_behind_the_proof_belongs_to_the_stream(
    net: Net, paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in OpenSSL's hands by then, where the poller cannot see it; also if the stream begins
    with a pause.
    """
    original = Inbox.ready
    if paused:
        monkeypatch.setattr(Inbox, "ready", lambda inbox: (inbox.stream.pause(), original(inbox)))
    door = net.listen(LOCAL, WITH_SECRET)
    with raw(door) as sock, WITH_SECRET.client_context.wrap_socket(sock) as tls:
        binding = tls.get_channel_binding("tls-unique")
        assert binding
        tls.sendall(WITH_SECRET.proof(b"client", binding) + b"x" * 10_000)
        guest = door.wait_guest()
        if paused:
            net.settle()
            assert not guest.received
            guest.stream.resume()
        assert guest.wait_bytes(10_000) == b"x" * 10_000
        answer = tls.recv(4096)
    assert answer == b"\1" + WITH_SECRET.proof(b"server", binding)
