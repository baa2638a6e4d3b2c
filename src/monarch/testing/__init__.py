"""A whole cluster in one process, without sockets, threads or waiting: how do ten thousand hosts behave when some die?

`Simulation` runs the very code that decides, on a real cluster, what gateways and links do, over a network and a clock of
its own. One seed gives one run, event by event. Simulated processes only answer; no user code runs.

    simulation = Simulation(seed=7, hosts=1000)
    cast = simulation.cast()
    simulation.kill_host(12)
    simulation.run(until=cast)
    print(cast.lost, simulation.report())

``python -m monarch.testing --hosts 10000 --kill 100 --seed 1`` does so from a shell. Begin to read in `simulation`.
"""

from __future__ import annotations

from .._public import publish
from .client import Cast
from .network import Partition
from .report import Report
from .simulation import Simulation, Unanswered
from .worker import Costs

__all__ = ["Cast", "Costs", "Partition", "Report", "Simulation", "Unanswered"]

publish(__name__, globals(), __all__)
