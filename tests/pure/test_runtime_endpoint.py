from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from monarch._core.actors.actor import Actor
from monarch._core.actors.endpoint import (
    ArgumentCheck,
    EndpointDefinition,
    concurrent_endpoint,
    describe_class,
    endpoint,
)

Parameter = inspect.Parameter
NAMES = ["a", "b", "c", "d", "e"]


@st.composite
def functions(draw: st.DrawFn) -> Callable[..., Any]:
    """A method with any signature that Python allows after ``self``."""
    kinds = sorted(
        draw(
            st.lists(
                st.sampled_from(
                    [
                        Parameter.POSITIONAL_ONLY,
                        Parameter.POSITIONAL_OR_KEYWORD,
                        Parameter.KEYWORD_ONLY,
                    ]
                ),
                max_size=5,
            )
        )
    )
    positional, keyword, optional = [], [], False
    slash = 0
    for name, kind in zip(NAMES, kinds, strict=False):
        if kind is Parameter.KEYWORD_ONLY:
            keyword.append(name + draw(st.sampled_from(["", "=0"])))
            continue
        optional = optional or draw(st.booleans())
        positional.append(name + ("=0" if optional else ""))
        slash += kind is Parameter.POSITIONAL_ONLY
    if slash:
        positional.insert(slash, "/")
    star = draw(st.sampled_from(["", "*rest"]))
    parts = [
        "self",
        *positional,
        star or ("*" if keyword else ""),
        *keyword,
        draw(st.sampled_from(["", "**more"])),
    ]
    namespace: dict[str, Any] = {}
    exec(f"def method({', '.join(filter(None, parts))}): return 'called'", namespace)
    return namespace["method"]  # type: ignore[no-any-return]


arguments = st.tuples(
    st.lists(st.integers(), max_size=7).map(tuple),
    st.dictionaries(st.sampled_from([*NAMES, "zzz"]), st.integers(), max_size=4),
)


def bind_may_be_wrong(method: Callable[..., Any]) -> bool:
    """Whether CPython's own bind may be wrong: it refused for years that ``**more`` holds the name of
    a positional-only argument, and that of 3.14 takes one by its name, if two have a default.
    """
    parameters = inspect.signature(method).parameters.values()
    kinds = {parameter.kind for parameter in parameters}
    optional = [
        each
        for each in parameters
        if each.kind is Parameter.POSITIONAL_ONLY and each.default is not Parameter.empty
    ]
    return {Parameter.POSITIONAL_ONLY, Parameter.VAR_KEYWORD} <= kinds or (
        sys.version_info >= (3, 14) and len(optional) > 1
    )


def accepts(call: Callable[[], object]) -> str | None:
    """None, or the text of the TypeError."""
    try:
        call()
    except TypeError as error:
        return str(error) or "refused"
    return None


@given(functions(), arguments)
def test_arguments_are_checked_as_signature_bind_does(
    method: Callable[..., Any], given_: tuple[tuple[int, ...], dict[str, int]]
) -> None:
    args, kwargs = given_
    signature = inspect.signature(method)
    bound = signature.replace(parameters=list(signature.parameters.values())[1:])
    check = ArgumentCheck(method, 1, "method")
    ours, pythons = (
        accepts(lambda: check(args, kwargs)),
        accepts(lambda: bound.bind(*args, **kwargs)),
    )
    assert (ours is None) == (pythons is None)
    assert (pythons or "") in (ours or "")


@given(functions(), arguments)
def test_arguments_are_refused_exactly_when_a_local_call_refuses_them(
    method: Callable[..., Any], given_: tuple[tuple[int, ...], dict[str, int]]
) -> None:
    args, kwargs = given_
    assume(not bind_may_be_wrong(method))
    refused = accepts(lambda: ArgumentCheck(method, 1, "method")(args, kwargs))
    assert (refused is None) == (accepts(lambda: method(None, *args, **kwargs)) is None)


def test_parameters_with_names_only_are_never_taken_for_self_or_the_port() -> None:
    def method(self: object, *, x: int) -> None: ...

    check = ArgumentCheck(method, 2, "method")
    check((), {"x": 1})
    with pytest.raises(TypeError):
        check((), {})


@given(functions(), arguments)
def test_arguments_after_a_response_port_are_checked_without_it(
    method: Callable[..., Any], given_: tuple[tuple[int, ...], dict[str, int]]
) -> None:
    args, kwargs = given_
    assume(not bind_may_be_wrong(method))
    namespace: dict[str, Any] = {}
    text = str(inspect.signature(method)).replace("(self", "(self, port", 1)
    exec(f"def method{text}: ...", namespace)
    check = EndpointDefinition(namespace["method"], explicit_response_port=True).arguments
    assert (accepts(lambda: check(args, kwargs)) is None) == (
        accepts(lambda: namespace["method"](None, None, *args, **kwargs)) is None
    )


def test_a_method_that_takes_everything_as_star_args_takes_everything() -> None:
    def method(*args: int, **kwargs: int) -> None: ...

    ArgumentCheck(method, 1, "method")((1, 2, 3), {"x": 4})
    ArgumentCheck(method, 1, "method")((1, 2, 3), {})
    ArgumentCheck(method, 1, "method")((), {})
    ArgumentCheck(method, 2, "method")((1, 2, 3), {})


def test_a_method_whose_port_is_one_of_its_star_args_takes_everything() -> None:
    def method(self: object, *args: int) -> None: ...

    ArgumentCheck(method, 2, "method")((1, 2, 3), {})


def test_a_constructor_is_checked_without_self() -> None:
    class Thing:
        def __init__(self, x: int, *, y: int = 0) -> None: ...

    check = ArgumentCheck(Thing.__init__, 1, "method")
    check((1,), {"y": 2})
    for args, kwargs in [((), {}), ((1, 2), {}), ((1,), {"z": 1})]:
        with pytest.raises(TypeError):
            check(args, kwargs)


# definitions


def test_an_endpoint_keeps_the_method_and_its_options() -> None:
    class Thing(Actor):
        @endpoint(propagate="same", instrument=False)
        def go(self, x: int) -> int:
            """Goes."""
            return x

        @endpoint(explicit_response_port=True)
        def answer(self, port: Any) -> None: ...

    go, answer = (describe_class(Thing).endpoints[name] for name in ("go", "answer"))
    assert (go.name, go.__doc__, go.propagate, go.instrument) == ("go", "Goes.", "same", False)
    assert not (go.explicit_response_port or go.concurrent or go.is_async)
    assert answer.explicit_response_port
    assert answer.instrument
    assert go.method(None, 3) == go._method(None, 3) == 3
    assert list(go.arguments.signature.parameters) == ["x"]
    assert list(answer.arguments.signature.parameters) == []
    assert "endpoint" in repr(go)
    assert "Thing.go" in repr(go)


def test_an_endpoint_is_named_as_its_class_names_it() -> None:
    def work(self: object) -> None: ...

    class Thing(Actor):
        renamed = endpoint(work)

    assert describe_class(Thing).endpoints["renamed"].name == "renamed"


class Greeter(Actor):
    def __init__(self, name: str) -> None:
        self.name = name

    @endpoint
    def hello(self, times: int = 1) -> str:
        return f"hello {self.name} " * times

    @endpoint
    def twice(self) -> Any:
        return self.hello(times=2)


class PoliteGreeter(Greeter):
    @endpoint
    def hello(self, times: int = 1) -> str:
        greeting: str = super().hello(times)
        return f"dear, {greeting}"


def test_endpoints_of_a_plain_object_are_its_methods() -> None:
    assert Greeter("you").hello() == "hello you "
    assert Greeter("you").twice() == "hello you hello you "
    assert Greeter.hello(Greeter("you"), 1) == "hello you "


