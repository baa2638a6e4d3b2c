"""Which messages are looked at: all of them while they are few, beyond that a random one in some.

Pure: the time is passed in.

How often follows how fast they come, so that a look, which costs some microseconds where caches are
cold, is no burden at any rate. Each message that is looked at stands for `weight` of them: sums
over the weights are right on average, for any pattern of messages, as the gaps are random.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

RATE = 256
"""Messages per second up to which all are looked at; beyond it, about that many are."""

_WINDOW = 0.125  # seconds after which the weight follows the rate
_MOST = 1 << 16


class Sampling:
    """The messages of one actor, or the calls of one process.

    Args:
        clock: Gives the time, in seconds.
        adaptive: False looks at all.
        seed: Of the gaps.

    Attributes:
        weight: What each one that is looked at from now on stands for.
        gap: Messages until the next look, that one included. The user of this counts down, which
            costs no call.
    """

    def __init__(
        self, clock: Callable[[], float], adaptive: bool = True, seed: int | None = None
    ) -> None:
        self._clock = clock
        self._adaptive = adaptive
        self._random = Random(seed).random
        self.weight = 1
        self.gap = 1
        self._looks = 0
        self._eased = False
        self._since = clock()

    def adapt(self, adaptive: bool) -> None:
        """Look at all messages, or at a sample where there are many."""
        self._adaptive = adaptive
        self.weight = self.gap = 1
        self._looks, self._since = 0, self._clock()

    def looked(self) -> int:
        """Called after each look. Returns what it stands for."""
        if not self._adaptive:
            self._eased = False
            # again: a look that was under way in `adapt` may have changed them
            self.weight = self.gap = 1
            return 1
        if self._eased:  # this one was not drawn
            self._eased = False
            self._follow()
        weight = self.weight
        self._looks += 1
        if weight > 1 or self._looks >= RATE * _WINDOW:
            self._follow()
        self._draw()
        return weight

    def ease(self) -> None:
        """Called once a second, on any thread.

        Few messages that come after a flood would wait long for their next look.
        """
        if self.weight > 1:
            self._eased = True
            # the rest is done by the thread that looks: two that count would lose a reset of each
            # other
            self.gap = 1

    def _draw(self) -> None:
        self.gap = 1 if self.weight == 1 else 1 + int(self._random() * (2 * self.weight - 1))

    def _follow(self) -> None:
        now = self._clock()
        elapsed = now - self._since
        came = self._looks * self.weight
        if elapsed < _WINDOW and came < 2 * RATE * _WINDOW * self.weight:
            return
        rate = came / max(elapsed, 1e-6)
        weight = 1
        while weight * RATE < rate and weight < _MOST:
            weight *= 2
        self.weight = weight
        self._looks, self._since = 0, now
