"""The library ``nixl`` in this process.

It has an agent, and the buffers that are registered with it for others to reach.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import threading
from typing import Any

from ..availability import is_ibverbs_available
from ..errors import UnavailableError
from ..grants.records import Claim, NixlOffer
from ..memory import DeviceMemory, Memory
from .interfaces import interface_between

NOT_INSTALLED = "nixl is not installed (pip install 'pymonarch[rdma]')"
_BACKEND = "UCX"


class NixlAgent:
    """The library, once per process.

    Args:
        name: That no other process has.
        here: This host.
        there: The host that it is started for; see `interface_between`.

    Raises:
        UnavailableError: It is not installed, or does not start.
    """

    def __init__(self, name: str, here: str, there: str) -> None:
        if not importlib.util.find_spec("nixl"):
            raise UnavailableError(NOT_INSTALLED)
        try:
            library: Any = importlib.import_module("nixl._api")
            # it tells of itself on standard output
            logging.getLogger("nixl").setLevel(logging.WARNING)
            strict = library.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
            self.agent = library.nixl_agent(
                name, library.nixl_agent_config(backends=[], sync_mode=strict)
            )
            self.agent.create_backend(_BACKEND, _settings(here, there))
        except Exception as error:  # a missing library of the system, a device that does not answer
            raise UnavailableError(
                f"nixl does not start: {type(error).__name__}: {error}"
            ) from None
        self._lock = threading.Lock()
        self._offers: dict[int, tuple[Any, NixlOffer]] = {}

    def offer(self, claim: Claim, memory: Memory) -> NixlOffer:
        """Register a buffer, in its owner, and return what others need to reach it."""
        with self._lock:
            known = self._offers.get(claim.id)
            if known is not None:
                return known[1]
            kind, device = place_of(memory)
            registered = self.agent.register_memory(
                [(memory.address, memory.nbytes, device, "")], kind
            )
            metadata = self.agent.get_partial_agent_metadata(
                registered, inc_conn_info=True, backends=[_BACKEND]
            )
            offer = NixlOffer(bytes(metadata), memory.address, kind, device)
            self._offers[claim.id] = registered, offer
            return offer

    def withdraw(self, buffer: int) -> None:
        """Let go of a buffer, in its owner."""
        with self._lock:
            known = self._offers.pop(buffer, None)
        if known is not None:
            self.agent.deregister_memory(known[0])


def _settings(here: str, there: str) -> dict[str, str]:
    """The settings of the library's UCX."""
    if "UCX_NET_DEVICES" in os.environ or is_ibverbs_available():
        return {}
    interface = interface_between(here, there)
    return {} if interface is None else {"engine_config": f"NET_DEVICES={interface}"}


def place_of(memory: Memory) -> tuple[str, int]:
    """Return the library's name for the kind of a memory, and the number of its device."""
    if not isinstance(memory, DeviceMemory):
        return "DRAM", 0
    return "VRAM", memory.tensor.device.index or 0
