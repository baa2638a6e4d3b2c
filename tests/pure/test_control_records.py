"""Control records: what they cost on the wire, who takes them, and how they are answered."""

from __future__ import annotations

import importlib
import inspect
import logging
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import monarch
from helpers.origins import Origin
from monarch import _namedtuple
from monarch._core import extension
from monarch._core.actors.proc_service import ProcService, spawn_record
from monarch._core.calls.failed_call import Reply
from monarch._core.calls.remote_error import load_error
from monarch._core.extension import control
from monarch._core.hub import control_records, control_service
from monarch._core.hub.control import SingleAnswer, send_record
from monarch._core.hub.control_records import (
    AskWhatKeeps,
    Attach,
    GetStatistics,
    MarkOutput,
    OpenGate,
    ProcsEnded,
    ResolveProc,
    ShowOutput,
    StopActor,
    name_on_wire,
)  # fmt: skip
from monarch._core.hub.control_service import ControlRequest, ControlService, handles
from monarch._core.hub.spawn_requests import CreatorInstance, SpawnSpec
from monarch._core.processes.agent import Agent
from monarch._core.processes.proc import Proc
from monarch._core.shape import Extent, Point
from monarch._core.supervision.deadlock import CallId, Probe, WaitId
from monarch._core.supervision.failure import EXITED, Failure
from monarch._core.wire import pickling
from monarch._core.wire.address import SYSTEM, ActorAddress, ProcAddress
from monarch._core.wire.frame import CALL, DEAD, ERROR, REPLY, URGENT, VALUE, Frame
from monarch._namedtuple import NamedTuple

HERE, THERE = ProcAddress("host", "proc.0"), ProcAddress("host", "proc.1")
GONE = Failure(EXITED, "it has ended")


class Ask(NamedTuple):
    """A record of a plane, which is this module."""

    number: int
    reason: str = ""


class Unknown(NamedTuple):
    """A record that nobody takes."""


class Hub(SimpleNamespace):
    """Keeps what is cast, and who takes it."""

    def __init__(self) -> None:
        super().__init__(address=HERE, cast_frames=[], receivers={})

    def register(self, uid: int, receiver: Any) -> None:
        self.receivers[uid] = receiver

    def cast(
        self,
        procs: Any,
        target: int,
        meta: bytes,
        content: Any,
        request: Any,
        sender: int,
        flags: int,
        ranks: Any,
    ) -> int:
        for index, address in enumerate(procs):
            rank = index if ranks is None else ranks[index]
            number = 0 if request is None else 79
            self.cast_frames.append(
                (address, Frame(CALL, flags, rank, target, sender, number, meta, *content))
            )
        return 79


@pytest.fixture
def hub() -> Hub:
    return Hub()


def sent(hub: Any, record: Any, *args: Any, **kwargs: Any) -> Frame:
    """The frame of a record."""
    send_record(hub, THERE, record, *args, **kwargs)
    frame: Frame = hub.cast_frames.pop()[1]
    return frame


def asked(hub: Any, record: Any) -> Frame:
    """The frame of a record to which there is an answer."""
    return sent(hub, record, SingleAnswer(THERE, lambda answer: None))


def error_of(origin: Origin) -> BaseException:
    (frame,) = origin.answers
    assert (frame.kind, frame.flags, frame.request) == (REPLY, ERROR, 79)
    return load_error(frame.payload).exception


class Taking(ControlService):
    """Takes two kinds of records."""

    def __init__(self, hub: Any) -> None:
        super().__init__(hub)
        self.taken: list[object] = []

    @handles(StopActor)
    def stop_actor(self, request: ControlRequest, record: StopActor) -> None:
        self.taken.append((request.peer, request.rank, record))
        request.answer(record.uid)

    @handles(GetStatistics)
    def statistics(self, request: ControlRequest, record: GetStatistics) -> None:
        self.taken.append(record)


@pytest.fixture
def taking(hub: Any) -> Taking:
    return Taking(hub)


@pytest.fixture(autouse=True)
def of_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_service, "_of_planes", dict(control_service._of_planes))
    monkeypatch.setattr(control, "_filled", {})
    logger = logging.getLogger("monarch.runtime")
    monkeypatch.setattr(logger, "disabled", True)  # it tells of each error


# on the wire


def test_a_record_costs_its_name_and_its_fields_and_nothing_of_its_class(hub: Any) -> None:
    frame = sent(hub, ResolveProc("mesh.0", 1.5))
    assert frame.meta == b"ResolveProc"
    assert frame.payload == pickling.dumps_call(("mesh.0", 1.5), {})[0]
    assert sent(hub, GetStatistics()).payload == pickling.dumps_call((), {})[0]


