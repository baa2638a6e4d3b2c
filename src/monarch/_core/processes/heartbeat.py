"""The detector of frozen processes: timeouts that count only while this process runs.

A process is asked over the connection for urgent calls, where no output of its procs waits to be
read before its answer.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import config
from ..._child_watch import is_held, is_stopped
from ..calls.failed_call import Reply
from ..hub.control import ask_one
from ..hub.control_records import Ping
from ..hub.message_hub import MessageHub
from ..hub.overdue import TICKS
from ..net.poller import Poller
from ..supervision.failure import Failure
from ..wire.address import ProcAddress
from ..wire.frame import URGENT


class Watchdog:
    """Calls `lost` after `timeout` seconds on the poller's thread, unless `end` is called before.

    It counts ticks that this process itself ran, each an interval after the one before.
    Time that passed would condemn everybody as soon as the observer was the one that stood still:
    stopped with Ctrl-Z, or without the interpreter lock for a minute. By ticks, such a pause counts
    once, and what came meanwhile is read before the next.

    Args:
        poller: Its thread runs the ticks.
        timeout: Seconds.
        lost: What to do then.
    """

    def __init__(self, poller: Poller, timeout: float, lost: Callable[[], None]) -> None:
        self._poller = poller
        self._interval = timeout / TICKS
        self._lost = lost
        self._left = TICKS
        self._ended = False
        self._timer = poller.call_later(self._interval, self._tick)

    def end(self) -> None:
        """A sign of life came, or it does not matter any more; on any thread."""
        self._ended = True
        self._timer.cancel()

    def _tick(self) -> None:
        self._left -= 1
        if self._ended:
            return
        if self._left:
            self._timer = self._poller.call_later(self._interval, self._tick)
        else:
            self._lost()


class Pauses:
    """Processes that signals have stopped: children, or those of one that has not reaped them.

    One that stays so for `heartbeat_timeout` counts as ended.

    Args:
        poller: Of this process.
        frozen: Called on the poller's thread with the pid of such a process, and the seconds for
            which it has stood still, to end it.
    """

    def __init__(self, poller: Poller, frozen: Callable[[int, float], None]) -> None:
        self._poller = poller
        self._frozen = frozen
        self._watched: dict[int, Watchdog] = {}

    def changed(self, pid: int, stopped: bool) -> None:
        """A process was stopped, goes on, or has ended.

        That it went on in between may not have been told.
        """
        watchdog = self._watched.pop(pid, None)
        if watchdog is not None:
            watchdog.end()
        timeout: float = config.value("heartbeat_timeout")
        if stopped and timeout:
            self._watch(pid, timeout)

    def _watch(self, pid: int, timeout: float) -> None:
        self._watched[pid] = Watchdog(self._poller, timeout, lambda: self._check(pid, timeout))

    def _check(self, pid: int, timeout: float) -> None:
        # that it goes on may have been said to a process that could not pass it on
        if is_stopped(pid):
            self._frozen(pid, timeout)
        elif is_held(pid):  # and may be left as it was found
            self._watch(pid, timeout)


class Heartbeat:
    """Asks a process for a sign of life, again and again, until it gives none.

    One question is on its way at a time. A process that stands still is lost `timeout` seconds
    after it should have answered, which is up to a quarter more after it stopped.

    Args:
        hub: Hub of this process.
        address: The process that is asked; it answers `Ping`.
        timeout: Seconds of silence that make it lost.
        lost: Called with the seconds of silence, on the poller's thread. Not called when the
            connection breaks, which tells by itself.
    """

    def __init__(
        self, hub: MessageHub, address: ProcAddress, timeout: float, lost: Callable[[float], None]
    ) -> None:
        self._hub = hub
        self._address = address
        self._timeout = timeout
        self._lost = lost

    def ask(self, within: float | None = None) -> None:
        """Begin; `within` is the first answer's time-out, for a process that has yet to start."""
        timeout = self._timeout if within is None else within
        self._silence = Watchdog(self._hub.poller, timeout, lambda: self._lost(timeout))
        # urgent: it must not wait for room, as other messages do
        ask_one(self._hub, self._address, Ping(), self._answered, flags=URGENT)

    def _answered(self, answer: Reply) -> None:
        self._silence.end()
        if not isinstance(answer, Failure):
            self._hub.poller.call_later(self._timeout / TICKS, self.ask)
