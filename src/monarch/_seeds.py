"""Random numbers of a proc: each rank, mesh and incarnation draws its own.

A fork copies the state of each generator that its parent has, so a proc seeds them once more. Which
ones: those of the process, `random`, numpy's and torch's, as `random` does it by itself in each
fork; and what a preloaded module made without a seed, ``RNG = random.Random()``. A generator that a
module made with a seed stays as it is: it is the same in each process that imports the module.

Where the program has a seed, all of them derive from it, and from names that are the same in each
run. What a proc has not imported yet is then seeded as soon as it has.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any
from weakref import WeakValueDictionary

_SEEDS = 2**63  # how many there are; torch takes twice as many


def derive(seed: int, *names: object) -> int:
    """Return a seed that nothing but `seed` and the names determine."""
    from hashlib import blake2b  # few programs have a seed

    text = repr((seed, *map(str, names))).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") % _SEEDS


_meshes: Counter[tuple[str, str]] = Counter()  # by owner and name


def of_mesh(seed: int | None, owner: object, name: str) -> int | None:
    """The seed of a mesh that is about to start; the second of its name has another one."""
    if seed is None:
        return None
    key = str(owner), name
    _meshes[key] += 1
    return derive(seed, *key, _meshes[key])


def of_rank(settings: dict[str, Any], *names: object) -> dict[str, Any]:
    """Give a rank the settings of its mesh, with a seed of its own where that has one."""
    seed = settings.get("seed")
    return settings if seed is None else {**settings, "seed": derive(seed, *names)}


class _AfterImport:
    """A finder that finds nothing of its own, and calls a function with a module it was told of,
    once that is imported.
    """

    def __init__(self) -> None:
        self._calls: dict[str, Callable[[Any], None]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        call = self._calls.pop(name, None)
        spec = None if call is None else PathFinder.find_spec(name, path, target)
        loader: Any = None if spec is None else spec.loader
        if call is None or loader is None:
            return None
        load = loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            call(module)

        loader.exec_module = exec_module
        return spec

    def call(self, name: str, function: Callable[[Any], None]) -> None:
        """Call `function` with a module, at once if it is there."""
        if name in sys.modules:
            function(sys.modules[name])
            return
        self._calls[name] = function
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def forget(self) -> None:
        self._calls.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)


_after_import = _AfterImport()
_undo: list[Callable[[], None]] = []
_python_generators: WeakValueDictionary[int, Any] = WeakValueDictionary()
_numpy_generators: list[Any] = []
_entropies: set[int] = set()


def watch() -> None:
    """Note which generators the modules that are imported from here on make without a seed."""
    _after_import.call("random", _watch_python)
    _after_import.call("numpy.random.bit_generator", _watch_numpy)


def _replace(owner: Any, name: str, by: Any) -> None:
    _undo.append(partial(setattr, owner, name, getattr(owner, name)))
    setattr(owner, name, by)


def _watch_python(module: Any) -> None:
    seed = module.Random.seed

    def noting(self: Any, a: Any = None, version: int = 2) -> None:
        if a is None:
            _python_generators[id(self)] = self
        else:
            _python_generators.pop(id(self), None)
        seed(self, a, version)

    _replace(module.Random, "seed", noting)


def _watch_numpy(module: Any) -> None:
    draw = module.randbits

    def noting(bits: int) -> int:
        number: int = draw(bits)
        _entropies.add(number)
        return number

    _replace(module, "randbits", noting)


def find() -> None:
    """Find the generators of numpy that modules hold; here, as forks would copy what they look at."""
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is None:
        return
    kinds = numpy.Generator, numpy.RandomState
    _numpy_generators[:] = [
        value._bit_generator
        for module in list(sys.modules.values())
        for value in list(getattr(module, "__dict__", {}).values())
        if type(value) in kinds and _entropy(value._bit_generator) in _entropies
    ]


def _entropy(bits: Any) -> int:
    """The number that a generator of bits began with; -1 for any that the system has not given."""
    entropy = getattr(getattr(bits, "seed_seq", None), "entropy", None)
    return entropy if isinstance(entropy, int) else -1


def reseed(seed: int | None) -> None:
    """Have this process draw numbers of its own.

    Args:
        seed: What they derive from; None for what the system gives.
    """

    def number(name: object) -> int:
        if seed is None:
            return int.from_bytes(os.urandom(8), "little") % _SEEDS
        return derive(seed, name)

    while _undo:
        _undo.pop()()
    _after_import.forget()
    for name, give in _OF_MODULES.items():
        if seed is not None or name in sys.modules:
            _after_import.call(name, partial(give, number(name)))
    for index, generator in enumerate(_python_generators.values()):
        generator.seed(number(index))
    for index, bits in enumerate(_numpy_generators):
        bits.state = type(bits)(number(f"numpy {index}")).state


def _seed_torch(number: int, module: Any) -> None:
    module.default_generator.manual_seed(number)
    module.cuda.manual_seed_all(
        number
    )  # once CUDA is used, in place of what a module has asked for


_OF_MODULES: dict[str, Callable[[int, Any], None]] = {
    "random": lambda number, module: module.seed(number),
    "numpy.random": lambda number, module: module.seed(number % 2**32),
    "torch": _seed_torch,
}
