"""The script's names in a process that does not run it: what travelled with classes and functions."""

from __future__ import annotations

import copy
import copyreg
import inspect
import linecache
import math
import pickle
import sys
import threading
import types
import typing
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cloudpickle import cloudpickle

from helpers.each import for_each
from monarch._core.wire import functions, picklers, pickling, reducers, script
from monarch._core.wire.reducers import Loan

SCRIPT = '''
import copyreg, dataclasses, decimal, fractions

class Inner:
    pass

@dataclasses.dataclass
class Config:
    """What a training takes."""
    size: "int" = 3
    part: "Inner | None" = None
    exact: "decimal.Decimal | None" = None

    class Nested:
        pass

class Odd:
    pass

def rebuild(size):
    return Config(size)

copyreg.pickle(Odd, lambda odd: (Odd, ()))

def scale(config: "Config", by: "fractions.Fraction") -> "int":
    return config.size

def missing(one: "Missing"):
    return one
'''

Elsewhere = Callable[[], script.ScriptModule]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The script, as its own process has it."""
    module = types.ModuleType("__main__")
    vars(module)["__file__"] = "<a script>"
    monkeypatch.setitem(
        linecache.cache, "<a script>", (len(SCRIPT), None, SCRIPT.splitlines(True), "<a script>")
    )
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.setitem(sys.modules, "__mp_main__", module)
    monkeypatch.setattr(copyreg, "dispatch_table", copyreg.dispatch_table.copy())
    exec(compile(SCRIPT, "<a script>", "exec"), vars(module))
    return module


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, main: types.ModuleType) -> Elsewhere:
    """Makes this process one to which nothing has come yet."""

    def go() -> script.ScriptModule:
        for owner, name, fresh in (
            (cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", weakref.WeakValueDictionary()),
            (cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", weakref.WeakKeyDictionary()),
            (picklers, "_applied", weakref.WeakSet()),
            (picklers, "_received", weakref.WeakSet()),
            (functions, "_names", weakref.WeakKeyDictionary()),
            (functions, "_by_name", weakref.WeakValueDictionary()),
            (script, "brought", weakref.WeakKeyDictionary()),
            (script, "functions", weakref.WeakValueDictionary()),
            (reducers, "script_names", reducers.script_names),
        ):
            monkeypatch.setattr(owner, name, fresh)
        script.install()
        script.install()  # once
        found = sys.modules["__main__"]
        assert isinstance(found, script.ScriptModule) and sys.modules["__mp_main__"] is found
        return found

    return go


def sent(value: Any) -> bytes:
    content, buffers = pickling.dumps(value)
    assert not buffers
    return bytes(content)


def test_a_class_is_found_by_its_name_where_it_has_come(
    main: types.ModuleType, elsewhere: Elsewhere
) -> None:
    content = sent(main.Config(7))
    there = elsewhere()
    with pytest.raises(AttributeError, match="'__main__' of a proc has no 'Config': none was sent"):
        assert there.Config
    config = pickle.loads(content)
    cls = type(config)
    assert cls is not main.Config and there.Config is cls
    assert pickle.loads(pickle.dumps(config)) == config  # by name alone
    assert copy.deepcopy(config) == config
    assert pickle.loads(pickle.dumps(cls.Nested)) is cls.Nested
    assert vars(there)["Config"] is cls


def test_what_its_annotations_mention_resolves_and_is_imported_only_then(
    main: types.ModuleType, elsewhere: Elsewhere
) -> None:
    content = sent(main.Config)
    there = elsewhere()
    cls = pickle.loads(content)
    assert type(script.brought[cls][1]["decimal"]) is bytes
    hints = typing.get_type_hints(cls)
    assert hints["size"] is int and hints["part"] == there.Inner | None
    assert hints["exact"].__args__[0].__name__ == "Decimal"


def test_what_is_sent_on_brings_its_names_along(
    main: types.ModuleType, elsewhere: Elsewhere
) -> None:
    content = sent(main.Config)
    elsewhere()
    further = sent(pickle.loads(content))
    there = elsewhere()
    cls = pickle.loads(further)
    assert there.Config is cls
    assert typing.get_type_hints(cls)["part"] == there.Inner | None


def test_a_function_is_found_and_its_hints_resolve_where_their_modules_are(
    main: types.ModuleType, elsewhere: Elsewhere
) -> None:
    content = sent((main.scale, main.missing))
    there = elsewhere()
    scale, missing = pickle.loads(content)
    assert there.scale is scale
    assert typing.get_type_hints(scale)["by"].__name__ == "Fraction"
    assert typing.get_type_hints(scale)["config"].__name__ == "Config"
    with pytest.raises(NameError, match="Missing"):
        typing.get_type_hints(missing)
    assert inspect.getsource(scale).startswith("def scale(config")


FUNCTIONS = """
import math
from math import sqrt
N, LIST, UNUSED = 3, [], []
class Part: pass
def inner(x): return x * N
def plain(x, by=(1, 2.0), *, more=None): return sqrt(inner(x)) + math.pi, Part, plain
def keeps(x, seen=[]): seen.append(x); return seen
def uses_list(x): return LIST
def by_way(x): return uses_list(x)
def counts():
    global COUNT
    COUNT = 1
