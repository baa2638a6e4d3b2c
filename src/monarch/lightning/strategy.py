"""A strategy of Lightning: its `DistributedDataParallel`, in procs of ours.

The procs are started for each run of the trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from lightning.fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers.launcher import _Launcher
from lightning.pytorch.trainer.states import TrainerFn, TrainerState

from ..actor import Actor, HostMesh, endpoint
from ..spmd import setup_torch_elastic_env


class MeshStrategy(DDPStrategy):
    """`DistributedDataParallel` on a mesh of hosts.

    `fit`, `validate`, `test` and `predict` each start `devices` procs on each host, have all of
    them run, and stop them. The trainer, the module and the data travel there by pickle. Back come
    the weights, metrics, the state of callbacks and what rank 0 returns; an error of any rank is
    raised here, and ends the others.

    Args:
        hosts: As many as the trainer's `num_nodes`, as `this_host()` or the `state()` of a job has
            them.
        **options: What Lightning's `DDPStrategy` takes, for example
            ``process_group_backend="gloo"``.

    Raises:
        TypeError: `hosts` is no mesh of hosts, or an option has no meaning here.
    """

    def __init__(self, hosts: HostMesh, **options: Any) -> None:
        if not isinstance(hosts, HostMesh):
            raise TypeError(f"MeshStrategy takes a HostMesh, as this_host() returns, got {hosts!r}")
        if taken := options.keys() & {"start_method", "cluster_environment"}:
            raise TypeError(
                f"MeshStrategy starts the processes itself: leave out {', '.join(sorted(taken))}"
            )
        super().__init__(cluster_environment=LightningEnvironment(), **options)
        self._hosts: HostMesh | None = hosts

    def _configure_launcher(self) -> None:
        if self._hosts is not None:  # on a rank there is nothing to launch
            self._launcher = _MeshLauncher(self, self._hosts)

    def _become_rank(self) -> None:
        """Go on as one of the ranks, with its place in the variables of torch elastic."""
        self.cluster_environment = TorchElasticEnvironment()
        self.set_world_ranks()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_hosts": None, "_launcher": None}


class _MeshLauncher(_Launcher):
    """Runs a function of the trainer on new procs, and returns what it left in rank 0."""

    is_interactive_compatible = True

    def __init__(self, strategy: MeshStrategy, hosts: HostMesh) -> None:
        self.strategy, self.hosts = strategy, hosts
        self.fitted = False

    def launch(
        self,
        function: Callable[..., Any],
        *args: Any,
        trainer: Trainer | None = None,
        **kwargs: Any,
    ) -> Any:
        if trainer is None:
            raise TypeError(
                "MeshStrategy launches what a Trainer does: fit, validate, test, predict"
            )
        fitting = trainer.state.fn == TrainerFn.FITTING
        if fitting and self.fitted:
            raise NotImplementedError(
                "this Trainer has fitted: make a new one, and pass fit(ckpt_path=...) to go on"
            )
        nodes, devices = self.strategy.num_nodes, self.strategy.num_processes
        if len(self.hosts) != nodes:
            raise ValueError(
                f"Trainer(num_nodes={nodes}) needs {nodes} hosts, its MeshStrategy has"
                f" {len(self.hosts)}"
            )
        procs = self.hosts.spawn_procs({"devices": devices}, name="lightning")
        try:
            setup_torch_elastic_env(procs)
            ranks = procs.spawn("lightning", _Rank)
            returned = ranks.run.call(function, args, kwargs, trainer).get()
        finally:
            procs.stop().get()  # also ranks that wait in a collective for one that has failed
        outcome = next(each for each in returned.values() if each is not None)
        self.fitted |= fitting
        outcome.restore(trainer)
        return outcome.value

    def kill(self, signum: Any) -> None:
        """Nothing: procs end with their owner, and `launch` stops them."""


class _Rank(Actor):
    @endpoint
    def run(
        self, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], trainer: Trainer
    ) -> _Outcome | None:
        strategy = trainer.strategy
        assert isinstance(strategy, MeshStrategy)
        strategy._become_rank()
        value = function(*args, **kwargs)
        outcome = _Outcome.of(trainer, value)  # on all ranks: a state may be gathered
        return outcome if strategy.is_global_zero else None


@dataclass
class _Outcome:
    """The final state of rank 0, on the CPU."""

    value: Any
    state: TrainerState
    weights: dict[str, Any]
    metrics: dict[str, torch.Tensor]
    callbacks: list[dict[str, Any]]

    @staticmethod
    def of(trainer: Trainer, value: Any) -> _Outcome:
        """Collect it of a trainer that has run."""
        return _Outcome(
            _on_cpu(value),
            trainer.state,
            _on_cpu(trainer.lightning_module.state_dict()),
            _on_cpu(dict(trainer.callback_metrics)),
            [_on_cpu(callback.state_dict()) for callback in trainer.callbacks],  # type: ignore[attr-defined]
        )

    def restore(self, trainer: Trainer) -> None:
        """Put it into the trainer that launched."""
        trainer.state = self.state
        # a module may add layers as it runs
        trainer.lightning_module.load_state_dict(self.weights, strict=False)
        trainer.callback_metrics.update(self.metrics)
        for callback, state in zip(trainer.callbacks, self.callbacks, strict=False):  # type: ignore[attr-defined]
            if "dirpath" in state:  # a checkpoint's path is chosen on the ranks
                callback.dirpath = state["dirpath"]
            if state:
                callback.load_state_dict(state)


def _on_cpu(value: Any) -> Any:
    from lightning.fabric.utilities import move_data_to_device

    return move_data_to_device(value, "cpu")
