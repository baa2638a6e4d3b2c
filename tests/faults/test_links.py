"""Links over real sockets, through a proxy that does what bad networks do: nothing is lost, doubled
or out of order.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.certificates import authority
from helpers.link_ends import OPEN, End, known, numbered, queued_bytes, trouble
from helpers.proxy import Proxy
from helpers.waiting import wait_until
from monarch._core.net import dial
from monarch._core.net.trust import trust_for
from monarch._core.wire import link
from monarch._core.wire.frame import AROUND, Frame
from monarch.config import configured
from monarch.trust import make_secret

LOCAL = "tcp://127.0.0.1:0"
MIB = 1024 * 1024
SECRET = trust_for(secret=make_secret())


@pytest.fixture
def quick() -> Iterator[None]:
    """Times a quarter of the default, so that tests of losses do not take long."""
    with configured(channel_reconnect_timeout="1s", mesh_attach_config_timeout="2s"):
        yield


@pytest.fixture
def patient() -> Iterator[None]:
    with configured(channel_reconnect_timeout="1h"):
        yield


def through(proxy: Proxy) -> str:
    return f"tcp://127.0.0.1:{proxy.port}"


def digest(frame: Frame) -> list[str]:
    return [hashlib.sha256(buffer).hexdigest() for buffer in frame.buffers]


@pytest.mark.parametrize("kind", ["open", "secret", "certificates", "ipc"])
def test_frames_go_both_ways_over_one_link_that_one_side_has_dialed(
    kind: str, tmp_path: Path
) -> None:
    ca = authority()
    trust = {"secret": SECRET, "certificates": trust_for(ca.pem, ca.sign("host").both)}.get(
        kind, OPEN
    )
    address = f"ipc://{tmp_path}/socket" if kind == "ipc" else LOCAL
    with End(address, trust) as worker, End(trust=trust) as client:
        for number in range(100):
            client.links.send(worker.name, numbered(number))
        worker.wait_frames(100)
        assert worker.numbers(client.name) == list(range(100))
        assert worker.names == [worker.name], "it hears what it was called"
        for number in range(100):
            worker.links.send(client.name, numbered(number, b"buffer"))
        client.wait_frames(100)
        assert client.numbers(worker.name) == list(range(100))
        assert bytes(client.got[worker.name][0].payload) == b"payload 0"
        assert bytes(client.got[worker.name][0].buffers[0]) == b"buffer"
        wait_until(lambda: not queued_bytes(client.links, worker.name), what="acknowledgements")
        assert known(client.links, worker.name) and known(worker.links, client.name)
        assert "up, dialed by us, 0 frames" in repr(client.links)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_doubled_by_a_network_that_cuts_stalls_and_splits(seed: int) -> None:
    draw = random.Random(seed)
    with (
        End(LOCAL, SECRET) as worker,
        End(trust=SECRET) as client,
        Proxy(worker.port, split=5000) as proxy,
    ):
        host = through(proxy)
        sent = 0
        for _ in range(12):
            for _ in range(draw.randrange(60)):
                buffers = [os.urandom(draw.choice([10, 70_000]))] * draw.choice([0, 0, 0, 1])
                client.links.send(host, numbered(sent, *buffers))
                if sent:
                    worker.links.send(client.name, numbered(sent))
                else:
                    worker.wait_frames(1)
                    worker.links.send(client.name, numbered(0))
                sent += 1
            trouble = draw.choice(["cut", "cut", "cut within", "stall", "nothing"])
            if trouble == "cut":
                proxy.cut()
            elif trouble == "cut within":
                proxy.cut_after(draw.randrange(1, 20_000))
            elif trouble == "stall":
                proxy.stall()
                time.sleep(0.05)  # the trouble itself
                proxy.go_on()
        worker.wait_frames(sent)
        client.wait_frames(sent)
        assert worker.numbers() == client.numbers() == list(range(sent))
        assert worker.lost == client.lost == []
        assert proxy.connections > 2
        assert len(client.ups) == len(worker.ups) == 1


def test_a_large_frame_that_is_cut_in_the_middle_arrives_whole() -> None:
    data = os.urandom(100 * MIB)
    with End(LOCAL) as worker, End() as client, Proxy(worker.port) as proxy:
        client.links.send(through(proxy), numbered(0))
        worker.wait_frames(1)
        proxy.cut_after(30 * MIB)
        client.links.send(through(proxy), numbered(1, data, b"small"))
        client.links.send(through(proxy), numbered(2))
        worker.wait_frames(3)
        frames = worker.got[client.name]
        assert [frame.target for frame in frames] == [0, 1, 2]
        assert digest(frames[1]) == digest(numbered(1, data, b"small"))
        assert proxy.connections == 2
        assert not memoryview(frames[1].buffers[0]).readonly
        wait_until(
            lambda: not queued_bytes(client.links, through(proxy)),
            what="acknowledgement, which frees the memory",
        )


def test_a_network_slower_than_the_timeout_per_frame_is_not_silent(
    quick: None,
) -> None:
    with End(LOCAL) as worker, End() as client, Proxy(worker.port, rate=MIB, delay=0.01) as proxy:
        # three times the time-out
        client.links.send(through(proxy), numbered(0, os.urandom(3 * MIB)))
        worker.wait_frames(1)
        assert client.lost == worker.lost == []
        assert proxy.connections == 1


def test_a_silent_network_is_noticed_by_both_sides_within_the_bound() -> None:
    with configured(channel_reconnect_timeout="2s"):
        with End(LOCAL) as worker, End() as client, Proxy(worker.port) as proxy:
            client.links.send(through(proxy), numbered(0))
            worker.wait_frames(1)
            proxy.stall()
            before = time.monotonic()
            client.wait(lambda: client.lost)
            worker.wait(lambda: worker.lost)
            assert time.monotonic() - before > 1
            assert "out of contact for 2s (channel_reconnect_timeout)" in client.lost[0][1]
            assert not known(client.links, through(proxy))
            client.links.send(through(proxy), numbered(1))
            proxy.go_on()
            worker.wait_frames(2)
            assert worker.ups == [client.name, client.name], "a new link"


def test_a_worker_gone_without_a_word_is_lost_once_its_port_is_closed(patient: None) -> None:
    with End(LOCAL) as worker, End() as client:
        client.links.send(worker.name, numbered(0))
        worker.wait_frames(1)
        worker.die()
        client.wait(lambda: client.lost)
        assert "nothing listens there" in client.lost[0][1]


def test_a_forwarder_that_is_started_again_is_waited_for(
    patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_MOST_REFUSED", 0.0)  # a worker's port is believed the first time
    with End(LOCAL) as worker, End() as client:
        with Proxy(worker.port) as proxy:
            monkeypatch.setattr(dial, "forwarded", {through(proxy)})
            client.links.send(through(proxy), numbered(0))
            worker.wait_frames(1)
        client.links.send(through(proxy), numbered(1))
        wait_until(
            lambda: "its forwarded port: nothing" in trouble(client.links, through(proxy)),
            what="a refusal",
        )
        with Proxy(worker.port, at=proxy.port):
            worker.wait_frames(2)
        assert worker.numbers() == [0, 1] and client.lost == []


def test_a_restarted_worker_at_the_same_address_is_another() -> None:
    with End(LOCAL) as worker, End() as client:
        client.links.send(worker.name, numbered(0))
        worker.wait_frames(1)
        worker.die()
        with End(worker.name) as again:
            client.wait(lambda: client.lost)
            assert client.lost == [
                (worker.name, "another process answers there now: it was restarted")
            ]
            client.links.send(worker.name, numbered(1))
            again.wait_frames(1)
            assert again.numbers() == [1]


def test_a_worker_may_come_up_after_it_was_dialed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with End() as client:
        client.links.send(f"tcp://127.0.0.1:{port}", numbered(0))
        with End(f"tcp://127.0.0.1:{port}") as worker:
            worker.wait_frames(1)


def test_a_worker_that_does_not_come_up_is_lost_with_what_was_wrong(quick: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        host = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
    with End() as client:
        client.links.send(host, numbered(0))
        client.wait(lambda: client.lost)
        (lost,) = client.lost
        assert lost[0] == host
        assert (
            "could not be reached for 2s (mesh_attach_config_timeout): nothing listens there"
            in lost[1]
        )


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("no address at all", "it has no address to dial"),
        ("tcp://name.that.is.invalid:1", "could not be resolved"),
    ],
)
def test_a_host_that_cannot_be_dialed_is_lost_at_once(host: str, why: str) -> None:
    with End() as client:
        client.links.send(host, numbered(0))
        client.wait(lambda: client.lost)
        assert why in client.lost[0][1]


def test_a_wrong_secret_is_final() -> None:
    with (
        configured(mesh_attach_config_timeout="1h"),
        End(LOCAL, SECRET) as worker,
        End(trust=trust_for(secret=make_secret())) as client,
    ):
        client.links.send(worker.name, numbered(0))
        client.wait(lambda: client.lost)
        assert "wrong secret" in client.lost[0][1]
        client.links.use_trust([worker.name], SECRET)
        client.links.send(worker.name, numbered(1))
        worker.wait_frames(1)
        assert worker.numbers() == [1]


@pytest.mark.parametrize("turn", range(8))
def test_two_hosts_that_dial_each_other_at_the_same_time_have_one_link(turn: int) -> None:
    with End(LOCAL) as a, End(LOCAL) as b:
        for number in range(50):
            a.links.send(b.name, numbered(number))
            b.links.send(a.name, numbered(number))
        a.wait_frames(50)
        b.wait_frames(50)
        assert a.numbers() == b.numbers() == list(range(50))
        assert a.lost == b.lost == []
        assert len([*a.links._table]) == len([*b.links._table]) == 1
        wait_until(lambda: len(a.links._streams) == len(b.links._streams) == 1, what="one stream")


def test_a_farewell_is_heard_at_once_with_its_reason_behind_all_that_was_sent(
    patient: None,
) -> None:
    with End(LOCAL) as worker, End() as client:
        client.links.send(worker.name, numbered(0))
        worker.wait_frames(1)
        for number in range(1, 200):
            client.links.send(worker.name, numbered(number, b"x" * 10_000))
        client.close("the program has ended")
        worker.wait(lambda: worker.lost)
        assert worker.lost == [(client.name, "the program has ended")]
        assert worker.numbers() == list(range(200))
        assert client.lost == []


def test_a_frame_over_the_limit_is_refused_where_it_is_sent() -> None:
    with configured(codec_max_frame_length=1000), End(LOCAL) as worker, End() as client:
        with pytest.raises(ValueError, match="codec_max_frame_length"):
            client.links.send(worker.name, numbered(0, bytes(1000 + AROUND)))
        client.links.send(worker.name, numbered(1))
        worker.wait_frames(1)


def test_a_peer_with_a_smaller_limit_gives_the_link_up_and_says_why() -> None:
    with configured(codec_max_frame_length=1000):
        worker = End(LOCAL)
    with worker, End() as client:
        client.links.send(worker.name, numbered(0))
        worker.wait_frames(1)
        client.links.send(worker.name, numbered(1, bytes(2000 + AROUND)))
        client.wait(lambda: client.lost)
        assert f"where {1000 + AROUND} are the most (codec_max_frame_length)" in client.lost[0][1]
        worker.wait(lambda: worker.lost)


STOPPED = """
import sys, threading
sys.path[:0] = [{tests!r}]
from helpers.link_ends import End, numbered
end = End()
end.links.send({host!r}, numbered(0))
end.wait(lambda: end.ups)
print("up", flush=True)
end.wait_frames(1, 60)
print("got", end.numbers(), end.lost, flush=True)
sys.stdin.readline()
end.close("done")
"""


def test_a_process_that_was_stopped_for_a_while_blames_no_other() -> None:
    """The worker waits longer than the pause lasts; the client, by its own clock, would not."""
    with configured(channel_reconnect_timeout="30s"):
        worker = End(LOCAL)
    tests = str(Path(__file__).parents[1])
    program = STOPPED.format(tests=tests, host=worker.name)
    env = {**os.environ, "HYPERACTOR_CHANNEL_RECONNECT_TIMEOUT": "1s"}
    with (
        worker,
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGSTOP)
        time.sleep(2)  # the pause itself: twice the child's time-out
        worker.links.send(worker.ups[0], numbered(7))
        child.send_signal(signal.SIGCONT)
        assert child.stdout.readline() == "got [7] []\n"
        assert worker.lost == [] and worker.ups == worker.ups[:1]
        child.communicate("\n")
        assert worker.lost[0][1] == "done"
