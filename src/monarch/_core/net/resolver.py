"""Names of hosts to addresses, without anybody having to wait.

The system's resolver blocks, for many seconds where a name server is away. So threads ask it: few,
however many names are wanted, and each ends when there is nothing left to ask.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections import deque
from collections.abc import Callable

_MOST_THREADS = 8

Addresses = list[tuple[socket.AddressFamily, tuple[str, int]]]
Done = Callable[[Addresses | OSError], None]


class Resolver:
    """Asks the system's resolver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: deque[tuple[str, int, Callable[[], bool], Done]] = deque()
        self._threads = 0

    def resolve(self, host: str, port: int, still_wanted: Callable[[], bool], done: Done) -> None:
        """Call `done` with the addresses of `host` in the order to try them, or with the error; on
        some thread. The question is dropped if it is not `still_wanted` when its turn comes.
        """
        with self._lock:
            self._questions.append((host, port, still_wanted, done))
            if self._threads == _MOST_THREADS:
                return
            self._threads += 1
        # `getaddrinfo` blocks and can't be cut short: not on the poller's thread
        threading.Thread(target=self._work, name="monarch-resolver", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._questions:
                    self._threads -= 1
                    return
                host, port, still_wanted, done = self._questions.popleft()
            # its dial may have ended while other lookups were made
            if still_wanted():
                done(_ask(host, port))


def _ask(host: str, port: int) -> Addresses | OSError:
    try:
        return addresses_of(host, port)
    except OSError as error:
        return error


def addresses_of(host: str, port: int) -> Addresses:
    """The addresses of `host`, from the system's resolver, each once.

    Raises:
        OSError: The name has no address, or no server could be asked for one.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # what it takes for an international name
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from None
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))  # type: ignore[misc]


def is_literal(host: str) -> bool:
    """Return whether `host` is an address already, which needs no lookup."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
