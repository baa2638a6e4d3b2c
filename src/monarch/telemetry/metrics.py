"""Metrics of programs.

Counters, gauges and histograms are kept as sums in each process, and read on request.

Names and behaviour follow OpenTelemetry's API. To add to a counter takes a lock and a look-up;
nothing is sent, and nothing grows with the number of calls. An instrument keeps at most
`MOST_ATTRIBUTES` sets of attributes; further ones are added up under `OVERFLOW`. The course of the
first `MOST_COURSES` is kept as well: a clock and a store for each call.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from .._lazy import lazy_logger
from .._namedtuple import NamedTuple
from .metric_history import Course, Point

MOST_ATTRIBUTES = 2_000
MOST_COURSES = 20
OVERFLOW = (("otel.metric.overflow", True),)
BOUNDS = (0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000)
"""Upper bounds of the buckets of a histogram, unless it has its own."""

Attributes = Mapping[str, "str | bool | int | float"]
Key = tuple[tuple[str, Any], ...]

# As of instruments: a finalizer, or a signal handler, that counts may run in a thread that holds
# it.
_lock = threading.RLock()
_meters: dict[str, Meter] = {}
_logger = lazy_logger("monarch.telemetry")


def fits(number: int) -> bool:
    """Return whether an integer fits into 64 bits, as those of tables do."""
    return -(1 << 63) <= number < 1 << 63


def _key(attributes: Attributes | None) -> Key:
    return tuple(sorted(attributes.items())) if attributes else ()


class Observation(NamedTuple):
    """A value that the callback of an observable instrument gives."""

    value: float
    attributes: Attributes | None = None


class CallbackOptions(NamedTuple):
    """The options passed to an observable callback."""

    timeout_millis: float = 10_000


Callback = Callable[[CallbackOptions], Iterable[Any]]


class Instrument:
    """Base of all. One that is sent to another process is that of the same name there.

    Attributes:
        scope: Name of its meter.
        name: Of the metric.
        unit: For people, ``"ms"``.
        description: For people, too.
        since: When it was made, in seconds since 1970.
    """

    def __init__(self, scope: str, name: str, unit: str, description: str) -> None:
        self.scope = scope
        self.name = name
        self.unit = unit
        self.description = description
        self.since = time.time()
        self._lock = threading.RLock()
        self._values: dict[Key, Any] = {}
        self._courses: dict[Key, Course] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        made = self.scope, type(self), self.name, self.unit, self.description
        return _again, (*made, *self._more())

    def _more(self) -> tuple[Any, ...]:
        return ()

    def values(self) -> dict[Key, Any]:
        """The value for each set of attributes."""
        with self._lock:
            return dict(self._values)

    def courses(self) -> dict[Key, list[Point]]:
        """The course over the run for each set of attributes."""
        with self._lock:
            return {key: course.points() for key, course in self._courses.items()}

    def _note(self, key: Key, value: float, count: int | None = None) -> None:
        """Note a value as the present one. Called with the lock."""
        course = self._courses.get(key)
        if course is None and len(self._courses) < MOST_COURSES:
            course = self._courses[key] = Course()
        if course is not None:
            course.note(time.time(), value, count)

    def _kept(self, key: Key) -> Key:
        """The key under which a value is kept. Called with the lock."""
        return key if key in self._values or len(self._values) < MOST_ATTRIBUTES else OVERFLOW

    def _put(self, value: float, attributes: Attributes | None, adds: bool) -> None:
        self._number(value)
        key = _key(attributes)
        with self._lock:
            key = self._kept(key)
            self._values[key] = now = self._values.get(key, 0) + value if adds else value
            self._note(key, now)

    def _number(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"metric {self.name}: a number is wanted, not {value!r}")
        if isinstance(value, int) and not fits(value):
            raise ValueError(
                f"metric {self.name}: an integer of 64 bits is wanted, not {value!r}; a float may"
                " be larger"
            )
        return value


class UpDownCounter(Instrument):
    """A sum that goes up and down."""

    def add(self, amount: float, attributes: Attributes | None = None) -> None:
        """Add to it.

        Raises:
            TypeError: `amount` is no number.
            ValueError: It is an integer that 64 bits can't hold.
        """
        self._put(amount, attributes, adds=True)


class Counter(UpDownCounter):
    """A sum that only goes up."""

    def add(self, amount: float, attributes: Attributes | None = None) -> None:
        """Add to it.

        Raises:
            ValueError: `amount` is negative, or an integer that 64 bits can't hold.
            TypeError: It is no number.
        """
        if self._number(amount) < 0:
            raise ValueError(
                f"counter {self.name} only goes up: got {amount!r}; use create_up_down_counter"
            )
        super().add(amount, attributes)


class Gauge(Instrument):
    """The latest value."""

    def set(self, value: float, attributes: Attributes | None = None) -> None:
        """Replace it.

        Raises:
            TypeError: `value` is no number.
            ValueError: It is an integer that 64 bits can't hold.
        """
        self._put(value, attributes, adds=False)


class Distribution(NamedTuple):
    """The distribution of a histogram's values, for one set of attributes."""

    buckets: list[int]
    values: int
    sum: float
    min: float
    max: float


