"""Processes that the client starts and hands meshes to: each is a client of its own, on the meshes
of another.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers.ahead import several_at_a_time
from helpers.certificates import authority
from helpers.scripts import TESTS, program, run_program, run_script

STARTS = ["spawn", "fork", "forkserver"]

COMMON = """
    import multiprocessing, os, pickle, signal, subprocess, time
    from monarch.actor import Actor, Channel, SupervisionError, context, endpoint, this_host
    from helpers.waiting import wait_until, wait_gone

    class Peer(Actor):
        def __init__(self, log=""):
            self.log = log
        @endpoint
        def pid(self):
            return os.getpid()
        @endpoint
        def echo(self, value):
            return value
        @endpoint
        def send(self, port, value):
            port.send(value)
        @endpoint
        def fail(self):
            raise ValueError("of the child's actor")
        @endpoint
        def die(self):
            os._exit(7)
        def __cleanup__(self, error):
            if self.log:
                with open(self.log, "a") as file:
                    file.write("cleaned up\\n")

    def pids(actors):
        return sorted(actors.pid.call().get().values())

    def parents():
        procs = this_host().spawn_procs(per_host={"gpus": 2}, name="parents")
        return procs, procs.spawn("peers", Peer)

    def start(how, function, *args):
        child = multiprocessing.get_context(how).Process(target=function, args=args)
        child.start()
        return child
    """


@several_at_a_time
@pytest.mark.parametrize("how", STARTS)
@pytest.mark.slow
def test_a_child_calls_and_spawns_on_the_meshes_it_was_given(how: str) -> None:
    run_program(
        COMMON,
        """
        def child(procs, peers, port):
            assert context().actor_instance.creator is None
            here = pids(peers)
            assert sorted(future.get() for future in peers.pid.stream()) == here
            mine = procs.spawn("mine", Peer)
            assert pids(mine) == here
            mine.stop().get()
            more = procs.host_mesh.spawn_procs(per_host={"n": 2}).spawn("more", Peer)
            assert not set(pids(more)) & set(here)
            back, receiver = Channel.open()
            peers.send.call(back, "to the child").get()
            assert [receiver.recv().get() for _ in range(2)] == ["to the child"] * 2
            large = bytearray(b"x" * 5_000_000)
            assert all(value == large for value in peers.echo.call(large).get().values())
            port.send("to the parent")
        """,
        f"""
        if __name__ == "__main__":
            procs, peers = parents()
            port, receiver = Channel.open()
            process = start({how!r}, child, procs, peers, port)
            assert receiver.recv().get() == "to the parent"
            process.join(30)
            assert process.exitcode == 0, process.exitcode
            assert len(pids(peers)) == 2
        """,
    )


@several_at_a_time
def test_a_parent_that_has_no_procs_is_reached_through_its_port() -> None:
    run_program(
        COMMON,
        """
        def child(port):
            port.send(os.getpid())

        if __name__ == "__main__":
            port, receiver = Channel.open()
            process = start("spawn", child, port)
            assert receiver.recv().get() == process.pid
            process.join(30)
        """,
    )


@several_at_a_time
def test_children_of_one_client_reach_each_other() -> None:
    run_program(
        COMMON,
        """
        from helpers.actors import Echo

        def makes(port):
            actors = this_host().spawn_procs(per_host={"n": 2}).spawn("made", Echo)
            done, receiver = Channel.open()
            port.send((actors, done))
            receiver.recv().get()

        def uses(actors, done):
            assert len(pids(actors)) == 2
            done.send(None)

        if __name__ == "__main__":
            port, receiver = Channel.open()
            first = start("spawn", makes, port)
            second = start("spawn", uses, *receiver.recv().get())
            for process in (first, second):
                process.join(30)
                assert process.exitcode == 0, process.exitcode
        """,
    )


@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_what_a_killed_child_had_spawned_is_gone_and_what_its_parent_has_lives_on(
    how: str, tmp_path: Path
) -> None:
    run_program(
        COMMON,
        """
        def child(procs, peers, port, log):
            mine = procs.spawn("mine", Peer, log)
            own = procs.host_mesh.spawn_procs().spawn("own", Peer)
            pids(mine)
            port.send(own.pid.call_one().get())
            time.sleep(60)
        """,
        f"""
        if __name__ == "__main__":
            procs, peers = parents()
            port, receiver = Channel.open()
            log = {str(tmp_path / "log")!r}
            process = start({how!r}, child, procs, peers, port, log)
            own = receiver.recv().get()
            process.kill()
            wait_gone(own)
            wait_until(lambda: os.path.exists(log) and len(open(log).readlines()) == 2, what="the child's actors to end")
            assert len(pids(peers)) == 2
            process.join(30)
        """,
    )


@several_at_a_time
@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_a_failure_that_a_child_does_not_handle_ends_the_child_only(how: str) -> None:
    result = run_script(
        program(
            COMMON,
            """
            def child(procs):
                procs.spawn("mine", Peer).fail.broadcast()
                time.sleep(60)
            """,
            f"""
            if __name__ == "__main__":
                procs, peers = parents()
                process = start({how!r}, child, procs)
                process.join(30)
                assert process.exitcode == 1, process.exitcode
                assert len(pids(peers)) == 2
                print("the parent goes on", process.pid)
            """,
        )
    )
    assert result.exit_code == 0, str(result)
    assert result.stderr.count("Unhandled monarch error") == 1
    assert f"PID={result.stdout.split()[-1]}" in result.stderr
    assert result.left_behind == []


@several_at_a_time
def test_a_child_hears_of_the_death_of_a_proc_of_its_parent() -> None:
    run_program(
        COMMON,
        """
        import monarch.actor

        def child(peers):
            pids(peers)
            try:
                peers.slice(gpus=1).die.call_one().get()
            except SupervisionError as error:
                assert "exited with non-zero code 7" in str(error), error
                assert "parents[1]" in str(error), error
            else:
                raise AssertionError
            assert peers.slice(gpus=0).echo.call_one(3).get() == 3

        if __name__ == "__main__":
            told = []
            monarch.actor.unhandled_fault_hook = told.append
            procs, peers = parents()
            process = start("spawn", child, peers)
            process.join(30)
            assert process.exitcode == 0, process.exitcode
            wait_until(lambda: told, what="the owner to be told")
        """,
    )


@several_at_a_time
@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_a_child_whose_parent_was_killed_gets_an_error_that_names_it(how: str) -> None:
    result = run_script(
        program(
            COMMON,
            """
            def child(procs, peers, port):
                pids(peers)
                port.send(None)
                try:
                    while True:
                        pids(peers)
                except SupervisionError as error:
                    print("call:", error, flush=True)
                def refused():
                    try:
                        procs.spawn("late", Peer).stop()
                    except SupervisionError as error:
                        print("spawn:", error, flush=True)
                        return True
                wait_until(refused, what="the parent's agent to be gone")
            """,
            f"""
            if __name__ == "__main__":
                procs, peers = parents()
                port, receiver = Channel.open()
                start({how!r}, child, procs, peers, port)
                receiver.recv().get()
                print(os.getpid(), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            """,
        )
    )
    parent, _, told = result.stdout.partition("\n")
    call, _, spawn = told.partition("spawn:")
    assert parent in call or "the host agent is gone" in call, str(result)
    assert "the program that it belongs to has ended" in spawn, str(result)
    assert result.left_behind == []


LATER = f"""
import os, pickle, sys
sys.path.append({TESTS!r})
from monarch.actor import SupervisionError
from helpers.actors import Echo

procs, actors = pickle.load(open(os.environ["MESH"], "rb"))
for use in (lambda: actors.say.call(3).get(), lambda: procs.spawn("more", Echo).say.call(3).get(),
            lambda: procs.host_mesh.spawn_procs().spawn("new", Echo).say.call_one(3).get()):
    try:
        print(use())
    except SupervisionError as error:
        print("error:", error)
"""


def test_a_mesh_in_a_file_is_used_by_another_program_until_its_owner_ends(tmp_path: Path) -> None:
    later, mesh = tmp_path / "later.py", tmp_path / "mesh"
    later.write_text(LATER)
    run_program(
        f"""
        import os, pickle, subprocess
        from helpers.actors import Echo
        from monarch.actor import this_host

        if __name__ == "__main__":
            procs = this_host().spawn_procs(per_host={{"n": 2}})
            actors = procs.spawn("actors", Echo)
            with open({str(mesh)!r}, "wb") as file:
                pickle.dump((procs, actors), file)
            command, env = [{sys.executable!r}, {str(later)!r}], {{**os.environ, "MESH": {str(mesh)!r}}}
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0 and "error" not in done.stdout and not done.stderr, done
            assert len(actors.say.call(3).get()) == 2
        """,
    )
    result = run_script(LATER, env={"MESH": str(mesh)})
    assert result.stdout.count("error:") == 3, str(result)
    assert (
        result.stdout.count("the program that it belongs to has ended, or runs on another machine")
        == 3
    )
    assert result.exit_code == 0


def test_a_mesh_on_another_host_needs_a_secret_in_the_process_that_it_was_given_to(
    tmp_path: Path,
) -> None:
    run_program(
        COMMON,
        f"""
        from helpers.workers import SECRET, free_ports
        from monarch.actor import attach_to_workers, start_worker_loop_forever

        def child(procs, peers):
            for use in (lambda: peers.pid.call().get(), lambda: procs.spawn("mine", Peer)):
                try:
                    use()
                except SupervisionError as error:
                    assert "has not attached" in str(error) and "monarch secret" in str(error), error
                else:
                    raise AssertionError
            os.environ["MONARCH_SECRET"] = SECRET
            assert len(pids(peers)) == 2
            assert len(pids(procs.spawn("mine", Peer))) == 2

        if __name__ == "__main__":
            os.environ["HOME"] = {str(tmp_path)!r}
            os.environ["MONARCH_SECRET"] = SECRET
            address = f"tcp://127.0.0.1:{{free_ports(1)[0]}}"
            worker = start_worker_loop_forever(address=address)
            hosts = attach_to_workers(workers=[address])
            procs = hosts.spawn_procs(per_host={{"gpus": 2}})
            peers = procs.spawn("peers", Peer)
            assert len(pids(peers)) == 2
            del os.environ["MONARCH_SECRET"]
            process = start("spawn", child, procs, peers)
            process.join(30)
            assert process.exitcode == 0, process.exitcode
            assert len(pids(peers)) == 2
            hosts.shutdown().get()
        """,
    )


def test_a_mesh_on_a_host_with_certificates_can_be_used_once_it_is_attached(tmp_path: Path) -> None:
    signer = authority()
    for name, text in (
        ("ca", signer.pem),
        ("worker", signer.sign("worker").both),
        ("us", signer.sign("us").both),
    ):
        (tmp_path / name).write_text(text)
    run_program(
        COMMON,
        f"""
        from helpers.workers import SECRET, free_ports
        from monarch.actor import attach_to_workers, start_worker_loop_forever

        FOLDER = {str(tmp_path)!r}

        def attach(address):
            return attach_to_workers(workers=[address], ca=f"{{FOLDER}}/ca", private_key=f"{{FOLDER}}/us")

        def child(address, procs, peers):
            for secret, why in ("", "no certificate"), (SECRET, "it refused our side of TLS: certificate required"):
                os.environ["MONARCH_SECRET"] = secret
                try:
                    peers.pid.call().get()
                except SupervisionError as error:
                    assert "this process has not attached the host (attach_to_workers does" in str(error), error
                    assert why in str(error) and "is gone" not in str(error), error
                else:
                    raise AssertionError
            attach(address).initialized.get()
            assert len(pids(peers)) == 2
            assert len(pids(procs.spawn("mine", Peer))) == 2

        if __name__ == "__main__":
            os.environ["HOME"] = FOLDER
            address = f"tcp://127.0.0.1:{{free_ports(1)[0]}}"
            worker = start_worker_loop_forever(address=address, ca=f"{{FOLDER}}/ca", private_key=f"{{FOLDER}}/worker")
            hosts = attach(address)
            procs = hosts.spawn_procs(per_host={{"gpus": 2}})
            peers = procs.spawn("peers", Peer)
            assert len(pids(peers)) == 2
            process = start("spawn", child, address, procs, peers)
            process.join(30)
            assert process.exitcode == 0, process.exitcode
            assert len(pids(peers)) == 2
            hosts.shutdown().get()
        """,
    )
