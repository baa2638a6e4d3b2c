"""Names of the public API whose features do not exist yet. Each says what is missing, when it is called."""

from __future__ import annotations

from typing import Any, NoReturn


def _missing(name: str, feature: str) -> NoReturn:
    raise NotImplementedError(
        f"monarch.actor.{name} needs {feature}, which this version of pymonarch does not have yet"
    )


def debug_controller() -> Any:
    """The debugger's controller, in Monarch 0.7. Here there is none."""
    raise NotImplementedError(
        "monarch.actor.debug_controller: the debugger has no actor here; run `monarch debug`, or monarch.debugger.debug()"
    )


def span(name: str) -> Any:
    """A tracing span."""
    _missing("span", "telemetry")


def traced(*args: Any, **kwargs: Any) -> Any:
    """Trace each call of a function."""
    _missing("traced", "telemetry")


def get_meter() -> Any:
    """A meter for counters and histograms."""
    _missing("get_meter", "telemetry")
