"""Workers: processes that let clients on other hosts use this one.

Each starts a host agent, and waits until that ends.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from .._core.calls.future import Future
from .._core.calls.pending import is_awaited
from .._core.calls.promise import Promise
from .._core.calls.waiting import waited_for
from .._core.client.client import end_program, is_running
from .._core.net import unix
from .._core.net.trust import trust_for
from .._core.processes.agent_process import start_agent
from .._core.wire.address import AGENT, ProcAddress, random_name
from .._core.wire.channel import parse_channel
from .._guards.main_guard import refuse_imports

if TYPE_CHECKING:
    import subprocess

_MOMENT = 0.5  # seconds after its end that a program has to look at a worker
logger = logging.getLogger("monarch.worker")


class Worker:
    """A host agent that listens.

    Args:
        address: Where, see `run_worker_loop_forever`.
        ca: As there.
        private_key: As there.

    Attributes:
        name: The address at which others reach it.
    """

    def __init__(
        self,
        address: str,
        ca: str | os.PathLike[str] | None,
        private_key: str | os.PathLike[str] | None,
    ) -> None:
        refuse_imports("the start of a worker")
        channel = parse_channel(address)
        trust = trust_for(ca, private_key)
        # by the address that was given: the socket may be there already, and go by its number
        trust.require(channel.listening._replace(host=channel.host, port=channel.port, fd=-1))
        host = channel.name if channel.dialable else random_name()
        agent = ProcAddress(host, AGENT)
        # its address is of many characters, and may be that of another worker here
        self._local_host = random_name()
        read, write = os.pipe()
        with os.fdopen(read, "rb") as report:
            try:
                self._agent: subprocess.Popen[bytes] = start_agent(
                    agent, agent, channel, trust, write, self._local_host
                )
            finally:
                os.close(write)
            data = report.read()  # ends with the agent, if it dies before it has said anything
        if not data:
            raise RuntimeError(
                f"the worker on {address} ended with status {self._wait()} as it started"
            )
        self.name, error = pickle.loads(data)
        if error:
            self._wait()
            raise OSError(error)
        logger.info("listening: %s", self.name)

    def wait(self) -> None:
        """Wait until it was shut down.

        Raises:
            RuntimeError: It ended in another way.
        """
        status = self._wait()
        if status:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            raise RuntimeError(f"the agent of the worker on {self.name} {how}")

    def _wait(self) -> int:
        with self._agent as agent:
            status = agent.wait()
        unix.release_all(self._local_host)  # it may have been killed
        return status


def check_trust(
    address: str,
    ca: str | os.PathLike[str] | None = None,
    private_key: str | os.PathLike[str] | None = None,
) -> None:
    """Check that a worker may listen at an address, before a socket is made for it.

    Args:
        address: As the user has given it, so that the error names that.
        ca: As for `run_worker_loop_forever`.
        private_key: As there.

    Raises:
        ValueError: It is open to others, and there is neither a secret nor a certificate.
    """
    trust_for(ca, private_key).require(parse_channel(address))


def run_worker_loop_until_shutdown(
    *,
    address: str,
    ca: str | os.PathLike[str] | None = None,
    private_key: str | os.PathLike[str] | None = None,
) -> None:
    """Let clients on other hosts use this one; returns when one of them has shut it down.

    For arguments and errors see `run_worker_loop_forever`.
    """
    start_worker_loop_forever(address=address, ca=ca, private_key=private_key).get()


def run_worker_loop_forever(
    *,
    address: str,
    ca: str | os.PathLike[str] | None = None,
    private_key: str | os.PathLike[str] | None = None,
) -> NoReturn:
    """Let clients on other hosts use this one, until one shuts it down and the process exits.

    Several clients may be attached at the same time; what each spawns here ends when that client
    does.

    Args:
        address: Where to listen: ``tcp://host:port``, ``tcp://*:port`` for every interface,
            ``tcp://host:fd7`` for a socket that was inherited, ``ipc:///path``, ``inproc://n``; or
            ``dial@bind``, where others reach it at `dial`.
        ca: File, or PEM text, with the certificates of those who sign the keys that are let in;
            None for a shared secret (``MONARCH_SECRET``, ``MONARCH_SECRET_FILE``, or
            ``~/.monarch/secret``).
        private_key: File, or PEM text, with this host's key and certificate; None with a shared
            secret.

    Raises:
        AddressError: `address` is none of these.
        ValueError: The certificates or the secret are no good, or there are none and `address` is
            for other machines.
        OSError: The address is taken, or is none of this machine.
        RuntimeError: The worker was ended in another way than by a client.
    """
    run_worker_loop_until_shutdown(address=address, ca=ca, private_key=private_key)
    sys.exit(0)


def start_worker_loop_forever(
    *,
    address: str,
    ca: str | os.PathLike[str] | None = None,
    private_key: str | os.PathLike[str] | None = None,
) -> Future[None]:
    """Let clients on other hosts use this one, in the background, until this process ends.

    It listens when this returns. For arguments and errors see `run_worker_loop_forever`.

    The process ends soon after a client has shut the worker down: in order, with status 0, or with 1
    where the worker was ended in another way. A program goes on that waits for a future then, has a
    callback at this one, or is a client as well.

    Returns:
        A future that is done when a client has shut the worker down.
    """
    worker = Worker(address, ca, private_key)
    ended: Promise[None] = Promise(f"the worker on {worker.name} to be shut down")

    def wait() -> None:
        status = 0
        try:
            worker.wait()
        except RuntimeError as failed:
            status, error = 1, failed
        awaited = is_awaited(ended.future)
        if status:
            ended.reject(error)
        else:
            ended.resolve(None)
        time.sleep(_MOMENT)
        if not awaited and not waited_for and not is_running():
            if status:
                print(f"monarch: {error}", file=sys.stderr, flush=True)
            end_program(status)

    threading.Thread(target=wait, name="monarch-worker", daemon=True).start()
    return ended.future
