"""Random numbers of a proc: each rank, mesh and incarnation draws its own.

A fork copies the state of each generator that its parent has, so a proc seeds them once more. Which
ones: those of the process, `random`, numpy's and torch's, as `random` does it by itself in each
fork; and what a preloaded module made without a seed, ``RNG = random.Random()``. A generator that a
module made with a seed stays as it is: it is the same in each process that imports the module.

Where the program has a seed, all of them derive from it. Libraries that a proc has not imported yet
are seeded as soon as they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from ._seeds import derive
from ._startup.monarch_startup import OnceImported

_later = OnceImported()
_undo: list[Callable[[], None]] = []
# made without a seed: generators of Python, bit generators of numpy, and the numbers these begin
# with
_unseeded: WeakValueDictionary[int, Any] = WeakValueDictionary()
_bits: list[Any] = []
_entropies: set[str] = set()


def watch() -> None:
    """Note which generators the modules that are imported from here on make without a seed."""
    _later.call("random", _watch_python)
    _later.call("numpy.random.bit_generator", _watch_numpy)


def _replace(owner: Any, name: str, by: Any) -> None:
    _undo.append(partial(setattr, owner, name, getattr(owner, name)))
    setattr(owner, name, by)


def _watch_python(module: Any) -> None:
    seed = module.Random.seed

    def noting(self: Any, a: Any = None, version: int = 2) -> None:
        _unseeded.pop(id(self), None)
        if a is None:
            _unseeded[id(self)] = self
        seed(self, a, version)

    _replace(module.Random, "seed", noting)


def _watch_numpy(module: Any) -> None:
    draw = module.randbits

    def noting(count: int) -> int:
        number: int = draw(count)
        _entropies.add(str(number))
        return number

    _replace(module, "randbits", noting)


def find() -> None:
    """Find the generators of numpy that modules hold; here, as forks would copy what they look at."""
    numpy: Any = sys.modules.get("numpy.random")
    for module in list(sys.modules.values()) if numpy is not None else ():
        for value in list(getattr(module, "__dict__", {}).values()):
            if type(value) in (numpy.Generator, numpy.RandomState):
                bits = value._bit_generator
                known = str(getattr(getattr(bits, "seed_seq", None), "entropy", ""))
                if known in _entropies and bits not in _bits:
                    _bits.append(bits)


def reseed(seed: object) -> None:
    """Have this process draw numbers of its own.

    Args:
        seed: What they derive from; None for what the system gives.
    """

    def number(name: object) -> int:
        return int.from_bytes(os.urandom(8), "little") >> 1 if seed is None else derive(seed, name)

    while _undo:
        _undo.pop()()
    _later.forget()
    for name, give in _OF_MODULES.items():
        if seed is not None or name in sys.modules:
            _later.call(name, partial(give, number(name)))
    for index, generator in enumerate(_unseeded.values()):
        generator.seed(number(index))
    for index, bits in enumerate(_bits):
        bits.state = type(bits)(number(f"numpy {index}")).state


def _seed_torch(number: int, module: Any) -> None:
    module.default_generator.manual_seed(number)
    # once CUDA is used, in place of a seed that a module has asked for
    module.cuda.manual_seed_all(number)


_OF_MODULES: dict[str, Callable[[int, Any], None]] = {
    "random": lambda number, module: module.seed(number),
    "numpy.random": lambda number, module: module.seed(number % 2**32),
    "torch": _seed_torch,
}
