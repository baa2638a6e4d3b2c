"""Where ranks meet, no stranger reads or sets a key: what listens, and what is behind it."""

from __future__ import annotations

import json
import os
import socket
import textwrap
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from helpers.listening import is_store, listening
from helpers.netns import why_not
from helpers.remote import run
from helpers.strangers import needs_another_user, stranger
from helpers.workers import attached_cluster, free_ports

pytest.importorskip("torch", reason="ranks meet at a store of torch")

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is public

from monarch import inspect, reduce
from monarch.actor import Actor, HostMesh, endpoint
from monarch.elastic import ElasticGroup, World
from monarch.spmd import setup_torch_elastic_env
from monarch.tensor_engine.tensors.mesh_groups import meeting_of

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.jobs import Home

pytestmark = [pytest.mark.torch, pytest.mark.may_keep("descriptors", "threads")]  # torch's


@pytest.fixture
def hosts() -> Iterator[HostMesh]:
    with attached_cluster(2) as cluster:
        yield cluster.hosts


LOOPBACK = "127.0.0.1"
SCRIPT = """
    import json, os, sys
    import torch.distributed as dist

    sys.path.insert(0, sys.argv[1])
    from helpers.listening import listening, tables

    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        store = [host for host, port, _ in tables() if str(port) == os.environ["MASTER_PORT"]]
        with open("seen", "w") as file:
            json.dump([store, listening()], file)
    dist.barrier()
    os._exit(0)
"""


@pytest.mark.processes("a script under `monarch run`")
def test_a_script_on_one_host_meets_on_the_loopback_interface_alone(home: Home) -> None:
    (home.folder / "script.py").write_text(textwrap.dedent(SCRIPT))
    tests = __file__.rpartition("/faults/")[0]
    home.monarch("run", "--nproc-per-node=2", "script.py", tests, env={"TMPDIR": str(home.folder)})
    store, others = json.loads((home.folder / "seen").read_text())
    assert store == [LOOPBACK]
    assert others and {host for host, _ in others} == {LOOPBACK}


OF_SEVERAL = """
    import os, subprocess, sys
    import torch
    import torch.distributed as dist

    if os.environ["RANK"] == "1" and sys.argv[-1] != "again":  # a program that a script starts
        sys.exit(subprocess.run([sys.executable, *sys.argv, "again"]).returncode)
    sys.path.insert(0, sys.argv[1])
    from helpers.listening import tables

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    store = [host for host, port, _ in tables() if str(port) == os.environ["MASTER_PORT"]]
    with open("seen" + os.environ["RANK"], "w") as file:
        print(total.item(), *store, os.environ["MASTER_ADDR"] == "localhost", file=file)
    dist.barrier()
"""


@pytest.mark.processes("a script under `monarch run`")
@pytest.mark.slow
def test_a_script_of_several_hosts_meets_over_the_links_of_the_program(home: Home) -> None:
    (home.folder / "cluster.py").write_text(
        "from monarch.job import ProcessJob\njob = ProcessJob({'nodes': 2})\n"
    )
    (home.folder / "script.py").write_text(textwrap.dedent(OF_SEVERAL))
    tests = __file__.rpartition("/faults/")[0]
    home.monarch("run", "--job", "cluster.job", "--nproc-per-node=1", "script.py", tests)
    for rank in range(2):
        seen = (home.folder / f"seen{rank}").read_text()
        assert seen == f"2.0 {LOOPBACK} False\n"
    home.monarch("kill")


class Ranks(Actor):
    @endpoint
    def meet(self, free: int) -> list[object]:
        found: list[object] = []
        for _ in range(2):  # the keys of before are not there
            torch.distributed.init_process_group("gloo")
            total = torch.ones(1)
            torch.distributed.all_reduce(total)
            found.append((total.item(), [place for place in listening() if is_store(*place)]))
            torch.distributed.destroy_process_group()
        os.environ["MASTER_PORT"] = str(free)  # torch's own, elsewhere
        torch.distributed.init_process_group("gloo")
        found.append(any(is_store(*place) for place in listening()))
        torch.distributed.destroy_process_group()
        return found