def test_an_endpoint_can_extend_that_of_the_base_class() -> None:
    assert PoliteGreeter("you").hello() == "dear, hello you "
    assert PoliteGreeter("you").twice() == "dear, hello you hello you "


def test_async_endpoints_of_a_plain_object_are_its_coroutines() -> None:
    class Base(Actor):
        @endpoint
        async def get(self) -> int:
            return 1

    class More(Base):
        @endpoint
        async def get(self) -> int:
            found: int = await super().get()
            return found + 1

        @concurrent_endpoint
        async def twice(self) -> int:
            found: int = await self.get()
            return 2 * found

    assert asyncio.run(More().get()) == 2
    assert asyncio.run(More().twice()) == 4


def test_an_adverb_on_a_plain_object_says_where_it_belongs() -> None:
    with pytest.raises(TypeError, match=r"spawned mesh.*mesh\.hello\.call\((.|\n)*self\.hello\("):
        Greeter("you").hello.call()


def test_a_decorator_above_endpoint_is_refused_with_the_right_order() -> None:
    def decorator(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return function(*args)

        return wrapper

    class Thing(Actor):
        @decorator
        @endpoint
        def go(self) -> None: ...

    with pytest.raises(ValueError, match=r"Thing\.go(.|\n)*@endpoint\n.*@the_other"):
        describe_class(Thing)


def test_generators_are_refused_as_endpoints_of_every_kind() -> None:
    def counts(self: object) -> Iterator[int]:
        yield 1

    async def counts_async(self: object) -> AsyncIterator[int]:
        yield 1

    for method in (counts, counts_async):
        with pytest.raises(TypeError, match=r"counts.* yields.*Port"):
            endpoint(method)
        with pytest.raises(TypeError, match="yields"):
            endpoint(explicit_response_port=True)(method)  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError)):
        concurrent_endpoint(counts_async)  # type: ignore[arg-type]


def test_a_method_is_decorated_once() -> None:
    @endpoint
    def go(self: object) -> None: ...

    with pytest.raises(ValueError, match="already"):
        endpoint(go)
    with pytest.raises(ValueError, match="concurrent_endpoint"):
        concurrent_endpoint(go)


@pytest.mark.parametrize("thing", [3, "go", object()])
def test_only_what_can_be_called_is_an_endpoint(thing: Any) -> None:
    with pytest.raises(TypeError, match="decorates a method"):
        endpoint(thing)


def test_concurrent_endpoints_are_async() -> None:
    def go(self: object) -> None: ...

    with pytest.raises(ValueError, match="async def go"):
        concurrent_endpoint(go)  # type: ignore[arg-type]

    @concurrent_endpoint
    async def fine(self: object) -> None: ...

    assert isinstance(fine, EndpointDefinition)
    assert fine.concurrent
    assert fine.is_async
    assert "concurrent_endpoint" in repr(fine)


# classes


def test_a_class_is_read_once() -> None:
    class Thing(Actor):
        @endpoint
        def go(self) -> None: ...

    assert describe_class(Thing) is describe_class(Thing)


def test_sync_and_async_endpoints_do_not_mix_and_the_error_names_them() -> None:
    class Mixed(Actor):
        @endpoint
        def one(self) -> None: ...

        @endpoint
        async def two(self) -> None: ...

    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"Mixed mixes both async and sync endpoints.*one.*two"
        ):
            describe_class(Mixed)


def test_a_class_of_sync_endpoints_is_sync_and_others_are_async() -> None:
    class Sync(Actor):
        @endpoint
        def go(self) -> None: ...

        async def helper(self) -> None: ...

    class Async(Actor):
        @endpoint
        async def go(self) -> None: ...

        def helper(self) -> None: ...

    class Bare(Actor):
        pass

    assert not describe_class(Sync).is_async
    assert describe_class(Async).is_async
    assert describe_class(Bare).is_async
    assert describe_class(Bare).endpoints == {}


