from __future__ import annotations

import _collections_abc
import collections
import enum
import functools
import io
import math
import pickle
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core import extension
from monarch._core.wire import picklers, pickling, reducers
from monarch._core.wire.pickling import (
    OUT_OF_BAND_SIZE,
    RAW_SIZE,
    dumps,
    dumps_call,
    dumps_inline,
    dumps_value,
    loads,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers()
VALUES = st.recursive(
    SCALARS | st.binary(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


class Importable:
    counter = 0

    class Nested:
        pass

    def __init__(self, value: object = None) -> None:
        self.value = value

    def method(self) -> object:
        return self.value


class Colour(enum.Enum):
    RED = 1


def importable_function(x: int) -> int:
    return x + 1


def same(left: object, right: object) -> bool:
    """Equality that takes a NaN for itself and tells True from 1."""
    return repr(left) == repr(right)


def through(obj: object) -> Any:
    payload, buffers = dumps(obj)
    return loads(payload, [bytearray(buffer) for buffer in buffers])


def main_module(source: str, name: str) -> Any:
    """What `name` is in a script whose text is `source`: its module is called __main__ and nobody
    can import it.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(textwrap.dedent(source), namespace)
    return namespace[name]


def in_receiver(script: str, *payloads: bytes) -> str:
    """What a process prints that has `payloads` in a list and knows none of our classes."""
    lines = """
        import pickle, sys
        from monarch._core.wire.pickling import dumps, loads
        payloads = pickle.load(sys.stdin.buffer)
    """
    source = textwrap.dedent(lines) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", source],
        input=pickle.dumps(payloads),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


# plain values


@given(st.lists(SCALARS, max_size=5).map(tuple))
def test_a_call_with_scalars_only_survives_without_buffers(args: tuple[Any, ...]) -> None:
    payload, buffers = dumps_call(args, {})
    assert not buffers
    assert same(loads(payload), (args, {}))


@given(
    st.lists(VALUES, max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
)
def test_a_call_with_any_values_survives(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    payload, buffers = dumps_call(args, kwargs)
    assert same(loads(payload, buffers), (args, kwargs))


@given(VALUES)
def test_a_value_survives_each_way_of_writing_it(value: object) -> None:
    assert same(loads(*dumps_value(value)), value)
    assert same(loads(*dumps(value)), value)
    assert same(loads(dumps_inline(value)), value)


@pytest.mark.parametrize("value", [0, 1.5, "x", True, None, 2j])
def test_scalars_take_no_pickler_object(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(obj: object) -> None:
        raise AssertionError("the slow way was taken")

    monkeypatch.setattr(pickling, "dumps", refuse)
    assert same(loads(*dumps_value(value)), value)
    assert same(loads(*dumps_call((value, value), {})), ((value, value), {}))
    assert loads(*dumps_call((), {})) == ((), {})


def test_a_subclass_of_a_scalar_keeps_its_class() -> None:
    (value,), _ = loads(*dumps_call((BoolLike(3),), {}))
    assert type(value) is BoolLike
    assert type(loads(*dumps_value(BoolLike(3)))) is BoolLike


class BoolLike(int):
    pass


def test_loading_takes_any_kind_of_bytes() -> None:
    payload = dumps_inline([1, 2])
    assert loads(payload) == loads(bytearray(payload)) == loads(memoryview(payload)) == [1, 2]


def test_recursive_structures_survive() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    table: dict[str, Any] = {"ring": ring}
    table["self"] = table
    got = through(table)
    assert got["self"] is got
    assert got["ring"][1] is got["ring"]
    node = Importable()
    node.value = [node]
    again = through(node)
    assert again.value[0] is again


def test_shared_parts_stay_shared() -> None:
    part = [1]
    first, second = through((part, part))
    assert first is second


# by reference


@pytest.mark.parametrize(
    "thing",
    [
        Importable,
        Importable.Nested,
        importable_function,
        Colour,
        Colour.RED,
        len,
        math.sqrt,
        collections.OrderedDict,
        int,
        type(None),
        type(...),
        type(NotImplemented),
        None,
        ...,
        NotImplemented,
        ValueError,
        threading.Thread,
        io.BytesIO,
        Importable.method,
    ],
    ids=lambda thing: getattr(thing, "__qualname__", repr(thing)),
)
def test_what_can_be_imported_travels_by_name(thing: object) -> None:
    assert through(thing) is thing
    assert len(dumps_inline(thing)) < 200


def test_what_can_be_imported_does_not_reach_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picklers, "_ValuePickler", None)
    got = through(
        [Importable(3), Importable.Nested, functools.partial(importable_function, 1), Colour.RED]
    )
    assert got[0].method() == 3
    assert got[1] is Importable.Nested
    assert got[2]() == 2


def test_bound_methods_and_partials_of_importable_things_survive() -> None:
    assert through(Importable("v").method)() == "v"
    assert through(functools.partial(importable_function, 4))() == 5


@pytest.mark.parametrize(
    "thing",
    [types.FunctionType, types.ModuleType, types.MethodType, type({}.keys()), types.GeneratorType],
    ids=lambda thing: str(thing.__name__),
)
def test_builtin_types_without_a_builtin_name_survive(thing: type) -> None:
    assert through(thing) is thing


@pytest.mark.parametrize(
    "make", [lambda: math, lambda: [pickling], lambda: {"m": textwrap}], ids=["c", "list", "dict"]
)
def test_modules_survive(make: Callable[[], object]) -> None:
    assert through(make()) == make()


@pytest.mark.parametrize(
    "name", ["dict_keys", "dict_itemiterator", "range_iterator", "generator", "mappingproxy"]
)
def test_builtin_types_without_a_builtin_name_are_the_same_in_another_process(name: str) -> None:
    payload = dumps_inline(getattr(_collections_abc, name))
    assert (
        in_receiver(
            f"import _collections_abc; print(loads(payloads[0]) is _collections_abc.{name})",
            payload,
        )
        == "True"
    )


@pytest.mark.parametrize(
    "thing", [types.NoneType, types.EllipsisType, types.NotImplementedType, int, type, object]
)
def test_types_that_pickle_knows_do_not_reach_cloudpickle(
    thing: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picklers, "_ValuePickler", None)
    assert through(thing) is thing


def test_a_bound_method_of_a_function_without_a_name_survives() -> None:
    assert through(types.MethodType(lambda self: self.value + 1, Importable(3)))() == 4


def test_views_of_dicts_survive_as_cloudpickle_lets_them() -> None:
    assert list(through({"a": 1, "b": 2}.keys())) == ["a", "b"]
    assert list(through({"a": 1, "b": 2}.values())) == [1, 2]


def test_an_imported_name_that_is_now_something_else_travels_by_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = importable_function
    monkeypatch.setattr(
        sys.modules[__name__],
        "importable_function",
        functools.wraps(original)(lambda x: original(x)),
    )
    got = through(original)
    assert got is not original
    assert got(1) == 2


# by value


def test_lambdas_and_closures_travel_with_what_they_close_over() -> None:
    base = 10

    def add(x: int) -> int:
        return x + base

    assert through(lambda: 5)() == 5
    assert through(add)(1) == 11
    assert through({"k": [add]})["k"][0](2) == 12


def test_code_that_travels_by_value_keeps_the_name_of_its_file() -> None:
    """Tracebacks and breakpoints of the receiver need it; cloudpickle 3.1.3 leaves it out."""
    make: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def outer():\n    return lambda: 0\n", "/where/it/stands.py", "exec"), make)

    outer = through(make["outer"])

    assert outer.__code__.co_filename == "/where/it/stands.py"
    assert outer().__code__.co_filename == "/where/it/stands.py"
    assert (outer().__code__.co_name, outer().__code__.co_firstlineno) == ("<lambda>", 2)


def test_a_closure_that_calls_itself_survives() -> None:
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    assert through(factorial)(5) == 120


def test_local_classes_travel_by_value() -> None:
    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

        def double(self) -> int:
            return self.value * 2

    payload, buffers = dumps(Local(4))
    out = in_receiver(
        "print(loads(payloads[0]).double(), type(loads(payloads[0])).__name__)", payload
    )
    assert not buffers
    assert out == "8 Local"


def test_classes_and_functions_of_a_script_travel_by_value() -> None:
    Counter = main_module(
        """
        STEP = 2
        def step(): return STEP
        class Counter:
            total = 0
            def add(self):
                Counter.total += step()
                return Counter.total
        """,
        "Counter",
    )
    out = in_receiver(
        "one, function = loads(payloads[0]), loads(payloads[1]); print(one.add(), one.add(),"
        " function())",
        dumps_inline(Counter()),
        dumps_inline(Counter.add.__globals__["step"]),
    )
    assert out == "2 4 2"


@pytest.mark.parametrize(
    "source",
    [
        """
        import wsgiref.util
        def outer():
            def inner():
                return wsgiref.util.FileWrapper.__name__
            return inner()
        """,
        """
        def outermost():
            import wsgiref.util
            def outer():
                def inner():
                    return wsgiref.util.FileWrapper.__name__
                return inner()
            return outer
        outer = outermost()
        """,
    ],
    ids=["a global", "in a closure"],
)
def test_a_submodule_that_only_an_inner_function_uses_is_imported_by_the_receiver(
    source: str,
) -> None:
    outer = main_module(source, "outer")
    assert in_receiver("print(loads(payloads[0])())", dumps_inline(outer)) == "FileWrapper"


def test_submodules_of_outer_and_of_inner_functions_are_imported_by_the_receiver() -> None:
    outer = main_module(
        """
        import wsgiref.headers
        import wsgiref.util
        def outer():
            def inner():
                return wsgiref.util.FileWrapper.__name__
            return wsgiref.headers.Headers.__name__, inner()
        """,
        "outer",
    )
    said = in_receiver("print(*loads(payloads[0])())", dumps_inline(outer))
    assert said == "Headers FileWrapper"


def test_what_is_defined_in_the_program_itself_cannot_be_imported_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Counter = main_module(COUNTER, "Counter")
    monkeypatch.setattr(sys.modules["__main__"], "Counter", Counter, raising=False)
    assert not picklers.is_importable(Counter)


COUNTER = """
    class Counter:
        total = 0
        items = []
        def add(self):
            type(self).total += 1
            type(self).items.append(1)
            return type(self).total
"""


def test_a_class_that_arrives_again_is_the_same_and_keeps_its_attributes() -> None:
    Counter = main_module(COUNTER, "Counter")
    first = dumps_inline(Counter())
    Counter.total = 100  # at the sender; not news for the receiver, who has the class
    second = dumps_inline([Counter(), Counter])
    out = in_receiver(
        """
        one = loads(payloads[0])
        one.add(); one.add()
        type(one).fresh = "set here"
        again, cls = loads(payloads[1])
        print(type(again) is type(one) is cls, again.add(), len(cls.items), cls.fresh)
        """,
        first,
        second,
    )
    assert out == "True 3 3 set here"


def test_a_class_that_a_receiver_sends_on_is_the_same_there() -> None:
    payload = dumps_inline(main_module(COUNTER, "Counter")())
    out = in_receiver(
        """
        one = loads(payloads[0])
        one.add()
        sent = dumps(one)[0]
        one.add()
        back = loads(sent)
        print(type(back) is type(one), back.add())
        """,
        payload,
    )
    assert out == "True 3"


def test_a_class_that_comes_back_to_where_it_was_made_keeps_its_attributes_there() -> None:
    Counter = main_module(COUNTER, "Counter")
    sent = dumps_inline(Counter())
    Counter.total = 5
    back = loads(sent)
    assert type(back) is Counter
    assert Counter.total == 5


@pytest.mark.parametrize(
    "send_on",
    ["cloudpickle.dumps(one)", "dumps(loads(cloudpickle.dumps(one)))[0]"],
    ids=["without us", "with us again"],
)
def test_a_class_that_others_have_pickled_meanwhile_comes_back_as_the_same(send_on: str) -> None:
    Counter = main_module(COUNTER, "Counter")
    back = in_receiver(
        f"""
        import cloudpickle
        one = loads(payloads[0])
        print({send_on}.hex())
        """,
        dumps_inline(Counter()),
    )
    assert type(loads(bytes.fromhex(back))) is Counter


def test_classes_and_type_variables_that_come_without_us_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = in_receiver("""
        import cloudpickle
        main = {"__name__": "__main__"}
        exec("import typing\\nclass One: pass\\nclass Other: pass\\nT = typing.TypeVar('T')", main)
        for name in ("One", "Other", "T", "T"):
            print(cloudpickle.dumps(main[name]).hex())
    """)
    actor: dict[str, type] = {}
    monkeypatch.setattr(reducers, "own_classes", lambda: actor)
    one, other, variable, again = (loads(bytes.fromhex(line)) for line in made.split())
    assert (one.__name__, other.__name__) == ("One", "Other")
    assert variable is again


def test_each_actor_has_one_class_of_its_own_of_what_comes_by_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = in_receiver("""
        import cloudpickle
        exec("class Counter:\\n    total = 0", main := {"__name__": "__main__"})
        one = main["Counter"]()
        for data in (dumps(one)[0], dumps([one])[0], cloudpickle.dumps(one)):
            print(data.hex())
    """)
    first, listed, without_us = map(bytes.fromhex, made.split())

    def arrives(actor: dict[str, type] | None, payload: bytes) -> type:
        monkeypatch.setattr(reducers, "own_classes", lambda: actor)
        got = loads(payload)
        return type(got[0] if isinstance(got, list) else got)

    one: dict[str, type] = {}
    other: dict[str, type] = {}
    mine, theirs = arrives(one, first), arrives(other, without_us)
    assert theirs is not mine
    assert arrives(one, without_us) is arrives(None, without_us) is mine
    counter: Any = mine
    counter.total = 5
    assert arrives(one, listed) is mine and arrives(other, first) is theirs
    assert arrives(None, first) is mine, "the first of the process"
    assert counter.total == 5, "it is set up once"


def test_classes_by_value_may_be_enums_dataclasses_and_subclasses_of_each_other() -> None:
    Leaf = main_module(
        """
        import dataclasses, enum, abc
        class Kind(enum.Enum):
            A = 1
        class Base(abc.ABC):
            @abc.abstractmethod
            def go(self): ...
        @dataclasses.dataclass
        class Leaf(Base):
            kind: Kind = Kind.A
            def go(self): return (self.kind.name, super().__eq__(self))
        """,
        "Leaf",
    )
    payload = dumps_inline([Leaf(), Leaf()])
    out = in_receiver(
        "a, b = loads(payloads[0]); c = loads(payloads[0])[0]; print(a == b == c, a.go()[0], a.kind"
        " is c.kind)",
        payload,
    )
    assert out == "True A True"


def test_a_module_registered_for_pickling_by_value_travels_by_value() -> None:
    module = types.ModuleType("made_here")
    exec("def answer(): return 42\nclass Thing:\n    x = 7", module.__dict__)
    sys.modules["made_here"] = module
    try:
        cloudpickle.register_pickle_by_value(module)
        payload = dumps_inline((module.answer, module.Thing))
        cloudpickle.unregister_pickle_by_value(module)
    finally:
        del sys.modules["made_here"]
    out = in_receiver("answer, Thing = loads(payloads[0]); print(answer(), Thing.x)", payload)
    assert out == "42 7"


def test_a_package_registered_for_pickling_by_value_covers_its_modules() -> None:
    package, module = types.ModuleType("made_pkg"), types.ModuleType("made_pkg.inner")
    package.__path__ = []
    exec("class Thing:\n    x = 7", module.__dict__)
    sys.modules.update({"made_pkg": package, "made_pkg.inner": module})
    try:
        cloudpickle.register_pickle_by_value(package)
        payload = dumps_inline(module.Thing)
        assert picklers.is_importable(Importable)
        cloudpickle.unregister_pickle_by_value(package)
    finally:
        del sys.modules["made_pkg"], sys.modules["made_pkg.inner"]
    assert in_receiver("print(loads(payloads[0]).x)", payload) == "7"


# buffers


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_buffers_of_64_kib_and_more_stay_out_of_the_pickle(extra: int) -> None:
    array = np.arange(OUT_OF_BAND_SIZE + extra, dtype=np.uint8)
    payload, buffers = dumps(array)
    assert [len(buffer) for buffer in buffers] == ([len(array)] if extra >= 0 else [])
    assert (len(payload) < 1000) == (extra >= 0)
    np.testing.assert_array_equal(loads(payload, buffers), array)


def test_buffers_of_calls_and_values_keep_their_order() -> None:
    arrays = [np.full(OUT_OF_BAND_SIZE, i, dtype=np.uint8) for i in range(3)]
    payload, buffers = dumps_call((arrays[0],), {"rest": arrays[1:]})
    assert [buffer[0] for buffer in buffers] == [0, 1, 2]
    (first,), rest = loads(payload, buffers)
    assert [first[0], *(array[0] for array in rest["rest"])] == [0, 1, 2]
    assert len(dumps_value(arrays)[1]) == 3


def test_buffers_out_of_band_are_the_senders_own_memory() -> None:
    array = np.zeros(OUT_OF_BAND_SIZE, dtype=np.uint8)
    _, (buffer,) = dumps(array)
    array[0] = 9
    assert buffer[0] == 9


def test_sizes_of_buffers_are_in_bytes_with_any_items() -> None:
    array = np.arange(OUT_OF_BAND_SIZE // 8, dtype=np.float64).reshape(2, -1)
    payload, (buffer,) = dumps(array)
    assert len(buffer) == array.nbytes
    np.testing.assert_array_equal(loads(payload, [bytes(buffer)]), array)


@pytest.mark.parametrize(
    "view",
    [lambda a: a[::2], lambda a: a.T, lambda a: a[:, ::-1], lambda a: np.asfortranarray(a)],
    ids=["strided", "transposed", "reversed", "fortran"],
)
def test_arrays_of_any_layout_survive(view: Callable[[Any], Any]) -> None:
    array = view(np.arange(4 * OUT_OF_BAND_SIZE, dtype=np.uint8).reshape(512, -1))
    np.testing.assert_array_equal(through(array), array)


def test_a_buffer_that_is_not_contiguous_raises_what_pickle_raises() -> None:
    with pytest.raises(pickle.PicklingError, match="contiguous"):
        dumps(Strided())
    with pytest.raises(pickle.PicklingError, match="contiguous"):
        dumps_inline(Strided())


class Strided:
    def __reduce_ex__(self, protocol: Any) -> Any:
        return bytearray, (pickle.PickleBuffer(memoryview(bytearray(4 * OUT_OF_BAND_SIZE))[::2]),)


def test_arrays_of_a_receiver_can_be_written() -> None:
    array = np.zeros(OUT_OF_BAND_SIZE, dtype=np.uint8)
    got = through(array)
    got[0] = 1
    assert array[0] == 0


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_large_bytes_that_are_an_argument_or_a_result_stay_out_of_the_pickle(kind: Any) -> None:
    large, small = kind(b"x" * RAW_SIZE), kind(b"x" * (RAW_SIZE - 1))
    payload, buffers = dumps_call((large, 1, small), {})
    assert [buffer.nbytes for buffer in buffers] == [RAW_SIZE] and len(payload) < RAW_SIZE + 200
    (got, one, other), options = loads(payload, buffers)
    assert (got, one, other, options) == (large, 1, small, {})
    assert type(got) is type(other) is kind
    for value, count in ((large, 1), (small, 0)):
        payload, buffers = dumps_value(value)
        assert len(buffers) == count
        assert loads(payload, buffers) == value and type(loads(payload, buffers)) is kind


def test_large_bytes_given_twice_are_sent_once_and_stay_one_object() -> None:
    for large in (b"x" * RAW_SIZE, bytearray(RAW_SIZE)):
        payload, buffers = dumps_call((large, large), {})
        assert len(buffers) == 1
        (first, second), _ = loads(payload, buffers)
        assert first is second and first == large


def test_a_large_bytearray_that_another_argument_may_hold_stays_one_object() -> None:
    large, beside = bytearray(RAW_SIZE), b"y" * RAW_SIZE
    payload, buffers = dumps_call((large, beside, [large]), {})
    assert [bytes(buffer) for buffer in buffers] == [beside]
    (first, got, (second,)), _ = loads(payload, buffers)
    assert first is second and first == large and got == beside
    payload, buffers = dumps_call((large,), {"again": large})
    (first,), options = loads(payload, buffers)
    assert first is options["again"] and buffers == []


def test_in_line_nothing_stays_out_of_the_pickle() -> None:
    array = np.ones(2 * OUT_OF_BAND_SIZE, dtype=np.uint8)
    np.testing.assert_array_equal(loads(dumps_inline(array)), array)


def test_buffers_stay_out_of_the_pickle_beside_things_that_travel_by_value() -> None:
    array = np.ones(OUT_OF_BAND_SIZE, dtype=np.uint8)
    payload, buffers = dumps([array, lambda: 3, array + 1])
    assert len(buffers) == 2
    first, function, second = loads(payload, buffers)
    assert (first[0], function(), second[0]) == (1, 3, 2)


# errors


class Boom(Exception):
    pass


class Unpicklable:
    def __reduce__(self) -> Any:
        raise Boom("not me")


@pytest.mark.parametrize(
    "write", [dumps, dumps_inline, dumps_value, lambda obj: dumps_call((obj,), {})]
)
@pytest.mark.parametrize(
    "wrap", [lambda obj: obj, lambda obj: [obj, lambda: 1]], ids=["plain", "by value"]
)
def test_an_error_of_reduce_passes_through(
    write: Callable[[Any], Any], wrap: Callable[[Any], Any]
) -> None:
    with pytest.raises(Boom, match="not me"):
        write(wrap(Unpicklable()))


@pytest.mark.parametrize(
    "make", [threading.Lock, lambda: (n for n in range(1)), lambda: sys._getframe()]
)
def test_a_value_that_cannot_be_pickled_raises_a_type_error(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="pickle"):
        dumps(make())


def test_a_structure_too_deep_for_pickle_raises_a_recursion_error() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    try:
        with pytest.raises(RecursionError):
            dumps(deep)
    finally:
        while deep:  # freed level by level
            deep = deep.pop()


def test_an_error_of_rebuilding_passes_through() -> None:
    with pytest.raises(Boom, match="rebuilt"):
        loads(dumps_inline(RaisesWhenRebuilt()))


def raise_boom() -> None:
    raise Boom("rebuilt")


class RaisesWhenRebuilt:
    def __reduce__(self) -> Any:
        return raise_boom, ()


def test_a_failed_write_leaves_nothing_to_the_next() -> None:
    array = np.ones(OUT_OF_BAND_SIZE, dtype=np.uint8)
    with pytest.raises(Boom):
        dumps([array, Unpicklable()])
    assert len(dumps([array])[1]) == 1


# reducers of packages


class FakePackage(types.ModuleType):
    Tensor: type
    Child: type
    load: Callable[[], dict[type, reducers.Reducer]]

    @property
    def REDUCERS(self) -> dict[type, reducers.Reducer]:
        return self.load()


@pytest.fixture
def fake_package(monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    """A package with a class that pickles badly, known to nobody yet."""
    monkeypatch.setattr(reducers, "_reducers", {})
    monkeypatch.setattr(reducers, "_loaded", set())
    monkeypatch.setattr(extension.reducers, "_filled", {})
    monkeypatch.setitem(extension._table, "reducers", {"fakepkg": "fakepkg:REDUCERS"})
    package, module = FakePackage("fakepkg"), types.ModuleType("fakepkg.core.deep")
    source = """
        class Tensor:
            def __init__(self, data): self.data = data
            def __reduce__(self): raise AssertionError("the default was used")
        class Child(Tensor):
            def __reduce__(self): return Child, (self.data,)
    """
    exec(textwrap.dedent(source), module.__dict__)
    package.Tensor, package.Child = module.Tensor, module.Child
    monkeypatch.setitem(sys.modules, "fakepkg", package)
    monkeypatch.setitem(sys.modules, "fakepkg.core.deep", module)
    return package


@pytest.mark.parametrize(
    "wrap", [lambda obj: obj, lambda obj: (obj, lambda: 1)], ids=["plain", "by value"]
)
def test_reducers_are_loaded_when_the_package_first_turns_up(
    fake_package: FakePackage, wrap: Callable[[Any], Any]
) -> None:
    loaded: list[str] = []

    def load() -> dict[type, reducers.Reducer]:
        loaded.append("fakepkg")
        return {fake_package.Tensor: lambda tensor: (fake_package.Tensor, (tensor.data * 2,))}

    fake_package.load = load
    dumps([Importable(), np.ones(3)])
    assert not loaded
    for _ in range(2):
        got = through(wrap(fake_package.Tensor(4)))
        assert (got[0] if isinstance(got, tuple) else got).data == 8
    assert loaded == ["fakepkg"]


def test_reducers_are_for_exactly_their_type(fake_package: FakePackage) -> None:
    fake_package.load = lambda: {fake_package.Tensor: lambda tensor: (fake_package.Tensor, (0,))}
    got = through([fake_package.Tensor(5), fake_package.Child(5)])
    assert [one.data for one in got] == [0, 5]


def test_reducers_may_keep_buffers_out_of_the_pickle(fake_package: FakePackage) -> None:
    def reduce(tensor: Any) -> Any:
        return fake_package.Tensor, (pickle.PickleBuffer(tensor.data),)

    fake_package.load = lambda: {fake_package.Tensor: reduce}
    payload, buffers = dumps(fake_package.Tensor(bytearray(b"x" * OUT_OF_BAND_SIZE)))
    assert [len(buffer) for buffer in buffers] == [OUT_OF_BAND_SIZE]
    assert bytes(loads(payload, buffers).data) == b"x" * OUT_OF_BAND_SIZE


def test_a_package_whose_reducers_fail_to_load_is_asked_again(fake_package: FakePackage) -> None:
    tries: list[int] = []

    def load() -> dict[type, reducers.Reducer]:
        tries.append(1)
        if len(tries) == 1:
            raise ImportError("not yet")
        return {fake_package.Tensor: lambda tensor: (fake_package.Tensor, (7,))}

    fake_package.load = load
    with pytest.raises(ImportError):
        dumps(fake_package.Tensor(1))
    assert through(fake_package.Tensor(1)).data == 7


def test_while_reducers_load_no_other_thread_takes_the_default(fake_package: FakePackage) -> None:
    begun, finish = threading.Event(), threading.Event()

    def load() -> dict[type, reducers.Reducer]:
        begun.set()
        assert finish.wait(20)
        return {fake_package.Tensor: lambda tensor: (fake_package.Tensor, (7,))}

    fake_package.load = load
    got: list[Any] = []
    threads = [
        threading.Thread(target=lambda: got.append(through(fake_package.Tensor(1)).data))
        for _ in range(2)
    ]
    threads[0].start()
    assert begun.wait(20)
    threads[1].start()
    threads[1].join(0.2)  # time to do it wrong
    finish.set()
    for thread in threads:
        thread.join(30)
    assert got == [7, 7]


# threads


def test_many_threads_pickle_at_once() -> None:
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        start.wait(10)
        try:
            for i in range(50):
                array = np.full(OUT_OF_BAND_SIZE, number, dtype=np.uint8)
                got = through([array, (lambda: number), i])
                assert (got[0][0], got[1](), got[2]) == (number, number, i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures
