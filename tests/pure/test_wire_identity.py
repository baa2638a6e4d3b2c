"""Objects that are told by their identity: over there they are those of their module."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
import sys
import textwrap
import types
from collections.abc import Callable
from typing import Any

import attrs
import pydantic_core
import pytest

from monarch._core.wire.pickling import dumps, dumps_inline, loads

importlib.import_module("monarch.actor")  # brings the reducers of the standard library


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], types.ModuleType]:
    """Makes a module of this name from its source."""

    def make(name: str, source: str) -> types.ModuleType:
        made = types.ModuleType(name)
        exec(textwrap.dedent(source), made.__dict__)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    return make


SENTINELS = {
    "MISSING": dataclasses.MISSING,
    "KW_ONLY": dataclasses.KW_ONLY,
    "factory": dataclasses._HAS_DEFAULT_FACTORY,  # type: ignore[attr-defined]
    "empty": inspect.Parameter.empty,
    "auto": enum.auto().value,
    "NOTHING": attrs.NOTHING,
    "Any": Any,
    "PydanticUndefined": pydantic_core.PydanticUndefined,
}


@pytest.mark.parametrize("by_value", [False, True])
@pytest.mark.parametrize("sentinel", SENTINELS.values(), ids=SENTINELS)
def test_a_sentinel_of_a_library_stays_the_one_object(sentinel: Any, by_value: bool) -> None:
    function = (lambda x=sentinel: x) if by_value else None
    got, made = loads(dumps_inline((sentinel, function)))
    assert got is sentinel
    assert made is None or made() is sentinel


MODULE = """
    class Unset: pass
    UNSET = Unset()
    class _Slotted:
        __slots__ = ()
    SLOTTED = _Slotted()
    TOKEN = object()
    class Options:
        def __init__(self, x=None):
            if x: self.x = x
    DEFAULTS = Options(5)
    class Names(list): pass
    NAMES = Names("ab")
    class Reduced:
        def __reduce__(self): return Reduced, ()
    REDUCED = Reduced()
"""


@pytest.mark.parametrize("name", ["UNSET", "SLOTTED", "TOKEN"])
def test_what_a_module_holds_and_has_no_state_travels_by_its_name(
    module: Callable[[str, str], types.ModuleType], name: str
) -> None:
    held = getattr(module("sentinels_of", MODULE), name)
    first, again = loads(dumps_inline([held])), loads(dumps([held])[0])
    assert first[0] is again[0] is held


@pytest.mark.parametrize("name", ["DEFAULTS", "NAMES", "REDUCED"])
def test_what_has_a_state_or_says_how_it_is_pickled_is_copied(
    module: Callable[[str, str], types.ModuleType], name: str
) -> None:
    made = module("sentinels_of", MODULE)
    held = getattr(made, name)
    got = loads(dumps_inline(held))
    assert got is not held and type(got) is type(held) and vars(got) == vars(held)


def test_an_object_without_state_that_no_module_holds_is_copied(
    module: Callable[[str, str], types.ModuleType],
) -> None:
    made = module("sentinels_of", MODULE)
    for bare in (made.Unset(), made.Options(), object()):
        got = loads(dumps_inline(bare))
        assert got is not bare and type(got) is type(bare)


# what the standard library makes of a script's functions


def script(source: str, name: str) -> Any:
    namespace: dict[str, Any] = {"__name__": "__main__", "functools": functools}
    exec(textwrap.dedent(source), namespace)
    return namespace[name]


def test_a_cached_function_of_the_script_arrives_with_its_options_and_an_empty_cache() -> None:
    source = """
        @functools.lru_cache(maxsize=7, typed=True)
        def fib(n):
            "of Pisa"
            return n if n < 2 else fib(n - 1) + fib(n - 2)
    """
    fib = script(source, "fib")
    assert fib(20) == 6765
    got = loads(dumps_inline(fib))
    assert (got.cache_info().currsize, got.__doc__, got.__name__) == (0, "of Pisa", "fib")
    assert got.cache_parameters() == {"maxsize": 7, "typed": True}
    assert got(20) == 6765 and got.__wrapped__.__globals__["fib"] is got


def test_a_cached_function_of_a_module_travels_by_name() -> None:
    assert loads(dumps_inline(cached)) is cached
    assert loads(dumps_inline((cached, lambda: 1)))[0] is cached


@functools.cache
def cached(x: int) -> int:
    return x


def test_a_single_dispatch_of_the_script_chooses_over_there_as_here() -> None:
    source = """
        @functools.singledispatch
        def show(x): return "any"
        @show.register
        def _(x: int): return "int"
    """
    show = script(source, "show")
    assert show(1) == "int"
    got = loads(dumps_inline(show))
    assert (got(1), got("x")) == ("int", "any")


def test_a_cached_property_of_a_scripts_class_travels() -> None:
    source = """
        class Thing:
            @functools.cached_property
            def size(self): return [1]
    """
    got = loads(dumps_inline(script(source, "Thing")()))
    assert got.size is got.size
