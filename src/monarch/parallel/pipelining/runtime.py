"""Runs the schedule of a pipeline, with operations on distributed tensors; nothing here waits.

Each stage computes on its own mesh. What one has for the next travels on a stream of its own: that
stream borrows it, moves it, and the other mesh borrows it from there. So no stage stands still
while its results are on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from monarch import tensor_engine
from monarch.tensor_engine.tensors.streams import Borrow

from .opaque import OwnModule, mesh_of
from .opaque import get_parameter_udf as get_parameter_udf  # where programs of 0.7 import it from
from .schedules import schedule as _schedule


class _Pass:
    """A micro-batch on its way through one stage.

    Attributes:
        input: Requires a gradient, but for the first stage.
        outputs: Of each module.
        root: The tensor that is derived: the last output, or the loss.
        above: The gradient of `root`; None for 1.
        gradients: Of `outputs`.
    """

    def __init__(self, given: Any, outputs: list[Any], root: Any) -> None:
        self.input = given
        self.outputs = outputs
        self.root = root
        self.above: Any = None
        self.gradients: list[Any] = []


class PipelineParallelism:
    """Trains a network with its stages on several meshes.

    Args:
        meshes: One for each stage; all of the same dimensions, of one engine.
        stages: The modules of each stage, one after the other. They may have been made here, then
            `initialize` moves them to their mesh; or there, with the mesh and `compute_stream`
            active. An `OpaqueModule`, or an `OpaqueRef` with a module in it, has been made there.
        compute_stream: Where they compute; the active one by default.
        p2p_stream: Where results travel; by default a new one.
        schedule: ``"dora-dfs"``, in which gradients of parameters fill the gaps, or ``"1f1b"``.
        batch_size: Rows of a batch, on each rank.
        microbatch_size: Rows of a micro-batch; it divides `batch_size`.
        loss_fn: From the output of the last stage and the targets to the loss, a mean over the
            rows. It may be opaque.
        loss_list: The loss of each micro-batch is appended to it, as a distributed tensor.

    Raises:
        ValueError: The sizes or the numbers of stages and meshes do not fit, something opaque is on
            another mesh than its stage, or there is no such schedule.
        TypeError: A stage has something else than modules; `loss_fn` can't be called.
    """

    def __init__(
        self,
        meshes: Sequence[tensor_engine.DeviceMesh],
        stages: Sequence[
            Sequence[nn.Module | tensor_engine.OpaqueModule | tensor_engine.OpaqueRef]
        ],
        compute_stream: tensor_engine.Stream | None = None,
        p2p_stream: tensor_engine.Stream | None = None,
        schedule: str = "dora-dfs",
        batch_size: int = 4,
        microbatch_size: int = 1,
        loss_fn: Callable[[Any, Any], Any] | tensor_engine.OpaqueRef | None = None,
        loss_list: list[Any] | None = None,
    ) -> None:
        if len(meshes) != len(stages) or not stages:
            raise ValueError(
                f"each stage needs a mesh of its own, got {len(stages)} stages and {len(meshes)}"
                " meshes"
            )
        if microbatch_size < 1 or batch_size < 1 or batch_size % microbatch_size:
            raise ValueError(
                f"a batch of {batch_size} rows can't be divided into micro-batches of"
                f" {microbatch_size}"
            )
        for module in (module for stage in stages for module in stage):
            if not isinstance(
                module, (nn.Module, tensor_engine.OpaqueModule, tensor_engine.OpaqueRef)
            ):
                raise TypeError(
                    "stages are lists of torch.nn.Module, OpaqueModule and OpaqueRef, got"
                    f" {module!r}"
                )
        if not (callable(loss_fn) or isinstance(loss_fn, tensor_engine.OpaqueRef)):
            raise TypeError(
                f"loss_fn is a function of the last output and the targets, got {loss_fn!r}"
            )
        self._meshes = list(meshes)
        self._compute = (
            tensor_engine.get_active_stream() if compute_stream is None else compute_stream
        )
        self._p2p = tensor_engine.Stream("pipeline") if p2p_stream is None else p2p_stream
        self._rows = batch_size
        self._micro_batches = batch_size // microbatch_size
        self._actions = _schedule(schedule, len(stages), self._micro_batches)
        self._stages = [
            [self._callable(part, stage) for part in parts] for stage, parts in enumerate(stages)
        ]
        self._loss_fn = self._callable(loss_fn, len(stages) - 1)
        self._loss_list = loss_list
        self._optimizers: list[torch.optim.Optimizer] = []

    def initialize(self) -> None:
        """Move the parameters and buffers of each stage to its mesh: every rank gets a copy.

        Parameters that are distributed already stay as they are.
        """
        for stage, modules in enumerate(self._stages):
            moved: dict[int, Any] = {}
            with self._on(stage):
                local = [module for module in modules if isinstance(module, nn.Module)]
                for part in nn.ModuleList(local).modules():
                    _move(part, moved)

    def configure_optimizers(
        self, config: Any, make: Callable[[Any, list[nn.Parameter]], torch.optim.Optimizer]
    ) -> None:
        """Have `run` step an optimizer for each stage.

        Args:
            config: For `make`.
            make: From `config` and the parameters of a stage to an optimizer; called with its mesh
                active.
        """
        self._optimizers = []
        for stage in range(len(self._stages)):
            with self._on(stage):
                self._optimizers.append(make(config, self.parameters(stage)))

    def parameters(self, stage: int) -> list[nn.Parameter]:
        """The parameters of a stage that require a gradient.

        Of opaque modules, the first time, it waits for the ranks.

        Args:
            stage: Number of the stage, from 0.
        """
        with self._on(stage):
            return [each for module in self._stages[stage] for each in _trained(module)]

    def run(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        """Run one batch forward and backward, and step the optimizers, if there are any.

        Without optimizers, gradients add up in ``.grad``: here, or, for modules in an `OpaqueRef`,
        on the ranks.

        Args:
            x: The batch, of `batch_size` rows: a tensor on the first mesh and the compute stream,
                or a local one.
            y: The targets, on the last mesh.

        Returns:
            The loss of the batch, a tensor on the last mesh and the compute stream.

        Raises:
            ValueError: They have another number of rows.
        """
        batch = _Batch(self, self._chunks(x, 0), self._chunks(y, len(self._stages) - 1))
        for _, stage, kind, micro_batch in self._actions:
            with self._on(stage):
                batch.do(kind, stage, micro_batch)
        for stage, optimizer in enumerate(self._optimizers):
            with self._on(stage):
                optimizer.step()
                optimizer.zero_grad()
        if not self._optimizers:
            self._hand_gradients_over()
        with self._on(len(self._stages) - 1):
            if self._loss_list is not None:
                self._loss_list += batch.losses
            return torch.stack(batch.losses).mean()

    @contextmanager
    def _on(self, stage: int) -> Iterator[None]:
        with self._meshes[stage].activate(), self._compute.activate():
            yield

    def _callable(self, part: Any, stage: int) -> Any:
        """Return a callable in place of a part of a stage."""
        if not isinstance(part, (tensor_engine.OpaqueModule, tensor_engine.OpaqueRef)):
            return part
        mesh, there = self._meshes[stage], mesh_of(part)
        if there is not mesh:
            raise ValueError(
                f"stage {stage} is on {mesh!r}, ranks {mesh.group.ranks}, but {part!r} was made on"
                f" {there!r}, ranks {there.group.ranks}"
            )
        if isinstance(part, tensor_engine.OpaqueModule):
            return part
        with self._on(stage):
            return OwnModule(part)

    def _hand_gradients_over(self) -> None:
        for stage, modules in enumerate(self._stages):
            with self._on(stage):
                for module in modules:
                    if isinstance(module, OwnModule):
                        module.hand_gradients_over()

    def _chunks(self, batch: Any, stage: int) -> list[Any]:
        if not len(batch.shape) or batch.shape[0] != self._rows:
            raise ValueError(
                f"a batch has {self._rows} rows, got a tensor of shape {tuple(batch.shape)}"
            )
        with self._on(stage):
            return list(tensor_engine.distribute(batch).chunk(self._micro_batches))


class _Batch:
    """One batch on its way."""

    def __init__(
        self, pipeline: PipelineParallelism, inputs: list[Any], targets: list[Any]
    ) -> None:
        self._pipeline = pipeline
        self._targets = targets
        self._arrived: dict[tuple[str, int, int], Any] = {
            ("F", 0, index): each for index, each in enumerate(inputs)
        }
        self._passes: dict[tuple[int, int], _Pass] = {}
        self._borrows: dict[int, list[Borrow]] = {index: [] for index in range(len(inputs))}
        self._at_work = dict.fromkeys(range(len(inputs)), len(pipeline._stages))
        self.losses: list[Any] = []

    def do(self, kind: str, stage: int, micro_batch: int) -> None:
        """One action, with the mesh and the stream of the stage active."""
        if kind == "F":
            self._forward(stage, micro_batch)
            return
        passing = self._passes[stage, micro_batch]
        if "B" in kind:
            passing.above = self._arrived.pop(("B", stage, micro_batch), None)
        if kind == "BW":
            self._both(stage, passing, micro_batch)
        elif kind == "B":
            self._backward(stage, passing, micro_batch)
        else:
            self._weights(stage, passing)
        if "W" in kind:
            del passing, self._passes[stage, micro_batch]
            self._leave(micro_batch)

    def _forward(self, stage: int, micro_batch: int) -> None:
        pipeline = self._pipeline
        given = self._arrived.pop(("F", stage, micro_batch))
        given = given.detach().requires_grad_() if stage else given
        found, outputs = given, []
        for module in pipeline._stages[stage]:
            found = module(found)
            outputs.append(found)
        if stage == len(pipeline._stages) - 1:
            loss = pipeline._loss_fn(found, self._targets[micro_batch])
            self.losses.append(loss.detach())
            found = loss / len(self._targets)
        else:
            self._send("F", stage + 1, micro_batch, found.detach())
        self._passes[stage, micro_batch] = _Pass(given, outputs, found)

    def _both(self, stage: int, passing: _Pass, micro_batch: int) -> None:
        parameters = self._pipeline.parameters(stage)
        wanted = [passing.input, *parameters] if stage else parameters
        if wanted:
            torch.autograd.backward(passing.root, passing.above, inputs=wanted)
        if stage:
            self._send("B", stage - 1, micro_batch, passing.input.grad)

    def _backward(self, stage: int, passing: _Pass, micro_batch: int) -> None:
        """The gradients of what goes from module to module.

        Those of their parameters follow from these, later.

        An opaque module derives both at once, so those of its parameters are added up now.
        """
        opaque = [
            each
            for module in self._pipeline._stages[stage]
            if _is_opaque(module)
            for each in _trained(module)
        ]
        between = [
            output
            for output in passing.outputs
            if output is not passing.root and output.requires_grad
        ]
        wanted = [*opaque, passing.input, *between] if stage else [*opaque, *between]
        found = []
        if wanted:
            found = list(
                torch.autograd.grad(passing.root, wanted, passing.above, retain_graph=True)
            )
        if opaque:
            torch.autograd.backward(opaque, found[: len(opaque)])
            del found[: len(opaque)]
        if stage:
            self._send("B", stage - 1, micro_batch, found.pop(0))
        gradients = iter(found)
        passing.gradients = [
            (
                passing.above
                if output is passing.root
                else next(gradients)
                if output.requires_grad
                else None
            )
            for output in passing.outputs
        ]

    def _weights(self, stage: int, passing: _Pass) -> None:
        for module, output, gradient in zip(
            self._pipeline._stages[stage], passing.outputs, passing.gradients, strict=True
        ):
            parameters = _trained(module)
            if parameters and not _is_opaque(module):
                torch.autograd.backward(output, gradient, retain_graph=True, inputs=parameters)

    def _send(self, kind: str, stage: int, micro_batch: int, tensor: Any) -> None:
        """Let a stage have a tensor of the active mesh, for its action of a kind."""
        pipeline = self._pipeline
        lent, here = pipeline._p2p.borrow(tensor)
        with pipeline._p2p.activate():
            moved = lent.to_mesh(pipeline._meshes[stage])
            del lent  # its last use
        self._arrived[kind, stage, micro_batch], there = pipeline._compute.borrow(moved)
        self._borrows[micro_batch] += here, there

    def _leave(self, micro_batch: int) -> None:
        """A stage is done with a micro-batch.

        After the last one nothing of it is on its way any more, so there is no wait for it.
        """
        self._at_work[micro_batch] -= 1
        if not self._at_work[micro_batch]:
            for borrow in self._borrows.pop(micro_batch):
                borrow.drop()


def _is_opaque(module: Any) -> bool:
    return isinstance(module, tensor_engine.OpaqueModule)


def _trained(module: Any) -> list[Any]:
    """The parameters of a module that require a gradient."""
    return [each for each in module.parameters() if each.requires_grad]


def _move(module: nn.Module, moved: dict[int, Any]) -> None:
    """Replace local parameters and buffers of a module by distributed ones, on the active mesh.

    Args:
        module: The module.
        moved: Those that were, by the id of what they replace: modules may share some.
    """
    for kept in (module._parameters, module._buffers):
        for name, local in list(kept.items()):
            if local is None or isinstance(local, tensor_engine.Tensor):
                continue
            if id(local) not in moved:
                moved[id(local)] = there = tensor_engine.distribute(local).detach()
                if kept is module._parameters:
                    moved[id(local)] = nn.Parameter(there, local.requires_grad)
            kept[name] = moved[id(local)]
