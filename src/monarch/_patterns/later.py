"""Names of the actor API that lead to planes, imported when they are used.

One of them has no meaning here.
"""

from __future__ import annotations

from typing import Any

from .._core import extension


def debug_controller() -> Any:
    """The debugger's controller of Monarch 0.7, which does not exist here.

    Raises:
        NotImplementedError: Always; the message says what to use.
    """
    raise NotImplementedError(
        "monarch.actor.debug_controller: the debugger has no actor here; run `monarch debug`, or"
        " monarch.debugger.debug()"
    )


def span(name: str, **fields: Any) -> Any:
    """A part of the program that takes time, as a context manager; see `monarch.telemetry.span`.

    Args:
        name: Name of the part.
        **fields: Details, by name.
    """
    return extension.span(name, **fields)


def traced(function: Any = None, *, name: str | None = None) -> Any:
    """Trace each call of a function, as a decorator; see `monarch.telemetry.traced`.

    Args:
        function: The function; None where options are given.
        name: Name of the spans; None for the name of the function.

    Returns:
        The traced function, or a decorator.
    """
    return extension.traced(function, name=name)


def get_meter(name: str = "monarch") -> Any:
    """A meter for counters, gauges and histograms; see `monarch.telemetry.Meter`.

    Args:
        name: Name of the meter.
    """
    return extension.get_meter(name)
