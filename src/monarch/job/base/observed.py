"""Telemetry and the admin interface of a job, and questions to the program that uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ... import why as verdicts
from ...errors import JobError
from . import telemetry
from .features import ImpliedAdmin, MeshAdminConfig, TelemetryConfig, config_of

if TYPE_CHECKING:
    from .trait import JobTrait

Self = TypeVar("Self", bound="Observed")


class Observed:
    """The part of `JobTrait` that looks."""

    _telemetry: TelemetryConfig | None = None
    _admin: MeshAdminConfig | None = None

    @property
    def _owner(self) -> JobTrait:
        raise NotImplementedError

    def enable_telemetry(
        self: Self,
        config: TelemetryConfig | None = None,
        *,
        mesh_admin_config: MeshAdminConfig | None = None,
        **kwargs: Any,
    ) -> Self:
        """Have processes on the hosts remember messages, and keep a file of a run that fails.

        It holds for processes that are spawned from now on.

        Args:
            config: How; or its fields by keyword.
            mesh_admin_config: As for `enable_admin`.
            **kwargs: Fields of a `TelemetryConfig`.

        Returns:
            This job.

        Raises:
            TypeError: Both a config and its fields are given, or there is no such field.
        """
        self._telemetry = config_of(TelemetryConfig, config, kwargs)
        self._admin = config_of(
            MeshAdminConfig, mesh_admin_config or self._admin or ImpliedAdmin(), {}
        )
        return self

    def enable_admin(self: Self, config: MeshAdminConfig | None = None, **kwargs: Any) -> Self:
        """Have `state` open the admin interface of this program, over HTTP.

        It is given by a config or its fields; see docs/admin.md.

        Args:
            config: The configuration; or its fields by keyword.
            **kwargs: Fields of a `MeshAdminConfig`.

        Returns:
            This job.

        Raises:
            TypeError: Both a config and its fields are given, or there is no such field.
        """
        self._admin = config_of(MeshAdminConfig, config, kwargs)
        return self

    def why(self, seconds: float = 1.0) -> verdicts.Verdict:
        """Say why this program does not go on, from looks `seconds` apart.

        Before `state` it raises a JobError. See `monarch.why`.

        Args:
            seconds: Time between the looks; more than 0.

        Returns:
            The verdict.
        """
        if not self._owner._connected:
            raise JobError("this program has not connected to the job: call state() first")
        return verdicts.why(seconds=seconds)

    def profile(
        self,
        on_trace_ready: Callable[[telemetry.Profile], object] | None = None,
        *,
        seconds: float | None = None,
        torch: bool = False,
    ) -> telemetry.Profile:
        """Record what all processes of this program do while a ``with`` runs.

        The file is for ui.perfetto.dev.

        Args:
            on_trace_ready: Called with the profile once the block has ended without an exception.
            seconds: Record for so long now, and return the profile when it is done; without
                ``with``.
            torch: Have torch's profiler run in each process that uses torch, too.

        Returns:
            A context manager, for one use; then its ``export_perfetto_trace(path)`` writes the
            file.

        Raises:
            RuntimeError: The job has no telemetry, or this program has not called `state`.
        """
        if not self._has_telemetry:
            raise RuntimeError("profile() needs telemetry: call enable_telemetry() before state()")
        if not self._owner._connected:
            raise RuntimeError("this program has not connected to the job: call state() first")
        return telemetry.profile(on_trace_ready, seconds, torch)

    def telemetry_query_client(self) -> telemetry.QueryEngineClient:
        """Return a client for the telemetry of the job as it runs, in this or another program.

        It attaches nothing.

        Raises:
            JobError: The job does not run, has no telemetry, or no program on this machine uses it.
        """
        owner = self._owner
        if not owner.active or not owner._is_running():
            raise JobError(f"{self!r} does not run: state() starts it")
        if not self._has_telemetry:
            raise JobError(f"{self!r} has no telemetry: call enable_telemetry() before state()")
        return telemetry.client_of(owner._folder_of_logs(), repr(owner), bool(owner._connected))

    @property
    def _has_telemetry(self) -> bool:
        return self._telemetry is not None or self._owner._telemetry is not None
