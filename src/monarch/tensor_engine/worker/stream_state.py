"""The values of one stream of a worker, and what becomes of them where something fails.

What fails leaves a `Poison` in place of its results and of what it was to change; an operation that
reads a poison is not run and leaves the same poison. Everything else goes on. Instructions are run
by `runner`; what they do by themselves stands on this.
"""

from __future__ import annotations

import itertools
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..._core.plane import current_hub
from ..groups.groups import Communication, Known
from ..instructions import MAIN, Definition, Expected, Instruction, Poison
from ..planning.settings import scope
from .functions import find
from .stream_rendezvous import Rendezvous
from .templates import Template


class Shared:
    """The state that the streams of a worker share.

    Attributes:
        rank: The worker's, in the engine.
        uid: The engine's id.
        known: The groups and routes that were defined.
        rendezvous: What one stream has for another.
        programs: What replays each of the programs that were recorded.
        unreported: The last failure, until it was reported.
        failures: Numbers them.
        is_ending: Whether the worker has been asked to end, even while its streams wait.
    """

    def __init__(self, rank: int, uid: str, is_ending: Callable[[], bool] = lambda: False) -> None:
        self.is_ending = is_ending
        self._in_process = current_hub().in_process
        self._side_by_side = False
        self.rank = rank
        self.uid = uid
        self.templates: dict[int, Template] = {}
        self.programs: dict[int, Any] = {}
        self.known = Known()
        self.rendezvous = Rendezvous()
        self.unreported: Poison | None = None
        self.failures = itertools.count(1)

    def define(self, number: int, definition: Definition) -> None:
        try:
            function = find(definition.path)
        except Exception:
            function = _later(definition.path)  # it may be registered until it is used
        function = getattr(function, "_op", function)  # of an operator: what its `__call__` calls
        if definition.settings or self._side_by_side or self._in_process:
            function = scope.around(function, definition.settings, self._in_process)
        self.templates[number] = Template(definition, function)

    def spread(self) -> None:
        """From now on operations run side by side: none may meet the settings of another."""
        self._side_by_side = True
        for number, template in list(self.templates.items()):
            self.define(number, template.definition)
        for program in self.programs.values():
            program.compile(self.templates)

    def forget(self, template: int) -> None:
        for number in [number for number in list(self.templates) if number < template]:
            del self.templates[number]


def _later(path: str) -> Any:
    """Placeholder of an operation that a module of the user will register."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            function = find(path)
        except Exception as error:
            raise RuntimeError(
                f"{path} is not known here. Import the module that registers it on the ranks as"
                " well: in a function given as spawn_procs(bootstrap=...), or in a remote function"
            ) from error
        return function(*args, **kwargs)

    return call


class StreamState(ABC):
    """The values of one stream of a worker.

    Attributes:
        slots: The values, by id.
        poisoned: Whether there was ever a poison: until then none is looked for.
        communication: The groups of ranks that this stream has made.
    """

    def __init__(self, shared: Shared, stream: int) -> None:
        self.shared = shared
        self.rank = shared.rank
        self.uid = shared.uid
        self.slots: dict[int, Any] = {}
        self.poisoned = False
        self.communication = Communication(
            shared.rank, f"stream{stream}" if stream != MAIN else "", shared.known
        )

    @abstractmethod
    def control(self, instruction: Instruction) -> None:
        """Run an instruction that is no template."""

    def store(
        self,
        site: int,
        function: str,
        outputs: tuple[int, ...],
        expected: tuple[Expected | None, ...],
        result: Any,
        error: BaseException | None = None,
    ) -> None:
        """Keep the leaves of the result of a user's function, or the reason why there are none.

        Leaves are kept if they are as expected.
        """
        try:
            if error is not None:
                raise error
            for ref, leaf in zip(
                outputs, _checked(pytree.tree_leaves(result), expected), strict=True
            ):
                if ref:
                    self.slots[ref] = leaf
        except Exception as failure:
            self.give_up((), outputs, (), self.failed(site, function, failure))

    # failures

    def failed(self, site: int, function: str, error: Exception) -> Poison:
        """Return the poison in place of the results of an operation that raised."""
        self.poisoned = True
        # without our own frame
        shown = error.__traceback__.tb_next if error.__traceback__ is not None else None
        text = "".join(traceback.format_exception(type(error), error, shown))
        self.shared.unreported = poison = Poison(
            site, self.rank, function, text, next(self.shared.failures)
        )
        return poison

    def give_up(
        self, inputs: Sequence[int], outputs: Any, writes: Iterable[int], poison: Poison
    ) -> None:
        """Leave a poison in place of the outputs, and of the inputs at the positions `writes`."""
        for ref in (outputs,) if type(outputs) is int else outputs:
            if ref:
                self.slots[ref] = poison
        self.poison_aliases([inputs[index] for index in writes], poison)

    def poison_aliases(self, ids: Iterable[int], poison: Poison) -> None:
        """Poison the given values and every alias of their storage."""
        self.poison_sharing([self.slots.get(ref) for ref in ids], poison)

    def poison_sharing(self, values: Iterable[Any], poison: Poison) -> None:
        """As `poison_aliases`, for values."""
        storages = {storage_of(value) for value in values if isinstance(value, torch.Tensor)}
        if storages:
            for ref, value in self.slots.items():
                if isinstance(value, torch.Tensor) and storage_of(value) in storages:
                    self.slots[ref] = poison

    def forget_storage(self, tensor: torch.Tensor) -> None:
        """Let go of everything that shares the memory of a tensor."""
        storage = storage_of(tensor)
        for ref, value in self.slots.items():
            if isinstance(value, torch.Tensor) and storage_of(value) == storage:
                self.slots[ref] = None


def _checked(leaves: list[Any], expected: tuple[Expected | None, ...]) -> list[Any]:
    """The results, detached, if they are what the rule of the function has said."""
    if len(leaves) != len(expected):
        raise ValueError(
            f"unexpected number of returns: its propagate rule gives {len(expected)}, the function"
            f" gave {len(leaves)}"
        )
    return [_as_expected(leaf, each) for leaf, each in zip(leaves, expected, strict=True)]


def _as_expected(leaf: Any, expected: Expected | None) -> Any:
    if expected is None:
        return leaf
    leaf = as_kept(leaf)
    if not isinstance(leaf, torch.Tensor):
        raise TypeError(
            f"its propagate rule gives a tensor, the function gave {type(leaf).__name__}"
        )
    if tuple(leaf.shape) != expected.shape or leaf.dtype != expected.dtype:
        raise ValueError(
            f"its propagate rule gives a {expected.dtype} tensor of shape {expected.shape}, the"
            f" function gave {leaf.dtype} of shape {tuple(leaf.shape)}"
        )
    return leaf


def as_kept(leaf: Any) -> Any:
    """A result as the rank keeps it: without history, and of a ``DTensor`` its own part."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if type(leaf) not in (torch.Tensor, torch.nn.Parameter):
        leaf = getattr(leaf, "to_local", lambda: leaf)()
        leaf = getattr(leaf, "wait", lambda: leaf)()  # a reduction may be under way
    return leaf.detach() if leaf.requires_grad else leaf


def storage_of(tensor: torch.Tensor) -> int:
    """The identity of the memory that a tensor is a view of."""
    return tensor.untyped_storage()._cdata
