"""The features that a job can be asked for beside hosts.

The requests are kept with the job; they are served elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

ConfigT = TypeVar("ConfigT")


@dataclass
class TelemetryConfig:
    """Configuration of the telemetry of a job.

    Attributes:
        retention_secs: Age in seconds after which records may go.
        include_dashboard: Whether to serve the dashboard as well: then ``state().dashboard_url`` is
            a link to it.
        dashboard_port: TCP port of the dashboard, on this machine; 0 for any. It is a part of the
            admin interface: where that has an address of its own, it is there.
        snapshot_interval_secs: Seconds between two records of the whole tree of actors.
        keep_run: Whether to keep the file of the run at its end, too, and not only where a failure
            ends it.
    """

    retention_secs: int = 3600
    include_dashboard: bool = False
    dashboard_port: int = 8265
    snapshot_interval_secs: float = 30.0
    keep_run: bool = False


@dataclass
class MeshAdminConfig:
    """Configuration of the admin interface of a job.

    Attributes:
        admin_addr: Where it listens: ``"host:port"``, port 0 for any; None for the key
            ``mesh_admin_addr`` of the configuration, which is any port of this machine.
    """

    admin_addr: str | None = None


class ImpliedAdmin(MeshAdminConfig):
    """The telemetry of a job that does not mention it.

    The job goes on without, where the packages are missing.
    """


def config_of(kind: type[ConfigT], config: ConfigT | None, fields: dict[str, Any]) -> ConfigT:
    """The configuration that is given as such, or by its fields.

    Raises:
        TypeError: Both are given, or it is of another kind, or there is no such field.
    """
    if config is None:
        return kind(**fields)
    if fields:
        raise TypeError(
            f"give either a {kind.__name__} or its fields, got both: {config!r} and {fields}"
        )
    if not isinstance(config, kind):
        raise TypeError(f"expected a {kind.__name__}, got {config!r}")
    return config
