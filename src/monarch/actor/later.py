"""Names of the public API whose features do not exist yet. Each says what is missing, when it is called."""

from __future__ import annotations

from typing import Any, NoReturn

from .._core.wire.transport import ChannelTransport


def _missing(name: str, feature: str) -> NoReturn:
    raise NotImplementedError(
        f"monarch.actor.{name} needs {feature}, which this version of pymonarch does not have yet"
    )


def attach_to_workers(*, ca: Any, workers: Any, private_key: Any = None, name: str | None = None) -> Any:
    """Attach to worker processes on other hosts."""
    _missing("attach_to_workers", "many hosts")


def run_worker_loop_forever(*, address: str, ca: Any, private_key: Any = None) -> None:
    """Serve as a host, until shut down."""
    _missing("run_worker_loop_forever", "many hosts")


def run_worker_loop_until_shutdown(*, address: str, ca: Any, private_key: Any = None) -> None:
    """Serve as a host; returns when shut down."""
    _missing("run_worker_loop_until_shutdown", "many hosts")


def start_worker_loop_forever(*, address: str, ca: Any, private_key: Any = None) -> Any:
    """Serve as a host in the background."""
    _missing("start_worker_loop_forever", "many hosts")


def attach(addr: str) -> None:
    """Route this client through a remote host."""
    _missing("attach", "many hosts")


def enable_transport(transport: ChannelTransport | str) -> None:
    """Choose how processes talk to each other. Unix sockets, the only transport so far, are always on.

    Raises:
        ValueError: There is no such transport.
        NotImplementedError: There will be one.
    """
    if ChannelTransport.parse(transport) is not ChannelTransport.Unix:
        _missing("enable_transport", f"many hosts (transport {transport!r})")


def debug_controller() -> Any:
    """The debugger's controller."""
    _missing("debug_controller", "the debugger")


def span(name: str) -> Any:
    """A tracing span."""
    _missing("span", "telemetry")


def traced(*args: Any, **kwargs: Any) -> Any:
    """Trace each call of a function."""
    _missing("traced", "telemetry")


def get_meter() -> Any:
    """A meter for counters and histograms."""
    _missing("get_meter", "telemetry")