class Histogram(Instrument):
    """How values are distributed.

    Attributes:
        bounds: Upper bounds of its buckets, the last of which has none.
    """

    def __init__(
        self, scope: str, name: str, unit: str, description: str, bounds: Sequence[float]
    ) -> None:
        super().__init__(scope, name, unit, description)
        self.bounds = tuple(bounds)

    def _more(self) -> tuple[Any, ...]:
        return (self.bounds,)

    def record(self, value: float, attributes: Attributes | None = None) -> None:
        """Add a value.

        Raises:
            TypeError: `value` is no number.
            ValueError: It is an integer that 64 bits can't hold.
        """
        self._number(value)
        at, key = bisect_left(self.bounds, value), _key(attributes)
        with self._lock:
            key = self._kept(key)
            known = self._values.get(key)
            if known is None:
                self._values[key] = known = [[0] * (len(self.bounds) + 1), 0, 0, value, value]
            known[0][at] += 1
            known[1] += 1
            known[2] += value
            known[3] = min(known[3], value)
            known[4] = max(known[4], value)
            self._note(key, known[2], known[1])

    def values(self) -> dict[Key, Any]:
        with self._lock:
            return {
                key: Distribution(list(known[0]), *known[1:]) for key, known in self._values.items()
            }


class Observable(Instrument):
    """An instrument that gets its values by calling functions of the program."""

    def __init__(
        self, scope: str, name: str, unit: str, description: str, callbacks: Sequence[Callback]
    ) -> None:
        super().__init__(scope, name, unit, description)
        self._callbacks = list(callbacks)
        self._runs = threading.Lock()  # taken without waiting
        self._has_raised = False

    def _more(self) -> tuple[Any, ...]:
        return (self._callbacks,)

    def replace(self, callbacks: Sequence[Callback]) -> None:
        """Ask these callbacks from now on.

        An instrument that is made again, as by a restarted actor, has new ones.
        """
        self._callbacks = list(callbacks)

    def values(self) -> dict[Key, Any]:
        """As of each; nothing while those who have asked before still wait for a callback."""
        if not self._runs.acquire(blocking=False):
            return {}
        try:
            found = self._ask()
            with self._lock:
                for key, value in found.items():
                    self._note(key, value)
            return found
        finally:
            self._runs.release()

    @property
    def runs(self) -> bool:
        """True if its callbacks are being called."""
        return self._runs.locked()

    def _ask(self) -> dict[Key, Any]:
        found: dict[Key, Any] = {}
        for callback in self._callbacks:
            try:
                for each in callback(CallbackOptions()):
                    if len(found) < MOST_ATTRIBUTES:
                        found[_key(each.attributes)] = self._number(each.value)
            except Exception as error:
                if not self._has_raised:
                    _logger.warning(
                        "the callback of metric %s raised: %r; this is said once", self.name, error
                    )
                self._has_raised = True
        return found


