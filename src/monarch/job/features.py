"""What a job can be asked for beside hosts. The requests are kept with the job; who serves them is written elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn


@dataclass
class TelemetryConfig:
    """Configuration of the telemetry of a job.

    Attributes:
        retention_secs: Age in seconds after which records may go.
        include_dashboard: Whether to serve the dashboard as well.
        dashboard_port: TCP port of the dashboard; 0 for any.
        snapshot_interval_secs: Seconds between two records of the whole tree of actors.
    """

    retention_secs: int = 3600
    include_dashboard: bool = False
    dashboard_port: int = 8265
    snapshot_interval_secs: float = 30.0


@dataclass
class MeshAdminConfig:
    """Configuration of the admin interface of a job.

    Attributes:
        admin_addr: ``"host:port"``, or None for the default.
    """

    admin_addr: str | None = None


def missing(name: str, feature: str) -> NoReturn:
    """Say what a name of the API lacks so far."""
    raise NotImplementedError(f"{name} needs {feature}, which this version of pymonarch does not have yet")
