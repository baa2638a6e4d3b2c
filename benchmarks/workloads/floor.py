"""The floor: a pickled ping-pong over a socket pair between two processes, both blocking.

No package at all.

Nothing that pickles a request, wakes another process and pickles a reply can be faster, so
latencies are also read as multiples of this. The same program measures a copy of memory into fresh
pages, the floor of the payload workloads.
"""

from __future__ import annotations

import os
import pickle
import socket
import statistics
import struct
from dataclasses import replace

from benchmarks.workloads._harness import Measured, Options, latency, main, time_each

HEADER = struct.Struct("!I")
COPY_MIB = 64


def send(link: socket.socket, message: object) -> None:
    body = pickle.dumps(message, protocol=5)
    link.sendall(HEADER.pack(len(body)) + body)


def receive(link: socket.socket) -> object:
    header = link.recv(HEADER.size, socket.MSG_WAITALL)
    if len(header) < HEADER.size:
        raise EOFError("the other end closed the socket pair")
    (length,) = HEADER.unpack(header)
    return pickle.loads(link.recv(length, socket.MSG_WAITALL))


def serve(link: socket.socket) -> None:
    try:
        while True:
            send(link, receive(link))
    except EOFError:
        return


def ping_pong(link: socket.socket, options: Options) -> Measured:
    def once() -> None:
        send(link, ("echo", (1,), {}))
        receive(link)

    time_each(once, options.count(500, least=50))
    return latency(time_each(once, options.count(5000, least=200)))


def copy_ms_per_mib(options: Options) -> float:
    source = bytearray(b"\x01") * (COPY_MIB << 20)
    seconds = time_each(lambda: bytes(source), options.count(7, least=3))
    return statistics.median(seconds) * 1e3 / COPY_MIB


def measure(options: Options) -> Measured:
    mine, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        mine.close()
        serve(theirs)
        os._exit(0)
    theirs.close()
    measured = ping_pong(mine, options)
    mine.close()
    os.waitpid(child, 0)
    return replace(measured, extra={**measured.extra, "copy_ms_per_mib": copy_ms_per_mib(options)})


if __name__ == "__main__":
    main(measure)
