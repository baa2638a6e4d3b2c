"""What a cast costs, and how that grows: `python -m benchmarks.scale`.

What it says is explained in docs/scale.md.

It measures, on this machine, the CPU time of each thing that a gateway does, with the gateway's own
code and real sockets; predicts from that how long calls and broadcasts take over many processes;
lets `monarch.testing` simulate the same; and compares. `--plot FILE` draws how the fan-out of the
tree matters. It takes a few minutes, most of them for 12,500 hosts. `--query` counts instead the
messages of a question of telemetry to the agents of up to 10,000 hosts.
"""

from __future__ import annotations

import argparse
import math
import pickle
import select
import socket
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from monarch._core.routing.cast import (
    Entry,
    Header,
    pack_table,
    part,
    split,
    split_header,
    with_header,
)
from monarch._core.routing.gateway import Gateway
from monarch._core.routing.route import Route, read_route, split_route, with_route
from monarch._core.supervision.failure import Failure
from monarch._core.wire.address import ProcAddress
from monarch._core.wire.frame import CALL, REPLY, ROUTED, Decoder, Frame, decode, encode
from monarch._core.wire.link_limits import Limits
from monarch._core.wire.link_table import Deliver, Dial, LinkTable, Write
from monarch.testing import Costs, Simulation
from monarch.testing.worker import SimulatedHost

ROUNDS = 5
LATENCY = (50e-6, 150e-6)  # seconds from host to host: a data centre
COLLECTING = (0.005, 0.05)  # seconds in which an agent has the answers of its processes
PROCS = 8  # on each host
SIZES = (1_000, 10_000, 100_000)  # processes
FANOUTS = (2, 4, 8, 16, 32, 64)
CLIENT = ProcAddress("client", "client")


class Prediction(NamedTuple):
    """Seconds that a call, and a broadcast, over all processes takes."""

    call: float
    broadcast: float


# measuring


