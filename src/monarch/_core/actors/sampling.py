"""The hook from actors to message telemetry, a plane: imported where `telemetry` is configured."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ... import config

if TYPE_CHECKING:
    from ..hub.contracts import Origin
    from ..hub.message_hub import MessageHub
    from ..wire.frame import Frame

OFF = "off"
_COLLECTORS = [
    f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "METRICS_", "TRACES_", "LOGS_")
]


class Sampler(Protocol):
    """Looks at some of the messages of an actor.

    Attributes:
        gap: Messages until the next that it looks at, that one included. The cell counts down: to
            ask for each message costs more than to handle some. Set anew by `begin`.
    """

    gap: int

    def begin(self, origin: Origin, frame: Frame) -> None:
        """Note that a message is about to be handled."""

    def raised(self, frame: Frame) -> None:
        """Note that its endpoint has raised."""

    def done(self, frame: Frame) -> None:
        """Note that it has been handled."""


def export(hub: MessageHub, mesh: Callable[[], str], rank: int) -> None:
    """Have a collector of OpenTelemetry told what this process does, if the environment names one.

    Args:
        mesh: Gives the name of its mesh.
    """
    if any(map(os.environ.get, _COLLECTORS)):
        importlib.import_module("monarch.telemetry.otlp").start(hub, mesh, rank)


def start(hub: MessageHub) -> Sampler | None:
    """One for an actor of this process."""
    mode = config.value("telemetry")
    if mode == OFF:
        return None
    made: Sampler = importlib.import_module("monarch.telemetry.messages").start(hub, mode)
    return made