@pytest.mark.processes("ranks of torch, in processes")
def test_ranks_meet_by_init_process_group_and_open_no_store(hosts: HostMesh) -> None:
    procs = hosts.spawn_procs({"gpus": 1})
    for number, address in enumerate([None, LOOPBACK]):
        setup_torch_elastic_env(procs, address, free_ports(1)[0] if address else None)
        found = procs.spawn(f"ranks{number}", Ranks).meet.call(*free_ports(1)).get()
        assert found.values() == [[(2.0, [])] * 2 + [True], [(2.0, [])] * 2 + [False]]
    procs.stop().get()


class Looks:
    """Tells of each rank which stores it has opened to everybody."""

    def train(self, world: World) -> None:
        world.restore()
        for _ in world.steps(1):
            world.report([address for address in listening() if is_store(*address)])


@pytest.mark.processes("ranks of torch, in processes")
def test_a_world_of_an_elastic_group_opens_no_store(hosts: HostMesh) -> None:
    reports = list(ElasticGroup(hosts, Looks, ranks=2, min_ranks=2).run())
    assert [report.value for report in reports] == [[], []]


TRY = """
import sys
path = sys.argv[1]
for what in (path, os.path.dirname(path)):
    for attempt in (open, os.listdir, lambda path: open(path, "a")):
        try:
            attempt(what)
        except OSError:
            continue
        print("got in", what, attempt)
"""


@needs_another_user
@pytest.mark.processes("a file, and who may read it")
def test_another_user_does_not_reach_the_file_in_which_ranks_of_one_host_meet(spawn: Spawn) -> None:
    with spawn(2).activate() as mesh:
        assert inspect(reduce(torch.ones(2), "gpus"), gpus=0).tolist() == [2.0, 2.0]
        meeting = meeting_of(mesh.engine)
        assert os.path.exists(meeting.path)
        with stranger(TRY, meeting.path) as program:
            assert program.communicate()[0] == ""


def test_what_is_looked_for_would_be_found() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        assert ("127.0.0.1", port) in listening() and not is_store("127.0.0.1", port)
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    assert ("::", store.port) in listening() and is_store("127.0.0.1", store.port)


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.processes("hosts with networks of their own")
@pytest.mark.slow
def test_no_other_host_reads_where_ranks_of_a_mesh_meet() -> None:
    run("""
        import json, subprocess, sys, textwrap
        import torch
        from helpers.listening import listening
        from monarch import inspect, reduce
        from monarch.actor import Actor

        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"  # what the name of these hosts means is no use
        LOOK = '''
        import json, sys
        from helpers.listening import is_store
        print(json.dumps([address for address in json.loads(sys.argv[1]) if is_store(*address)]))
        '''

        class Torch(Actor):
            @endpoint
            def total(self, group):
                import torch.distributed as dist

                total = torch.ones(1)
                dist.all_reduce(total, group=group)
                return total.item()

        with machines(2, 1) as (network, w, hosts, procs, members):
            trainers = procs.spawn("trainers", Torch)
            with procs.activate() as mesh:
                ones = torch.ones(2)
                assert inspect(reduce(ones, "hosts"), hosts=0, g=0).tolist() == [2.0, 2.0]
                group = mesh.process_group("hosts")
                assert trainers.total.call(group).get().values() == [2.0, 2.0]
                pids = ["self", *members.pid.call().get().values()]
                places = [network.hosts[0].address, *(host.address for host in network.hosts[1:])]
                found = [(place, port) for pid, place in zip(pids, places) for _, port in listening(pid)]
                assert found  # of gloo
                command = [sys.executable, "-c", textwrap.dedent(LOOK), json.dumps(found)]
                env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
                looked = network.hosts[2].run(command, env=env, capture_output=True, text=True)
                assert looked.stdout == "[]\\n", looked
        """)
