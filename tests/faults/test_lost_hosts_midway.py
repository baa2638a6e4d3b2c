"""A host is lost in the middle of something: a spawn, a bootstrap function, a stop, a storm of
messages, a large transfer.
"""

from __future__ import annotations

import pytest

from helpers.remote import run

BOTH = pytest.mark.parametrize("how", ["kill", "freeze"])
ARMED = """
    def lose(w, index):
        '''It stands still already; to freeze it is to leave it so.'''
        if how == "kill":
            os.kill(w.agent(index), signal.SIGKILL)
"""


def midway(how: str, source: str) -> None:
    import textwrap

    run(f"how = {how!r}\n" + textwrap.dedent(ARMED) + textwrap.dedent(source))


@BOTH
def test_spawning_on_it_fails_and_the_other_hosts_have_their_procs(how: str) -> None:
    midway(
        how,
        """
        with cluster(3, 0) as (w, hosts, _, _):
            name = w.addresses[1]
            hurt(w, 1, "freeze")
            procs = hosts.spawn_procs(per_host={"g": 2}, name="late")
            first = hosts.spawn_procs(name="first", bootstrap=lambda: time.sleep(600))
            members, held = procs.spawn("members", Member), first.spawn("held", Member)
            calling, waiting = members.pid.call(), held.pid.call()
            lose(w, 1)
            start = now()
            told(procs.initialized, name)
            told(calling, name)
            told(first.initialized, name)
            told(waiting, name)
            within_bound(start)
            assert len(members.slice(hosts=2).pid.call().get()) == 2
            assert heard_of(3) == [("held", 1, "host"), ("members", 2, "host"), ("members", 3, "host")]
            procs.stop().get()
            first.stop().get()
            assert len(faults) == 3, faults.reports()
        """,
    )


@BOTH
def test_spawning_actors_on_it_fails_there_alone(how: str) -> None:
    midway(
        how,
        """
        with cluster(3, 1) as (w, hosts, procs, members):
            hurt(w, 1, "freeze")
            new = procs.spawn("new", Member)
            calling, ready = new.pid.call(), new.initialized
            lose(w, 1)
            told(calling, w.addresses[1])
            told(ready, w.addresses[1])
            assert new.slice(hosts=2).pid.call_one().get()
            assert heard_of(2) == [("members", 1, "host"), ("new", 1, "host")]
        """,
    )


STOPS = ("procs.stop()", "members.stop()", "hosts.stop()", "hosts.shutdown()", "shutdown_context()")


@pytest.mark.parametrize(
    ("how", "what"), [(how, what) for how in ("kill", "freeze") for what in STOPS]
)
def test_stopping_ends_within_the_bound_and_is_no_failure(how: str, what: str) -> None:
    midway(
        how,
        f"""
        with cluster(3) as (w, hosts, procs, members):
            agent = hurt(w, 1, "freeze")
            stopping = {what}
            lose(w, 1)
            start = now()
            stopping.get()
            within_bound(start)
            if {what!r} == "members.stop()":
                procs.stop().get()
            if {what!r} == "hosts.shutdown()":
                assert [w.processes[index].wait(20) for index in (0, 2)] == [0, 0]
            assert {{mesh for mesh, _, _ in heard_of(0)}} <= {{"procs"}}, faults.reports()
            if how == "freeze":  # its procs do not wait for a client that has gone on without them
                thaw(w)
                wait_until(lambda: not w.procs(1), what="the procs of the lost host to end")
            elif {what!r} != "hosts.shutdown()":
                wait_until(lambda: not w.procs(0) + w.procs(2), what="the procs to end")
        """,
    )


@BOTH
@pytest.mark.slow
def test_a_storm_of_broadcasts_goes_on_to_the_others_complete_and_in_order(how: str) -> None:
    run(f"""
        import threading
        with cluster(3, 1) as (w, hosts, procs, members):
            sent, over = 0, threading.Event()

            def storm():
                global sent
                while not over.is_set():
                    try:
                        members.note.broadcast((sent, bytes(2000)))
                    except SupervisionError:  # from the loss on
                        pass
                    sent += 1

            storms = threading.Thread(target=storm)
            storms.start()
            wait_until(lambda: sent > 500, what="a storm")
            waiting = procs.spawn("waiting", Member).wait.call()
            hurt(w, 1, {how!r})
            told(waiting, w.addresses[1])
            after = sent
            wait_until(lambda: sent > after + 50, what="the storm to go on")
            over.set()
            storms.join(20)
            for index in (0, 2):
                notes = members.slice(hosts=index).noted.call_one().get()
                assert [number for number, _ in notes] == list(range(sent)), (len(notes), sent)
        """)


@BOTH
def test_large_transfers_in_both_directions_end_and_others_are_not_held_up(how: str) -> None:
    run(f"""
        with cluster(2, 1) as (w, hosts, procs, members):
            large = bytearray(40_000_000)
            there = [members.slice(hosts=1).echo.call_one(large) for _ in range(3)]
            back = [members.slice(hosts=0).ask.call_one(members.slice(hosts=1), Channel.open()[0])]
            hurt(w, 1, {how!r})
            told(there[-1], w.addresses[1], within=20)
            assert "the host agent is gone" in back[0].get()
            assert members.slice(hosts=0).rank.call_one().get() == 0
            assert len(members.slice(hosts=0).echo.call_one(large).get()) == len(large)
        """)


def test_the_output_of_the_others_is_printed_once_and_goes_on() -> None:
    """Those that stood below the lost host say again what they have said; the client knows what it
    has printed.
    """
    result = run("""
        with cluster(3, 1, max_cast_fanout=1) as (w, hosts, procs, members):
            members.slice(hosts=2).say.call_one("one").get()
            hurt(w, 1, "kill")
            told(members.pid.call(), w.addresses[1])
            for word in ("two", "three"):
                members.slice(hosts=2).say.call_one(word).get()
        """)
    assert [line.rpartition("] ")[2] for line in result.stdout.splitlines() if " says " in line] == [
        "2 says one", "2 says two", "2 says three",
    ]  # fmt: skip


def test_workers_that_are_shut_down_together_end_together_although_one_is_slow() -> None:
    """Those that are ready wait for it: what one in between has to pass on would be lost with
    it.
    """
    run("""
        with cluster(3, 0, channel_reconnect_timeout="8s", max_cast_fanout=1) as (w, hosts, _, _):
            hurt(w, 2, "freeze")
            done = hosts.shutdown()
            time.sleep(2)  # for longer than who has lost its parent in the tree gets to answer
            assert not done.done()
            thaw(w)
            done.get()
            for process in w.processes:
                assert process.wait(20) == 0
        """)
