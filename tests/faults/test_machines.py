"""Whole hosts on machines of their own: network namespaces that are joined by a bridge, links over
TCP with a secret.

Cables are pulled, networks fall silent, lose and delay: for less than `channel_reconnect_timeout`,
and for longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.netns import why_no_netem, why_not
from helpers.remote import run

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
INTERRUPTIONS = pytest.mark.parametrize("interrupt", ["unplug", "silence"])


def test_many_procs_on_several_machines_are_called_sliced_and_call_each_other() -> None:
    run("""
        with machines(4, 16) as (network, w, hosts, procs, members):
            assert members.rank.call().get().values() == [*range(64)]
            assert members.slice(hosts=slice(1, 3), g=slice(4, 8)).rank.call().get().values() == [
                16 * host + g for host in (1, 2) for g in range(4, 8)
            ]
            asked = procs.spawn("asks", Member).slice(g=0).ask_neighbours.call(members).get().values()
            assert asked == [[16 * ((host + 1) % 4) + g for g in range(16)] for host in range(4)]
            port, values = Channel.open()
            members.slice(g=3).send_all.call(port, 20).get()
            assert sorted(values.recv().get() for _ in range(80)) == sorted([*range(20)] * 4)
            large = bytes(20_000_000)
            assert all(echo == large for echo in members.slice(g=0).echo.call(large).get().values())
            waiting = procs.spawn("waiting", Member).wait.call()
            hurt(w, 2, "kill")
            told(waiting, w.addresses[2])
            assert len(members.slice(hosts=slice(0, 2)).pid.call().get()) == 32
            assert heard_of(48) == [
                (mesh, rank, "host") for mesh in ("asks", "members", "waiting") for rank in range(32, 48)
            ]
        """)


STREAMS = """
    def both_ways(members, seconds):
        '''Numbered messages to the members, and from them, from here and from each other.'''
        here, values = Channel.open()
        sending = members.slice(g=1).send_now_and_then.call(here, seconds)
        end, sent = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            members.slice(g=0).note.broadcast(sent)
            sent += 1
            time.sleep(0.001)
        counts = sending.get().values()
        for notes in members.slice(g=0).noted.call().get().values():
            assert notes == [*range(sent)], (len(notes), sent)
        got = [values.recv().get() for _ in range(sum(counts))]
        for host, count in enumerate(counts):
            assert [number for sender, number in got if sender == host] == [*range(count)], (host, count)
