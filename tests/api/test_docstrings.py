"""Docstrings of public functions: what they take, return and raise, in sections of Google's style.

`ruff` checks their form (`select = ["D"]`); here is what it can't see: that a section is there.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import pytest

from api.test_layering import SOURCES, nodes_of
from api.test_public_names import PACKAGES, WITH_LIGHTNING, WITH_TORCH, exported, has_torch

MODULES = [*PACKAGES, "monarch.elastic", *WITH_TORCH, *WITH_LIGHTNING]

if not has_torch:
    pytest.skip("some modules need torch", allow_module_level=True)

# Programs get objects of these classes, and do not construct them.
NOT_CONSTRUCTED = {
    "monarch.ActorFuture",
    "monarch.DeviceMesh",
    "monarch.RemoteProcessGroup",
    "monarch.Selection",
    "monarch.actor.ActorMesh",
    "monarch.actor.Context",
    "monarch.actor.DeadlockError",
    "monarch.actor.Port",
    "monarch.actor.PortReceiver",
    "monarch.actor.ProcId",
    "monarch.actor.ProcMesh",
    "monarch.actor.SupervisionError",
    "monarch.actor.Uid",
    "monarch.data.Batches",
    "monarch.elastic.World",
    "monarch.errors.CallTimeoutError",
    "monarch.errors.SyncError",
    "monarch.python_local_mesh.LocalMesh",
    "monarch.rdma.OwnerLostError",
    "monarch.rdma.SharedState",
    "monarch.service.ServiceEndpoint",
    "monarch.tensor_engine.Pipe",
    "monarch.tensor_engine.Remote",
    "monarch.tensor_engine.RemoteException",
    "monarch.testing.Cast",
    "monarch.testing.Partition",
}

# A summary that says what there is, and not what is done, says what is returned.
NAMES_THE_RESULT = re.compile(
    r"(Return|As `|`|A |An |The |This |These |Each |Every |All |How |Where )|.*(\breturn|future of)"
)
SEE_THERE = re.compile(r"\b(as|for|see)\b[^.:]*`[\w.]+`", re.IGNORECASE)


@dataclass(frozen=True)
class Documented:
    """A public function, method or constructor, with its docstring and those of what it overrides."""

    name: str
    function: Callable[..., object]
    docs: tuple[str, ...]

    @property
    def is_constructor(self) -> bool:
        return self.function.__name__ == "__init__"

    def parameters(self) -> list[str]:
        """Those to be described: not what another function gets, or one that only raises."""
        if self.function.__annotations__.get("return") == "NoReturn":
            return []
        return [
            each.name
            for each in inspect.signature(self.function).parameters.values()
            if each.name not in ("self", "cls")
            and not each.name.startswith("_")
            and not (each.name in ("args", "kwargs") and each.kind in (2, 4))
        ]

    def says(self, pattern: str) -> bool:
        return any(re.search(pattern, doc, re.MULTILINE) for doc in self.docs)


def is_own(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("monarch")


def function_of(member: Any) -> FunctionType | None:
    """The function behind a method, a class method or an endpoint; of properties there is none."""
    for name in ("__func__", "method"):
        member = getattr(member, name, member)
    member = inspect.unwrap(member) if callable(member) else member
    return member if isinstance(member, FunctionType) and is_own(member) else None


def members(cls: type) -> Iterator[tuple[str, FunctionType, tuple[str, ...]]]:
    bases = [base for base in cls.__mro__ if is_own(base)]
    for base in bases:
        for key, member in vars(base).items():
            if key.startswith("_") and key != "__init__":
                continue
            function = function_of(member)
            if function is not None and key == "__init__":
                docs = inspect.getdoc(cls), inspect.getdoc(base), function.__doc__
                yield key, function, tuple(doc or "" for doc in docs)
            elif function is not None:
                overridden = (
                    inspect.getdoc(vars(each)[key]) for each in bases if key in vars(each)
                )
                yield key, function, tuple(doc or "" for doc in overridden)


@cache
def functions() -> list[Documented]:
    found: dict[Any, Documented] = {}
    for module in MODULES:
        for name, thing in exported(importlib.import_module(module)).items():
            if not is_own(thing):
                continue
            path = f"{module}.{name}"
            if isinstance(thing, FunctionType):
                function = inspect.unwrap(thing)
                found.setdefault(
                    function.__code__, Documented(path, function, (inspect.getdoc(thing) or "",))
                )
            elif isinstance(thing, type):
                for key, function, docs in members(thing):
                    full = path if key == "__init__" else f"{path}.{key}"
                    found.setdefault(function.__code__, Documented(full, function, docs))
    return list(found.values())


def raised_by(function: Callable[..., object]) -> set[str]:
    """Names of exceptions that the body itself raises."""
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, ValueError):
        return set()  # made by `exec`, or in the middle of a line

    def within(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue
            if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
                called = child.exc.func
                if isinstance(called, ast.Name) and called.id[0].isupper():
                    yield called.id
            yield from within(child)

    return set(within(node))


def test_there_are_functions_to_look_at() -> None:
    names = {each.name for each in functions()}
    assert {"monarch.actor.attach_to_workers", "monarch.actor.HostMesh.spawn_procs"} <= names
    assert any(each.is_constructor for each in functions())
    assert "ValueError" in raised_by(test_the_checks_find_what_is_missing)


def test_every_public_function_has_a_docstring() -> None:
    missing = [each.name for each in functions() if not any(each.docs)]
    assert not missing


def test_args_has_every_parameter() -> None:
    missing = {
        each.name: absent
        for each in functions()
        if not (each.is_constructor and each.name in NOT_CONSTRUCTED)
        and not any(SEE_THERE.search(doc) and "Args:" not in doc for doc in each.docs)
        and (
            absent := [
                name for name in each.parameters() if not each.says(rf"^ +[\w*, ]*\b{name}\b.*:")
            ]
        )
    }
    assert not missing


def test_a_result_is_described() -> None:
    missing = [
        each.name
        for each in functions()
        if not each.is_constructor
        and each.parameters()
        and each.function.__annotations__.get("return") not in (None, "None")
        and not each.says(r"^(Returns|Yields):")
        and not any(NAMES_THE_RESULT.match(doc.split("\n\n")[0]) for doc in each.docs)
        and not each.says(r"\b[Rr]eturns (a|an|the|its|this|once|when|how|which|whether|at)\b")
    ]
    assert not missing


def test_raises_has_what_the_body_raises() -> None:
    missing = {
        each.name: absent
        for each in functions()
        if each.name not in NOT_CONSTRUCTED
        and not any(SEE_THERE.search(doc) and "Raises:" not in doc for doc in each.docs)
        and (absent := [name for name in raised_by(each.function) if not each.says(name)])
    }
    assert not missing


def test_the_list_of_classes_has_no_names_that_are_gone() -> None:
    names = {each.name for each in functions() if each.is_constructor}
    assert not has_torch or names >= NOT_CONSTRUCTED


@pytest.mark.parametrize("number", [1])
def test_the_checks_find_what_is_missing(number: int) -> None:
    """A parameter `number` that no section has."""
    each = Documented("here", test_the_checks_find_what_is_missing, ("Do it.",))
    assert each.parameters() == ["number"]
    assert not each.says(r"^ +number:")
    assert not NAMES_THE_RESULT.match("Do it.")
    if number < 1:
        raise ValueError(number)


def test_no_summary_begins_with_a_pronoun_or_a_section() -> None:
    """All of `src`: a summary names its subject, or begins with a verb."""
    odd = [
        f"{path}:{getattr(node, 'lineno', 1)}: {doc}"
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and (doc := ast.get_docstring(node))
        and re.match(
            r"(Args|Raises|Returns):|(What|Who|Whom|Whose|Whoever|Whether|Nobody|Somebody|Those)\b"
            r"|(All|The same|Some|One of|It,|Likewise)\b",
            doc,
        )
    ]
    assert not odd
