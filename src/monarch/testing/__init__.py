"""Actors without processes, for tests of programs.

`local` runs programs of actors in the process of a test, with procs that are objects:

    with local(hosts=2) as hosts:
        counters = hosts.spawn_procs({"gpus": 2}).spawn("counters", Counter)
        assert sum(counters.count.call().get().values()) == 4

`Simulation` is a whole cluster in one process, without sockets, threads or waiting: it says how ten
thousand hosts behave when some die. It runs the code of real gateways and links, over a network and
a clock of its own. One seed gives one run, event by event. Simulated processes only answer; no user
code runs.

    simulation = Simulation(seed=7, hosts=1000)
    cast = simulation.cast()
    simulation.kill_host(12)
    simulation.run(until=cast)
    print(cast.lost, simulation.report())

``python -m monarch.testing --hosts 10000 --kill 100 --seed 1`` does so from a shell. Read
`simulation`, then `in_process`; `inject` has faults for real meshes as well.

Imports `_core.actors`, `_core.routing`, `_core.supervision`, `_core.wire`, `_patterns`,
`testing.in_process`.
"""

from __future__ import annotations

from .._public import publish
from .client import Cast
from .in_process import LocalHosts, local
from .network import Partition
from .report import Report
from .simulation import Simulation, Unanswered
from .worker import Costs

__all__ = [
    "Cast", "Costs", "LocalHosts", "Partition", "Report", "Simulation", "Unanswered", "local",
]  # fmt: skip

publish(__name__, globals(), __all__)