"""


@pytest.mark.parametrize(
    ("interrupt", "whose"),
    [
        ("unplug", "host"),
        ("silence", "client"),
        ("unplug", "client"),
        ("silence", "host"),
    ],
)
def test_an_interruption_shorter_than_the_timeout_loses_and_reorders_nothing(
    interrupt: str, whose: str
) -> None:
    run(
        STREAMS
        + f"""
    import threading
    with machines(3, 2, max_cast_fanout=1, channel_reconnect_timeout="10s") as (network, w, hosts, procs, members):
        cable = network.hosts[{0 if whose == "client" else 2}]

        def interrupt():
            time.sleep(0.3)
            cable.{interrupt}()
            time.sleep(1.2)  # and up to a second more, until the kernel notices that a cable is back
            cable.plug_in()

        thread = threading.Thread(target=interrupt)
        thread.start()
        both_ways(members, 6)
        thread.join()
        assert len(faults) == 0, faults.reports()
    """
    )


@INTERRUPTIONS
def test_a_longer_one_is_the_loss_of_the_host_to_everybody_who_waits(interrupt: str) -> None:
    run(f"""
        with machines(4, 1) as (network, w, hosts, procs, members):
            name = w.addresses[2]
            ready, is_ready = Channel.open()
            waiting = procs.spawn("waiting", Member)
            there = waiting.slice(hosts=2)
            asks = procs.spawn("asks", Member)
            asked = [asks.slice(hosts=0).ask.call_one(there, ready), asks.slice(hosts=2).ask.call_one(waiting.slice(hosts=1), ready)]
            for _ in asked:
                is_ready.recv().get()
            calls = [waiting.wait.call(), there.wait.call_one()]
            network.hosts[3].{interrupt}()
            start = now()
            for call in (*calls, asked[1]):
                told(call, name)
            text = asked[0].get()
            assert "the host agent is gone" in text and name in text, text
            within_bound(start)
            assert heard_of(3) == [("asks", 2, "host"), ("members", 2, "host"), ("waiting", 2, "host")]
            wait_until(lambda: not w.procs(2), what="the end of the procs that nobody can reach")
            assert members.slice(hosts=3).pid.call_one().get()
            network.hosts[3].plug_in()
            back = attach_to_workers(workers=[w.addresses[2]])
            assert back.spawn_procs().spawn("back", Member).pid.call_one().get()
            told(there.pid.call_one(), name)
        """)


@INTERRUPTIONS
def test_a_client_that_is_cut_off_loses_its_hosts_and_they_lose_it(interrupt: str) -> None:
    run(f"""
        with machines(2, 1) as (network, w, hosts, procs, members):
            here = this_host().spawn_procs().spawn("here", Member)
            calls = [members.slice(hosts=host).wait.call_one() for host in range(2)]
            network.hosts[0].{interrupt}()
            start = now()
            for call, name in zip(calls, w.addresses):
                told(call, name)
            within_bound(start)
            wait_until(lambda: not w.procs(0) + w.procs(1), what="the end of what the client had")
            assert here.pid.call_one().get()
        """)


def test_hosts_that_lose_each_other_but_not_the_client_stay_of_use_to_it() -> None:
    run("""
        import subprocess
        with machines(3, 1, max_cast_fanout=1) as (network, w, hosts, procs, members):
            ready, is_ready = Channel.open()
            waiting = procs.spawn("waiting", Member).slice(hosts=1)
            asks = procs.spawn("asks", Member).slice(hosts=0)
            asked = asks.ask.call_one(waiting, ready)
            is_ready.recv().get()
            namespace, address = network.hosts[1].namespace, network.hosts[2].address
            subprocess.run(["ip", "-n", namespace, "route", "add", "blackhole", f"{address}/32"], check=True)
            start = now()
            for _ in range(2):  # down the tree, and around the gap
                assert members.rank.call().get().values() == [0, 1, 2]
            text = asked.get()
            assert "the host agent is gone" in text and w.addresses[1] in text, text
            within_bound(start)
            assert members.rank.call().get().values() == [0, 1, 2]
            assert len(faults) == 0, faults.reports()
        """)


@pytest.mark.skipif(why_no_netem() is not None, reason=str(why_no_netem()))
def test_a_network_that_delays_loses_and_reorders_costs_nothing_but_time() -> None:
    run(
        STREAMS
        + """
    with machines(3, 2, max_cast_fanout=1) as (network, w, hosts, procs, members):
        for machine in network.hosts:
            machine.netem("delay", "5ms", "3ms", "loss", "2%", "reorder", "5%", "duplicate", "1%")
        both_ways(members, 3)
        assert len(faults) == 0, faults.reports()
    """
    )


def test_what_is_synced_to_machines_runs_at_the_next_call_and_so_do_packages(
    tmp_path: Path,
) -> None:
    """The machines reach nothing but each other: wheels come with the sync."""
    run(f"""
        import asyncio
        from pathlib import Path
        from helpers.wheels import make_wheel
        from monarch.actor import Actor, endpoint
        from monarch.environments import in_environment

        folder = Path({str(tmp_path)!r})
        os.environ.update(MONARCH_SYNC_FOLDER=str(folder / "store"), XDG_CACHE_HOME=str(folder / "cache"))
        project = folder / "project"

        class Runner(Actor):
            @endpoint
            def value(self, module):
                import importlib
                return importlib.import_module(module).VALUE

        def values(hosts, module, **files):
            for name, text in files.items():
                (project / name.replace("_", ".")).write_text(text)
            result = asyncio.run(hosts.sync_workspace(project))
            assert (result.hosts, result.behind) == (2, 2), result
            if "requirements_txt" in files:
                hosts = in_environment(hosts, "requirements.txt", wheels="wheels", offline=True)
            with hosts.spawn_procs() as procs:
                return procs.spawn("runner", Runner).value.call(module).get().values()

        project.mkdir()
        make_wheel(project / "wheels", "tiny_one", "1.0")
        with machines(2, 0) as (network, w, hosts, _, _):
            assert values(hosts, "edited", edited_py="VALUE = 1\\n") == [1, 1]
            assert values(hosts, "edited", edited_py="VALUE = 22\\n") == [22, 22]
            assert values(hosts, "tiny_one", requirements_txt="tiny_one\\n") == ["1.0", "1.0"]
            make_wheel(project / "wheels", "tiny_two", "2.0")
            assert values(hosts, "tiny_two", requirements_txt="tiny_one\\ntiny_two\\n") == ["2.0", "2.0"]
        """)
