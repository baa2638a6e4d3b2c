"""A host is lost to actors on other hosts: those that wait for it, own something there, or are
owned from there.
"""

from __future__ import annotations

import pytest

from helpers.remote import run

BOTH = pytest.mark.parametrize("how", ["kill", "freeze"])


@BOTH
def test_actors_of_other_hosts_that_wait_or_own_something_there_are_told(how: str) -> None:
    run(f"""
        with cluster(3, 1) as (w, hosts, procs, members):
            name = w.addresses[1]
            ready, is_ready = Channel.open()
            heard, hears = Channel.open()
            owner = procs.slice(hosts=0).spawn("owner", Member, heard)
            owner.hire.call_one(hosts.slice(hosts=1)).get()
            asks = procs.slice(hosts=2).spawn("asks", Member)
            waiting = [owner.ask_hired.call_one(ready), asks.ask.call_one(members.slice(hosts=1), ready)]
            for _ in waiting:
                is_ready.recv().get()
            hurt(w, 1, {how!r})
            start = now()
            for future in waiting:
                text = future.get()
                assert "the host agent is gone" in text and name in text, text
            assert hears.recv().get() == ("hired", [0], "host")
            within_bound(start)
            assert heard_of(1) == [("members", 1, "host")]  # and nothing of what is not its own
            start = now()
            error = owner.hire.call_one(hosts.slice(hosts=1)).exception()  # a host that it may have to dial
            assert "the host agent is gone" in str(error), error
            within_bound(start)
            assert owner.hire.call_one(hosts.slice(hosts=2)).get()  # it goes on
        """)


@BOTH
def test_what_actors_of_the_lost_host_owned_elsewhere_ends(how: str) -> None:
    run(f"""
        with cluster(2, 1) as (w, hosts, procs, members):
            owner = procs.slice(hosts=1).spawn("owner", Member)
            (pid,) = owner.hire.call_one(hosts.slice(hosts=0)).get()
            (here,) = procs.slice(hosts=1).spawn("other", Member).hire.call_one(this_host()).get()
            hurt(w, 1, {how!r})
            told(members.pid.call(), w.addresses[1])
            wait_gone(pid)
            wait_gone(here)
            assert members.slice(hosts=0).pid.call_one().get()
        """)


@BOTH
def test_ports_of_the_living_stay_of_use(how: str) -> None:
    run(f"""
        with cluster(3, 1) as (w, hosts, procs, members):
            port, values = Channel.open()
            members.slice(hosts=0).send_all.call_one(port, 10).get()
            hurt(w, 1, {how!r})
            told(members.pid.call(), w.addresses[1])
            members.slice(hosts=2).send_all.call_one(port, 10).get()
            got = [values.recv().get() for _ in range(20)]
            assert got == [*range(10), *range(10)]
        """)


@BOTH
def test_controllers_outlive_the_hosts_that_asked_for_them(how: str) -> None:
    run(f"""
        with cluster(2, 1) as (w, hosts, procs, members):
            class Asks(Member):
                @endpoint
                def controller(self):
                    return get_or_spawn_controller("registry", Member).get().echo.call_one(os.getpid()).get()

            asks = procs.spawn("asks", Asks)
            pids = asks.controller.call().get().values()
            hurt(w, 1, {how!r})
            told(members.pid.call(), w.addresses[1])
            assert asks.slice(hosts=0).controller.call_one().get() == pids[0]
            assert get_or_spawn_controller("registry", Member).get().rank.call_one().get() == 0
        """)


@pytest.mark.parametrize(("how", "strategy"), [("kill", "OneForOne"), ("freeze", "AllForOne")])
def test_a_restart_strategy_cannot_bring_back_a_host_and_says_so(how: str, strategy: str) -> None:
    run(f"""
        from monarch.supervision import {strategy}
        with cluster(2, 0) as (w, hosts, _, _):
            procs = hosts.spawn_procs(name="kept", restart={strategy}())
            members = procs.spawn("members", Member)
            first = members.pid.call().get().values()
            os.kill(first[1], signal.SIGKILL)  # a process starts again, on its host
            wait_until(lambda: w.procs(1) not in ([], [first[1]]), what="the restart")
            told_or_back = members.pid.call().get().values()
            assert told_or_back[1] in w.procs(1), (told_or_back, w.procs(1))
            waiting = members.slice(hosts=1).wait.call_one()
            hurt(w, 1, {how!r})
            start = now()
            told(waiting, w.addresses[1])
            assert heard_of(1) == [("members", 1, "host")]
            within_bound(start)
            assert members.slice(hosts=0).pid.call_one().get()
        """)


@pytest.mark.parametrize(("how", "fanout"), [("kill", 1), ("freeze", 2)])
def test_those_below_a_lost_host_of_a_tree_are_called_and_answer(how: str, fanout: int) -> None:
    run(
        f"""
        with cluster(6, 1, max_cast_fanout={fanout}) as (w, hosts, procs, members):
            notes = procs.spawn("notes", Member)
            for number in range(20):
                notes.note.broadcast(number)
            for lost, victim in enumerate((1, 3)):
                hurt(w, victim, {how!r})
                start = now()
                answers = members.rank.stream()  # on its way when the loss becomes known
                try:
                    notes.note.broadcast(f"while {{victim}} is lost")
                except SupervisionError:
                    assert lost  # what is dead already
                living = {{0, 1, 2, 3, 4, 5}} - {{1, victim}}
                results = [(answer.exception(), answer) for answer in answers]
                within_bound(start)
                assert {{answer.get() for error, answer in results if error is None}} == living, results
                assert all("the host agent is gone" in str(error) for error, _ in results if error is not None)
                error = members.rank.options(wait_for_all=True).call().exception()
                assert len(error.by_rank) == lost + 1, error
            assert heard_of(4) == [(mesh, rank, "host") for mesh in ("members", "notes") for rank in (1, 3)]
            due = [*range(20), "while 1 is lost", "while 3 is lost"]
            for index in (0, 2, 4, 5):
                assert notes.slice(hosts=index).noted.call_one().get() == due
        """,
        timeout=100,
    )


@BOTH
def test_callers_of_other_hosts_do_not_notice(how: str) -> None:
    run(f"""
        with cluster(4, 1, max_cast_fanout=1) as (w, hosts, procs, members):
            lost = members.slice(hosts=1).wait.call_one()
            hurt(w, 1, {how!r})
            answered = 0
            while not lost.done():  # who waits for the lost host is answered after the news of its loss
                for index in (0, 2, 3):
                    assert members.slice(hosts=index).rank.call_one().get() == index
                answered += 1
            assert answered > 3, answered
            told(lost)
        """)
