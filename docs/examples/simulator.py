"""The simulator: each region is a piece of docs/simulator.md."""

import os
import tempfile

import torch

from monarch import Simulator, inspect, reduce_, remote
from monarch.simulator import MACHINES, Link, replay

folder = tempfile.TemporaryDirectory()  # for the traces
os.chdir(folder.name)

# region first
simulator = Simulator(hosts=4, gpus=8, machine="h100")  # 32 ranks
with simulator.mesh.activate():
    weights = torch.randn(4096, 4096, dtype=torch.bfloat16)
    simulator.step()  # what came before is not of interest
    product = weights @ weights
    reduce_(product, ("host", "gpu"), "avg")
    assert inspect(product).shape == (4096, 4096)  # all zeros: nothing was computed
    seconds, megabytes = simulator.step()  # and writes trace_1.json
# endregion
assert 0 < seconds < 1
assert megabytes == 96

# region cost
load = remote("my_package.data.load", propagate=lambda: torch.empty(64, 4096))
simulator.set_cost(load, 3e-3)  # seconds on a rank; or a function of the tensors that it gets
with simulator.mesh.activate():
    batch = load()
# endregion
assert simulator.step().seconds >= 3e-3

# region replay
recorded = Simulator(4, 8, simulate_mode="command_history", command_history_path="program.pkl")
with recorded.mesh.activate():
    reduce_(torch.ones(1_000_000), ("host", "gpu"))
recorded.step()
for gigabytes in (10, 20, 40):
    machine = MACHINES["h100"].replace(network=Link(latency=8e-6, bandwidth=gigabytes * 1e9))
    print(replay("program.pkl", machine))
# endregion

os.chdir("/")
folder.cleanup()
