"""Imported by the interpreter of a script before the script.

It has the interpreter write its stacks on request, and then removes itself.

That of rank 0 serves the store of all ranks, too: by a fork, once it has imported torch. Importing
torch for that anywhere else takes as long as the ranks take for their whole start.

The folder of this file is the first of PYTHONPATH; nothing of Monarch is imported. Where there are
several hosts it stays there, for programs that the script starts: they meet as it does.
"""

from __future__ import annotations

import os
import sys

import monarch_startup  # type: ignore[import-not-found, unused-ignore]  # beside this file

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes 10 ms
    from typing import Any

_PLACE = "MONARCH_STORE_AT"


def _take_stack_signal() -> None:
    import faulthandler

    told = os.environ.pop("MONARCH_STACKS", None)
    if told is not None:  # it is the script itself
        number, _, name = told.partition(":")
        faulthandler.register(int(number), os.memfd_create(name, os.MFD_CLOEXEC), all_threads=True)


class _Store:
    """Serves the store from the import of torch on.

    The server is a hidden fork: no child of the script, with none of its files. It ends
    when `proc` closes.

    Args:
        port: On which the store is.
        timeout: Seconds that ranks wait for each other's keys.
        listener: Descriptor of the socket that listens there.
        proc: Descriptor of a socket of the proc that has started the script. The server asks by a
            byte, and serves if one comes back.
    """

    def __init__(self, port: str, timeout: str, listener: str, proc: str) -> None:
        self._port, self._timeout = int(port), float(timeout)
        self._fds = int(listener), int(proc)
        for fd in self._fds:
            os.set_inheritable(fd, False)  # they are not for programs that the script starts

    def fork(self, distributed: Any) -> None:
        """Begin, with the module `torch.distributed`, which `import torch` imports."""
        import warnings

        with warnings.catch_warnings():
            # there may be threads; the fork needs nothing of theirs
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child:
            for fd in self._fds:
                os.close(fd)
            try:
                os.waitpid(child, 0)
            except ChildProcessError:  # the script ignores SIGCHLD
                pass
            return
        try:
            if not os.fork():
                self._serve(distributed)
        finally:
            os._exit(0)

    def _serve(self, distributed: Any) -> None:
        import signal
        import socket
        from datetime import timedelta

        # those are for the script
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        low, high = sorted(self._fds)
        for start, end in ((3, low), (low + 1, high), (high + 1, os.sysconf("SC_OPEN_MAX"))):
            os.closerange(start, end)
        listener, proc = self._fds[0], socket.socket(fileno=self._fds[1])
        proc.sendall(b"?")
        if proc.recv(1):
            options = {
                "timeout": timedelta(seconds=self._timeout),
                "wait_for_workers": False,
                "master_listen_fd": listener,
            }
            store = distributed.TCPStore("localhost", self._port, is_master=True, **options)
            proc.recv(1)
            del store


def _take_store() -> None:
    offered = os.environ.pop("MONARCH_STORE", None)
    if offered is not None:
        monarch_startup.once_imported("torch.distributed", _Store(*offered.split(":")).fork)


def _take_place() -> None:
    told = os.environ.get(_PLACE)
    if told is not None:
        port, number, address = told.split(":", 2)

        def store(distributed: Any, timeout: Any) -> Any:
            return distributed.TCPStore(
                "localhost", int(port), is_master=False, timeout=timeout, wait_for_workers=False
            )

        monarch_startup.meet((address, number), store)


def _step_aside() -> None:
    """Leave the environment, the path and the name to whom they belong."""
    folder = os.path.dirname(__file__)
    sys.path.remove(folder)
    if _PLACE not in os.environ:
        rest = os.environ["PYTHONPATH"].partition(os.pathsep)[2]
        if rest:
            os.environ["PYTHONPATH"] = rest
        else:
            del os.environ["PYTHONPATH"]
    own = sys.modules.pop("sitecustomize")
    try:
        # the machine's own, if it has one
        import sitecustomize  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)  # who imports this looks there again


try:
    _take_stack_signal()
    _take_store()
    _take_place()
finally:
    _step_aside()
