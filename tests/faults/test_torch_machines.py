"""`setup_torch_elastic_env` on hosts of their own, whose names mean nothing to each other."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="ranks meet at a store of torch")

from helpers.netns import why_not
from helpers.remote import run

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def test_ranks_of_several_hosts_meet_where_the_first_host_was_attached() -> None:
    run("""
        import socket
        from monarch.actor import Actor
        from monarch.spmd import setup_torch_elastic_env

        class Rank(Actor):
            @endpoint
            def meet(self):
                import torch.distributed as dist

                rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
                where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
                self.store = dist.TCPStore(*where, size, is_master=rank == 0)
                self.store.set(str(rank), "here")
                self.store.wait([str(each) for each in range(size)])
                return where[0]

        def loopback():
            # as /etc/hosts of a Debian has it, on a host without a default route
            socket.gethostname = lambda: "127.0.1.1"

        # no host is lost here, however busy the machine is
        with machines(2, 2, channel_reconnect_timeout="60s") as (network, w, hosts, procs, members):
            first = network.hosts[1].address
            for options in ({}, {"use_ipaddr": "ipv4"}):
                ranks = hosts.spawn_procs({"gpus": 2}, bootstrap=loopback)
                setup_torch_elastic_env(ranks, **options)
                assert ranks.spawn("ranks", Rank).meet.call().get().values() == [first] * 4
            alone = hosts.slice(hosts=1).spawn_procs({"gpus": 2}, bootstrap=loopback)
            setup_torch_elastic_env(alone)
            assert alone.spawn("ranks", Rank).meet.call().get().values() == ["127.0.1.1"] * 2
        """)
