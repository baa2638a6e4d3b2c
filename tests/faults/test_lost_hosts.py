"""A host is lost: who waits is told which and why within the bound, each owner hears once per rank,
the rest goes on.

Each test is a program of its own with short time-outs, which are settled when the agents start.
"""

from __future__ import annotations

import pytest

from helpers.remote import WAYS, run


@pytest.mark.parametrize("how", WAYS)
def test_everybody_who_waits_is_told_and_the_rest_is_of_use(how: str) -> None:
    run(f"""
        with cluster(3) as (w, hosts, procs, members):
            name = w.addresses[1]
            waiting = procs.spawn("waiting", Member)
            lost = waiting.slice(hosts=1)
            ready, is_ready = Channel.open()
            asks = procs.spawn("asks", Member).slice(hosts=0, g=0).ask.call_one(lost, ready)
            local = this_host().spawn_procs(name="local").spawn("local", Member).ask.call_one(lost, ready)
            for _ in range(2):
                assert is_ready.recv().get()
            every, one, stream = waiting.wait.call(), lost.slice(g=0).wait.call_one(), lost.wait.stream()
            hurt(w, 1, {how!r})
            start = now()
            for future in (every, one, *stream):
                told(future, name)
            for asked in (asks, local):
                text = asked.get()
                assert "the host agent is gone" in text and name in text, text
            within_bound(start)
            due = [(mesh, rank, "host") for mesh in ("asks", "members", "waiting") for rank in (2, 3)]
            assert heard_of(len(due)) == due

            start = now()
            for _ in range(3):
                told(members.pid.call(), name)
                assert sum(f.exception() is None for f in members.pid.stream()) == 4
            assert len(members.slice(hosts=2).pid.call().get()) == 2
            assert members.pid.choose().get()
            told(members.slice(hosts=1, g=0).pid.call_one(), name)
            more = hosts.slice(hosts=0).spawn_procs().spawn("more", Member)
            assert more.pid.call_one().get()
            new = hosts.spawn_procs(name="new")
            told(new.initialized, name)
            told(new.spawn("new", Member).pid.call(), name)
            again = procs.spawn("again", Member)
            told(again.pid.call(), name)
            assert len(again.slice(hosts=0).pid.call().get()) == 2
            due += [("again", 2, "host"), ("again", 3, "host"), ("new", 1, "host")]
            assert heard_of(len(due)) == sorted(due)
            for stopping in (new.stop(), again.stop(), new.stop()):
                stopping.get()
            within_bound(start, 10)
            hosts.shutdown().get()
            for index in (0, 2):
                assert w.processes[index].wait(20) == 0
            assert len(faults) == len(due), faults.reports()
        """)


def test_a_lost_host_is_back_when_its_worker_is_started_again_and_attached() -> None:
    run("""
        import subprocess
        from helpers.workers import _WORKER
        with cluster(2, 1) as (w, hosts, procs, members):
            hurt(w, 1, "kill")
            told(members.wait.call(), w.addresses[1])
            w.processes[1].wait(20)
            w.processes[1] = subprocess.Popen(
                [sys.executable, "-c", _WORKER, w.addresses[1]], env={**os.environ, "HYPERACTOR_CHANNEL_RECONNECT_TIMEOUT": "1s"}
            )
            back = attach_to_workers(workers=w.addresses[1:])
            assert back.initialized.get()
            there = back.spawn_procs().spawn("back", Member)
            assert there.pid.call().get()
            other = hosts.slice(hosts=0).spawn_procs().spawn("other", Member)
            (pid,) = other.hire.call_one(back).get()  # other processes find it as well
            assert pid in w.procs(1)
            told(members.slice(hosts=1).pid.call_one(), w.addresses[1])
        """)


def test_a_host_that_another_client_shuts_down_is_lost_to_this_one() -> None:
    run("""
        import subprocess
        with cluster(2, 1) as (w, hosts, procs, members):
            waiting = members.slice(hosts=1).wait.call_one()
            program = f"from monarch.actor import *; attach_to_workers(workers=[{w.addresses[1]!r}]).shutdown().get()"
            subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
            assert "shut down by a client" in told(waiting, w.addresses[1])
            assert heard_of(1) == [("members", 1, "host")]
            assert w.processes[1].wait(20) == 0
            assert members.slice(hosts=0).pid.call_one().get()
        """)


def test_what_its_owner_has_stopped_when_its_host_is_lost_is_no_failure() -> None:
    run("""
        with cluster(2, 1) as (w, hosts, procs, members):
            agent = hurt(w, 1, "freeze")
            stopping = procs.stop()
            os.kill(agent, signal.SIGKILL)
            stopping.get()
            more = hosts.slice(hosts=0).spawn_procs().spawn("more", Member)
            assert more.pid.call_one().get()
            assert len(faults) == 0, faults.reports()
        """)


@pytest.mark.parametrize("who", ["client", "workers"])
def test_hosts_need_not_have_the_same_timeout(who: str) -> None:
    run(f"""
        env = {{"MONARCH_SECRET": "x" * 40, "HYPERACTOR_CHANNEL_RECONNECT_TIMEOUT": "1m" if {who!r} == "workers" else "500ms"}}
        os.environ["MONARCH_SECRET"] = env["MONARCH_SECRET"]
        configure(channel_reconnect_timeout="1m" if {who!r} == "client" else "500ms")
        with workers(1, env=env) as w:
            hosts = attach_to_workers(workers=w.addresses)
            member = hosts.spawn_procs().spawn("member", Member)
            pid = member.pid.call_one().get()
            time.sleep(2)  # the silence of an idle link
            assert member.pid.call_one().get() == pid
            assert w.output(0) == "", w.output(0)
            hosts.shutdown().get()
        """)
