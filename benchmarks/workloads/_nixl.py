"""nixl used by hand, as its documentation shows: what `monarch.rdma` is compared with where that
library is installed.

Prepared once, posted again for each transfer, and looked at without a pause: as fast as it goes.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.workloads._memory import address_of


@dataclass(frozen=True)
class Offer:
    """What the owner of memory tells others."""

    metadata: bytes
    places: Sequence[tuple[int, int, int]]  # address, bytes, device


class ByHand:
    """One side. Whoever makes it keeps the memory."""

    def __init__(self, memory: Sequence[bytearray]) -> None:
        library: Any = importlib.import_module("nixl._api")
        logging.getLogger("nixl").setLevel(logging.WARNING)
        self._agent = library.nixl_agent(f"{os.getpid()} {id(self)}")
        self._places = [(address_of(part), len(part), 0) for part in memory]
        self._registered = self._agent.register_memory(
            [(*place, "") for place in self._places], "DRAM"
        )

    def offer(self) -> Offer:
        return Offer(self._agent.get_agent_metadata(), self._places)

    def prepare(self, offer: Offer, direction: str) -> Callable[[], None]:
        """One transfer of all parts."""
        agent = self._agent
        handle = agent.initialize_xfer(
            direction.upper(),
            agent.get_xfer_descs(self._places, "DRAM"),
            agent.get_xfer_descs(list(offer.places), "DRAM"),
            agent.add_remote_agent(offer.metadata),
        )

        def once() -> None:
            state = agent.transfer(handle)
            while state == "PROC":
                state = agent.check_xfer_state(handle)
            if state != "DONE":
                raise AssertionError(f"nixl ended a transfer in state {state}")

        return once


def is_installed() -> bool:
    return all(importlib.util.find_spec(name) for name in ("nixl", "torch"))
