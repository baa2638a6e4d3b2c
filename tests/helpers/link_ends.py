"""Links for tests: each end has a poller on a thread of its own, and keeps what its handler is
told.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from helpers.waiting import PATIENCE
from monarch._core.net.links import Links
from monarch._core.net.poller import Poller
from monarch._core.net.trust import TRUST_ALL, Trust, trust_for
from monarch._core.wire.address import random_name
from monarch._core.wire.channel import parse_channel
from monarch._core.wire.frame import CALL, NO_RANK, Bytes, Frame

OPEN = trust_for(TRUST_ALL, secret=None)


def numbered(number: int, *buffers: Bytes) -> Frame:
    return Frame(CALL, 0, NO_RANK, number, 0, 0, b"", b"payload %d" % number, buffers)


def known(links: Links, host: str) -> bool:
    """Whether there is a link to `host`, connected or connecting."""
    return links._table.get(host) is not None


def queued_bytes(links: Links, host: str) -> int:
    """The number of bytes sent to `host` and not acknowledged."""
    link = links._table.get(host)
    return 0 if link is None else link.queued


def trouble(links: Links, host: str) -> str:
    """Why the last stream to `host` ended, or could not be opened."""
    link = links._table.get(host)
    return "" if link is None else link._reason


class End:
    """One gateway's links.

    Args:
        listen: An address to listen on; its name is the one that others know it by.
    """

    def __init__(
        self, listen: str | None = None, trust: Trust = OPEN, name: str = "", identity: str = ""
    ) -> None:
        self.poller = Poller()
        self.identity = identity or random_name()
        self.name = name or f"nameless {self.identity}"
        self.got: dict[str, list[Frame]] = defaultdict(list)
        self.ups: list[str] = []
        self.lost: list[tuple[str, str]] = []
        self.names: list[str] = []
        self._changed = threading.Condition()
        self.links = Links(self.poller, self.identity, lambda: self.name, trust, self)
        self.port = 0
        if listen is not None:
            channel = self.links.listen(parse_channel(listen))
            self.port = channel.port
            self.name = name or channel.name
        self._thread = threading.Thread(target=self.poller.run, name="test-links")
        self._thread.start()

    def __enter__(self) -> End:
        return self

    def __exit__(self, *error: object) -> None:
        self.close("the test is over")

    def close(self, reason: str) -> None:
        if self._thread.is_alive():
            self.links.close(reason, 2)
            self.die()

    def die(self) -> None:
        """Without a word to anybody, as if killed: the kernel closes the streams."""
        self.poller.call_soon(self._drop_all)
        self.poller.call_soon(self.poller.stop)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self.poller.close()

    def _drop_all(self) -> None:
        for listener in self.links._listeners:
            listener.close()
        for stream in self.links._streams.values():
            stream.close()

    def numbers(self, host: str | None = None) -> list[int]:
        frames = (
            [frame for got in self.got.values() for frame in got]
            if host is None
            else self.got[host]
        )
        return [frame.target for frame in frames]

    def wait(self, condition: Callable[[], object], timeout: float = PATIENCE) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout), (
                self.numbers()[-5:],
                self.lost,
                self.links,
            )

    def wait_frames(self, count: int, timeout: float = PATIENCE) -> None:
        self.wait(lambda: len(self.numbers()) >= count, timeout)

    # the handler

    def frame_from(self, host: str, frame: Frame) -> None:
        with self._changed:
            self.got[host].append(frame)
            self._changed.notify_all()

    def link_up(self, host: str) -> None:
        with self._changed:
            self.ups.append(host)
            self._changed.notify_all()

    def link_lost(self, host: str, reason: str) -> None:
        with self._changed:
            self.lost.append((host, reason))
            self._changed.notify_all()

    def called(self, name: str) -> None:
        with self._changed:
            self.names.append(name)
            self._changed.notify_all()
