"""torch's own databases, on a mesh and in one process: ``python -m tests.torch_db``.

They are those of ``--of`` operations, modules, optimizers, or mistakes: wrong arguments of operations.
Each operation is run on each of torch's samples twice: here, and on distributed tensors. The results
are *right* when they are equal to those here, and are laid out on the rank as the handle says. An
operation that raises is *refused*: it says what can't be done. What is neither is *wrong*, and there
may be none: a difference without a word.

``--sample 0.1`` takes one of ten entries, by ``--seed``, which is printed; names take those. With
``--keep`` the summary of a whole database goes to ``tests/torch_db.json``, which has one for each: the
counts, how many samples of each entry are right, and the first reason of each that refuses some. Tests
compare what they find with it: an entry may not fall behind.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import types
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from monarch import inspect, no_mesh
from monarch.actor import this_host
from monarch.tensor_engine import Tensor, distribute
from monarch.testing import local

sys.path.insert(0, str(Path(__file__).parent))  # as pytest has it
import torch_db_others as others

_KEPT = Path(__file__).with_suffix(".json")
_SEED = 38
_LARGE = 1 << 20  # elements; of samples that are larger nothing new is learned
_LOST = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
}  # fmt: skip
"""Operations whose results hold what nobody knows."""


class Outcome(NamedTuple):
    """The outcome of one sample: ``right``, ``refused``, ``wrong`` or ``left out``, and why."""

    what: str
    why: str = ""


def operations() -> list[Any]:
    """Return torch's whole database."""
    if "expecttest" not in sys.modules:  # it is used for tests of torch's own
        try:
            importlib.import_module("expecttest")
        except ImportError:
            sys.modules["expecttest"] = stand_in = types.ModuleType("expecttest")
            stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


DATABASES: dict[str, Callable[[], list[Any]]] = {
    "operations": operations,
    "modules": others.modules,
    "optimizers": others.optimizers,
    "mistakes": lambda: others.mistakes(operations()),
}


def chosen(
    share: float, seed: int = _SEED, names: Sequence[str] = (), of: str = "operations"
) -> list[Any]:
    """Entries of a database: those of these names, or a share of all."""
    operations()  # brings what the others need
    found = DATABASES[of]()
    if names:
        return [each for each in found if each.name in names]
    count = max(1, round(share * len(found)))
    return random.Random(seed).sample(found, count) if count < len(found) else found