def test_large_arguments_of_a_constructor_stay_out_of_band(hub: Any) -> None:
    large = bytearray(1 << 20)
    creator = CreatorInstance("root", None, Point(0, Extent([], [])), None, None)
    spec = SpawnSpec(
        7, "name", "module.Class", ActorAddress(HERE, 1), creator, None, Extent(["gpus"], [2])
    )
    frame = sent(hub, spawn_record(spec, False, pickling.dumps((bytes, (large,), {}))))
    assert len(frame.payload) < 2000
    (buffer,) = frame.buffers
    assert len(buffer) >= len(large)


def test_one_record_goes_to_one_process_or_to_many_with_the_ranks_that_they_are_told(
    hub: Any,
) -> None:
    send_record(hub, [HERE, THERE], StopActor(7, "why"), None, 8, URGENT)
    send_record(hub, [HERE, THERE], StopActor(7, "why"), ranks=[4, 5])
    send_record(hub, THERE, StopActor(7, "why"))
    seen = [(address, frame.rank, frame.sender, frame.flags) for address, frame in hub.cast_frames]
    assert seen == [
        (HERE, 0, 8, URGENT),
        (THERE, 1, 8, URGENT),
        (HERE, 4, 0, 0),
        (THERE, 5, 0, 0),
        (THERE, 0, 0, 0),
    ]
    assert {frame.target for _, frame in hub.cast_frames} == {SYSTEM}


# handlers


def test_a_handler_gets_the_record_with_the_fields_that_were_sent(hub: Any, taking: Taking) -> None:
    origin = Origin()
    taking.receive(origin, asked(hub, StopActor(7, "why", True))._replace(rank=3))
    assert taking.taken == [(origin.peer, 3, StopActor(7, "why", True))]
    (answer,) = origin.answers
    assert (answer.kind, answer.flags, answer.rank, answer.request) == (REPLY, VALUE, 3, 79)
    assert pickling.loads(answer.payload) == 7


def test_a_system_takes_what_the_one_it_inherits_from_takes_and_more(hub: Any) -> None:
    class More(Taking):
        @handles(ResolveProc)
        def resolve(self, request: ControlRequest, record: ResolveProc) -> None:
            request.answer(record.name)

    more, origin = More(hub), Origin()
    more.receive(origin, asked(hub, ResolveProc("mesh.0", 0.0)))
    more.receive(origin, asked(hub, StopActor(7, "why")))
    assert [pickling.loads(answer.payload) for answer in origin.answers] == ["mesh.0", 7]
    less = Origin()
    Taking(hub).receive(less, asked(hub, ResolveProc("mesh.0", 0.0)))
    assert isinstance(error_of(less), LookupError)


