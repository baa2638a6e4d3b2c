"""One-sided transfers between machines of their own: network namespaces, with nixl (UCX over TCP)
and through our own links.

UCX would find out that these machines are one, and take shared memory; so it is told to take TCP.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest

from helpers.netns import Network, why_not
from helpers.rdma_actors import NIXL
from helpers.remote import run
from monarch.rdma.paths.interfaces import interface_between

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
PATHS = pytest.mark.parametrize("path", [NIXL, "messages"])

BEGIN = """
    from contextlib import contextmanager
    from helpers.rdma_actors import Owner, User, pattern

    os.environ["UCX_TLS"] = "tcp"

    @contextmanager
    def on_machines(path, owners):
        '''A machine for each owner, and one for the user of their memory.'''
        with machines(owners + 1, 1, rdma_paths=path, preload=["nixl._api"] if path == "nixl" else []) as (network, w, _, procs, _):
            made = [procs.slice(hosts=i).spawn(f"owner{i}", Owner) for i in range(owners)]
            yield network, made, procs.slice(hosts=owners).spawn("user", User)
"""


def run_on_machines(script: str) -> None:
    run(textwrap.dedent(BEGIN) + textwrap.dedent(script))


@PATHS
def test_bytes_go_both_ways_between_machines(path: str) -> None:
    run_on_machines(f"""
        SIZE = 20_000_001
        with on_machines("{path}", 2) as (network, owners, user):
            buffer = owners[0].make.call_one("a", SIZE).get()
            assert user.path_to.call_one(buffer).get() == "{path}"
            before = user.bytes_received.call_one("eth0").get()
            assert user.read.call_one(buffer).get() == pattern(SIZE)
            assert user.bytes_received.call_one("eth0").get() - before > SIZE
            user.write.call_one(buffer, bytes(pattern(SIZE, seed=2))).get()
            assert owners[0].content.call_one("a").get() == pattern(SIZE, seed=2)
            buffers = [owners[i % 2].make.call_one(str(i), 64, seed=i).get() for i in range(100)]
            assert user.read_many.call_one(buffers).get() == [pattern(64, seed=i) for i in range(100)]
            words = owners[1].make_words.call_one(1).get()
            assert user.add.call_one(words, 1, 3).get() == [1, 2, 3]
            assert len(faults) == 0, faults.reports()
        """)


@PATHS
def test_an_end_in_the_middle_is_told_with_what_was_transferred(path: str) -> None:
    run_on_machines(f"""
        SIZE = 300_000_000
        with on_machines("{path}", 2) as (network, owners, user):
            pids = [owner.pid.call_one().get() for owner in owners]
            ends = [lambda: os.kill(pids[0], signal.SIGKILL), network.hosts[2].silence]
            for number, (owner, end) in enumerate(zip(owners, ends)):
                buffer = owner.make.call_one("a", SIZE).get()
                user.keep.call_one("a", buffer).get()
                user.read.call_one(buffer, 0, 10).get()
                started, has_started = Channel.open()
                answer = user.failure.call_one(buffer, 600, started)
                has_started.recv().get()
                time.sleep(0.03)  # some of it is to be there
                end()
                start = now()
                error = answer.get()
                within_bound(start)
                assert type(error).__name__ == "OwnerLostError", error
                assert (error.buffer, error.owner) == (repr(buffer), buffer.owner)
                assert 0 <= error.transferred < SIZE
                assert f"{{error.transferred}} bytes were transferred before" in str(error)
                told = "SIGKILL" if number == 0 else "the host agent is gone"
                assert told in str(error), error
                wait_until(lambda: len(faults) > number, what="the owner's end to be told")
        """)


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(2) as network:
        yield network


def test_the_interface_is_the_one_that_leads_to_the_other_machine(network: Network) -> None:
    here, there = (f"tcp://{host.address}:26600" for host in network.hosts)
    with network.hosts[0].entered():
        assert interface_between(here, there) == "eth0"
        assert interface_between("a-client", there) == "eth0"
        assert interface_between(here, "a-client") == "eth0"
        assert interface_between("a-client", "another") is None
        assert interface_between("ipc:///tmp/w0", "tcp://127.0.0.1:26600") is None
        # no way there, but others come from somewhere
        assert interface_between(here, "tcp://192.0.2.77:26600") == "eth0"
