"""The course of a metric over a run, in a bounded number of points.

Pure: the time is passed in.
"""

from __future__ import annotations

Point = tuple[float, float, "int | None"]
"""When, in seconds since 1970; the value; of a histogram, of how many values it is the sum."""

MOST = 300
"""Points of the time before the last ten minutes; when there are more, every second one goes."""

_FINE = 600  # points of the last ten minutes


class Course:
    """The last value of each second in ten minutes, and points ever farther apart of all before."""

    def __init__(self) -> None:
        self._width = 1.0
        self._fine: dict[float, Point] = {}  # by second
        self._whole: dict[float, Point] = {}  # by so many seconds

    def note(self, now: float, value: float, count: int | None = None) -> None:
        """Take a value; of a second only the last one is kept."""
        self._fine[now // 1] = self._whole[now // self._width] = now, value, count
        if len(self._fine) > _FINE:
            del self._fine[next(iter(self._fine))]
        if len(self._whole) > MOST:
            self._width *= 2
            self._whole = {each[0] // self._width: each for each in self._whole.values()}

    def points(self) -> list[Point]:
        """Return the kept points, by time."""
        fine = list(self._fine.values())
        return [each for each in self._whole.values() if each[0] < fine[0][0]] + fine
