"""A store at a TCP port, for torch's `TCPStore`, at which no other user of the machine is let in.

Torch's own server takes keys from everybody who reaches its port; and it is there only once torch
is imported, which takes longer than all else of a rank's start.

The protocol is torch's (`TCPStoreBackend.hpp`), the same since torch 2.2. A client begins with a
magic number; each query is a byte, and what belongs to it. Any other query ends the connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from typing import Any

from .._kept_store import Keys
from .._listening import Refusals, who_at

GREETING = b"\0" + (0x3C85F7CE).to_bytes(4, sys.byteorder)
_PING = 13
_ANY = "surrogateescape"
# by their numbers: what does it, and what comes with it, as `_read` has it
_QUERIES = (
    ("", ""), ("set", "kb"), ("compare_set", "kbb"), ("get", "k"), ("add", "ki"), ("has", "K"), ("wait", "K"),
    ("num_keys", ""), ("delete", "k"), ("append", "kb"), ("multi_get", "K"), ("multi_set", "M"), ("cancel", ""), ("", ""),
    ("queue_push", "kb"), ("queue_pop", "k"), ("queue_len", "k"), ("list_keys", ""),
)  # fmt: skip
NO_CLIENT = EOFError, ArithmeticError, AttributeError, LookupError, ValueError
"""What comes of bytes that are no queries, or not all of one."""
_BACKLOG = 4096  # ranks that connect at once

logger = logging.getLogger("monarch.spmd")


class TorchStore(Keys):
    """The keys, who waits for some, and who has been refused."""

    def __init__(self) -> None:
        super().__init__()
        self._queues: dict[str, list[bytes]] = {}
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

    def tell(self, key: str) -> None:
        """Have those look again who wait for a key, which may be there now."""
        for client in self._waiting.pop(key, ()):
            self.look_for(client)

    def look_for(self, client: Client) -> None:
        """Answer a client when all keys are there for which it waits."""
        missing = next((key for key in client.awaited or () if not self.has([key])), None)
        if missing is not None:
            self._waiting.setdefault(missing, []).append(client)
        elif client.awaited is not None:
            client.awaited = None
            client.write(_packed(True))

    # what torch's stores do, beyond those of `Keys`

    def has(self, keys: list[str]) -> bool:
        return all(key in self._queues or self.check([key]) for key in keys)

    def delete(self, key: str) -> int:
        return int(self.delete_key(key))

    def append(self, key: str, value: bytes) -> None:
        self.set(key, (self.get(key) if self.check([key]) else b"") + value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return list(map(self.get, keys))

    def multi_set(self, pairs: list[tuple[str, bytes]]) -> None:
        for key, value in pairs:
            self.set(key, value)
            self.tell(key)

    def queue_push(self, key: str, value: bytes) -> None:
        self._queues.setdefault(key, []).append(value)

    def queue_pop(self, key: str) -> list[int | bytes]:
        first, *others = self._queues.pop(key, []) or (None,)
        if others:
            self._queues[key] = others
        return [0] if first is None else [1, first]

    def queue_len(self, key: str) -> int:
        return len(self._queues.get(key, ()))

    def list_keys(self) -> list[int | bytes]:
        return [len(self._values), *(key.encode(errors=_ANY) for key in self._values)]


class Client:
    """A connection. It may give up a wait while that lasts."""

    def __init__(
        self, store: TorchStore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._store, self._reader, self._writer = store, reader, writer
        self.write = writer.write
        self.awaited: list[str] | None = None

    async def run(self) -> None:
        if await self._reader.readexactly(len(GREETING)) != GREETING:
            raise ValueError("this is no client of torch")
        while True:
            (number,) = await self._reader.readexactly(1)
            name, kinds = _QUERIES[number]
            given = [await self._read(kind) for kind in kinds]
            if number == _PING:
                self.write(await self._reader.readexactly(4))
            elif name in ("wait", "cancel"):
                self.awaited = given[0] if given else None
                self._store.look_for(self)
                self.write(b"" if given else _packed(False))
            else:
                self.write(_packed(getattr(self._store, name)(*given)))
            if kinds[:1] == "k":
                self._store.tell(given[0])
            await self._writer.drain()

    async def _read(self, kind: str) -> Any:
        """Read a key, bytes, an integer, keys (``K``), or keys with bytes (``M``)."""
        number = int.from_bytes(
            await self._reader.readexactly(8), sys.byteorder, signed=kind == "i"
        )
        if kind == "i":
            return number
        if kind == "K":
            return [await self._read("k") for _ in range(number)]
        if kind == "M":
            return [(await self._read("k"), await self._read("b")) for _ in range(number)]
        data = await self._reader.readexactly(number)
        return data.decode(errors=_ANY) if kind == "k" else data


def _packed(answer: Any) -> bytes:
    if isinstance(answer, bool):  # the keys are there; or they are not, or the wait was given up
        return b"\0" if answer else b"\1"
    if isinstance(answer, int):
        return answer.to_bytes(8, sys.byteorder, signed=True)
    if isinstance(answer, bytes):
        return _packed(len(answer)) + answer
    return b"".join(map(_packed, answer or ()))