def test_endpoints_are_inherited_overridden_and_hidden() -> None:
    class Base(Actor):
        @endpoint
        def kept(self) -> str:
            return "base"

        @endpoint
        def replaced(self) -> str:
            return "base"

        @endpoint
        def hidden(self) -> str:
            return "base"

    class Child(Base):
        @endpoint
        def replaced(self) -> str:
            return "child"

        def hidden(self) -> str:  # type: ignore[override]
            return "plain"

        @endpoint
        def added(self) -> str:
            return "child"

    endpoints = describe_class(Child).endpoints
    assert set(endpoints) == {"kept", "replaced", "added"}
    assert endpoints["replaced"].method(None) == "child"
    assert set(describe_class(Base).endpoints) == {"kept", "replaced", "hidden"}


def test_the_kinds_of_inherited_endpoints_count() -> None:
    class Base(Actor):
        @endpoint
        def one(self) -> None: ...

    class Child(Base):
        @endpoint
        async def two(self) -> None: ...

    with pytest.raises(ValueError, match="mixes"):
        describe_class(Child)


def test_reading_a_class_runs_no_properties() -> None:
    class Thing(Actor):
        @property
        def trouble(self) -> int:
            raise AssertionError("it was run")

        @endpoint
        def go(self) -> None: ...

    assert set(describe_class(Thing).endpoints) == {"go"}


def test_a_cleanup_hook_is_of_the_kind_of_the_endpoints() -> None:
    class AsyncCleanup(Actor):
        async def __cleanup__(self, exc: object) -> None: ...

        @endpoint
        def go(self) -> None: ...

    class SyncCleanup(Actor):
        def __cleanup__(self, exc: object) -> None: ...

        @endpoint
        async def go(self) -> None: ...

    with pytest.raises(ValueError, match=r"__cleanup__ must be `def`"):
        describe_class(AsyncCleanup)
    with pytest.raises(ValueError, match=r"__cleanup__ must be `async def`"):
        describe_class(SyncCleanup)


@pytest.mark.parametrize("hook", ["__supervise__", "_handle_undeliverable_message"])
def test_an_async_actor_may_have_hooks_of_either_kind_and_a_sync_one_only_sync_hooks(
    hook: str,
) -> None:
    async def async_hook(self: object, what: object) -> bool:
        return True

    def sync_hook(self: object, what: object) -> bool:
        return True

    def sync_go(self: object) -> None: ...

    async def async_go(self: object) -> None: ...

    for function in (async_hook, sync_hook):
        describe_class(type("Async", (Actor,), {"go": endpoint(async_go), hook: function}))
    describe_class(type("Sync", (Actor,), {"go": endpoint(sync_go), hook: sync_hook}))
    with pytest.raises(ValueError, match=f"{hook} must be `def`"):
        describe_class(type("Sync", (Actor,), {"go": endpoint(sync_go), hook: async_hook}))


def test_arguments_of_a_constructor_are_checked_before_anything_is_sent() -> None:
    class Thing(Actor):
        def __init__(self, size: int) -> None: ...

        @endpoint
        def go(self) -> None: ...

    check = describe_class(Thing).check_init
    check((3,), {})
    check((), {"size": 3})
    with pytest.raises(TypeError, match="size"):
        check((), {})


def test_a_class_without_a_constructor_takes_no_arguments() -> None:
    class Thing(Actor):
        @endpoint
        def go(self) -> None: ...

    check = describe_class(Thing).check_init
    check((), {})
    with pytest.raises(TypeError):
        check((3,), {})
    with pytest.raises(TypeError):
        check((), {"size": 3})


def test_a_class_with_new_and_without_init_takes_what_new_takes() -> None:
    class Thing(Actor):
        def __new__(cls, size: int) -> Any:
            return super().__new__(cls)

        @endpoint
        def go(self) -> None: ...

    check = describe_class(Thing).check_init
    check((3,), {})
    check((), {"size": 3})
    with pytest.raises(TypeError):
        check((), {})
