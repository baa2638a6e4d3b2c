"""A test of a tensor program, in the process of the test."""

import sys

import pytest
import torch

from monarch import inspect, reduce
from monarch.testing import LocalHosts, local


# region tensors
def mean_gradient(hosts: LocalHosts) -> torch.Tensor:
    """The program under test."""
    procs = hosts.spawn_procs({"gpus": 2})
    with procs.activate() as mesh:
        weight = torch.zeros(3, requires_grad=True)
        batch = torch.ones(3) + mesh.rank("gpus")  # ones where gpus=0, twos where gpus=1
        (weight * batch).sum().backward()
        gradient: torch.Tensor = inspect(reduce(weight.grad, "gpus", "avg"))
    return gradient


def test_gradients_are_averaged_over_the_ranks() -> None:
    with local() as hosts:
        assert mean_gradient(hosts).tolist() == [1.5, 1.5, 1.5]


# endregion

if __name__ == "__main__":  # the check of the docs runs it as a program
    sys.exit(pytest.main(["-q", __file__]))
