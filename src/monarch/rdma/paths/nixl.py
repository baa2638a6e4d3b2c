"""Path ``nixl``: the library of that name moves bytes by RDMA devices, through UCX.

Devices are InfiniBand, RoCE and EFA, also of GPUs.

Taken between machines that have such devices, or where the knob `rdma_paths` names it: without
devices UCX takes TCP, in the clear and to all who know the address; by the interface that leads to
the other machine, unless ``UCX_NET_DEVICES`` names one. Needs the extra ``pymonarch[rdma]`` on both
sides.

The owner registers a buffer at the first transfer by this path, and until it is let go; the other
side registers its memory for each transfer, since the end of its use is not known. Registering
costs some microseconds per MiB with devices, and next to nothing with TCP. Progress is made by a
thread of the library, so nothing of the owner's Python takes part.

What ends a wait: the transfer; the end of the owner, of which UCX learns if its process ends, and
`OwnerWatch` if its machine falls silent; or the deadline. After that the library is asked to
cancel; where a device can't, writes that were under way may still complete.
"""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ... import config
from ..._core.plane import Hub, ProcAddress
from ..availability import is_ibverbs_available
from ..errors import RDMAError, UnavailableError
from ..grants.control_rpc import OwnerWatch, ask
from ..grants.records import Grant, NixlOffer, NixlRequest, Refusal, here
from .chunking import batches
from .nixl_agent import NOT_INSTALLED, place_of
from .path import BufferLink, Deadline, Path, Piece

if TYPE_CHECKING:
    from ..grants.leases import Lease
    from ..plane import Plane

# seconds between two looks at a transfer, which has no way to wake anybody
_FIRST_LOOK, _LAST_LOOK = 50e-6, 2e-3
_PART = 256 << 20
"""Bytes in one transfer of the library: enough not to notice where one ends, and little enough to
tell how far it came.
"""


class NixlPath(Path):
    """The path through RDMA devices."""

    name = "nixl"
    way = "RDMA devices, or what else UCX finds"

    def refusal(self, plane: Plane, lease: Lease, grant: Grant) -> str | None:
        if "nixl" not in config.value("rdma_paths"):
            if grant.place == here():
                return "the owner is on this machine"
            if not is_ibverbs_available():
                return "there is no RDMA device here; without one it would send in the clear"
        return None if importlib.util.find_spec("nixl") else NOT_INSTALLED

    def connect(self, plane: Plane, lease: Lease, grant: Grant, deadline: Deadline) -> BufferLink:
        owner = lease.info.owner
        agent = plane.nixl(owner).agent
        question = ask(plane.hub, owner, NixlRequest(lease.claim), "access by nixl")
        try:
            offer = question.get(timeout=min(config.value("rdma_qp_init_timeout"), deadline.left()))
        except TimeoutError as error:
            deadline.check()
            raise UnavailableError(
                f"the owner did not answer: {error} (rdma_qp_init_timeout)"
            ) from None
        if isinstance(offer, Refusal):
            raise UnavailableError(f"the owner refused: {offer.reason}")
        try:
            name = agent.add_remote_agent(offer.metadata)
        except Exception as error:
            raise UnavailableError(
                f"nixl does not reach the owner: {type(error).__name__}: {error}"
            ) from None
        return NixlLink(
            plane.hub, owner, agent, name.decode() if isinstance(name, bytes) else name, offer
        )

    def key(self, lease: Lease, grant: Grant) -> tuple[object, ...]:
        return (self.name, lease.info.owner, grant.pid, lease.info.id)


class NixlLink(BufferLink):
    """A link to one buffer."""

    path = "nixl"
    moves_devices = True

    def __init__(
        self, hub: Hub, owner: ProcAddress, agent: Any, name: str, offer: NixlOffer
    ) -> None:
        self._hub = hub
        self._owner = owner
        self._agent = agent
        self._name = name
        self._offer = offer

    def move(
        self, pieces: Sequence[Piece], write: bool, deadline: Deadline, moved: Callable[[int], None]
    ) -> None:
        by_place: dict[tuple[str, int], list[Piece]] = {}
        for piece in pieces:
            by_place.setdefault(place_of(piece.memory), []).append(piece)
        for (kind, device), group in by_place.items():
            for batch in batches(group, _PART):
                self._move(batch, kind, device, write, deadline)
                moved(sum(piece.nbytes for piece in batch))

    def _move(
        self, pieces: Sequence[Piece], kind: str, device: int, write: bool, deadline: Deadline
    ) -> None:
        offer, agent = self._offer, self._agent
        local = [(piece.memory.address + piece.start, piece.nbytes, device) for piece in pieces]
        remote = [(offer.address + piece.offset, piece.nbytes, offer.device) for piece in pieces]
        registered = handle = None
        try:
            registered = agent.register_memory([(*place, "") for place in local], kind)
            handle = agent.initialize_xfer(
                "WRITE" if write else "READ",
                agent.get_xfer_descs(local, kind),
                agent.get_xfer_descs(remote, offer.kind),
                self._name,
            )
            self._wait(handle, deadline)
        except (RDMAError, UnavailableError):
            raise
        except Exception as error:  # of the library
            raise UnavailableError(
                f"nixl could not move the bytes: {type(error).__name__}: {error}"
            ) from None
        finally:
            if handle is not None:
                _quietly(agent.release_xfer_handle, handle)
            if registered is not None:
                _quietly(agent.deregister_memory, registered)

    def _wait(self, handle: Any, deadline: Deadline) -> None:
        state, pause = self._agent.transfer(handle), _FIRST_LOOK
        watch = OwnerWatch(self._hub, self._owner)
        while state == "PROC":
            deadline.check()
            watch.check()
            time.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK)
            state = self._agent.check_xfer_state(handle)
        if state != "DONE":
            raise UnavailableError(f"nixl could not move the bytes: its state is {state}")


def _quietly(release: Callable[[Any], object], what: Any) -> None:
    """Release what a failed transfer may still use; the library does so later if it can't now."""
    try:
        release(what)
    except Exception:
        logging.getLogger("monarch.rdma").debug("nixl did not release %r", what, exc_info=True)
