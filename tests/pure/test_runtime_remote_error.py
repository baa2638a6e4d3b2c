from __future__ import annotations

import asyncio
import builtins
import copy
import dataclasses
import gc
import importlib
import json
import pickle
import re
import subprocess
import sys
import threading
import traceback
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.calls.exception_pickle import can_be_sent
from monarch._core.calls.future import Future
from monarch._core.calls.promise import Promise, map_future
from monarch._core.calls.remote_error import (
    dump_error,
    format_remote,
    load_error,
    supervision_error,
    to_exception,
)
from monarch._core.calls.typed_error import actor_error
from monarch._core.supervision.failure import KILLED, STOPPED, Failure
from monarch._core.wire import pickling
from monarch._core.wire.frame import DEAD, ERROR, EXCEPTION, REPLY, VALUE, Frame
from monarch._unsendable import explain, explain_arguments
from monarch.errors import (
    ActorError,
    DeadlockError,
    InternalError,
    RemoteException,
    SupervisionError,
)


def across(error: BaseException) -> ActorError:
    """What the caller gets for an exception that an endpoint raised."""
    try:
        raise error
    except BaseException as raised:
        payload = dump_error(raised, "Actor call trainers.train failed.")
    return load_error(payload)


class Plain(Exception):
    pass


class TwoArguments(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class WithNew(Exception):
    def __new__(cls, first: int, second: int) -> WithNew:
        return super().__new__(cls, first, second)

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)
        self.second = second


