"""Control of a running process from outside: its configuration; stopping and restarting a mesh.

Only the same user can send it a control record; see `monarch.programs`. The answers end the
waits, or the end of the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from . import config
from ._answering import answer_on_thread
from ._core.plane import ControlRequest, ControlService, KillProcs, OwnedProcs, handles
from ._namedtuple import NamedTuple
from ._patterns.activities import owners_of

__all__ = ["GetAdmin", "GetJob", "GetSettings", "KillProcs", "OwnedMesh"]  # for the admin interface

admin: Callable[[str], dict[str, str]] | None = None
"""In a client: how to reach its admin interface in a role; None while there is none."""

job = ""
"""In a client: the job with the hosts that it uses, for people; empty while it uses none."""


class GetSettings(NamedTuple):
    """Which configuration is in force?

    Anybody ──▶ any process. Answer: the list of `config.settings`.
    """


class GetAdmin(NamedTuple):
    """How can the admin interface be reached?

    A client beside the program ──▶ the client. Answer: a dict; None if there is none.

    Attributes:
        role: As whom.
    """

    role: str


class GetJob(NamedTuple):
    """Which job does the program use, or is it a part of?

    A client beside the program ──▶ the client. Answer: the job, for people; empty for none.
    """


class OwnedMesh(NamedTuple):
    """Ask for the owner of a mesh, and stop the mesh if wanted.

    A client beside the program ──▶ a process that may own it. Answer: whether its procs start again
    when they end, once it has stopped; None if it is not owned here.

    Attributes:
        uid: Of a mesh of procs.
        stop: The reason why it is to be stopped; empty for a question.
    """

    uid: str
    stop: str = ""


@handles(GetSettings)
def _get_settings(service: ControlService, request: ControlRequest, record: GetSettings) -> None:
    request.answer(config.settings())


@handles(GetAdmin)
def _get_admin(service: ControlService, request: ControlRequest, record: GetAdmin) -> None:
    request.answer(admin(record.role) if admin is not None else None)


@handles(GetJob)
def _get_job(service: ControlService, request: ControlRequest, record: GetJob) -> None:
    number, name = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_NAME", "")
    slurm = f"Slurm job {number} {name}".strip() if number else ""
    request.answer(", ".join(filter(None, (job, slurm))))


@handles(OwnedMesh)
def _owned_mesh(service: ControlService, request: ControlRequest, record: OwnedMesh) -> None:
    for owner in owners_of(service.hub):
        mesh = owner.ownership.get(record.uid)
        if isinstance(mesh, OwnedProcs):
            restarts = mesh.group is not None
            if not record.stop:
                request.answer(restarts)
            else:
                answer_on_thread(request, "monarch-stop", _stop, mesh, record.stop, restarts)
            return
    request.answer(None)


def _stop(mesh: OwnedProcs, reason: str, restarts: bool) -> bool:
    mesh.stop(reason).get()
    return restarts


HANDLERS = (_get_settings, _get_admin, _get_job, _owned_mesh)
