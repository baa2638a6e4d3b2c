"""Clients of an HTTP server, in a process of their own: each sends its next request when it has the
answer to the one before. Tells requests a second, and the 99th percentile of their time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import closing


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    body = json.dumps([number, number]).encode()
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"the server answered {status!r}")
    length = 0
    while (line := await reader.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    answer = json.loads(await reader.readexactly(length))
    if answer != 2 * number:
        raise RuntimeError(f"asked for {number} twice, got {answer}")


async def load(port: int, requests: int, clients: int) -> list[float]:
    """Return the seconds of each request."""
    took: list[float] = []
    numbers = iter(range(requests))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with closing(writer):
            for number in numbers:
                begun = time.perf_counter()
                await ask(reader, writer, number)
                took.append(time.perf_counter() - begun)

    await asyncio.gather(*(client() for _ in range(clients)))
    return took


def main(port: int, requests: int, clients: int) -> None:
    asyncio.run(load(port, max(clients, requests // 10), clients))  # warm-up
    begun = time.perf_counter()
    took = sorted(asyncio.run(load(port, requests, clients)))
    seconds = time.perf_counter() - begun
    found = {"throughput": requests / seconds, "p99": 1000 * took[int(0.99 * (len(took) - 1))]}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