def within():
    def deeper():
        global COUNT
        COUNT = 1
    return deeper
def tagged(): pass
tagged.tags = []
"""


def test_a_function_that_did_not_change_is_the_one_that_came_before(
    main: types.ModuleType, elsewhere: Elsewhere
) -> None:
    exec(FUNCTIONS, vars(main))
    names = ("plain", "inner", "keeps", "uses_list", "by_way", "counts", "within", "tagged")
    twice = {name: [sent(getattr(main, name)) for _ in range(2)] for name in names}
    there = elsewhere()
    came = {name: [pickle.loads(each) for each in contents] for name, contents in twice.items()}
    same = {name for name, (one, other) in came.items() if one is other}
    assert same == {"plain", "inner"}
    plain = came["plain"][0]
    assert plain(3) == (3 + main.math.pi, there.Part, plain)
    assert pickle.loads(pickle.dumps(plain)) is plain
    assert plain.__globals__["inner"] is came["inner"][0]


CHANGES = {
    "N": 4.0,
    "Part": type("Part", (), {"__module__": "__main__"}),
    "sqrt": math.sin,
    "math": sys,
    "inner": lambda x: 2,
    "plain.__defaults__": ((1, 3.0),),
    "plain.__kwdefaults__": {"more": 1},
    "plain.tag": 1,
    "plain.__code__": (lambda x: x).__code__,
}


@for_each("name, value", [("N", 3.0), *CHANGES.items()])
def test_a_function_that_changed_comes_as_it_is(
    main: types.ModuleType, elsewhere: Elsewhere, name: str, value: object
) -> None:
    sys.modules["__main__"] = main
    exec(FUNCTIONS, vars(main))
    before = sent(main.plain)
    *of, last = name.split(".")
    setattr(main.plain if of else main, last, value)
    after = sent(main.plain)
    elsewhere()
    assert pickle.loads(before) is not pickle.loads(after)


def test_a_function_that_its_receiver_changed_is_not_taken_for_what_came(
    main: types.ModuleType, elsewhere: Elsewhere
) -> None:
    exec(FUNCTIONS, vars(main))
    content = sent(main.inner)
    elsewhere()
    inner = pickle.loads(content)
    inner.__globals__["N"] = 5
    again = pickle.loads(content)
    assert again is not inner and (again(1), inner(1)) == (3, 5)


def test_a_function_that_comes_home_is_itself(main: types.ModuleType, elsewhere: Elsewhere) -> None:
    exec(FUNCTIONS, vars(main))
    content = sent(main.plain)
    assert pickle.loads(content) is main.plain
    elsewhere()
    first = pickle.loads(content)
    assert pickle.loads(sent(first)) is first


def test_two_functions_of_the_same_code_stay_two(
    main: types.ModuleType, elsewhere: Elsewhere
) -> None:
    exec("def make():\n    global f\n    def f(): return 1\n    return f", vars(main))
    made = sent((main.make(), main.make()))
    elsewhere()
    one, other = pickle.loads(made)
    assert one is not other


def test_what_copyreg_knows_of_a_class_comes_with_it(
    main: types.ModuleType, elsewhere: Elsewhere
) -> None:
    content = sent(main.Odd())
    elsewhere()
    odd = pickle.loads(content)
    assert type(odd) in copyreg.dispatch_table
    assert type(copy.copy(odd)) is type(odd)


def test_each_actor_of_a_process_has_its_own_names(
    main: types.ModuleType, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = sent((main.Config, main.scale))
    there = elsewhere()
    found: list[tuple[dict[str, type], Any, Any]] = []
    empty: list[dict[str, type]] = [{}, {}]
    for own in empty:
        monkeypatch.setattr(reducers, "own_classes", lambda own=own: own)
        found.append((own, *pickle.loads(content)))
    (_, one, _), (_, other, _) = found
    assert one is not other
    for own, *its in found:
        monkeypatch.setattr(reducers, "own_classes", lambda own=own: own)
        assert [there.Config, there.scale] == its


def test_a_loan_and_its_message_are_one_step() -> None:
    order, made = threading.RLock(), []

    def is_free() -> bool:
        with ThreadPoolExecutor(1) as other:
            return other.submit(order.acquire, blocking=False).result()

    def lend() -> Any:
        made.append(is_free())
        return b"lent", []

    loan = Loan(order, lend)
    for _ in range(2):  # as often as it is sent
        with loan as content:
            assert content == (b"lent", []) and not is_free()
    assert made == [False]
    assert is_free()
