"""A store at a TCP port, for torch's `TCPStore`, at which no other user of the machine is let in.

Torch's own server takes keys from everybody who reaches its port; and it is there only once torch
is imported, which takes longer than all else of a rank's start.

The protocol is torch's (`TCPStoreBackend.hpp`), the same since torch 2.2. A client begins with a
magic number; each query is a byte, and what belongs to it. What is no such query ends the
connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence

from .._kept_store import Keys
from .._listening import Refusals, who_at

GREETING = b"\0" + (0x3C85F7CE).to_bytes(4, sys.byteorder)
# by their numbers; the first is the greeting, which comes but once
_QUERIES = (
    "", "_set", "_compare_set", "_get", "_add", "_check", "_wait", "_num_keys", "_delete", "_append", "_multi_get",
    "_multi_set", "_cancel_wait", "_ping", "_queue_push", "_queue_pop", "_queue_len", "_list_keys",
)  # fmt: skip
NO_CLIENT = EOFError, ArithmeticError, AttributeError, LookupError, ValueError
"""What comes of bytes that are no queries, or not all of one."""
_BACKLOG = 4096  # ranks that connect at once
_YES, _NO = b"\0", b"\1"  # also: the keys are there, the wait was given up

logger = logging.getLogger("monarch.spmd")


class TorchStore:
    """The keys, who waits for some, and who has been refused."""

    def __init__(self) -> None:
        self.keys = Keys()
        self.queues: dict[str, list[bytes]] = {}
        self._waiting: dict[str, list[Client]] = {}  # by a key that is not there yet
        self._refused = Refusals()
        self._server: asyncio.Server | None = None

    async def serve(self, listener: socket.socket) -> None:
        """Begin, in this event loop."""
        self._server = await asyncio.start_server(self._met, sock=listener, backlog=_BACKLOG)

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            who = who_at(writer.get_extra_info("socket"))
            if who == os.geteuid():
                await Client(self, reader, writer).run()
            elif self._refused.next_is_told():
                text = "the store of ranks lets in this user alone, not user %s (%d such so far)"
                logger.warning(text, who, self._refused.count)
        except (OSError, *NO_CLIENT):
            pass
        finally:
            writer.transport.abort()

    def has(self, keys: Sequence[str]) -> bool:
        return all(key in self.queues or self.keys.check([key]) for key in keys)

    def tell(self, key: str) -> None:
        """Answer those who have waited for a key, which is there now, if that was the last one."""
        for client in self._waiting.pop(key, ()):
            self.wait(client)

    def wait(self, client: Client) -> None:
        """Answer a client when all keys are there for which it waits."""
        for key in client.awaited or ():
            if not self.has([key]):
                waiting = self._waiting.setdefault(key, [])
                if client not in waiting:
                    waiting.append(client)
                return
        if client.awaited is not None:
            client.awaited = None
            client.write(_YES)


class Client:
    """A connection."""

    def __init__(
        self, store: TorchStore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._store, self._keys = store, store.keys
        self._reader, self._writer = reader, writer
        self.write = writer.write
        self.awaited: list[str] | None = None

    async def run(self) -> None:
        if await self._read(len(GREETING)) != GREETING:
            raise ValueError("this is no client of torch")
        try:
            while True:
                (query,) = await self._read(1)
                await getattr(self, _QUERIES[query])()
                await self._writer.drain()
        finally:
            self.awaited = None

    # what comes

    async def _read(self, count: int) -> bytes:
        return await self._reader.readexactly(count)

    async def _number(self, signed: bool = False) -> int:
        return int.from_bytes(await self._read(8), sys.byteorder, signed=signed)

    async def _bytes(self) -> bytes:
        return await self._read(await self._number())

    async def _key(self) -> str:
        return (await self._bytes()).decode(errors="surrogateescape")

    async def _several(self) -> list[str]:
        return [await self._key() for _ in range(await self._number())]

    # what goes

    def _count(self, number: int) -> None:
        self.write(number.to_bytes(8, sys.byteorder, signed=True))

    def _send(self, data: bytes) -> None:
        self._count(len(data))
        self.write(data)

    # queries

    async def _set(self) -> None:
        key = await self._key()
        self._keys.set(key, await self._bytes())
        self._store.tell(key)

    async def _compare_set(self) -> None:
        key, expected, desired = await self._key(), await self._bytes(), await self._bytes()
        self._send(self._keys.compare_set(key, expected, desired))
        if self._keys.check([key]):
            self._store.tell(key)

    async def _get(self) -> None:
        self._send(self._keys.get(await self._key()))

    async def _add(self) -> None:
        key = await self._key()
        self._count(self._keys.add(key, await self._number(signed=True)))
        self._store.tell(key)

    async def _check(self) -> None:
        self.write(_YES if self._store.has(await self._several()) else _NO)

    async def _wait(self) -> None:
        self.awaited = await self._several()
        self._store.wait(self)

    async def _cancel_wait(self) -> None:
        self.awaited = None
        self.write(_NO)

    async def _num_keys(self) -> None:
        self._count(self._keys.num_keys())

    async def _delete(self) -> None:
        self._count(self._keys.delete_key(await self._key()))

    async def _append(self) -> None:
        key = await self._key()
        before = self._keys.get(key) if self._keys.check([key]) else b""
        self._keys.set(key, before + await self._bytes())
        self._store.tell(key)

    async def _multi_get(self) -> None:
        for key in await self._several():
            self._send(self._keys.get(key))

    async def _multi_set(self) -> None:
        for _ in range(await self._number()):
            await self._set()

    async def _ping(self) -> None:
        self.write(await self._read(4))

    async def _queue_push(self) -> None:
        key = await self._key()
        self._store.queues.setdefault(key, []).append(await self._bytes())
        self._store.tell(key)

    async def _queue_pop(self) -> None:
        key = await self._key()
        queue = self._store.queues.get(key, [])
        self._count(min(len(queue), 1))
        if queue:
            self._send(queue.pop(0))
        if not queue:
            self._store.queues.pop(key, None)

    async def _queue_len(self) -> None:
        self._count(len(self._store.queues.get(await self._key(), ())))

    async def _list_keys(self) -> None:
        keys = self._keys.names()
        self._count(len(keys))
        for key in keys:
            self._send(key.encode(errors="surrogateescape"))
