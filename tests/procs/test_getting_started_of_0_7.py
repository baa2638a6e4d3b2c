"""The stations of Monarch's own tutorial, in a program of ours, written as one writes it for 0.7."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.scripts import run_script

pytest.importorskip("torch", reason="its last stations are about tensors")

pytestmark = pytest.mark.processes("a program as a newcomer runs it")

WALK = '''
import asyncio
import logging

import torch

import monarch
from monarch.actor import (
    Accumulator, Actor, ActorError, Channel, Port, as_endpoint, concurrent_endpoint, context,
    current_rank, endpoint, get_or_spawn_controller, send, this_host, this_proc,
)
from monarch.job import hosts_from_config
from monarch.rdma import RDMABuffer


class Counter(Actor):
    def __init__(self, initial: int) -> None:
        self.value = initial

    @endpoint
    def increment(self) -> None:
        self.value += 1

    @endpoint
    def get(self) -> int:
        return self.value

    @endpoint
    def fail(self) -> None:
        raise ValueError("on purpose")

    def plain(self, by: int) -> int:
        return self.value + by

    @endpoint(propagate=lambda x: x)
    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.value

    @endpoint(explicit_response_port=True)
    def later(self, port: Port[int]) -> None:
        port.send(self.value)

    @endpoint
    def report(self, port: Port[str]) -> None:
        port.send(f"rank {current_rank()['gpus']}")


class ParameterServer(Actor):
    def __init__(self) -> None:
        self.weights = torch.arange(4.0)
        self.buffer = RDMABuffer(self.weights.view(torch.uint8).flatten())

    @endpoint
    async def weights_buffer(self) -> RDMABuffer:
        return self.buffer


class Client(Actor):
    @endpoint
    async def total(self, server: ParameterServer) -> float:
        local = torch.zeros(4)
        buffer = await server.weights_buffer.call_one()
        await buffer.read_into(local.view(torch.uint8).flatten())
        return float(local.sum())


class Supervisor(Actor):
    """Owns an actor that fails, and handles it."""

    def __init__(self) -> None:
        procs = this_host().spawn_procs(per_host={"gpus": 1})
        self.counter = procs.spawn("counter", Counter, 0)
        self.failed = asyncio.Event()

    @endpoint
    async def kill(self) -> bool:
        self.counter.fail.broadcast()
        await self.failed.wait()
        return True

    def __supervise__(self, failure) -> bool:
        self.failed.set()
        return True


def double(x):
    return x * 2


remote_double = monarch.remote(double, propagate=lambda x: x)

if __name__ == "__main__":
    procs = this_host().spawn_procs(per_host={"gpus": 2})
    counters = procs.spawn("counters", Counter, 3)
    counters.increment.broadcast()
    print("counters", list(counters.get.call().get().values()))
    print("slice", counters.slice(gpus=0).get.call_one().get(), procs.extent)
    print("stream", sorted(future.get() for future in counters.get.stream()))
    print("sum", Accumulator(counters.get, 0, lambda a, b: a + b).accumulate().get())
    print("plain", list(as_endpoint(counters.plain).call(10).get().values()))
    print("response port", list(counters.later.call().get().values()))

    hosts = hosts_from_config("MONARCH_HOSTS")
    print("hosts", hosts.extent, hosts.slice(hosts=slice(0, 1)).extent)
    far = hosts.spawn_procs(per_host={"gpus": 2})
    print("far", far.extent, far.slice(hosts=0).spawn("far", Counter, 7).get.call().get().extent)

    port, receiver = Channel[str].open()
    counters.report.broadcast(port)
    print("channel", sorted(receiver.recv().get() for _ in range(2)))
    port, receiver = Channel[int].open_ranked()
    send(counters.get, args=(), kwargs={}, port=port)
    print("send", sorted(receiver.recv().get() for _ in range(2)))

    try:
        counters.fail.call().get()
    except ActorError as error:
        print("error", type(error.exception).__name__)
    print("supervised", this_proc().spawn("s", Supervisor).kill.call_one().get())
    asyncio.run(procs.logging_option(stream_to_client=True, level=logging.INFO))
    print("controller", get_or_spawn_controller("one", Counter, 5).get().get.call_one().get())

    server = this_proc().spawn("server", ParameterServer)
    print("rdma", list(procs.spawn("clients", Client).total.call(server).get().values()))

    with procs.activate():
        x = torch.ones(2)
        print("rref", monarch.inspect(counters.scaled.rref(x)).tolist())
        port, receiver = Channel.open()
        send(remote_double, args=(x,), port=port)
        print("send remote", [receiver.recv().get().tolist() for _ in range(2)])
        port, receiver = Channel.open_ranked()
        send(remote_double, args=(x,), kwargs={}, port=port)
        print("ranked", sorted(receiver.recv().get()[0] for _ in range(2)))
        port, receiver = Channel.open()
        send(monarch.remote(lambda x: x.no_such, propagate=lambda x: x), (x,), port=port)
        try:
            receiver.recv().get()
        except Exception as error:
            print("failed", type(error).__name__)
        send(remote_double, (x,))
    procs.stop().get()
    print("the end")
'''

STATIONS = """\
counters [4, 4]
slice 4 {gpus: 2}
stream [4, 4]
sum 8
plain [14, 14]
response port [4, 4]
hosts {hosts: 1} {hosts: 1}
far {hosts: 1, gpus: 2} {gpus: 2}
channel ['rank 0', 'rank 1']
send [(0, 4), (1, 4)]
error ValueError
supervised True
controller 5
rdma [6.0, 6.0]
rref [4.0, 4.0]
send remote [[2.0, 2.0], [2.0, 2.0]]
ranked [0, 1]
failed RemoteException
the end
"""


@pytest.mark.slow
def test_the_tutorial_is_walked_through_to_its_end(tmp_path: Path) -> None:
    result = run_script(WALK, cwd=tmp_path, env={"MONARCH_HOSTS": ""})
    assert result.stdout == STATIONS, str(result)
    assert result.exit_code == 0
    assert "no monarch.toml" in result.stderr
    assert "'MONARCH_HOSTS' are this machine" in result.stderr
    assert result.left_behind == []
