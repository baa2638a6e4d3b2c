"""The admin interface of a program that uses a job."""

from __future__ import annotations

import logging
import os

from .. import admin
from ..errors import JobError
from . import telemetry
from .features import ImpliedAdmin, MeshAdminConfig

logger = logging.getLogger("monarch.job")

_URL = "MONARCH_ADMIN_URL"  # in the environment, as Monarch 0.7 has it


def open_for(wanted: MeshAdminConfig | None) -> str | None:
    """Open the interface of this program, if the job asks for it, and this program does more than to look; returns its URL.

    Raises:
        JobError: Its address is taken, or none; or it would need TLS.
        ImportError: What it needs is not installed.
    """
    if wanted is None or telemetry.looks_on():
        return None
    try:
        url = admin.access(addr=wanted.admin_addr)["url"]
    except ImportError as error:
        if not isinstance(wanted, ImpliedAdmin):
            raise
        logger.info("telemetry has no admin interface: %s", error)
        return None
    except (OSError, ValueError) as error:
        raise JobError(getattr(error, "strerror", None) or str(error)) from error
    os.environ[_URL] = url
    return url
