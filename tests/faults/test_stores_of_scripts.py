"""The store of a script of `monarch run`: torch's own client has what torch's own server gives it,
and another user of the machine has nothing.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from helpers.strangers import needs_another_user, stranger
from helpers.waiting import wait_until

pytest.importorskip("torch", reason="ranks meet at a store of torch")

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is public

if TYPE_CHECKING:
    from helpers.jobs import Home

pytestmark = [
    pytest.mark.torch,
    pytest.mark.processes("a server and its clients, and scripts under `monarch run`"),
    pytest.mark.may_keep("descriptors", "threads"),  # torch's
]

HELLO = b"\0" + (0x3C85F7CE).to_bytes(4, sys.byteorder)
COUNT_KEYS = b"\7"


SERVER = """
import asyncio, socket, sys
from monarch.spmd.torch_store import TorchStore

async def serve():
    await TorchStore().serve(socket.socket(fileno=int(sys.argv[1])))
    await asyncio.Event().wait()

asyncio.run(serve())
"""


@contextmanager
def ours() -> Iterator[int]:
    """A store in a process of its own, as torch's client holds the interpreter while it waits."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-c", SERVER, str(listener.fileno())]
        server = subprocess.Popen(command, pass_fds=[listener.fileno()])
    with server:
        try:
            yield port
        finally:
            server.kill()


def client(port: int) -> Any:
    limit = timedelta(seconds=60)
    return TCPStore("localhost", port, is_master=False, timeout=limit, wait_for_workers=False)


def said(port: int) -> list[object]:
    """What two clients hear, who do all that there is."""
    a, b = client(port), client(port)
    short = timedelta(milliseconds=10)
    asked: list[Callable[[], object]] = [
        lambda: (a.set("k", "v"), b.get("k"), a.set("k", ""), b.get("k")),
        lambda: (a.add("n", 5), b.add("n", -7), b.get("n")),
        lambda: (a.check(["k", "n"]), a.check(["k", "none"]), a.check([])),
        lambda: [a.compare_set("c", *each) for each in (("", "1"), ("2", "3"), ("1", "3"))],
        lambda: (a.compare_set("d", "x", "y"), a.check(["d"])),
        lambda: (a.num_keys(), a.delete_key("c"), a.delete_key("c"), a.num_keys()),
        lambda: (a.append("ap", "x"), a.append("ap", "y"), b.get("ap")),
        lambda: (a.multi_set(["m1", "m2"], ["1", "2"]), b.multi_get(["m1", "m2", "n"])),
        lambda: a.wait(["never"], short),
        lambda: (b.set("never", "late"), a.wait(["never", "n"], short), a.get("n")),
        lambda: (a.set("\u20ac", "\u20ac"), b.get("\u20ac")),
        lambda: (b.set("x" * 5000, "y" * 1000000), len(a.get("x" * 5000))),
    ]
    if hasattr(a, "queue_push"):
        asked += [
            lambda: (a.queue_push("q", "1"), a.queue_push("q", "2"), b.queue_len("q")),
            lambda: (b.check(["q"]), b.queue_pop("q"), b.queue_pop("q"), b.queue_len("q")),
            lambda: b.queue_pop("q", False),
            lambda: (b.check(["q"]), sorted(a.list_keys())),
        ]
    found: list[object] = []
    for ask in asked:
        try:
            found.append(ask())
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def test_a_client_of_torch_hears_what_torchs_own_server_says() -> None:
    with ours() as port:
        found = said(port)
    master = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    assert found == said(master.port)
    assert len(found) >= 12


WAITS = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore

limit = timedelta(seconds=60)
store = TCPStore("localhost", int(sys.argv[1]), is_master=False, timeout=limit, wait_for_workers=False)
store.add("waiting", 1)
store.wait(["one", "two", "three"])
print(store.get("one"), store.get("three"))
"""


def test_who_waits_for_keys_goes_on_when_the_last_of_them_is_there(home: Home) -> None:
    with ours() as port:
        script = home.program(WAITS)
        waiting = [home.popen([script, str(port)], {}) for _ in range(2)]
        store = client(port)
        wait_until(lambda: store.add("waiting", 0) == 2, what="those who wait")
        store.set("three", "3")
        store.append("two", "2")
        store.add("one", 1)
        for program in waiting:
            assert home.finish(program, 0).startswith("b'1' b'3'")


def test_what_is_no_query_ends_its_connection_and_no_other() -> None:
    with ours() as port:
        store = client(port)
        store.set("k", "v")
        for bad in (
            b"POST / HTTP/1.1\r\n\r\n",
            HELLO + b"\0",
            HELLO + b"\xff",
            HELLO + b"\3" + (1).to_bytes(8, sys.byteorder) + b"z",  # get a key that is not there
            HELLO + b"\4" + (2).to_bytes(8, sys.byteorder) + b"/k" + bytes(8),  # add to no number
            HELLO + b"\1" + (2**63).to_bytes(8, sys.byteorder) + b"x",  # and that is all of it
        ):
            with socket.create_connection(("127.0.0.1", port)) as other:
                other.sendall(bad)
                other.shutdown(socket.SHUT_WR)
                try:
                    assert not other.recv(1), bad
                except ConnectionResetError:
                    pass
        assert store.num_keys() == 1 and store.get("k") == b"v"


TRY = """
import socket, sys
for port in sys.argv[2:]:
    for said in (bytes.fromhex(sys.argv[1]), b""):
        with socket.create_connection(("127.0.0.1", int(port))) as sock:
            try:
                sock.sendall(said)
                sock.shutdown(socket.SHUT_WR)
                print(sock.recv(100))
            except OSError as error:
                print(type(error).__name__)
"""


def tried_by_a_stranger(*ports: int) -> set[str]:
    """What is answered: bytes, or how the connection ended, which is a matter of time."""
    with stranger(TRY, (HELLO + COUNT_KEYS).hex(), *map(str, ports)) as program:
        said = program.communicate()[0].split()
    assert len(said) == 2 * len(ports)
    return {each for each in said if each.startswith("b'")} - {"b''"}


@needs_another_user
def test_another_user_reads_and_sets_no_key() -> None:
    with ours() as port:
        assert not tried_by_a_stranger(port)
        with socket.create_connection(("127.0.0.1", port)) as own:
            own.sendall(HELLO + COUNT_KEYS)
            assert own.recv(8) == bytes(8)
    master = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    assert str(bytes(8)) in tried_by_a_stranger(master.port)  # torch's lets everybody in


MEET = """
    import json, os, sys, time
    import torch
    import torch.distributed as dist

    sys.path.insert(0, sys.argv[1])
    from helpers.listening import listening, tables

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    way = os.environ.get("MONARCH_STORE_AT", os.environ["MASTER_PORT"]).partition(":")[0]
    hosts = [host for host, port, _ in tables() if str(port) in (way, os.environ["MASTER_PORT"])]
    with open("part" + os.environ["RANK"], "w") as file:
        json.dump([total.item(), int(way), hosts, os.environ["MASTER_ADDR"]], file)
    os.rename("part" + os.environ["RANK"], "met" + os.environ["RANK"])
    while not os.path.exists("tried"):
        time.sleep(0.01)
    dist.barrier()
    os._exit(0)
"""


@needs_another_user
@pytest.mark.parametrize(
    ("job", "options"),
    [
        (False, ()),
        (False, ("--master-addr", "a.name.of.this.host")),
        (True, ("--nproc-per-node=1", "--master-addr", "10.9.8.7")),
    ],
)
@pytest.mark.slow
def test_ranks_of_a_script_meet_where_another_user_is_not_let_in(
    home: Home, job: bool, options: tuple[str, ...]
) -> None:
    where: tuple[str, ...] = ()
    if job:
        text = "from monarch.job import ProcessJob\njob = ProcessJob({'nodes': 2})\n"
        (home.folder / "cluster.py").write_text(text)
        where = ("--job", "cluster.job")
    (home.folder / "script.py").write_text(textwrap.dedent(MEET))
    tests = __file__.rpartition("/faults/")[0]
    count = () if job else ("--nproc-per-node=2",)
    running = home.monarch_started("run", *where, *count, *options, "script.py", tests)
    places = [home.folder / f"met{rank}" for rank in range(2)]
    wait_until(lambda: all(place.exists() for place in places), what="ranks that have met")
    met = [json.loads(place.read_text()) for place in places]
    answered = tried_by_a_stranger(*{way for _, way, _, _ in met})
    (home.folder / "tried").touch()
    home.finish(running, 0)
    if job:
        home.monarch("kill")
    assert not answered
    for total, _, hosts, address in met:
        assert total == 2.0 and set(hosts) == {"127.0.0.1"}
        assert address == (options[-1] if options else "localhost")