class ObservableCounter(Observable):
    """A sum that only goes up, which the program keeps."""


class ObservableUpDownCounter(Observable):
    """A sum that goes up and down, which the program keeps."""


class ObservableGauge(Observable):
    """The latest value, which the program knows."""


InstrumentT = TypeVar("InstrumentT", bound=Instrument)
ObservableT = TypeVar("ObservableT", bound=Observable)


class Meter:
    """Makes instruments. The same name gives the same instrument.

    Attributes:
        name: What it belongs to, the scope of its metrics.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._instruments: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return get_meter, (self.name,)

    def instruments(self) -> list[Instrument]:
        """The instruments that this meter has made."""
        with _lock:
            return list(self._instruments.values())

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Counter:
        """Make a sum that only goes up: ``counter.add(1, {"kind": "a"})``."""
        return self._make(Counter, name, unit, description)

    def create_up_down_counter(
        self, name: str, unit: str = "", description: str = ""
    ) -> UpDownCounter:
        """Make a sum that goes up and down."""
        return self._make(UpDownCounter, name, unit, description)

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> Gauge:
        """Make a gauge, of which the latest value counts: ``gauge.set(0.3)``."""
        return self._make(Gauge, name, unit, description)

    def create_histogram(
        self,
        name: str,
        unit: str = "",
        description: str = "",
        *,
        explicit_bucket_boundaries_advisory: Sequence[float] | None = None,
    ) -> Histogram:
        """Make a histogram: ``histogram.record(12.5)``."""
        bounds = explicit_bucket_boundaries_advisory
        bounds = BOUNDS if bounds is None else bounds
        if list(bounds) != sorted(set(bounds)):
            raise ValueError(
                f"histogram {name}: the bounds of its buckets must rise, got {list(bounds)}"
            )
        return self._make(Histogram, name, unit, description, bounds)

    def create_observable_counter(
        self, name: str, callbacks: Sequence[Callback] = (), unit: str = "", description: str = ""
    ) -> ObservableCounter:
        """Make a counter with a value that functions return.

        They are called when the metric is read, on a thread of their own. One that is made
        again has the new functions.
        """
        return self._observe(ObservableCounter, name, unit, description, callbacks)

    def create_observable_up_down_counter(
        self, name: str, callbacks: Sequence[Callback] = (), unit: str = "", description: str = ""
    ) -> ObservableUpDownCounter:
        """As `create_observable_counter`, of a sum that goes up and down."""
        return self._observe(ObservableUpDownCounter, name, unit, description, callbacks)

    def create_observable_gauge(
        self, name: str, callbacks: Sequence[Callback] = (), unit: str = "", description: str = ""
    ) -> ObservableGauge:
        """As `create_observable_counter`, of a latest value."""
        return self._observe(ObservableGauge, name, unit, description, callbacks)

    def _make(
        self, kind: type[InstrumentT], name: str, unit: str, description: str, *more: Any
    ) -> InstrumentT:
        with _lock:
            known = self._instruments.get(name)
            if known is None:
                known = self._instruments[name] = kind(self.name, name, unit, description, *more)
            elif type(known) is not kind:
                raise ValueError(
                    f"metric {name} is a {type(known).__name__} already, and can't be a"
                    f" {kind.__name__}, too"
                )
            return known

    def _observe(
        self,
        kind: type[ObservableT],
        name: str,
        unit: str,
        description: str,
        callbacks: Sequence[Callback],
    ) -> ObservableT:
        made = self._make(kind, name, unit, description, callbacks)
        if callbacks:
            made.replace(callbacks)
        return made


def get_meter(name: str = "monarch") -> Meter:
    """The meter of a part of the program, which makes counters, gauges and histograms.

    Args:
        name: Of that part: the scope of the metrics.
    """
    with _lock:
        return _meters.setdefault(name, Meter(name))


def _again(scope: str, kind: type, *rest: Any) -> Any:
    return get_meter(scope)._make(kind, *rest)


def meters() -> list[Meter]:
    """Return the meters of this process."""
    with _lock:
        return list(_meters.values())
