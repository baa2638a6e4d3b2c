"""Which path is taken: the first that leads to the buffer, and why not the others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ... import config
from .. import errors
from ..grants.records import Grant
from .copy import CopyPath
from .cuda_ipc import CudaPath
from .messages import MessagesPath
from .nixl import NixlPath
from .path import BufferLink, Deadline, Path
from .process_vm import VmPath

if TYPE_CHECKING:
    from ..grants.leases import Lease
    from ..plane import Plane

PATHS: tuple[Path, ...] = (CopyPath(), VmPath(), CudaPath(), NixlPath(), MessagesPath())
"""In the order of preference."""


class PathReport(NamedTuple):
    """The report on one path.

    Attributes:
        path: Its name.
        usable: Whether it leads to the buffer.
        reason: Why not, or what it does.
    """

    path: str
    usable: bool
    reason: str


def allowed() -> Sequence[Path]:
    """The paths of the knob `rdma_paths`, in the order of preference.

    Raises:
        ValueError: It names one that does not exist.
    """
    text: str = config.value("rdma_paths")
    names = {name.strip() for name in text.split(",") if name.strip()}
    unknown = names - {path.name for path in PATHS}
    if unknown:
        known = ", ".join(path.name for path in PATHS)
        raise ValueError(
            f"rdma_paths={text!r} names {', '.join(sorted(unknown))}; there are {known}"
        )
    return [path for path in PATHS if path.name in names] if names else PATHS


def choose(plane: Plane, lease: Lease, grant: Grant, deadline: Deadline) -> BufferLink:
    """Open the first path that leads there.

    Raises:
        NoPathError: None does.
        RDMAError: The buffer is gone.
    """
    # texts: errors would keep the caller's frames, and with them the memory, for the collector
    refused: list[str] = []
    broken: list[str] = []
    permitted = allowed()
    for path in permitted:
        try:
            link = _try(plane, path, lease, grant, deadline)
        except errors.UnavailableError as error:
            refused.append(f"{path.name}: {error}")
            # not meant for this pair is no news; a path that should lead there and fails is
            if not isinstance(error, errors.NotMeantError):
                broken.append(path.name)
        else:
            if broken or (refused and path.name == "messages"):
                _warn_of_fallback(plane, path, lease, [*refused, *_left_out(permitted)], broken)
            return link
    reasons = "; ".join([*refused, *_left_out(permitted)])
    raise errors.NoPathError(f"no path leads to the buffer from here: {reasons}")


def _left_out(permitted: Sequence[Path]) -> list[str]:
    """Describe the paths that the program does not allow, which may be an oversight."""
    names = [path.name for path in PATHS if path not in permitted]
    if names:
        return [f"{', '.join(names)}: left out by rdma_paths={config.value('rdma_paths')!r}"]
    return []


def report(plane: Plane, lease: Lease, grant: Grant, deadline: Deadline) -> list[PathReport]:
    """Report on every path; the first usable one would be taken."""
    reports = []
    permitted = allowed()
    for path in PATHS:
        try:
            if path not in permitted:
                raise errors.UnavailableError(f"rdma_paths is {config.value('rdma_paths')!r}")
            _try(plane, path, lease, grant, deadline)
        except errors.UnavailableError as error:
            reports.append(PathReport(path.name, False, str(error)))
        else:
            reports.append(PathReport(path.name, True, path.way))
    return reports


def give_up(plane: Plane, lease: Lease, grant: Grant, link: BufferLink, reason: str) -> None:
    """A link has turned out not to lead there: the next choice is another one."""
    path = next(path for path in PATHS if path.name == link.path)
    key = path.key(lease, grant)
    plane.note_closed(key, reason)
    plane.links.pop(key, None)
    lease.link = None


def _try(plane: Plane, path: Path, lease: Lease, grant: Grant, deadline: Deadline) -> BufferLink:
    key = path.key(lease, grant)
    link = plane.links.get(key)
    if link is not None:
        return link
    reason = path.refusal(plane, lease, grant)
    if reason is not None:
        raise errors.NotMeantError(reason)
    # remembered: to try a dead path at each transfer would cost more than the transfer
    reason = plane.closed.get(key)
    if reason is not None:
        raise errors.UnavailableError(reason)
    try:
        link = path.connect(plane, lease, grant, deadline)
    except errors.UnavailableError as error:
        plane.note_closed(key, str(error))
        raise
    plane.links[key] = link
    return link


def _warn_of_fallback(
    plane: Plane, path: Path, lease: Lease, refused: Sequence[str], broken: Sequence[str]
) -> None:
    """Warn once per path.

    It could not be opened where it should lead, or bytes go through messages for want of
    another.
    """
    if (path.name, *broken) in plane.told:
        return
    plane.told.add((path.name, *broken))
    kind = errors.RDMATcpFallbackWarning if path.name == "messages" else errors.RDMAWarning
    warnings.warn(
        f"transfers of {lease.info} take path {path.name!r}; {'; '.join(refused)}",
        kind,
        stacklevel=2,
    )
