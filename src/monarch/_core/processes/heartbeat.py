"""The detector of frozen processes: timeouts that count only while this process runs.

A process is asked over the connection for urgent calls, where no output of its procs waits to be
read before its answer.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import config
from ..calls.failed_call import Reply
from ..hub.control import SingleAnswer, send_record
from ..hub.control_records import Ping
from ..hub.message_hub import MessageHub
from ..net.poller import Poller
from ..supervision.failure import Failure
from ..supervision.heartbeat import LOST, SILENT, TICKS, Liveness
from ..wire.address import ProcAddress
from ..wire.frame import URGENT
from .children import is_stopped, is_traced


class Watchdog:
    """Calls `lost` after `timeout` seconds on the poller's thread, unless `end` is called before.

    Args:
        poller: Whose thread runs the ticks.
        timeout: Seconds; a time in which that thread could not run counts as a quarter of them at
            most.
        lost: What to do then.
    """

    def __init__(self, poller: Poller, timeout: float, lost: Callable[[], None]) -> None:
        self._poller = poller
        self._interval = timeout / TICKS
        self._lost = lost
        self._liveness = Liveness()
        self._liveness.expected()
        self._timer = poller.call_later(self._interval, self._tick)

    def end(self) -> None:
        """A sign of life came, or it does not matter any more; on any thread."""
        self._liveness.seen()
        self._timer.cancel()

    def _tick(self) -> None:
        state = self._liveness.tick()
        if state == LOST:
            self._lost()
        elif state == SILENT:
            self._timer = self._poller.call_later(self._interval, self._tick)


class StopWatch:
    """A stopped process, which counts as ended once it stayed so for `heartbeat_timeout`.

    Args:
        poller: Of this process.
        pid: The stopped process, a child of this one or of one that has not reaped it.
        frozen: Called with the seconds that it has stood still, on the poller's thread, to end it.
    """

    def __init__(self, poller: Poller, pid: int, frozen: Callable[[float], None]) -> None:
        self._poller = poller
        self._pid = pid
        self._frozen = frozen
        self._timeout: float = config.value("heartbeat_timeout")
        self._silence: Watchdog | None = None
        self._wait()

    def end(self) -> None:
        """Stop watching: the process goes on, or has ended."""
        if self._silence is not None:
            self._silence.end()

    def _wait(self) -> None:
        if self._timeout:
            self._silence = Watchdog(self._poller, self._timeout, self._check)

    def _check(self) -> None:
        # that it goes on may have been said to somebody who could not pass it on
        if is_stopped(self._pid):
            self._frozen(self._timeout)
        elif is_traced(self._pid):  # a debugger has taken it over, and may leave it as it found it
            self._wait()


class Pauses:
    """Processes that signals have stopped.

    Args:
        poller: Of this process.
        frozen: Called with the pid of one that stays so, and the seconds for which it did, to end
            it.
    """

    def __init__(self, poller: Poller, frozen: Callable[[int, float], None]) -> None:
        self._poller = poller
        self._frozen = frozen
        self._pauses: dict[int, StopWatch] = {}

    def changed(self, pid: int, stopped: bool) -> None:
        """A process was stopped, goes on, or has ended.

        That it went on in between may not have been told.
        """
        pause = self._pauses.pop(pid, None)
        if pause is not None:
            pause.end()
        if stopped:
            self._pauses[pid] = StopWatch(
                self._poller, pid, lambda seconds: self._frozen(pid, seconds)
            )


class Heartbeat:
    """Asks a process for a sign of life, again and again, until it gives none.

    One question is on its way at a time. A process that stands still is lost `timeout` seconds
    after it should have answered, which is up to a quarter more after it stopped.

    Args:
        hub: Hub of this process.
        address: Who is asked; it answers `Ping`.
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
        send_record(
            self._hub,
            self._address,
            Ping(),
            SingleAnswer(self._address, self._answered),
            flags=URGENT,
        )

    def _answered(self, answer: Reply) -> None:
        self._silence.end()
        if not isinstance(answer, Failure):
            self._hub.poller.call_later(self._timeout / TICKS, self.ask)
