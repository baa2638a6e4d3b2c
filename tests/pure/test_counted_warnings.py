"""What a peer that is let in may have a process log: few lines, however much it sends."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.origins import Origin
from monarch._core.actors.proc_service import ProcService
from monarch._core.hub import control_service
from monarch._core.hub.backpressure_gate import BackpressureGate, BackpressureGates
from monarch._core.net import connection, flow, links, poller
from monarch._core.routing.route import read_route
from monarch._core.wire import pickling
from monarch._core.wire.address import SYSTEM, ProcAddress
from monarch._core.wire.frame import CALL, ROUTED, Frame
from monarch._lazy import counted_logger

HERE, THERE = ProcAddress("here", "mesh.0"), ProcAddress("there", "mesh.1")
MANY = 1000
FEW = 10  # 1, 2, 4, ... 512


class Hub(SimpleNamespace):
    """As much of a hub as a process without actors touches."""

    def register(self, uid: int, receiver: object) -> None: ...


class Loop:
    """Calls soon, as the I/O loop does."""

    def call_soon(self, call: Any) -> None:
        poller.guarded(call)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> ProcService:
    for module in (control_service, poller):
        monkeypatch.setattr(module, "logger", counted_logger("monarch.counted"))
    hub: Any = Hub(
        address=HERE, inbound_lost_hooks=[], peer_lost_hooks=[], poller=Loop(), actors={}
    )
    hub.full, hub.requests = BackpressureGates(hub), {}
    return ProcService(hub)


def says(process: ProcService, name: bytes, *fields: object) -> None:
    content = pickling.dumps_call(fields, {})
    process.receive(Origin(THERE), Frame(CALL, 0, 0, SYSTEM, 78, 79, name, *content))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("name", "fields", "told"),
    [
        (
            b"AskWhatKeeps",
            (b"no probe",),
            "a control record AskWhatKeeps can't be read: TypeError(",
        ),
        (b"LetGo", ([],), "a control record LetGo can't be read: TypeError("),
        (b"LetGo", (1, 2, 3), "a control record LetGo can't be read: TypeError("),
        (b"ProcsEnded", (7,), "a control record ProcsEnded can't be read: TypeError("),
    ],
)
def test_records_with_other_fields_fill_no_log(
    process: ProcService,
    caplog: pytest.LogCaptureFixture,
    name: bytes,
    fields: tuple[object, ...],
    told: str,
) -> None:
    process.hub.poller.call_when_read = process.hub.poller.call_soon  # type: ignore[method-assign]
    for _ in range(MANY):
        says(process, name, *fields)
    said = lines(caplog)
    assert len(said) == FEW and all(line.startswith(told) for line in said), said
    assert said[0].partition(" such so far")[1] == "" and said[-1].endswith(" (512 such so far)")


def test_what_a_peer_has_sent_is_short_and_no_order_to_a_terminal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted_logger("monarch.counted").warning("it says %s", "\x1b]0;owned\x07\n" + 9999 * "x")
    (said,) = lines(caplog)
    assert said.startswith(r"it says \x1b]0;owned\x07\nxxx") and len(said) < 400


def test_another_kind_of_error_is_told_although_one_has_filled_its_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = counted_logger("monarch.counted")
    for error in (*(KeyError(),) * 9, ValueError(), KeyError()):
        try:
            raise error
        except Exception:
            logger.exception("internal error")
    kinds = [record.exc_info and record.exc_info[0] for record in caplog.records]
    assert kinds == [KeyError] * 4 + [ValueError]


def test_every_loop_that_takes_what_peers_send_counts_its_errors() -> None:
    kind = type(counted_logger("monarch.any"))
    for module in (control_service, connection, flow, links, poller):
        assert isinstance(module.logger, kind), module
    assert not isinstance(logging.getLogger("monarch.any"), kind)


def test_a_frame_of_a_link_that_is_none_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def frame_from(host: str) -> None:
        read_route(Frame(CALL, ROUTED, 0, SYSTEM, 0, 0, b"no route", b""))

    told: Any = SimpleNamespace()
    links.Links._tell(told, frame_from, "there")
    [record] = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage().endswith("unreadable: a route that does not fit its frame")


def test_a_record_lets_go_a_wait_for_room_and_no_call(process: ProcService) -> None:
    answered: list[object] = []
    room = BackpressureGate(THERE, 7)
    call = SimpleNamespace(resolve=answered.append)
    process.hub.requests.update({-5: room, 5: call})
    says(process, b"LetGo", 5)
    says(process, b"LetGo", -5)
    assert not answered and room.future.get() is None
