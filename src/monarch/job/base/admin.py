"""The admin interface of a program that uses a job."""

from __future__ import annotations

import logging
import os

from ... import admin
from ...errors import JobError
from . import telemetry
from .features import ImpliedAdmin, MeshAdminConfig, TelemetryConfig

logger = logging.getLogger("monarch.job")

_URL = "MONARCH_ADMIN_URL"  # in the environment, as Monarch 0.7 has it


def open_for(
    wanted: MeshAdminConfig | None, observed: TelemetryConfig | None
) -> dict[str, str] | None:
    """Open the admin interface of this program, and return how to get in.

    That is done only if the job asks for it and this program does more than look.

    Args:
        wanted: How.
        observed: The telemetry of the job: its dashboard is a part of the interface, which then is
            at its port, unless `wanted` has an address.

    Raises:
        JobError: Its address is taken, or none; or it would need TLS.
        ImportError: A library that it needs is not installed.
    """
    if wanted is None or telemetry.looks_on():
        return None
    has_dashboard = observed is not None and observed.include_dashboard
    address = wanted.admin_addr
    if observed is not None and has_dashboard and address is None:
        address = f"127.0.0.1:{observed.dashboard_port}"
    try:
        access = admin.access(addr=address)
    except ImportError as error:
        if has_dashboard or not isinstance(wanted, ImpliedAdmin):
            raise
        logger.info("telemetry has no admin interface: %s", error)
        return None
    except (OSError, ValueError) as error:
        raise JobError(getattr(error, "strerror", None) or str(error)) from error
    os.environ[_URL] = access["url"]
    return access
