"""TEMPORARY: unreliable links."""
from __future__ import annotations
from typing import Any, Protocol
from ..wire.channel import Channel, parse_channel
from ..wire.frame import Decoder, Frame, decode, encode, HELLO
from .stream import connect, listen


class _Link:
    def __init__(self, links: Links, host: str | None) -> None:
        self.links = links
        self.host = host
        self.decoder = Decoder(10**10)
        self.stream: Any = None
        self.up = False
        self.waiting: list[Frame] = []
        self.greeted = False

    def ready(self) -> None:
        self.up = True
        self._write(Frame(HELLO, 0, 0, 0, 0, 0, f"{self.links.name()}\0{self.host or ''}".encode(), b""))
        for f in self.waiting:
            self._write(f)
        self.waiting.clear()

    def send(self, frame: Frame) -> None:
        self._write(frame) if self.up else self.waiting.append(frame)

    def _write(self, frame: Frame) -> None:
        self.stream.write([encode(frame)[0], *frame.buffers])

    def data(self, chunk: memoryview) -> None:
        while len(chunk):
            space = self.decoder.space()
            if space is not None:
                n = min(len(space), len(chunk))
                space[:n] = chunk[:n]
                got = self.decoder.filled(n)
                chunk = chunk[n:]
            else:
                got = self.decoder.feed(chunk)
                chunk = chunk[len(chunk):]
            for d in got:
                f = decode(d)
                if not self.greeted:
                    self.greeted = True
                    name, _, called = f.meta.decode().partition("\0")
                    if self.host is None:
                        self.host = name
                        self.links.links[name] = self
                        if called:
                            self.links.handler.called(called)
                    self.links.handler.link_up(self.host)
                else:
                    self.links.handler.frame_from(self.host, f)

    def closed(self, reason: str, final: bool) -> None:
        if self.links.links.get(self.host) is self:
            del self.links.links[self.host]
            self.links.handler.link_lost(self.host, reason)


class Links:
    def __init__(self, poller: Any, identity: str, name: Any, trust: Any, handler: Any) -> None:
        self.poller, self.identity, self.name, self.trust, self.handler = poller, identity, name, trust, handler
        self.links: dict[Any, _Link] = {}
        self.trusts: dict[str, Any] = {}
        self.listeners: list[Any] = []

    def use_trust(self, hosts: Any, trust: Any) -> None:
        for h in hosts:
            self.trusts[h] = trust

    def listen(self, channel: Channel) -> Channel:
        def accept(stream: Any) -> Any:
            link = _Link(self, None)
            link.stream = stream
            return link
        l = listen(self.poller, channel, self.trust, accept)
        self.listeners.append(l)
        return l.channel

    def send(self, host: str, frame: Frame) -> None:
        link = self.links.get(host)
        if link is None:
            link = self.links[host] = _Link(self, host)
            link.stream = connect(self.poller, parse_channel(host), self.trusts.get(host, self.trust), link)
        link.send(frame)

    def close(self, reason: str, timeout: float) -> None:
        for link in list(self.links.values()):
            link.stream.flush(timeout)
            link.stream.close()
        for l in self.listeners:
            l.close()
