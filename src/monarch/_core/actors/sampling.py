"""Where actors reach telemetry, a guest: imported where `telemetry` is configured."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ... import config
from ..extension import Sampler, exporter, sampler

if TYPE_CHECKING:
    from ..hub.message_hub import MessageHub

OFF = "off"
_COLLECTORS = [
    f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "METRICS_", "TRACES_", "LOGS_")
]


def export(hub: MessageHub, mesh: Callable[[], str], rank: int) -> None:
    """Have a collector of OpenTelemetry told what this process does, if the environment names one.

    Args:
        mesh: Gives the name of its mesh.
    """
    if any(map(os.environ.get, _COLLECTORS)):
        exporter(hub, mesh, rank)


def start(hub: MessageHub) -> Sampler | None:
    """One for an actor of this process."""
    mode = config.value("telemetry")
    return None if mode == OFF else sampler(hub, mode)
