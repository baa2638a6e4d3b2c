"""Replicas on machines of their own: network namespaces.

What the trainer's machine sends is counted there.
"""

from __future__ import annotations

import textwrap

import pytest

from helpers.netns import why_not
from helpers.remote import run

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

BEGIN = """
    from contextlib import contextmanager
    from pathlib import Path
    from monarch.actor import Actor, ActorError
    from monarch.rdma import Replica, share_state

    SIZE = 8_000_000

    class Trainer(Actor):
        def __init__(self):
            self.memory = bytearray(SIZE)
            self.shared = share_state({"w": self.memory}, copy=False)

        @endpoint
        def share(self):
            return self.shared

        @endpoint
        def train(self, step):
            with self.shared.writing():
                self.memory[:] = bytes([step]) * SIZE

        @endpoint
        def sent(self):
            line = next(l for l in Path("/proc/self/net/dev").read_text().splitlines() if "eth0:" in l)
            return int(line.partition(":")[2].split()[8])

    class Generator(Actor):
        def __init__(self, shared):
            self.memory = bytearray(SIZE)
            self.replica = Replica(shared, {"w": self.memory})

        @endpoint
        def pid(self):
            return os.getpid()

        @endpoint
        def pull(self, timeout=60):
            versions = self.replica.pull(timeout=timeout).get()
            assert len(set(self.memory)) == 1, "half of a version"
            return versions, self.memory[0]

    @contextmanager
    def on_machines(count, per_host=2, patience="3s"):
        '''A trainer on the first machine; generators on the others.'''
        with machines(count, per_host, rdma_paths="messages", channel_reconnect_timeout=patience) as (network, w, hosts, procs, _):
            trainer = procs.slice(hosts=0, g=0).spawn("trainer", Trainer)
            shared = trainer.share.call_one().get()
            yield network, trainer, procs.slice(hosts=slice(1, count)).spawn("generators", Generator, shared)
"""


def run_on_machines(script: str) -> None:
    run(textwrap.dedent(BEGIN) + textwrap.dedent(script), timeout=150)


@pytest.mark.slow
def test_what_the_trainer_sends_does_not_grow_with_its_readers() -> None:
    run_on_machines("""
        with on_machines(6) as (network, trainer, generators):
            for step, readers in ((1, generators.slice(hosts=slice(0, 2))), (2, generators)):
                trainer.train.call_one(step).get()
                before = trainer.sent.call_one().get()
                pulled = readers.pull.call().get().values()
                assert all(each == ((step,), step) for each in pulled), list(pulled)
                sent = trainer.sent.call_one().get() - before
                assert SIZE <= sent < 2.5 * SIZE, (len(readers), sent / SIZE)  # to two machines at most; to one, if the others come late
            assert len(faults) == 0, faults.reports()
        """)


def test_readers_of_a_replica_that_is_lost_read_elsewhere() -> None:
    run_on_machines("""
        with on_machines(4, per_host=1) as (network, trainer, generators):
            first = generators.slice(hosts=slice(0, 2))
            trainer.train.call_one(1).get()
            first.pull.call().get()  # these two serve the third
            victim = first.slice(hosts=0).pid.call_one().get()
            network.hosts[3].silence()
            os.kill(victim, signal.SIGKILL)
            assert generators.slice(hosts=2).pull.call_one().get() == ((1,), 1)
            wait_gone(victim)
            faults.wait_for(2)
        """)


def test_a_replica_that_stands_still_is_passed_over_after_a_pull_that_was_too_late() -> None:
    run_on_machines("""
        with on_machines(4, per_host=1, patience="120s") as (network, trainer, generators):
            first = generators.slice(hosts=slice(0, 2))
            trainer.train.call_one(1).get()
            first.pull.call().get()  # these two serve the third
            still = first.pid.call().get().values()
            third = generators.slice(hosts=2).pull
            try:
                for pid in still:
                    os.kill(pid, signal.SIGSTOP)
                for _ in range(10):  # two are enough if nothing else is late
                    try:
                        assert third.call_one(timeout=2).get() == ((1,), 1)
                        break
                    except ActorError as error:
                        assert "TransferTimeoutError" in str(error), error
                else:
                    raise AssertionError("it was sent to who stands still again and again")
            finally:
                for pid in still:
                    os.kill(pid, signal.SIGCONT)
        """)