def outcomes_of(operation: Any, most: int | None = None) -> Iterator[Outcome]:
    """Try each sample, or `most` of them, where a mesh of one rank is active."""
    dtypes = operation.supported_dtypes("cpu")
    wanted = (torch.float32, torch.complex64, *dtypes)
    dtype = next((each for each in wanted if each in dtypes), None)
    if dtype is None:
        return  # it is for GPUs
    with no_mesh.activate():
        torch.manual_seed(0)
        samples = list(operation.sample_inputs("cpu", dtype, requires_grad=False))
    for sample in samples[:: -(-len(samples) // most) if most and samples else 1]:
        yield _outcome(operation, sample)


def _outcome(operation: Any, sample: Any) -> Outcome:
    given = (sample.input, sample.args, sample.kwargs)
    call = getattr(sample, "call", None) or operation.op
    if getattr(operation, "raises", False):
        return _mistake(call, given)
    with no_mesh.activate():
        if sum(leaf.numel() for leaf in _tensors(given)) > _LARGE:
            return Outcome("left out", "large")
        try:
            here, again = (_run(call, pytree.tree_map(_copy, given)) for _ in range(2))
        except Exception as error:
            return Outcome("left out", f"fails here: {type(error).__name__}")
        fixed = operation.name not in _LOST and _equal(here, again)
    try:
        made = _run(call, pytree.tree_map(_distributed, given))
        there = inspect(made)
    except Exception as error:
        return Outcome("refused", f"{type(error).__name__}: {str(error).strip()}")
    with no_mesh.activate():
        return compared(here, made, there, fixed)


def _mistake(call: Any, given: Any) -> Outcome:
    """A sample that raises here must raise on a mesh, or say there that it is refused."""
    with no_mesh.activate():
        try:
            _run(call, pytree.tree_map(_copy, given))
            return Outcome("left out", "is no mistake here")
        except Exception as error:
            wanted = type(error)
    try:
        inspect(_run(call, pytree.tree_map(_distributed, given)))
    except wanted:
        return Outcome("right")
    except Exception as error:
        return Outcome("refused", f"{type(error).__name__}: {str(error).strip()}")
    return Outcome("wrong", f"no {wanted.__name__}")


def compared(here: Any, made: Any, there: Any, fixed: bool) -> Outcome:
    pairs = zip(pytree.tree_leaves(here), pytree.tree_leaves(there), strict=True)
    for wanted, got in pairs:
        if not isinstance(wanted, torch.Tensor):
            if fixed and wanted != got and wanted == wanted:
                return Outcome("wrong", f"{got!r} in place of {wanted!r}")
        elif (wanted.shape, wanted.dtype) != (got.shape, got.dtype):
            return Outcome(
                "wrong", f"{got.dtype} {tuple(got.shape)} for {wanted.dtype} {tuple(wanted.shape)}"
            )
        elif fixed and not _equal(wanted, got):
            return Outcome("wrong", "other values")
    for handle, got in zip(pytree.tree_leaves(made), pytree.tree_leaves(there), strict=True):
        if isinstance(handle, Tensor) and (handle.shape, handle.dtype) != (got.shape, got.dtype):
            return Outcome("wrong", "the handle says something else")
    return Outcome("right")


def _run(call: Any, given: Any) -> Any:
    first, args, kwargs = given
    torch.manual_seed(0)
    return call(first, *args, **kwargs)


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _distributed(leaf: Any) -> Any:
    return distribute(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _equal(one: Any, other: Any) -> bool:
    try:
        torch.testing.assert_close(one, other, equal_nan=True)
    except (AssertionError, TypeError, ValueError, RuntimeError):
        return False
    return True


def tried(
    operations: Sequence[Any], show: bool = False, most: int | None = None
) -> dict[str, list[Outcome]]:
    """The outcomes of the samples of each operation, on a mesh of one rank in this process."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    with warnings.catch_warnings(), local():
        warnings.simplefilter("ignore")
        procs = this_host().spawn_procs(per_host={"gpus": 1})
        with procs.activate():
            for operation in operations:
                name = others.name_of(operation)
                for outcome in outcomes_of(operation, most):
                    found[name].append(outcome)
                    if show and outcome.what in ("refused", "wrong"):
                        print(f"{outcome.what}: {name}: {outcome.why[:200]!r}", flush=True)
    return found


def summary(found: dict[str, list[Outcome]]) -> dict[str, Any]:
    """Counts, the samples of each entry that are right, and the first reason of those that are not."""
    reasons: dict[str, dict[str, str]] = {"refused": {}, "wrong": {}}
    for name, outcomes in sorted(found.items()):
        for outcome in outcomes:
            if outcome.what in reasons:
                reasons[outcome.what].setdefault(name, _reason(outcome.why))
    counts = Counter(outcome.what for outcomes in found.values() for outcome in outcomes)
    return {
        "torch": torch.__version__,
        "entries": len(found),
        "samples": dict(sorted(counts.items())),
        "right": {name: number for name in sorted(found) if (number := _right(found[name]))},
        **reasons,
    }


def _reason(why: str) -> str:
    lines = why.splitlines()
    # of what failed on the rank: what it raised there
    return lines[-1 if why.startswith("RemoteException") else 0][:120]


def _right(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.what == "right" for outcome in outcomes)


def kept() -> dict[str, Any]:
    """The summary of each database, of the last whole run."""
    found: dict[str, Any] = json.loads(_KEPT.read_text()) if _KEPT.exists() else {}
    return found


def fallen_behind(found: dict[str, list[Outcome]], of: str = "operations") -> dict[str, str]:
    """The entries with fewer samples that are right than in the kept summary, and how many less.

    It is of one release of torch: under another, whose samples are others, there are none.
    """
    before = kept()[of]
    if torch.__version__ != before["torch"]:
        return {}
    return {
        name: f"{now} of {wanted}"
        for name, outcomes in sorted(found.items())
        if (now := _right(outcomes)) < (wanted := before["right"].get(name, 0))
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torch_db", description=__doc__)
    parser.add_argument("names", nargs="*", help="entries; by default a share of all")
    parser.add_argument("--of", choices=DATABASES, default="operations", help="the database")
    parser.add_argument("--sample", type=float, default=1.0, help="which share, from 0 to 1")
    parser.add_argument("--seed", type=int, default=_SEED)
    parser.add_argument("--keep", action="store_true", help=f"write {_KEPT.name}")
    parser.add_argument("--show", action="store_true", help="print what is not right as it comes")
    given = parser.parse_args()
    if given.keep and (given.names or given.sample < 1):
        parser.error("--keep is for the whole of a database, without names and --sample")
    entries = chosen(given.sample, given.seed, given.names, given.of)
    result = summary(tried(entries, given.show))
    if given.keep:
        _KEPT.write_text(json.dumps({**kept(), given.of: result}, indent=1) + "\n")
    shown = {**result, "right": len(result["right"]), "refused": len(result["refused"])}
    print(json.dumps({**shown, "seed": given.seed}, indent=1))
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
