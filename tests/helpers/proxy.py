"""A TCP proxy that does to a connection what bad networks do: cuts, stalls, delays, throttles,
splits.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset, and drops what was on its way
_MOST = 64 * 1024


class Proxy:
    """Passes connections to `127.0.0.1:port` on, from a port of its own: `at`, or any.

    Attributes:
        port: Where it listens.
        delay: Seconds that everything takes longer.
        rate: Bytes per second and direction, or None.
        split: The largest piece that is passed on at a time.
        passed: Bytes passed on so far, both ways.
        connections: How many there have been.
    """

    def __init__(
        self,
        port: int,
        *,
        at: int = 0,
        delay: float = 0,
        rate: float | None = None,
        split: int = _MOST,
    ) -> None:
        self.target = port
        self.delay = delay
        self.rate = rate
        self.split = split
        self.passed = 0
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", at))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._flowing = threading.Event()
        self._flowing.set()
        self._cut_at: int | None = None
        self._closed = False
        self._threads = [threading.Thread(target=self._serve, name="test-proxy")]
        self._threads[0].start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def cut(self) -> None:
        """Break every connection, and lose what is on its way."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()

    def cut_after(self, count: int) -> None:
        """Break every connection when `count` more bytes have passed."""
        self._cut_at = self.passed + count

    def stall(self) -> None:
        """Pass on nothing, and accept connections without an answer, until `go_on`."""
        self._flowing.clear()

    def go_on(self) -> None:
        self._flowing.set()

    def refuse(self) -> None:
        """Nobody listens any more; what is connected stays so."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        self._closed = True
        self.refuse()
        self.go_on()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            self._flowing.wait()
            try:
                there = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                here.close()
                continue
            with self._lock:
                self._pairs.append((here, there))
            self.connections += 1
            if self._closed:
                self.cut()
            for a, b in ((here, there), (there, here)):
                thread = threading.Thread(target=self._pump, args=(a, b), name="test-proxy")
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(min(_MOST, self.split)):
                if self.delay:
                    time.sleep(self.delay)
                self._flowing.wait()
                if self.rate:
                    time.sleep(len(data) / self.rate)
                if self._cut_at is not None and self.passed + len(data) >= self._cut_at:
                    data = data[: max(0, self._cut_at - self.passed)]
                    self._cut_at = None
                    sink.sendall(data)
                    self.cut()
                    return
                sink.sendall(data)
                self.passed += len(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
