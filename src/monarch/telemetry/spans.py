"""Spans: what a program says of its own course, in a ring of a bounded size."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, TypeVar, overload

from .._core.plane import SYSTEM, TRACE, ProcAddress, current_hub, running
from .._lazy import whole
from .ids import actor_id, proc_id
from .registry import Asked, produces

F = TypeVar("F", bound=Callable[..., Any])
Row = tuple[Any, ...]

_MOST = 10_000
_numbers = itertools.count(1)
_spans: deque[span] = deque(maxlen=_MOST)
finished: deque[span] | None = None
"""Spans that have ended, kept for the exporter."""

_current: ContextVar[span | None] = ContextVar("monarch_span", default=None)


# the others are not kept: a tensor may be large
_PLAIN = frozenset((str, int, float, bool, type(None)))


def _shown(value: Any) -> str:
    try:
        return repr(value)[:1_000]
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_SAMPLED_OUT = frozenset("02468ace")  # the last bit of the flags is not set


class span:  # noqa: N801  # used like a function
    """A part of a program that takes time: ``with span("load", shard=3): ...``.

    A span that begins inside is its child.

    Args:
        name: What it is.
        **fields: What else is to be known of it.
    """

    __slots__ = (
        "_context", "_token", "actor", "begin", "end", "fields", "file", "line", "module", "name",
        "number", "outside", "parent", "root", "thread",
    )  # fmt: skip

    def __init__(self, name: str, **fields: Any) -> None:
        self.name = name
        self.fields = fields
        self.end: int | None = None
        self._context = ""

    def __enter__(self) -> span:
        caller = sys._getframe(1)
        self.file, self.line = caller.f_code.co_filename, caller.f_lineno
        self.module = caller.f_globals.get("__name__", "")
        self._begin()
        return self

    def _begin(self) -> None:
        self.number = next(_numbers)
        above = _current.get()
        self.parent: int | None = above.number if above is not None else None
        self.root: int = above.root if above is not None else self.number
        self.thread = threading.current_thread().name
        self.fields = {
            name: value if type(value) in _PLAIN else _shown(value)
            for name, value in self.fields.items()
        }
        here = running()
        self.actor = here.actor_instance.actor_id.uid if here is not None else None
        self.outside: str = (
            above.outside if above is not None else _outside(here) if finished is not None else ""
        )
        self.begin = time.time_ns()
        self._token = _current.set(self)
        _spans.append(self)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.end = time.time_ns()
        if error is not None:
            self.fields = {**self.fields, "error": _shown(error)}
        if finished is not None and self.outside[-1:] not in _SAMPLED_OUT:
            finished.append(self)
        # entered in another context: a generator that is closed elsewhere
        with suppress(ValueError):
            _current.reset(self._token)

    def ids(self, here: ProcAddress) -> tuple[int, int, int | None]:
        """The ids of OpenTelemetry: of its trace, of itself, and of what it is a part of.

        The same whenever it is asked for.

        Args:
            here: This process.
        """
        own, outside = proc_id(here), _TRACEPARENT.fullmatch(self.outside)
        parent = int(outside[2], 16) if outside else None
        if self.parent is not None:
            parent = _hashed(own, self.parent, 8)
        return (
            int(outside[1], 16) if outside else _hashed(own, self.root, 16),
            _hashed(own, self.number, 8),
            parent,
        )

    def context(self, here: ProcAddress) -> str:
        """The trace context of W3C, with the flags of the trace it is a part of.

        The same whenever it is asked for.
        """
        if not self._context:
            trace, own, _ = self.ids(here)
            self._context = f"00-{trace:032x}-{own:016x}-{self.outside[-2:] or '01'}"
        return self._context


def _hashed(proc: int, number: int, size: int) -> int:
    return int.from_bytes(blake2b(b"%d %d" % (proc, number), digest_size=size).digest(), "big")


def trace_context() -> dict[str, str]:
    """The W3C trace context of what runs here, as headers.

    It is that of the innermost `span`, of OpenTelemetry's current span, or of the call that is
    handled. Calls take it along where traces are exported;
    ``opentelemetry.propagate.extract(trace_context())`` goes on with it.

    Returns:
        ``{"traceparent": "00-..."}``, or nothing where there is none.
    """
    found = _trace()
    return {"traceparent": found} if found else {}


def _trace(hub: Any = None) -> str:
    """Return the trace context of what runs here, in the process of this hub; empty for none."""
    innermost = _current.get()
    if innermost is None:
        return _outside(running())
    return innermost.context((hub or current_hub()).address)


def _outside(here: Any) -> str:
    """Return the parent of a span that no other span of Monarch encloses."""
    library = whole("opentelemetry.trace")  # the exporter may be importing it
    if library is not None:
        theirs = library.get_current_span().get_span_context()
        if theirs.is_valid:
            return f"00-{theirs.trace_id:032x}-{theirs.span_id:016x}-{theirs.trace_flags:02x}"
    return here.trace if here is not None else ""


def follow(hub: Any) -> None:
    """Have calls of this process take their trace context along, if there is one."""

    class Following(type(hub)):  # type: ignore[misc]  # whichever it is
        def cast(self, procs: Any, target: int, meta: bytes, *rest: Any, **named: Any) -> int:
            of_program = target != SYSTEM and meta[:1] != b"\0"  # none of the engine
            if of_program and (trace := _trace(self)):
                meta = b"".join((meta, TRACE, trace.encode()))
            number: int = super().cast(procs, target, meta, *rest, **named)
            return number

    hub.__class__ = Following


class _CallSpan(span):
    """A span of a call; its place in the source is that of the function."""

    __slots__ = ()

    def __enter__(self) -> span:
        self._begin()
        return self


@overload
def traced(function: F) -> F: ...


@overload
def traced(function: None = None, *, name: str | None = None) -> Callable[[F], F]: ...


def traced(function: Any = None, *, name: str | None = None) -> Any:
    """Decorate a function, or a coroutine function, so that each call of it is a span.

    Args:
        function: It.
        name: Of the spans; by default that of the function.
    """
    if function is None:
        return functools.partial(traced, name=name)
    called: str = name or str(getattr(function, "__qualname__", "function"))
    code = getattr(inspect.unwrap(function), "__code__", None)

    def opened() -> _CallSpan:
        made = _CallSpan(called)
        made.file, made.line = (
            (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)
        )
        made.module = getattr(function, "__module__", "") or ""
        return made

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with opened():
                return await function(*args, **kwargs)

        return call_async

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with opened():
            return function(*args, **kwargs)

    return call


@produces("spans", own_thread=True)
def _spans_rows(asked: Asked) -> Iterator[Row]:
    address = asked.service.hub.address
    here = proc_id(address)
    for each in list(_spans):
        who = actor_id(address, each.actor) if each.actor is not None else None
        took = each.end // 1000 - each.begin // 1000 if each.end is not None else None
        yield (
            here, each.number, each.name, each.module, "INFO", json.dumps(each.fields), each.begin // 1000,
            each.parent, each.thread, each.file or None, each.line or None, who, took,
        )  # fmt: skip


@produces("span_events", own_thread=True)
def _span_events(asked: Asked) -> Iterator[Row]:
    here = proc_id(asked.service.hub.address)
    for each in list(_spans):
        yield here, each.number, each.begin // 1000, "enter"
        if each.end is not None:
            yield here, each.number, each.end // 1000, "exit"
            yield here, each.number, each.end // 1000, "close"