class MadeDifferently(Exception):
    def __new__(cls, text: str, *, hint: str) -> MadeDifferently:
        return super().__new__(cls)

    def __init__(self, text: str, *, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


class WithLock(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class BadText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class ReducesToSomethingElse(Exception):
    def __reduce__(self) -> Any:
        return int, (3,)


def fail(*args: object) -> Exception:
    raise ValueError("cannot be rebuilt")


class RebuildRaises(Exception):
    def __reduce__(self) -> Any:
        return fail, ()


class ReduceRaises(Exception):
    def __reduce__(self) -> Any:
        raise OSError("cannot be pickled")


class ReduceRaisesWithoutText(Exception):
    def __reduce__(self) -> Any:
        raise BadText


class Slots(Exception):
    __slots__ = ("extra",)

    def __init__(self, extra: int) -> None:
        super().__init__(extra)
        self.extra = extra


# rebuilt as they were


@pytest.mark.parametrize(
    "error",
    [
        Plain("text"),
        Plain(),
        ValueError("a", 1, [2]),
        KeyError("missing"),
        OSError(2, "No such file", "/x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        StopIteration(3),
        AssertionError(),
        SystemExit(4),
        KeyboardInterrupt(),
        subprocess.CalledProcessError(3, ["ls"]),
        TwoArguments(5, "text"),
        KeywordOnly(code=6),
        Slots(7),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_is_rebuilt_with_its_class_arguments_and_attributes(
    error: BaseException,
) -> None:
    got = across(error)
    assert type(got.exception) is type(error)
    assert got.exception.args == error.args
    assert str(got.exception) == str(error)
    for name in ("code", "errno", "filename", "returncode", "cmd", "extra", "value"):
        assert getattr(got.exception, name, None) == getattr(error, name, None)


@given(st.lists(st.none() | st.integers() | st.text() | st.binary(), max_size=4))
def test_an_exception_keeps_any_arguments(args: list[Any]) -> None:
    assert across(Plain(*args)).exception.args == tuple(args)


def test_an_exception_keeps_attributes_that_were_set_later() -> None:
    error = Plain("x")
    error.hint = {"try": "again"}  # type: ignore[attr-defined]
    assert vars(across(error).exception)["hint"] == {"try": "again"}


def test_a_local_exception_class_travels_by_value() -> None:
    class Local(Exception):
        pass

    got = across(Local("here")).exception
    assert type(got).__name__ == "Local"
    assert got.args == ("here",)


def test_the_error_says_which_call_failed_and_where() -> None:
    got = across(Plain("why"))
    assert got.message == "Actor call trainers.train failed."
    assert "Actor call trainers.train failed." in str(got)
    assert "Plain: why" in str(got)
    assert "in across" in got.exception_formatted


def test_the_error_of_a_call_pickles() -> None:
    got = across(Plain("why"))
    again = pickle.loads(pickle.dumps(got))
    assert type(again) is type(got)
    assert str(again) == str(got)
    assert type(again.exception) is Plain


# stand-ins


@pytest.mark.parametrize(
    ("error", "name", "text", "why"),
    [
        (ReduceRaises("text"), "ReduceRaises", "text", "cannot be pickled"),
        (WithNew(1, 2), "WithNew", "1", "could not be rebuilt"),
    ],
    ids=["reduce raises", "new takes arguments"],
)
def test_what_does_not_pickle_or_rebuild_is_replaced_by_a_stand_in_that_says_why(
    error: Exception, name: str, text: str, why: str
) -> None:
    got = across(error).exception
    if type(got) is type(error):
        assert str(got) == str(error)  # rebuilt after all, from its parts
        return
    assert isinstance(got, RemoteException)
    assert got.type_name.endswith(name)
    assert got.text == text
    assert why in got.why


@pytest.mark.parametrize("error", [ReducesToSomethingElse("text"), RebuildRaises("text")])
def test_what_does_not_rebuild_is_rebuilt_from_its_parts(error: Exception) -> None:
    got = across(error).exception
    assert type(got) is type(error)
    assert got.args == ("text",)


def test_what_an_exception_holds_and_cannot_be_pickled_is_none_and_the_rest_arrives() -> None:
    error = WithLock("held")
    error.place = "here"  # type: ignore[attr-defined]
    got = across(error)
    assert isinstance(got, WithLock)
    assert type(got.exception) is WithLock
    assert got.args == ("held",)
    assert (vars(got)["lock"], vars(got)["place"]) == (None, "here")


def test_a_class_that_is_made_from_other_things_than_its_arguments_is_rebuilt() -> None:
    error = MadeDifferently("one", hint="two")
    got = across(error).exception
    assert type(got) is MadeDifferently
    assert (got.args, vars(got)) == (error.args, vars(error))


def test_what_does_not_rebuild_at_all_is_replaced_by_a_stand_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload = dump_error(Plain("text"), "m")
    monkeypatch.delattr(f"{__name__}.Plain")
    got = load_error(payload).exception
    assert isinstance(got, RemoteException)
    assert got.type_name.endswith("Plain")
    assert got.text == "text"
    assert "could not be rebuilt" in got.why


@pytest.mark.parametrize(
    "error",
    [
        BadText(),
        ReduceRaisesWithoutText("x"),
        Plain(BadText()),
    ],
    ids=["text", "reduce", "argument"],
)
def test_exceptions_without_a_text_reach_the_caller(error: Exception) -> None:
    got = across(error)
    assert isinstance(got.exception, BaseException)
    assert type(error).__name__ in got.exception_formatted


def test_a_stand_in_says_so() -> None:
    assert str(RemoteException("m.Odd", "text", "why")) == "m.Odd: text (a stand-in: why)"


def test_exceptions_that_cause_each_other_in_a_ring_reach_the_caller() -> None:
    first, second = Plain("first"), Plain("second")
    first.__cause__, second.__cause__ = second, first
    got = across(first)
    assert "first" in got.exception_formatted
    assert "second" in got.exception_formatted


def test_an_exception_that_holds_itself_reaches_the_caller() -> None:
    error = Plain("x")
    error.me = error  # type: ignore[attr-defined]
    got = across(error).exception
    assert vars(got)["me"] is got


def test_texts_that_are_no_unicode_reach_the_caller() -> None:
    assert across(Plain("\udc80")).exception.args == ("\udc80",)


def test_the_error_of_a_call_within_a_call_reaches_the_caller() -> None:
    inner = across(Plain("deep"))
    got = across(inner)
    assert isinstance(got.exception, ActorError)
    assert isinstance(got.exception.exception, Plain)
    assert "deep" in str(got)


# tracebacks as text


def test_the_chain_of_causes_is_told_and_the_last_part_is_named_remote() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError as first:
            raise Plain("second") from first
    except Plain as error:
        text = format_remote(error)
    assert text.index("KeyError") < text.index("direct cause") < text.index("Plain")
    assert text.count("Traceback (most recent call last):") == 1
    assert text.count("Traceback of where the remote call failed (most recent call last):") == 1
    assert text.index("Traceback (most") < text.index("Traceback of where")


def test_an_exception_that_was_never_raised_has_a_text() -> None:
    assert "Plain: x" in format_remote(Plain("x"))


@pytest.mark.parametrize("raised", [True, False])
def test_a_header_that_is_the_whole_text_of_an_exception_is_left_alone(raised: bool) -> None:
    error: BaseException = Plain("Traceback (most recent call last):")
    try:
        if raised:
            raise error
    except Plain as caught:
        error = caught
    text = format_remote(error)
    assert text.endswith("Plain: Traceback (most recent call last):\n")
    assert text.startswith("Traceback of where the remote call failed") == raised


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes and groups are of 3.11")
def test_headers_in_notes_and_in_parts_of_a_group_are_left_alone() -> None:
    try:
        raise Plain("part")
    except Plain as part:
        group = vars(builtins)["ExceptionGroup"]("several", [part])
    group.add_note("Traceback (most recent call last):")
    try:
        raise group
    except Exception as error:
        text = format_remote(error)
    assert text.splitlines()[0].endswith(
        "Exception Group Traceback of where the remote call failed (most recent call last):"
    )
    assert text.count("Traceback of where") == 1
    assert text.count("Traceback (most recent call last):") == 2


def test_a_traceback_in_the_text_of_an_exception_is_left_alone() -> None:
    try:
        raise KeyError("inner")
    except KeyError:
        inner = traceback.format_exc()
    try:
        raise RuntimeError(f"worker 3 failed:\n{inner}")
    except RuntimeError as error:
        text = format_remote(error)
    assert f"worker 3 failed:\n{inner}".rstrip() in text
    assert text.startswith("Traceback of where the remote call failed")


# replies that are no values


def reply(flags: int, payload: bytes) -> Frame:
    return Frame(REPLY, flags, 0, 1, 2, 3, b"", payload)


def test_each_kind_of_reply_raises_what_it_stands_for() -> None:
    failed = to_exception(reply(ERROR, dump_error(Plain("x"), "m")), "t.go()")
    assert isinstance(failed, ActorError)
    as_is = to_exception(reply(EXCEPTION, pickling.dumps_inline(Plain("as is"))), "t.go()")
    assert type(as_is) is Plain
    odd = to_exception(reply(EXCEPTION, pickling.dumps_inline(3)), "t.go()")
    assert isinstance(odd, RuntimeError)
    assert "3" in str(odd)
    with pytest.raises(InternalError):
        to_exception(reply(VALUE, b""), "t.go()")


def test_a_dead_actor_raises_a_supervision_error_that_names_the_call_and_the_failure() -> None:
    failure = Failure(
        KILLED, "Killed(sig=9)", actor="<Trainer trainers>", mesh="trainers", rank=2, signal=9
    )
    error = to_exception(reply(DEAD, pickling.dumps_inline(failure)), "trainers.train()")
    assert isinstance(error, SupervisionError)
    assert error.endpoint == "trainers.train()"
    assert error.failure.event == failure
    assert "trainers.train()" in str(error)
    assert "Killed(sig=9)" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.endpoint, again.failure.event) == (
        str(error),
        error.endpoint,
        failure,
    )


def test_a_stopped_actor_raises_a_supervision_error_too() -> None:
    error = supervision_error(Failure(STOPPED, "stopped by client", actor="t"), "t.go()")
    assert "stopped by client" in str(error)


# what cannot be sent


@pytest.mark.parametrize(
    "error", [TypeError("cannot pickle 'lock' object"), pickle.PicklingError("no"), Plain("no")]
)
def test_an_error_of_pickling_says_what_could_not_be_sent_and_keeps_its_class(
    error: Exception,
) -> None:
    kind, text = type(error), str(error)
    explain(error, "a value for a port cannot be sent")
    assert type(error) is kind
    assert str(error) == f"a value for a port cannot be sent: {text}"


def test_an_error_of_arguments_names_the_one_that_is_to_blame() -> None:
    error = TypeError("cannot pickle")
    explain_arguments(
        error, "trainers.train()", (1, "fine"), {"model": threading.Lock()}, can_be_sent
    )
    assert "argument 'model' of trainers.train(), a _thread.lock cannot be sent" in str(error)


class Holder:
    def __init__(self, held: object) -> None:
        self.held = held


class Reduced(Holder):
    """Is sent without what it holds, so that is not to blame."""

    def __reduce__(self) -> Any:
        return Holder, (None,)


def _nested_lambdas(lock: Any) -> Any:
    return lambda: lock


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": {"b": [1, LOCK]}}, "['a']['b'][1]"),
        ([(1, Holder({"deep": LOCK}))], "[0][1].held['deep']"),
        (Holder(Holder(LOCK)), "held.held"),
        ([Reduced(LOCK), {2: LOCK}], "[1][2]"),
        ({"f": _nested_lambdas(LOCK)}, "['f'], which uses lock"),
    ],
)
def test_the_error_of_a_nested_value_says_the_path_to_it(value: Any, path: str) -> None:
    error = TypeError("cannot pickle")
    explain_arguments(error, "trainers.train()", (value,), {}, can_be_sent)
    assert f"cannot be sent because of its {path}, a _thread.lock" in str(error)


def test_a_value_that_contains_itself_has_a_path_as_well() -> None:
    value: list[Any] = [1]
    value += [value, {"x": LOCK}]
    error = TypeError("cannot pickle")
    explain_arguments(error, "trainers.train()", (value,), {}, can_be_sent)
    assert "its [2]['x'], a _thread.lock" in str(error)


@pytest.mark.parametrize(
    "error", [OSError(2, "x"), KeyError(3), Plain(), UnicodeDecodeError("u", b"x", 0, 1, "r")]
)
def test_errors_that_are_no_single_text_keep_their_arguments(error: Exception) -> None:
    args = error.args
    explain(error, "an argument")
    assert error.args == args


# of the type that was raised


class WithProperty(Exception):
    """What the caller's error has attributes for, as a property, a slot and an instance's
    attribute.
    """

    __slots__ = ("rank",)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.rank = "captain"
        self.exception_formatted = "bold"

    @property
    def message(self) -> str:
        return f"message of {self.args[0]}"


class Registered(Exception):
    known: ClassVar[list[type]] = []

    def __init_subclass__(cls, *, code: int) -> None:
        Registered.known.append(cls)


class RegisteredOne(Registered, code=1):
    pass


class Meta(type):
    pass


class WithMetaclass(Exception, metaclass=Meta):
    pass


class Abstract(ABC, Exception):
    @abstractmethod
    def advice(self) -> str: ...


class Concrete(Abstract):
    def advice(self) -> str:
        return f"try {self.args[0]}"


class Final(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("no subclasses")


class RefusesToBeSet(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot set {name}")


class ManySlots(Exception):
    __slots__ = tuple(f"slot{i}" for i in range(3))


@dataclasses.dataclass
class Record(Exception):
    code: int
    hint: str = "none"


@dataclasses.dataclass(frozen=True)
class FrozenRecord(Exception):
    code: int


class OddCopies(Exception):
    """Copies and pickles in a way of its own."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), ("made anew",)

    def __setstate__(self, state: Any) -> None:
        raise AssertionError("not for the caller's error")


@pytest.mark.parametrize(
    "error",
    [
        Plain("x"),
        ValueError("x", 2),
        KeyError("key"),
        IndexError(),
        AttributeError("x"),
        MemoryError(),
        RecursionError("deep"),
        AssertionError("x"),
        OSError(2, "No such file", "/x", None, "/y"),
        BlockingIOError(11, "again", 5),
        ConnectionResetError(104, "reset"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        UnicodeEncodeError("ascii", "é", 0, 1, "invalid"),
        ImportError("cannot import", name="n", path="/p"),
        ModuleNotFoundError("no", name="m"),
        SyntaxError("bad", ("file.py", 3, 4, "x = (")),
        NameError("name 'x'"),
        subprocess.CalledProcessError(3, ["ls"]),
        json.JSONDecodeError("bad", "doc", 2),
        TwoArguments(5, "text"),
        KeywordOnly(code=6),
        Slots(7),
        ManySlots("unset"),
        MadeDifferently("one", hint="two"),
        WithNew(1, 2),
        Concrete("again"),
        Record(3, "hint"),
        BadText("x"),
        RegisteredOne("x"),
        Final("x"),
        OddCopies("made anew"),
        SupervisionError("gone", "w.go()", None),
        DeadlockError("round and round"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_callers_error_is_of_the_type_that_was_raised_and_has_its_attributes(
    error: Exception,
) -> None:
    got = across(error)
    assert isinstance(got, ActorError)
    assert isinstance(got, type(error))
    assert type(got).__module__ == "monarch.errors"
    assert type(got).__name__ == f"ActorError[{type(error).__name__}]"
    assert got.args == error.args
    names = {
        name for kind in type(error).__mro__[:-3] for name in vars(kind) if not name.startswith("_")
    }
    for name in names | vars(error).keys():
        assert repr(getattr(got, name, None)) == repr(getattr(error, name, None)) or callable(
            getattr(error, name)
        ), name
    assert got.message == "Actor call trainers.train failed."
    assert type(got.exception) is type(error)
    assert "in across" in str(got)


@pytest.mark.parametrize(
    "error",
    [
        Plain("x"),
        OSError(2, "No such file", "/x"),
        TwoArguments(5, "text"),
        Slots(7),
        OddCopies("x"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error)), across]
)
def test_the_callers_error_can_be_copied_pickled_and_passed_on(
    error: Exception, clone: Any
) -> None:
    got = across(error)
    got.hint = "mine"  # type: ignore[attr-defined]
    again = clone(got)
    assert type(again) is type(got)
    assert again.args == got.args
    assert vars(again)["hint"] == "mine"
    assert getattr(again, "filename", None) == getattr(got, "filename", None)
    assert got.exception_formatted in str(again)


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        KeyboardInterrupt(),
        SystemExit(3),
        GeneratorExit(),
        StopIteration(3),
        StopAsyncIteration(),
        TimeoutError("over there"),
        Exception("x"),
        WithMetaclass("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_would_mislead_or_cannot_be_combined_is_an_actor_error_alone(
    error: BaseException,
) -> None:
    got = across(error)
    assert type(got) is ActorError
    assert got.args == got.exception.args


@pytest.mark.parametrize("error", [RefusesToBeSet("x"), FrozenRecord(3)])
def test_an_exception_that_refuses_attributes_arrives_like_any_other(error: Exception) -> None:
    got = across(across(error))
    assert isinstance(got, type(error))
    assert got.message == "Actor call trainers.train failed."
    assert got.args == error.args
    assert getattr(got, "code", None) == getattr(error, "code", None)


@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_an_actor_error_alone_can_be_copied_and_pickled(clone: Any) -> None:
    got = across(StopIteration(3))
    got.hint = "mine"  # type: ignore[attr-defined]
    again: Any = clone(got)
    assert type(again) is ActorError
    assert (str(again), again.args, vars(again)["hint"]) == (str(got), (3,), "mine")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups are of 3.11")
def test_an_exception_not_rebuilt_from_its_arguments_is_an_actor_error() -> None:
    group = vars(builtins)["ExceptionGroup"]

    class Forgetful(group):  # type: ignore[misc,valid-type]
        def __reduce__(self) -> Any:
            return forgetful, ()

    def forgetful() -> Exception:
        made: Exception = Forgetful("several", [Plain("part")])
        made.args = ("no longer what a group is made of",)
        return made

    got = across(forgetful())
    assert type(got) is ActorError
    assert isinstance(got.exception, group)
    assert "Plain: part" in str(got)


def test_attributes_of_the_error_hide_those_of_the_original_which_is_still_there() -> None:
    got = across(WithProperty("a letter"))
    assert issubclass(type(got), WithProperty)
    assert (got.message, got.rank) == ("Actor call trainers.train failed.", None)
    assert "in across" in got.exception_formatted
    original: Any = got.exception
    assert (original.message, original.rank) == ("message of a letter", "captain")


def test_a_registry_of_subclasses_does_not_hear_of_the_callers_errors() -> None:
    before = list(Registered.known)
    assert isinstance(across(RegisteredOne("x")), RegisteredOne)
    assert Registered.known == before


def test_the_class_of_an_error_is_made_once_and_goes_with_the_original() -> None:
    def make() -> tuple[weakref.ref[type], bool]:
        class Local(Exception):
            pass

        first, second = actor_error(Local("a"), "m"), actor_error(Local("b"), "m")
        return weakref.ref(Local), type(first) is type(second)

    original, same = make()
    gc.collect()  # our class
    gc.collect()  # the original
    assert same
    assert original() is None


def test_the_type_survives_any_number_of_calls_within_calls() -> None:
    got = across(across(across(KeyError("deep"))))
    levels: list[Any] = [got]
    while isinstance(levels[-1], ActorError):
        levels.append(levels[-1].exception)
    assert [isinstance(level, KeyError) for level in levels] == [True] * 4
    assert type(levels[-1]) is KeyError
    assert got.args == ("deep",)
    assert str(got).count("KeyError: 'deep'") == 1


def test_a_supervision_error_that_an_endpoint_lets_pass_keeps_its_failure() -> None:
    failure = Failure(
        KILLED, "Killed(sig=9)", actor="<Trainer trainers>", mesh="trainers", rank=2, signal=9
    )
    got = across(supervision_error(failure, "trainers.train()"))
    assert isinstance(got, SupervisionError)
    assert got.failure.event == failure
    assert got.endpoint == "trainers.train()"


def test_a_remote_syntax_error_shows_its_text() -> None:
    if sys.version_info < (3, 11):
        pytest.skip("needs notes, which are of 3.11")
    got = across(SyntaxError("bad", ("file.py", 3, 4, "x = (")))
    assert "Actor call trainers.train failed." in "".join(traceback.format_exception(got))


def test_notes_of_the_original_are_told_once() -> None:
    if sys.version_info < (3, 11):
        pytest.skip("notes are of 3.11")
    error = Plain("x")
    error.add_note("look behind you")
    assert "".join(traceback.format_exception(across(error))).count("look behind you") == 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups are of 3.11")
def test_a_group_can_be_taken_apart_at_the_caller() -> None:
    group = vars(builtins)["ExceptionGroup"]("several", [ValueError("v"), KeyError("k")])
    got: Any = across(group)
    assert isinstance(got, type(group))
    matched, rest = got.split(ValueError)
    assert [type(part) for part in matched.exceptions] == [ValueError]
    assert [type(part) for part in rest.exceptions] == [KeyError]


# frames of the engine


def through_the_engine(function: Callable[[], object]) -> object:
    """Calls it from a frame of the engine, as a read of a future does."""
    future: Future[object] = Promise().future
    Promise.of(future).resolve(None, lambda _: function())
    return map_future(future, lambda value: value).get()


def test_frames_of_the_engine_are_shown_nowhere_in_the_chain() -> None:
    def innermost() -> None:
        raise Plain("innermost")

    try:
        try:
            through_the_engine(innermost)
        except Plain as error:
            raise KeyError("outer") from error
    except KeyError as error:
        text = format_remote(error)
    assert "innermost" in text
    assert "in through_the_engine" in text
    assert "/monarch/_core/" not in text


def test_an_error_that_only_the_engine_raised_is_told_without_a_traceback() -> None:
    with pytest.raises(ValueError) as caught:
        Promise().future.get(timeout=-1)
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next
    assert format_remote(error) == f"ValueError: {error}\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups are of 3.11")
def test_frames_of_the_engine_are_not_shown_in_the_parts_of_a_group_either() -> None:
    parts: list[Exception] = []
    for text in ("one", "two"):
        try:
            through_the_engine(lambda text=text: int(text))  # type: ignore[misc]
        except ValueError as part:
            parts.append(part)
    text = format_remote(vars(builtins)["ExceptionGroup"]("several", parts))
    assert text.count("in through_the_engine") == 2
    assert "/monarch/_core/" not in text


def test_a_local_traceback_shows_one_frame_of_the_engine() -> None:
    future: Future[object] = Promise().future
    Promise.of(future).reject(Plain("x"))
    for _ in range(2):
        with pytest.raises(Plain) as caught:
            future.get()
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert len([frame for frame in frames if "/monarch/" in frame.filename]) == 1


CULPRITS = """
import contextvars, functools, threading

LOCK, EVENT, VAR = threading.Lock(), threading.Event(), contextvars.ContextVar("VAR")

def helper(): return EVENT

def guarded(function):
    lock = threading.Lock()
    @functools.wraps(function)
    def inner(*args):
        with lock: return function(*args)
    return inner

@functools.lru_cache
def cached(): return LOCK

@functools.singledispatch
def shown(x): return 1

@shown.register
def _(x: int): return LOCK

class Plain:
    def go(self): return LOCK
class Nested:
    def go(self): return [helper() for _ in (lambda: helper())()]
class Variable:
    def go(self): return VAR
class Holds:
    def itself(self): return Inherits, super()
    held = {"lock": LOCK}
class Inherits(Holds):
    def fine(self): return 1
class Decorated:
    @guarded
    def go(self): return 1
class Cached:
    def go(self): return cached()
class Dispatched:
    def go(self): return shown(1)
class Property:
    __slots__ = ("__x",)
    @property
    def go(self): return LOCK
class Static:
    @staticmethod
    def go(default=LOCK): return default
class Partial:
    go = functools.partial(print, LOCK)
"""


@pytest.mark.parametrize(
    "way",
    [
        "Plain.go uses the global LOCK, a _thread.lock",
        "Nested.go uses the global helper, which uses the global EVENT._cond._lock, a _thread.lock",
        "Variable.go uses the global VAR, a _contextvars.ContextVar",
        "Holds.held['lock'], a _thread.lock",
        "Inherits inherits Holds.held['lock'], a _thread.lock",
        "Decorated.go uses lock, a _thread.lock",
        "Cached.go uses the global cached, which uses the global LOCK, a _thread.lock",
        "Dispatched.go uses the global shown, which uses",
        "Property.go uses the global LOCK, a _thread.lock",
        "Static.go.__defaults__[0], a _thread.lock",
        "Partial.go.args[0], a _thread.lock",
    ],
)
def test_the_error_of_a_class_says_the_way_to_what_cannot_be_sent(way: str) -> None:
    importlib.import_module("monarch.actor")  # brings the reducers of what `functools` makes
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(CULPRITS, namespace)
    error = TypeError("cannot pickle")
    cls = namespace[re.split(r"\W", way)[0]]
    explain_arguments(error, "spawn('a', A, ...)", (1,), {}, can_be_sent, cls)
    assert str(error).startswith(f"the class of spawn('a', A, ...) cannot be sent: {way}")


def test_an_object_whose_class_cannot_be_sent_is_an_error_that_says_the_way() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(CULPRITS, namespace)
    error = TypeError("cannot pickle")
    explain_arguments(error, "trainers.train()", (namespace["Plain"](),), {}, can_be_sent)
    assert "because of its __class__.go, which uses the global LOCK, a _thread.lock" in str(error)
