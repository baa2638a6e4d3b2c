"""The server's side of SPDY/3.1, as far as `kubectl port-forward` speaks it: pairs of streams, each
to a port of a pod.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Awaitable, Callable

Connect = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING = 1, 2, 3, 6
_CONTROL, _FIN = 0x80000000, 1
_VERSION = 3
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language"
    " accept-ranges age allow authorization cache-control connection content-base content-encoding"
    " content-language content-length content-location content-md5 content-range content-type date"
    " etag expect expires from host if-match if-modified-since if-none-match if-range"
    " if-unmodified-since last-modified location max-forwards pragma proxy-authenticate"
    " proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade"
    " user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url"
    " public set-cookie keep-alive origin"
)
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203"
    " Non-Authoritative Information204 "
    "No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500"
    " Internal Server Error501 Not "
    "Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00"
    " Mon, Tue, Wed, Thu, Fri, Sat, Sun, "
    "GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivate"
    "max-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _text(text: bytes) -> bytes:
    return struct.pack("!I", len(text)) + text


# Of the compression of headers; the standard has it.
DICTIONARY = (
    b"".join(_text(word.replace("_", " ").encode()) for word in _WORDS.split()) + _TEXT.encode()
)


class PortForward:
    """Args:
    reader: What the client says after the upgrade.
    writer: To it.
    connect: Connects to a port of the pod.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connect: Connect
    ) -> None:
        self._reader, self._writer, self._connect = reader, writer, connect
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._pods: dict[int, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Until the client closes the connection."""
        try:
            while True:
                head, flags_length = struct.unpack("!II", await self._reader.readexactly(8))
                data = await self._reader.readexactly(flags_length & 0xFFFFFF)
                flags = flags_length >> 24
                if not head & _CONTROL:
                    await self._data(head, flags, data)
                elif head & 0xFFFF == _SYN_STREAM:
                    await self._opened(struct.unpack("!I", data[:4])[0], self._headers(data[10:]))
                elif head & 0xFFFF == _RST_STREAM:
                    self._close(struct.unpack("!I", data[:4])[0])
                elif head & 0xFFFF == _PING:
                    self._control(_PING, data)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for stream in list(self._pods):
                self._close(stream)
            for task in self._tasks:
                task.cancel()

    def _headers(self, block: bytes) -> dict[str, str]:
        data = self._inflate.decompress(block)
        (count,), place = struct.unpack_from("!I", data), 4
        texts = []
        for _ in range(2 * count):
            (length,) = struct.unpack_from("!I", data, place)
            texts.append(data[place + 4 : place + 4 + length].decode())
            place += 4 + length
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def _opened(self, stream: int, headers: dict[str, str]) -> None:
        block = self._deflate.compress(struct.pack("!I", 0)) + self._deflate.flush(
            zlib.Z_SYNC_FLUSH
        )
        self._control(_SYN_REPLY, struct.pack("!I", stream) + block)
        if headers["streamtype"] != "data":  # of errors, of which there are none
            return
        try:
            reader, self._pods[stream] = await self._connect(int(headers["port"]))
        except OSError:
            self._control(_RST_STREAM, struct.pack("!II", stream, 2))
            return
        task = asyncio.create_task(self._pump(stream, reader))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pump(self, stream: int, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(64 * 1024):
                self._writer.write(struct.pack("!II", stream, len(data)) + data)
                await self._writer.drain()
            self._writer.write(struct.pack("!II", stream, _FIN << 24))
        except ConnectionError:
            self._close(stream)

    async def _data(self, stream: int, flags: int, data: bytes) -> None:
        pod = self._pods.get(stream)
        if pod is not None:
            pod.write(data)
            await pod.drain()
            if flags & _FIN:
                self._close(stream)

    def _close(self, stream: int) -> None:
        pod = self._pods.pop(stream, None)
        if pod is not None:
            pod.close()

    def _control(self, kind: int, data: bytes) -> None:
        self._writer.write(struct.pack("!II", _CONTROL | _VERSION << 16 | kind, len(data)) + data)
