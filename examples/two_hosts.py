"""One script, two hosts: workers that listen on TCP, links encrypted with TLS, a ring of actors
across both.

Here both "hosts" are processes of this machine, so that the example runs anywhere. On a real
cluster, start the same worker on each machine (`monarch worker --listen tcp://0.0.0.0:26600`), give
all of them the same secret, and put their addresses into the call of `attach_to_workers`. Nothing
else changes.

    python examples/two_hosts.py
"""

import os
import socket
import subprocess
import sys

from monarch.actor import Actor, attach_to_workers, current_rank, endpoint, this_host
from monarch.trust import make_secret

HOSTS = 2
PROCS_PER_HOST = 3
WORKER = (
    "import sys; from monarch.actor import run_worker_loop_forever;"
    " run_worker_loop_forever(address=sys.argv[1])"
)


class Adder(Actor):
    """Adds its own number to what comes round the ring, and passes it on."""

    def __init__(self, factor: int) -> None:
        self.number = factor * current_rank().rank
        self.next: Adder | None = None

    @endpoint
    async def connect(self, ring: "Adder") -> None:
        me = current_rank()
        after = (me.rank + 1) % me.extent.nelements
        self.next = ring.flatten("ring").slice(ring=after) if after else None

    @endpoint
    async def add(self, total: int) -> int:
        total += self.number
        if self.next is None:
            return total
        result: int = await self.next.add.call_one(total)
        return result

    @endpoint
    async def where(self) -> tuple[str, int]:
        return f"host {current_rank()['hosts']}", os.getpid()


class Asker(Actor):
    @endpoint
    async def ask(self, ring: Adder) -> int:
        result: int = await ring.slice(hosts=0, gpus=0).add.call_one(1000)
        return result


def free_addresses(count: int) -> list[str]:
    """Addresses of this machine on which nobody listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return [f"tcp://127.0.0.1:{port}" for port in ports]


def main() -> None:
    # inherited by the workers; who does not know it is not let in
    os.environ["MONARCH_SECRET"] = make_secret()
    addresses = free_addresses(HOSTS)
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, address]) for address in addresses]

    try:
        use(addresses)
        print("workers ended with", [worker.wait() for worker in workers])
    finally:
        for worker in workers:
            worker.terminate()


def use(addresses: list[str]) -> None:
    hosts = attach_to_workers(workers=addresses, name="cluster")
    hosts.initialized.get(timeout=30)
    print(hosts)

    procs = hosts.spawn_procs({"gpus": PROCS_PER_HOST})
    adders = procs.spawn("adders", Adder, 10)
    adders.connect.call(adders).get()
    for point, (host, _) in adders.where.call().get().items():
        print(f"rank {point.rank} runs on {host}")
    print("once around the ring:", adders.slice(hosts=0, gpus=0).add.call_one(0).get())

    # the script's own machine is a host like any other: its actors call those on the workers, and
    # the other way round
    local = this_host().spawn_procs({"hosts": 1}).spawn("local", Asker)
    print("asked from here:", local.ask.call_one(adders).get())

    hosts.shutdown().get()


if __name__ == "__main__":
    main()
