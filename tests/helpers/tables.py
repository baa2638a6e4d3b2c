"""Tables of telemetry as tests read them, nearly always with the answers of all processes."""

from __future__ import annotations

from typing import Any

from helpers.waiting import PATIENCE, wait_until
from monarch.actor import this_host
from monarch.telemetry import Collected, read


def here(*names: str, **options: Any) -> Collected:
    """Those of this host, without processes that are late: other tests may have left hosts that are
    lost.
    """
    return read(*names, hosts=this_host(), **options).get(timeout=PATIENCE)


def tables(*names: str, **options: Any) -> Collected:
    """As `here`, but read again where a process was late, as one may be on a busy machine."""

    def complete() -> Collected | None:
        found = here(*names, **options)
        return None if found.silent else found

    found = wait_until(complete, what=f"{', '.join(names)} of all processes")
    assert found is not None
    return found


def rows(name: str, **options: Any) -> list[dict[str, Any]]:
    """All rows of a table of this host."""
    found = tables(name, **options)
    assert not found.left_out
    return found.rows(name)