def cpu(function: Callable[[], object], times: int) -> float:
    """Seconds of CPU of one call, the median of several rounds."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(times):
            function()
        rounds.append((time.process_time() - start) / times)
    return statistics.median(rounds)


class Nowhere:
    """Takes what a gateway sends, and does nothing."""

    def to_host(self, host: str, frame: Frame) -> None:
        pass

    def give_up(self, host: str, reason: str) -> None:
        pass

    def to_procs(
        self, frames: Sequence[tuple[ProcAddress, Frame]]
    ) -> Sequence[tuple[ProcAddress, Failure]]:
        return ()

    def answer(self, proc: str, frame: Frame) -> None:
        pass

    def answer_all(self, proc: str, frames: bytes) -> None:
        pass

    def gone(self, proc: ProcAddress, frame: Frame) -> None:
        pass

    def host_gone(self, host: str, failure: Failure) -> None:
        pass

    def call_later(self, seconds: float, function: Callable[[], None]) -> Any:
        pass


def entries(hosts: int) -> list[Entry]:
    return [
        Entry(
            f"tcp://10.0.{n >> 8}.{n & 255}:26600",
            tuple(f"p{i}" for i in range(PROCS)),
            range(n * PROCS, (n + 1) * PROCS),
        )
        for n in range(hosts)
    ]


def cast_frame(hosts: Sequence[Entry], number: int, fanout: int, request: int = 1) -> Frame:
    call = Frame(CALL, ROUTED, 0, 7, 7, request, b"method", b"x" * 64)
    orders = [1 << 40 | number] * len(hosts)
    return with_header(call, Header(number, CLIENT, orders, pack_table(hosts), fanout))


def taking_casts(hosts: Sequence[Entry], fanout: int, times: int) -> float:
    """Seconds of CPU of a gateway that gets a cast, hands it down, and to its own processes."""
    rounds = []
    for _ in range(ROUNDS):
        gateway = Gateway(Nowhere(), fanout, 1, 4.0, 10.0)
        gateway.names = {hosts[0].host}
        frames = [cast_frame(hosts, number, fanout, request=0) for number in range(1, times + 1)]
        start = time.process_time()
        for frame in frames:
            gateway.from_host("client", frame)
        rounds.append((time.process_time() - start) / times)
    return statistics.median(rounds)


def linking() -> tuple[float, float]:
    """Seconds of CPU in which a link sends a frame, and takes one."""
    limits = Limits(4.0, 60.0, 1 << 30)
    here, there = (
        LinkTable(name, lambda name=name: name, limits)  # type: ignore[misc]
        for name in ("tcp://a:1", "tcp://b:1")
    )
    frame = Frame(CALL, ROUTED, 0, 7, 7, 1, b"m" * 300, b"x" * 64)
    here.send("tcp://b:1", here.pack(frame), 0.0)
    (dial,) = (step for step in here.take() if isinstance(step, Dial))
    streams = {here: dial.stream, there: there.accepted(0.0)}
    here.ready(dial.stream, 0.0)

    def exchange() -> None:
        for _ in range(6):
            for source, target in ((here, there), (there, here)):
                for step in source.take():
                    if isinstance(step, Write):
                        target.data(streams[target], memoryview(b"".join(step.chunks)), 0.0)

    exchange()
    times = 2000
    sending, taking = [], []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(times):
            here.send("tcp://b:1", here.pack(frame), 0.0)
        chunks = [b"".join(step.chunks) for step in here.take() if isinstance(step, Write)]
        sending.append((time.process_time() - start) / times)
        start = time.process_time()
        for chunk in chunks:
            there.data(streams[there], memoryview(chunk), 0.0)
            assert sum(isinstance(step, Deliver) for step in there.take()) == 1
        taking.append((time.process_time() - start) / times)
    return statistics.median(sending), statistics.median(taking)


def sockets(family: socket.AddressFamily) -> tuple[float, float]:
    """Seconds of CPU to write a small message to a socket, and to wait for one and read it."""
    a, b = socket.socketpair(family) if family == socket.AF_UNIX else _tcp_pair()
    poll = select.epoll()
    poll.register(b, select.EPOLLIN)
    data, room = b"x" * 400, bytearray(65536)
    writing, reading = [], []
    for _ in range(ROUNDS * 20):
        start = time.process_time()
        for _ in range(50):  # fits the socket's buffer
            a.send(data)
        between = time.process_time()
        for _ in range(50):
            poll.poll(1)
            b.recv_into(room, len(data))
        writing.append((between - start) / 50)
        reading.append((time.process_time() - between) / 50)
    for end in (a, b, poll):
        end.close()
    return statistics.median(writing), statistics.median(reading)


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        a = socket.create_connection(server.getsockname())
        b, _ = server.accept()
    for end in (a, b):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return a, b


def measure() -> Costs:
    """The constants of the model, in seconds of CPU."""
    link_send, link_take = linking()
    tcp_write, tcp_read = sockets(socket.AF_INET)
    unix_write, unix_read = sockets(socket.AF_UNIX)
    alone = taking_casts(entries(1), 16, 2000)
    hosts = entries(1025)
    two, many = taking_casts(hosts[:33], 16, 200), taking_casts(hosts[:33], 32, 200)
    child = max(0.0, many - two) / 16
    handing_on = cpu(lambda: _hand_on(hosts), 50)
    gateway = Gateway(Nowhere(), 16, 1, 4.0, 10.0)
    gateway.names = {hosts[0].host}
    one = Entry(hosts[0].host, ("p0",), (0,))
    per_proc = (alone - taking_casts([one], 16, 2000)) / (PROCS - 1)
    reply = with_route(
        Frame(REPLY, 0, 3, 0, 0, 1, b"", pickle.dumps(3)),
        Route(CLIENT, ProcAddress(hosts[0].host, "p0"), cast=1),
    )
    collected = cpu(lambda: _collect(gateway, reply), 2000)
    data = encode(reply)[0] * 64
    read_one = cpu(lambda: _read_answers(data), 100) / 64
    call = Frame(CALL, ROUTED, 0, 7, 7, 1, b"m" * 60, b"x" * 64)
    return Costs(
        arrival=tcp_read + link_take + max(0.0, alone - PROCS * per_proc),
        departure=tcp_write + link_send + child,
        proc=unix_write + per_proc + cpu(lambda: encode(call), 2000),
        reply=unix_read + collected + cpu(lambda: decode(memoryview(encode(reply)[0])), 2000),
        entry=handing_on / len(hosts),
        answer=read_one,
    )


def _hand_on(hosts: Sequence[Entry]) -> None:
    """What is done for each host of a cast by each who hands it on, once the list itself is known
    from a call before.
    """
    header, _ = split_header(FRAMES.setdefault(len(hosts), cast_frame(hosts, 1, 16)))
    for branch in split(hosts, 1, len(hosts), 16):
        with_header(Frame(CALL, 0, 0, 0, 0, 0, b"", b""), part(header, branch.start, branch.end))


FRAMES: dict[int, Frame] = {}


def _collect(gateway: Gateway, reply: Frame) -> None:
    route, _ = read_route(reply)
    gateway._casting.collect(route, reply)
    encode(reply)


def _read_answers(data: bytes) -> None:
    for part_of in Decoder(1 << 40).feed(memoryview(data)):
        _, frame = split_route(decode(part_of))
        pickle.loads(frame.payload)


# predicting


def predict(costs: Costs, procs: int, fanout: int) -> Prediction:
    """The formula of docs/scale.md."""
    hosts = math.ceil(procs / PROCS)
    latency = LATENCY[1]  # of the slowest in each step, where many go at the same time
    down, level, below = costs.entry * hosts, 0, hosts
    while below > 0:
        children = min(fanout, below)
        down += children * costs.departure + latency + costs.arrival
        below = math.ceil(below / children) - 1
        down += costs.entry * below
        level += 1
    broadcast = down + PROCS * costs.proc
    # each level takes in what its children say, and says it once; the last answers of a level do
    # not linger
    up = PROCS * costs.reply + level * (
        latency + costs.departure + min(fanout, hosts) * costs.arrival
    )
    return Prediction(broadcast + up + procs * costs.answer, broadcast)


def simulate(costs: Costs, procs: int, fanout: int) -> Prediction:
    """The same, by running it."""
    simulation = Simulation(
        seed=1,
        hosts=math.ceil(procs / PROCS),
        procs_per_host=PROCS,
        delay=LATENCY,
        fanout=fanout,
        costs=costs,
    )
    simulation.run(until=simulation.attach())
    simulation.run(until=simulation.now + 1)
    broadcast = simulation.cast(answers=False)
    simulation.run(until=simulation.now + 1)
    call = simulation.cast()
    simulation.run(until=call)
    return Prediction(call.seconds, broadcast.arrived_at - broadcast.started)


# saying it


def say(line: str = "") -> None:
    print(line, flush=True)


def table_of_costs(costs: Costs) -> None:
    say("| constant | CPU time |\n| --- | --- |")
    for name, seconds in costs._asdict().items():
        say(f"| {name} | {seconds * 1e6:.2f} µs |")
    say()


def compare(costs: Costs, sizes: Sequence[int], fanout: int) -> float:
    """Print formula and simulation side by side; the largest factor between the two."""
    worst = 1.0
    say(
        "| processes | hosts | call, formula | call, simulated | broadcast, formula | broadcast,"
        " simulated |"
    )
    say("| --- | --- | --- | --- | --- | --- |")
    for procs in sizes:
        paper, run = predict(costs, procs, fanout), simulate(costs, procs, fanout)
        worst = max(worst, *(max(a / b, b / a) for a, b in zip(paper, run, strict=True)))
        cells = [
            f"{seconds * 1e3:.1f} ms"
            for seconds in (paper.call, run.call, paper.broadcast, run.broadcast)
        ]
        say(f"| {procs:,} | {math.ceil(procs / PROCS):,} | {' | '.join(cells)} |")
    say(f"\nlargest factor between formula and simulation: {worst:.2f}\n")
    return worst


def fan_outs(costs: Costs, sizes: Sequence[int]) -> dict[int, dict[int, Prediction]]:
    """For each number of processes and each fan-out, what the simulation says."""
    results: dict[int, dict[int, Prediction]] = {}
    say("| processes | " + " | ".join(f"fan-out {fanout}" for fanout in FANOUTS) + " |")
    say("| --- |" + " --- |" * len(FANOUTS))
    for procs in sizes:
        found = results[procs] = {fanout: simulate(costs, procs, fanout) for fanout in FANOUTS}
        cells = [f"{one.broadcast * 1e3:.1f} / {one.call * 1e3:.1f} ms" for one in found.values()]
        say(f"| {procs:,} | {' | '.join(cells)} |")
    say()
    return results


def directly(costs: Costs, fanout: int) -> None:
    """Where a call without any host in between beats the tree."""
    say(f"| hosts | call, each host directly | call, tree of {fanout} |\n| --- | --- | --- |")
    for hosts in (8, 16, 32, 64, 128, 256, 512):
        flat, tree = (simulate(costs, hosts * PROCS, width).call for width in (hosts, fanout))
        say(f"| {hosts} | {flat * 1e3:.2f} ms | {tree * 1e3:.2f} ms |")
    say()


def queries(fanout: int) -> None:
    """How many messages hosts send and get for one question, which each agent answers."""
    count: Counter[str] = Counter()
    send = SimulatedHost.to_host

    def counted(self: SimulatedHost, host: str, frame: Frame) -> None:
        count.update((self.name, host))
        send(self, host, frame)

    say(
        "| hosts | messages of a host: mean | median | most | of the client's host | answered"
        " after |"
    )
    say("| --- | --- | --- | --- | --- | --- |")
    for hosts in (100, 1_000, 10_000):
        simulation = Simulation(
            seed=1,
            hosts=hosts,
            procs_per_host=1,
            delay=LATENCY,
            compute=COLLECTING,
            answer_bytes=1_000,
            fanout=fanout,
        )
        simulation.run(until=simulation.attach())
        simulation.run(until=simulation.now + 1)
        count.clear()
        SimulatedHost.to_host = counted  # type: ignore[method-assign]
        try:
            query = simulation.cast()
            simulation.run(until=query)
        finally:
            SimulatedHost.to_host = send  # type: ignore[method-assign]
        client = f"client-{simulation.seed}"
        of_hosts = sorted(number for host, number in count.items() if host != client)
        cells = (
            f"{statistics.mean(of_hosts):.1f} | {statistics.median(of_hosts):g} | {of_hosts[-1]} |"
            f" {count[client]}"
        )
        say(f"| {hosts:,} | {cells} | {query.seconds * 1e3:.0f} ms |")


def draw(results: dict[int, dict[int, Prediction]], path: Path) -> None:
    """Raises:
    ModuleNotFoundError: matplotlib isn't installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    colors = ("#e09f3e", "#2a6f97", "#bc4749")
    for axes, what in zip(figure.subplots(1, 2), Prediction._fields[::-1], strict=True):
        for (procs, found), color in zip(results.items(), colors, strict=False):
            seconds = [getattr(one, what) * 1e3 for one in found.values()]
            axes.plot(list(found), seconds, marker="o", color=color, label=f"{procs:,} processes")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(FANOUTS, [str(fanout) for fanout in FANOUTS])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("fan-out of the tree")
        axes.set_title(f"{what}, milliseconds", fontsize=11)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=9,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.scale", description=__doc__)
    parser.add_argument(
        "--plot", type=Path, help="draw the fan-outs into this file; needs matplotlib"
    )
    parser.add_argument(
        "--quick", action="store_true", help="at most 10,000 processes, and no fan-outs"
    )
    parser.add_argument("--query", action="store_true", help="count the messages of a question")
    parser.add_argument("--fanout", type=int, default=16)
    given = parser.parse_args(arguments)
    if given.query:
        queries(given.fanout)
        return 0
    costs = measure()
    table_of_costs(costs)
    worst = compare(costs, SIZES[:2] if given.quick else SIZES, given.fanout)
    if not given.quick:
        directly(costs, given.fanout)
        results = fan_outs(costs, SIZES)
        if given.plot:
            draw(results, given.plot)
    return 0 if worst < 2 else 1


if __name__ == "__main__":
    sys.exit(main())
