"""The instructions of a program in a file, so that they can be simulated again without the program.

The file is a row of pickles: ``("start", hosts, gpus)``, then what happened, in order.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from monarch.tensor_engine.controller.executor import Ranks, Segment, nowhere

from .model import Model


class History(Model):
    """A model that writes down what it is asked to do.

    Args:
        path: The file.
        hosts: As in `Simulator`.
        gpus: As in `Simulator`.
        others: The other arguments of `Model`.
    """

    def __init__(self, path: Path, hosts: int, gpus: int, *others: Any) -> None:
        super().__init__(hosts, gpus, *others)
        self._path = path
        path.write_bytes(pickle.dumps(("start", hosts, gpus)))

    def run(self, segments: list[Segment]) -> None:
        self._note("run", [(_described(ranks), batch) for ranks, batch in segments])
        super().run(segments)

    def call(self, ranks: Ranks, method: str, args: tuple[Any, ...], what: str) -> Any:
        self._note("call", _described(ranks), method, args, what)
        return super().call(ranks, method, args, what)

    def stream(self, ranks: Ranks, method: str, args: tuple[Any, ...], what: str) -> list[Any]:
        self._note("call", _described(ranks), method, args, what)
        return super().stream(ranks, method, args, what)

    def note_step(self) -> None:
        """A step has ended."""
        self._note("step")

    def note_tag(self, tag: Any) -> None:
        """`set_meta` was used."""
        self._note("tag", tag)

    def _note(self, *entry: Any) -> None:
        with self._path.open("ab") as file:
            pickle.dump(entry, file, protocol=pickle.HIGHEST_PROTOCOL)


def _described(ranks: Ranks) -> tuple[Any, ...]:
    return ranks.ranks, ranks.stream


def read(path: Path) -> Iterator[tuple[Any, ...]]:
    """Read the recorded steps from a file.

    Raises:
        ValueError: It is no such file.
    """
    with path.open("rb") as file:
        first = _next(file, path)
        if first is None or first[0] != "start":
            raise ValueError(f"{path} is not a command history")
        yield first
        while (entry := _next(file, path)) is not None:
            yield entry


def _next(file: Any, path: Path) -> tuple[Any, ...] | None:
    try:
        entry = pickle.load(file)
    except EOFError:
        return None
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path} is not a command history: {error}") from None
    return entry if isinstance(entry, tuple) else ("",)


def repeat(model: Model, entry: tuple[Any, ...]) -> None:
    """Let a model do what an entry says.

    Answers are read at once, as it is not known when the program did.
    """
    if entry[0] == "run":
        model.run([(_ranks(model, *described), batch) for described, batch in entry[1]])
    elif entry[0] == "call":
        _, described, method, args, what = entry
        if what:
            model.call(_ranks(model, *described), method, args, what).get()
    elif entry[0] == "tag":
        model.recorder.tag = entry[1]


def _ranks(model: Model, ranks: tuple[int, ...], stream: int) -> Ranks:
    return Ranks(ranks, tuple(nowhere(model.name, rank) for rank in ranks), stream)
