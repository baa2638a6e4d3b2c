"""The result of `state()`: the host meshes of a running job, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..._lazy import shown_by
from ...actor import HostMesh

if TYPE_CHECKING:
    from ...telemetry import QueryEngineClient


class JobState:
    """The host meshes of a running job: ``state.trainers`` is the mesh called trainers.

    Args:
        hosts: Name to mesh. Their order is that in which the job describes them; some tools take
            the first.

    Attributes:
        query_engine: Always None; programs for old versions read it.
        query_engine_client: Asks this program in SQL, where the job has telemetry; else None.
        telemetry_url: Where telemetry answers queries, or None.
        dashboard_url: A link to the dashboard, where the job has one; else None. It lets a browser
            in once, within an hour, and `monarch dashboard` prints others.
        admin_url: Where the job's admin interface is, or None.

    Raises:
        ValueError: A mesh has a name that could not be read as an attribute.
    """

    query_engine: None = None
    query_engine_client: QueryEngineClient | None = None
    telemetry_url: str | None = None
    dashboard_url: str | None = None
    admin_url: str | None = None
    _repr_html_ = shown_by("job_state")

    def __init__(self, hosts: Mapping[str, HostMesh]) -> None:
        check_mesh_names(hosts)
        self._hosts = dict(hosts)

    def __getattr__(self, name: str) -> HostMesh:
        # absent while an object is being copied
        hosts: dict[str, HostMesh] = self.__dict__.get("_hosts", {})
        if name in hosts:
            return hosts[name]
        known = ", ".join(sorted(hosts)) or "none"
        raise AttributeError(f"{name!r} is not a valid host mesh name of this job; it has: {known}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._hosts})

    def __repr__(self) -> str:
        return f"JobState(hosts={self._hosts!r})"


def check_mesh_names(names: Iterable[str]) -> None:
    """Refuse names under which a `JobState` could not give a mesh.

    Raises:
        TypeError: A name is no string.
        ValueError: It is empty, begins with an underscore or as an option does, has a slash or a
            character that is not shown, or is an attribute that every `JobState` has.
    """
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the name of a host mesh is a string, got {name!r}")
        if not name or name.startswith(("_", "-")) or "/" in name or not name.isprintable():
            raise ValueError(
                f"a host mesh can't be called {name!r}: give it a name without '/', line breaks and"
                " leading '_' or '-'"
            )
        if hasattr(JobState, name):
            raise ValueError(
                f"a host mesh can't be called {name!r}: state().{name} means something else"
            )