@pytest.mark.parametrize(
    "name",
    [
        b"StopActr",
        b"stop_actor",
        b"",
        b"\xff",
        b"receive",
        b"monarch.nowhere.Open",
        b"monarch.no.where.A",
        b"os.Open",
    ],
)
def test_a_record_of_no_meaning_is_refused_by_name_and_is_no_error_over_there(
    hub: Any, taking: Taking, name: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[object] = []
    monkeypatch.setattr(
        control_service, "logger", SimpleNamespace(exception=lambda *args: logged.append(args))
    )
    origin = Origin()
    taking.receive(origin, asked(hub, StopActor(7, "why"))._replace(meta=name))
    error = error_of(origin)
    shown = name.decode(errors="backslashreplace")
    assert (type(error), str(error)) == (LookupError, f"Taking takes no control record {shown!r}")
    assert not logged
    assert not taking.taken


@pytest.mark.parametrize("fields", [(), (7,), (7, "why", True, 1)])
def test_a_record_with_other_fields_is_answered_with_an_error(
    hub: Any, taking: Taking, fields: tuple[Any, ...]
) -> None:
    origin = Origin()
    payload, _ = pickling.dumps_call(fields, {})
    taking.receive(origin, asked(hub, StopActor(7, "why"))._replace(payload=payload))
    assert isinstance(error_of(origin), TypeError)
    assert not taking.taken


def test_what_cannot_be_unpickled_is_answered_with_an_error(hub: Any, taking: Taking) -> None:
    origin = Origin()
    taking.receive(origin, asked(hub, StopActor(7, "why"))._replace(payload=b"no pickle"))
    assert error_of(origin) is not None
    assert not taking.taken


def test_nothing_is_answered_without_a_wait(hub: Any, taking: Taking) -> None:
    origin = Origin()
    taking.receive(origin, sent(hub, StopActor(7, "why")))
    taking.receive(origin, sent(hub, Unknown()))
    assert len(taking.taken) == 1
    assert origin.answers == []


def test_a_request_is_answered_later_by_value_error_or_end_of_its_subject(
    hub: Any,
) -> None:
    origin = Origin()
    request = ControlRequest(origin, asked(hub, GetStatistics()))
    request.answer([1], b"meta")
    request.fail(KeyError("who"))
    request.refuse(GONE)
    value, error, end = origin.answers
    assert (value.flags, value.meta, pickling.loads(value.payload)) == (VALUE, b"meta", [1])
    assert (error.flags, str(load_error(error.payload).exception)) == (ERROR, "'who'")
    assert (end.flags, end.target, pickling.loads(end.payload)) == (DEAD, SYSTEM, GONE)


# planes


@handles(Ask)
def take_ask(taking: ControlService, request: ControlRequest, record: Ask) -> None:
    request.answer((taking.hub.address, record))


@handles(Ask)
def take_ask_otherwise(taking: ControlService, request: ControlRequest, record: Ask) -> None: ...


@pytest.mark.parametrize("early", [True, False])
def test_a_plane_adds_its_records_before_a_process_serves_or_after(hub: Any, early: bool) -> None:
    if early:
        control.fill(__name__, [take_ask])
    taking, origin = Taking(hub), Origin()
    if not early:
        taking.receive(origin, asked(hub, Ask(1)))
        assert "test_control_records" in str(error_of(origin))
        origin.answers.clear()
        control.fill(__name__, [take_ask])
    frame = asked(hub, Ask(7, reason="why"))
    assert frame.meta == f"{__name__}.Ask".encode()
    taking.receive(origin, frame)
    assert pickling.loads(origin.answers[0].payload) == (HERE, Ask(7, "why"))


def test_a_record_has_one_handler() -> None:
    control.fill(__name__, [take_ask])
    control.fill(__name__, [take_ask])  # as by a module that is reloaded
    with pytest.raises(ValueError, match=r"control of .*_records is .*take_ask .*take_ask_other"):
        control.fill(__name__, [take_ask_otherwise])


def test_a_handler_that_is_not_marked_is_refused(hub: Any, taking: Taking) -> None:
    control.fill(__name__, [lambda taking, request, record: None])
    origin = Origin()
    taking.receive(origin, asked(hub, Ask(1)))
    assert "@handles" in str(error_of(origin))


def test_a_record_waits_for_its_plane_while_another_thread_imports_that(
    hub: Any, taking: Taking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane, halfway, go_on = tmp_path / "plane", threading.Event(), threading.Event()
    plane.mkdir()
    (plane / "records.py").write_text("class Wanted(tuple): pass\n")
    (plane / "__init__.py").write_text("""
import monarch
from monarch._core.hub.control_service import handles
from .records import Wanted
monarch.halfway.set()
assert monarch.go_on.wait(60)
HANDLERS = (handles(Wanted)(lambda service, request, record: request.answer("imported")),)
""")
    monkeypatch.setitem(
        extension._table, "control", {"monarch.plane.records": "monarch.plane:HANDLERS"}
    )
    monkeypatch.setattr(monarch, "__path__", [*monarch.__path__, str(tmp_path)])
    monkeypatch.setattr(monarch, "halfway", halfway, raising=False)
    monkeypatch.setattr(monarch, "go_on", go_on, raising=False)
    importer = threading.Thread(target=importlib.import_module, args=("monarch.plane",))
    importer.start()
    assert halfway.wait(60)
    origin, frame = Origin(), asked(hub, Unknown())._replace(meta=b"monarch.plane.records.Wanted")
    receiver = threading.Thread(target=taking.receive, args=(origin, frame))
    receiver.start()
    receiver.join(0.1)  # long enough to be answered where it does not wait
    go_on.set()
    receiver.join()
    importer.join()
    del sys.modules["monarch.plane"], sys.modules["monarch.plane.records"], vars(monarch)["plane"]
    assert [pickling.loads(answer.payload) for answer in origin.answers] == ["imported"]


def test_a_process_imports_the_plane_of_the_record_that_it_is_sent() -> None:
    script = """
import logging, sys
from monarch._core.hub.control import send_record
from monarch._core.hub.message_hub import MessageHub
from monarch._core.hub.control_service import ControlService
from monarch._core.wire import pickling
from monarch._core.wire.address import SYSTEM, ProcAddress, random_name
from monarch._core.wire.frame import CALL, Frame

address = ProcAddress(random_name(), "proc.0")
service = ControlService(MessageHub(address, address))
class Origin:
    peer = address
    def send(self, frame):
        print(frame.flags, pickling.loads(frame.payload))
assert "monarch.rdma" not in sys.modules
content = pickling.dumps_call((1, b"key", "it is gone"), {})
service.receive(Origin(), Frame(CALL, 0, 0, SYSTEM, 0, 1, b"monarch.rdma.grants.records.Recall", *content))
assert "monarch.rdma" in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.returncode) == (f"{VALUE} None\n", 0), done.stderr


# all of them


ANSWERS = {control_records.HostDescription, control_records.HostedProc}


def records() -> list[Any]:
    return [
        kind
        for kind in vars(control_records).values()
        if inspect.isclass(kind)
        and kind.__module__ == control_records.__name__
        and kind not in ANSWERS
    ]


def test_every_record_is_taken_by_one_kind_of_process_and_says_in_words_by_whom() -> None:
    own = set(Proc._handlers) - set(ProcService._handlers)
    taken = [*ProcService._handlers, *own, *Agent._handlers]
    assert sorted(taken) == sorted(name_on_wire(kind) for kind in records())
    assert [
        kind.__name__
        for kind in records()
        if "──▶" not in kind.__doc__ and "As `SpawnProcs`" not in kind.__doc__
    ] == []


# answers


def test_a_single_answer_is_what_the_receiver_says_or_its_end() -> None:
    got: list[Reply] = []
    frame = Frame(REPLY, VALUE, 0, SYSTEM, 0, 79, b"", b"")
    assert SingleAnswer(THERE, got.append).reply(frame)
    request = SingleAnswer(THERE, got.append)
    assert not request.peer_failed(HERE, GONE)
    assert request.peer_failed(THERE, GONE)
    assert got == [frame, GONE]


# fields that are none


def kinds_of_all() -> dict[bytes, Any]:
    """Each kind of record that a process of ours takes, by its name; of planes, too."""
    found = {name: kind for name, (kind, _) in {**Proc._handlers, **Agent._handlers}.items()}
    for plane in extension._table["control"]:
        with suppress(ImportError):  # of a package that is not installed
            handlers: Any = control.get(plane, installed=True) or ()
            kinds = [handler.handled_record for handler in handlers]
            found |= {name_on_wire(kind): kind for kind in kinds}
    return found


def test_fields_of_another_kind_are_refused_with_words_before_any_handler(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    kinds = kinds_of_all()
    service = ControlService(hub)
    handlers = {name: (kind, lambda *args: taken.append(args)) for name, kind in kinds.items()}
    monkeypatch.setattr(ControlService, "_handlers", handlers)
    for name, kind in kinds.items():
        fields = [
            field for field, wanted in _namedtuple._annotations(kind).items() if wanted is not Any
        ]
        if not fields:
            continue
        wrong = pickling.dumps_call((3 + 4j,) * len(kind._fields), {})[0]
        origin = Origin()
        service.receive(origin, asked(hub, StopActor(7, "why"))._replace(meta=name, payload=wrong))
        error = error_of(origin)
        assert isinstance(error, TypeError), kind
        assert str(error).startswith(f"{kind.__name__}.{fields[0]} is ") and "(3+4j)" in str(error)
    assert len(kinds) > 60 and not taken


PROBE = Probe((WaitId(1.0, CallId(HERE, 3)),), 1, HERE, 7, CallId(HERE, 3), ("who waits",))
FAILED = Failure(EXITED, "it has ended", source=GONE)


@pytest.mark.parametrize(
    "record",
    [
        AskWhatKeeps(PROBE), ProcsEnded([(HERE, FAILED)]), ProcsEnded([]), MarkOutput(1, None, False), MarkOutput(1, ("a",), True),
        ResolveProc("a", 0), OpenGate(None), ShowOutput("m", [([0, 1], print)], 3), Attach({"a": object()}),
    ],
)  # fmt: skip
def test_fields_that_are_what_they_should_be_are_not_refused(record: Any) -> None:
    _namedtuple.check_fields(record)


@pytest.mark.parametrize(
    "record",
    [
        AskWhatKeeps(b"a value"), AskWhatKeeps(Probe(1, 2, 3, 4, 5, 6)), AskWhatKeeps(PROBE._replace(path=(WaitId(1.0, 3),))),  # type: ignore[arg-type]
        AskWhatKeeps(tuple.__new__(Probe, PROBE[:3])), ProcsEnded([HERE]), ProcsEnded([(HERE,)]), ProcsEnded([(HERE, HERE)]),  # type: ignore[list-item]
        ProcsEnded([(HERE, FAILED._replace(source=3))]), MarkOutput(1, 5, False), Attach({1: 2}), ShowOutput("m", [(0, print)], 3),  # type: ignore[arg-type, dict-item, list-item]
    ],
)  # fmt: skip
def test_what_is_in_fields_is_looked_at_too(record: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{type(record).__name__}\.\w+ is .*, not "):
        _namedtuple.check_fields(record)
