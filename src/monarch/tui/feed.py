"""The thread that keeps a source current while a screen of it is looked at."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from .http import Access, AdminError, Line, told
from .sources import ScreenSource

# times as long as a look has taken it rests: ten thousand ranks are looked at less often
_EASE = 4.0
_LONGEST = 30.0  # seconds of that


class Feed:
    """A feed of events.

    Its waits end by `stop`, which closes the connection, or by the time that a connection may be
    silent.

    Args:
        source: What looks.
        access: At whom.
        pause: Seconds between looks at least.
        tell: Called with the update, or None; with the reason why none came; and with whether the
            program has ended; on the thread of this.
    """

    def __init__(
        self,
        source: ScreenSource,
        access: Access,
        pause: float,
        tell: Callable[[Feed, Any, str, bool], object],
    ) -> None:
        self.source = source
        self._line = Line(access)
        self._pause = pause
        self._tell = tell
        self._news = threading.Event()
        self._over = False
        threading.Thread(target=self._run, name="monarch-tui-feed", daemon=True).start()

    def wake(self) -> None:
        """Look now."""
        self._news.set()

    def stop(self) -> None:
        """Look no more. Nothing is waited for."""
        self._over = True
        self._line.close()
        self._news.set()

    def _run(self) -> None:
        while not self._over:
            begun, rest = time.monotonic(), self._pause
            try:
                for update in self.source.look(self._line):
                    if self._over:
                        return
                    self._tell(self, update, "", False)
                rest = max(rest, min(_EASE * (time.monotonic() - begun), _LONGEST))
            except Exception as error:
                # of any kind, as answers are foreign: it is shown, and the look repeated
                if not self._over:
                    ended = isinstance(error, AdminError) and error.code == "end"
                    self._tell(self, None, told(error).partition("\n")[0], ended)
            self._news.wait(rest)
            self._news.clear()
