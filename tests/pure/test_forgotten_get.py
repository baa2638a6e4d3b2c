"""A future that is taken for its result: each use raises, and the message says `get()`."""

from __future__ import annotations

import collections.abc
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest

from monarch._core.calls.promise import Promise, completed

OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.matmul, operator.truediv, operator.floordiv,
    operator.mod, divmod, operator.pow, operator.lshift, operator.rshift, operator.and_,
    operator.xor, operator.or_, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
USES: dict[str, Callable[[Any], object]] = {
    "a loop": lambda future: [each + 1 for each in future],
    "unpacking": lambda future: [*future],
    "in": lambda future: 3 in future,
    "list": list,
    "dict": lambda future: dict(future),
    "sum": lambda future: sum([future]),
    "max": lambda future: max(future, future),
    "an index": lambda future: future[0],
    "a slice": lambda future: future[1:],
    "an item that is set": lambda future: operator.setitem(future, 0, 1),
    "an item that is deleted": lambda future: operator.delitem(future, 0),
    "as an index": lambda future: [1, 2][future],
    "a range": range,
    "len": len,
    "reversed": lambda future: list(reversed(future)),
    "neg": operator.neg,
    "abs": abs,
    "round": round,
    "int": int,
    "float": float,
    "math": math.sqrt,
    "a format": lambda future: f"{future:.2f}",
    "text": lambda future: "loss: " + future,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_future_that_is_used_as_its_result_says_get(use: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match=r"Future.*`future\.get\(\)`, or `await future`.*<Future"):
        use(Promise("the loss").future)


@pytest.mark.parametrize("apply", OPERATORS)
@pytest.mark.parametrize("other", [1, 1.5, (1,), {1}, None])
def test_operators_say_get_on_either_side(apply: Callable[[Any, Any], object], other: Any) -> None:
    future: Any = Promise("the loss").future
    for operands in ((future, other), (other, future)):
        with pytest.raises(TypeError, match=r"`future\.get\(\)`"):
            apply(*operands)


@pytest.mark.parametrize("name", ["shape", "dtype", "item", "values", "items", "append", "split"])
def test_an_attribute_of_results_says_get_and_is_not_there(name: str) -> None:
    future: Any = completed(1)
    with pytest.raises(
        AttributeError, match=rf"attribute '{name}'.*`future\.get\(\)`.*<Future done"
    ):
        getattr(future, name)
    assert not hasattr(future, name)
    assert name not in dir(future)


def test_a_future_is_still_an_object_like_any_other() -> None:
    first: Any = completed(0)
    second: Any = completed(0)
    assert first
    assert bool(first) is True
    assert first != second
    assert first != 0
    assert {first: 1}[first] == 1
    assert f"{first}" == f"{first!s}" == repr(first)
    assert not isinstance(first, collections.abc.Iterable)
    assert not callable(first)
    assert "get" in dir(first)
    with pytest.raises(AttributeError, match="no attribute 'gett'"):
        first.gett


def test_arrays_and_tensors_on_the_left_leave_the_message_to_the_future() -> None:
    numpy = pytest.importorskip("numpy")
    future: Any = completed(1)
    with pytest.raises(TypeError, match=r"future\.get\(\)"):
        numpy.ones(2) + future
    assert numpy.array([future, future]).dtype == object
