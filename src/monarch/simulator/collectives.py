"""How long it takes to move data between ranks.

Pure arithmetic; the formulas are those of the literature.

With N members, S bytes at each, a latency of a seconds per message and b bytes per second:

==============  =======================================  =====================================================
all-reduce      2 (N - 1) (a + S / (N b))                ring: Patarasuk and Yuan, "Bandwidth optimal all-reduce
                                                         algorithms for clusters of workstations",
                                                         2009
                2 ceil(log2 N) a + 2 S / b               pipelined tree, for small S: Sanders, Speck and Träff,
                                                         "Two-tree algorithms", 2009; what NCCL
                                                         calls tree
all-gather      (N - 1) (a + S / b)                      ring: Thakur, Rabenseifner and Gropp, "Optimization of
reduce-scatter  (N - 1) (a + S / (N b))                  collective communication operations in MPICH", 2005
all-to-all      (N - 1) (a + S / (N b))                  pairwise exchange, the same
transfer        R (a + S / b)                            one message to each of R receivers, one after the other
==============  =======================================  =====================================================

Between hosts each rank has its own share of the network, and rings are laid so that all shares are
used: with m members on each host, b is m times the share, but no more than ranks of one host have
among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil, log2
from typing import NamedTuple

from .machine import Link, Machine


class Layout(NamedTuple):
    """How members are spread over hosts.

    Attributes:
        size: How many there are.
        hosts: Over how many hosts.
        together: How many are on the host that has fewest.
    """

    size: int
    hosts: int
    together: int


def layout_of(members: Sequence[int], per_host: int) -> Layout:
    """The layout of ranks, of which `per_host` in a row are on one host."""
    counts = Counter(rank // per_host for rank in members)
    return Layout(len(members), len(counts), min(counts.values()))


def link_of(layout: Layout, machine: Machine) -> Link:
    """Return the link between the members."""
    if layout.hosts == 1:
        return machine.host
    shares = layout.together * machine.network.bandwidth
    return Link(
        machine.network.latency,
        min(shares, machine.host.bandwidth) if layout.together > 1 else shares,
    )


def all_reduce(size: float, layout: Layout, machine: Machine) -> float:
    """Seconds, for `size` bytes at each member."""
    n, link = layout.size, link_of(layout, machine)
    if n == 1:
        return 0.0
    ring = 2 * (n - 1) * (link.latency + size / n / link.bandwidth)
    tree = 2 * ceil(log2(n)) * link.latency + 2 * size / link.bandwidth
    return min(ring, tree) if machine.trees else ring


def all_gather(size: float, layout: Layout, machine: Machine) -> float:
    """Seconds, for `size` bytes at each member before."""
    link = link_of(layout, machine)
    return (layout.size - 1) * (link.latency + size / link.bandwidth)


def all_to_all(size: float, layout: Layout, machine: Machine) -> float:
    """Seconds, for `size` bytes at each member; also of a reduce-scatter, which moves as much."""
    link = link_of(layout, machine)
    return (layout.size - 1) * (link.latency + size / layout.size / link.bandwidth)


def transfer(size: float, receivers: int, same_host: bool, machine: Machine) -> float:
    """Seconds, for `size` bytes to each of some receivers."""
    link = machine.host if same_host else machine.network
    return receivers * (link.latency + size / link.bandwidth)
