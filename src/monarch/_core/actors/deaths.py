"""Deaths that are under way when a call is told of what came of them.

A rank that dies in a collective breaks connections of its neighbours, and what they raise comes a
few milliseconds before the news of the death, which takes the way over the agent. So an error of
the network waits a moment for a death of the same mesh, unless one has just been heard of: that is the
reason of the failure. Where a machine is busy the news is late; it comes before an answer of the
agent, so the moment is counted in these.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ...errors import SupervisionError
from ..calls.failed_call import FailedCall, Reply, is_of_network
from ..hub.control import ask_one
from ..hub.control_records import Ping
from ..hub.message_hub import MessageHub
from ..supervision.failure import Failure
from ..wire.address import ProcAddress
from ..wire.frame import URGENT
from .context import current_hub

_PAUSE = 0.02  # seconds; sockets of a process that ends are closed before its parent can know
_ANSWERS = 5  # of the agent, each after a pause
_JUST_NOW = 1.0


def await_cause(
    call: FailedCall, mate: ProcAddress, reply: Reply | str, end: Callable[[], object]
) -> None:
    """Call `end` once it is known why the rank on `mate` answered so, or can't be, in time.

    Args:
        call: Gets the death, if there was one.
        mate: Where the rank is.
        reply: What it has answered, or the text of the error in that.
        end: May be called at once, or later on the poller's thread.
    """
    hub = _hub() if is_of_network(reply) else None
    if hub is None:
        end()
        return
    ask = partial(ask_one, hub, mate.agent, Ping())
    settling = threading.Lock()  # two threads may come, and one of them settles it

    def settle(death: Failure | None = None) -> None:
        if settling.acquire(blocking=False):
            hub.peer_lost_hooks.remove(hear)
            call.death = call.death or death
            end()

    def hear(address: ProcAddress, failure: Failure) -> None:
        if address.mesh == mate.mesh and not failure.is_stop:
            settle(failure)

    def wait_on(answers: int, _: object = None) -> None:
        if answers and not settling.locked():
            hub.poller.call_later(_PAUSE, partial(ask, partial(wait_on, answers - 1), URGENT))
        else:
            settle()

    hub.peer_lost_hooks.append(hear)
    last = hub.last_death  # now that none is missed
    if last and time.monotonic() - last[2] < _JUST_NOW and not _is_back(hub, last[0]):
        hear(*last[:2])
    wait_on(_ANSWERS)


def _hub() -> MessageHub | None:
    with suppress(SupervisionError):  # the program has ended
        return current_hub()
    return None


def _is_back(hub: MessageHub, address: ProcAddress) -> bool:
    """Return whether a process that died runs again: others do not suffer from its death any more.

    Where it is connected, that is known: of processes of this host.
    """
    way = hub.peers.get(address) if address.host in hub.hosts else None
    return way is not None and way.connection is not None
