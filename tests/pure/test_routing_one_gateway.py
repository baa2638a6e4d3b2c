"""One gateway, event by event: what it sends, hands over, tells and forgets."""

from __future__ import annotations

import pickle

import pytest

from helpers.one_gateway import EPOCH, PATIENCE, Noted, frame
from monarch._core.hub.pressure import counted
from monarch._core.routing.cast import Entry, Header, attaches, close_frame, pack_table, with_header
from monarch._core.routing.route import Route, gone, read_route, with_route
from monarch._core.supervision.failure import EXITED, HOST, LINK, Failure, host_lost
from monarch._core.wire.address import AGENT, ProcAddress
from monarch._core.wire.frame import (
    CALL,
    CANCELLED,
    CAST,
    CREDIT,
    DEAD,
    DIAL,
    ERROR,
    EXCEPTION,
    GONE,
    PORT,
    REPLIES,
    REPLY,
    ROUTED,
    STANDING,
    URGENT,
    VALUE,
)

LATE = 60.0
HERE = ProcAddress("client", "p0")
THERE = ProcAddress("tcp://w0", "p1")
ENDED = Failure(EXITED, "it has ended")


# numbers


def test_calls_and_values_to_a_host_are_numbered_unless_they_are_urgent() -> None:
    client = Noted("client")
    kinds = [CALL, PORT, CALL, REPLY, CREDIT, CALL]
    flags = [0, 0, URGENT, 0, 0, 0]
    numbers = [
        client.sends(frame(kind, flag), HERE, THERE)
        for kind, flag in zip(kinds, flags, strict=True)
    ]
    first = EPOCH + 1
    assert numbers == [first, first + 1, 0, 0, 0, first + 2]


@pytest.mark.parametrize("brings", [VALUE, ERROR, DEAD, EXCEPTION, CANCELLED])
def test_what_a_port_is_sent_last_keeps_its_place_of_any_kind(brings: int) -> None:
    client = Noted("client")
    numbers = [client.sends(frame(PORT, flags), HERE, THERE) for flags in (VALUE, brings)]
    assert numbers == [EPOCH + 1, EPOCH + 2]
    assert counted(frame(PORT, brings)) > 0, "and waits for room, as a value does"


@pytest.mark.parametrize("restarts", [False, True])
def test_the_numbers_of_a_process_that_ends_begin_anew_unless_it_restarts(restarts: bool) -> None:
    client = Noted("client")
    first = client.sends(frame(CALL), HERE, THERE)
    client.gateway.proc_ended(HERE, ENDED._replace(restarts=restarts))
    assert client.sends(frame(CALL), HERE, THERE) == first + restarts


def test_numbers_to_a_host_begin_a_new_epoch_when_it_is_lost_or_no_longer_watched() -> None:
    client = Noted("client")
    assert client.sends(frame(CALL), HERE, THERE) == EPOCH + 1
    client.gateway.link_lost(THERE.host, "cut")
    assert client.gone_hosts == [THERE.host]
    assert client.sends(frame(CALL), HERE, THERE) == EPOCH + (1 << 40) + 1
    client.gateway.withdraw(HERE, [THERE.host])
    assert client.sends(frame(CALL), HERE, THERE) == EPOCH + (2 << 40) + 1
    client.gateway.from_host("tcp://w1", gone(HERE, THERE.agent, ENDED))
    assert client.sends(frame(CALL), HERE, THERE) == EPOCH + (3 << 40) + 1
    assert client.gone_hosts == [THERE.host], "another host's word is not the loss of the link"


# ways


def test_a_host_that_is_reached_by_way_of_another_is_lost_with_that() -> None:
    client = Noted("client")
    client.gateway.via = "tcp://front"
    client.sends(frame(CALL, request=1), HERE, THERE)
    table = pack_table([Entry("tcp://w1", ("p0", "p1"), (3, 4)), Entry("tcp://w2", ("p0",), (5,))])
    cast = frame(CAST, STANDING | ROUTED, request=2)
    client.gateway.from_proc(with_header(cast, Header(0, HERE, (), table)))

    assert [(hop, read_route(sent)[0].to, sent.rank) for hop, sent in client.sent] == [
        ("tcp://front", THERE, 0),
        ("tcp://front", ProcAddress("tcp://w1", "p0"), 3),
        ("tcp://front", ProcAddress("tcp://w1", "p1"), 4),
        ("tcp://front", ProcAddress("tcp://w2", "p0"), 5),
    ]
    assert {(sent.kind, sent.meta[-4:]) for _, sent in client.sent} == {(CALL, b"meta")}
    assert all(attaches(sent) for _, sent in client.sent[1:]), "the front may have to start it"

    client.gateway.link_lost("tcp://another", "cut")
    assert client.told == []
    client.gateway.link_lost("tcp://front", "cut")
    hosts = [THERE.host, "tcp://w1", "tcp://w2"]
    assert client.ends_told() == [("p0", ProcAddress(host, AGENT)) for host in hosts]
    assert client.gone_hosts == ["tcp://another", "tcp://front", *hosts]
    assert {failure.reason.endswith(": cut") for *_, failure in client.told} == {True}


def test_a_frame_for_another_name_of_its_own_host_does_not_leave_it() -> None:
    worker, again = Noted("tcp://w0", "tcp://again"), ProcAddress("tcp://again", "p1")
    worker.gateway.from_proc(with_route(frame(CALL), Route(again, ProcAddress("tcp://w0", "p0"))))
    assert ([to for to, _ in worker.got], worker.sent) == ([again], [])


def test_a_call_to_a_process_that_has_ended_is_answered_with_its_end() -> None:
    worker = Noted("tcp://w0")
    worker.ended[THERE] = ENDED
    worker.hears(frame(CALL), HERE, THERE)
    assert (worker.got, worker.told_elsewhere()) == ([], [(HERE, THERE)])
    assert pickle.loads(worker.sent[-1][1].payload) == ENDED


@pytest.mark.parametrize(
    ("kind", "cast", "own", "passed_on"),
    [
        (CALL, 0, True, True),
        (PORT, 0, True, True),
        (REPLY, 0, True, True),
        (REPLY, 3, True, False),
        (CREDIT, 0, True, False),
        (GONE, 0, False, False),
    ],
)
def test_the_sender_hears_where_there_is_no_way_if_it_is_owed_an_end(
    kind: int, cast: int, own: bool, passed_on: bool
) -> None:
    """A host that passes on the answer to a cast does not know what others still reach."""
    for source, told in ((THERE, own), (ProcAddress("tcp://w5", "p0"), passed_on)):
        worker = Noted("tcp://w0")
        sent = with_route(frame(kind), Route(HERE, source, cast=cast))
        if source is THERE:
            worker.gateway.from_proc(sent)
        else:
            worker.gateway.from_host(source.host, sent)
        heard = [(ProcAddress("tcp://w0", proc), who) for proc, who in worker.ends_told()]
        assert heard + worker.told_elsewhere() == [(source, HERE.agent)] * told
        for _, _, failure in worker.told:
            assert (failure.cause, failure.proc) == (HOST, HERE.host)
            assert "there is no way to it" in failure.reason


# hosts without an address


def a_worker_below_another(flags: int = STANDING) -> Noted:
    """It has had a cast of the client, number 9, by way of tcp://w0."""
    worker = Noted("tcp://w1", "tcp://z")
    table = pack_table([Entry("tcp://w1", (AGENT,), (0,))])
    header = Header(9, HERE, [EPOCH + 1], table, 2)
    call = frame(CAST, flags | ROUTED, request=1)
    worker.gateway.from_host("tcp://w0", with_header(call, header))
    assert [to for to, _ in worker.got] == [ProcAddress("tcp://w1", AGENT)]
    return worker


BELOW = ProcAddress("tcp://w1", "p0")


def test_what_must_arrive_waits_for_the_client_to_dial_which_is_asked_once() -> None:
    worker = a_worker_below_another()
    for target in (1, 2):
        call = frame(CALL)._replace(target=target)
        worker.gateway.from_proc(with_route(call, Route(HERE, BELOW)))
    ((hop, sent),) = worker.sent
    assert (hop, sent.kind) == ("tcp://w0", DIAL)
    assert read_route(sent)[0] == Route(HERE.agent, ProcAddress("tcp://w1", AGENT))
    worker.sent.clear()

    worker.hears(frame(DIAL), HERE.agent, ProcAddress("tcp://w1", AGENT))
    assert [(hop, sent.kind, sent.target) for hop, sent in worker.sent] == [
        (HERE.host, CALL, 1),
        (HERE.host, CALL, 2),
    ]


@pytest.mark.parametrize(
    ("kind", "cast", "source"),
    [(CREDIT, 0, BELOW), (REPLY, 9, BELOW), (CALL, 0, ProcAddress("tcp://w2", "p0"))],
    ids=["credit", "output", "of another host"],
)
def test_what_may_get_lost_goes_up_the_tree_at_once(
    kind: int, cast: int, source: ProcAddress
) -> None:
    worker = a_worker_below_another()
    sent = with_route(frame(kind), Route(HERE, source, cast=cast))
    if source is BELOW:
        worker.gateway.from_proc(sent)
    else:
        worker.gateway.from_host(source.host, sent)
    assert [(hop, sent.kind) for hop, sent in worker.sent] == [("tcp://w0", kind)]


def test_what_goes_up_the_tree_takes_the_first_way_as_long_as_that_is_there() -> None:
    worker = a_worker_below_another()
    worker.gateway.found_way("client", "tcp://w5", straight=False)
    worker.gateway.from_proc(with_route(frame(CREDIT), Route(HERE, BELOW)))
    assert [hop for hop, _ in worker.sent] == ["tcp://w0"]


@pytest.mark.parametrize(("flags", "way"), [(STANDING, ["tcp://w0"]), (0, [])])
def test_hosts_below_reach_a_client_that_is_lost_from_here_while_it_watches_them(
    flags: int, way: list[str]
) -> None:
    worker = a_worker_below_another(flags)
    worker.gateway.host_gone("client", ENDED)
    output = with_route(frame(REPLY), Route(HERE, ProcAddress("tcp://w2", "p0"), cast=9))
    worker.gateway.from_host("tcp://w2", output)
    assert [hop for hop, _ in worker.sent] == way


def test_what_is_said_late_to_a_worker_goes_straight_to_it() -> None:
    caller = ProcAddress("tcp://w3", "p0")
    late = frame(REPLIES)._replace(meta="\0".join((*caller, "tcp://w1")).encode())
    worker = Noted("tcp://w0")
    worker.gateway.from_host("tcp://w1", late)
    assert worker.sent == [("tcp://w3", late)]


def test_an_answer_to_a_cast_that_ends_with_its_answers_must_not_get_lost() -> None:
    worker = a_worker_below_another(flags=0)
    worker.gateway.from_proc(with_route(frame(REPLY), Route(HERE, BELOW, cast=9)))
    assert [sent.kind for _, sent in worker.sent] == [DIAL]


def test_a_client_that_is_said_to_be_lost_is_lost() -> None:
    worker = a_worker_below_another()
    worker.gateway.from_host("tcp://w0", gone(BELOW, HERE.agent, host_lost("client", "it left")))
    assert worker.gone_hosts == ["client"]
    assert ("p0", HERE.agent) in worker.ends_told()


def test_who_was_to_hand_over_a_cast_that_is_over_tells_the_caller_who_has_ended() -> None:
    worker = Noted("tcp://w0")
    worker.ended[THERE] = ENDED
    table = pack_table([Entry("tcp://w0", ("p1",), (0,))])
    cast = with_header(frame(CAST, ROUTED, 1), Header(9, HERE, [EPOCH + 2], table, 2))
    worker.gateway.from_host("client", cast)  # it waits for the call before it
    worker.gateway.from_host("client", close_frame([("client", 9)]))
    assert (worker.gateway.casts, worker.told_elsewhere()) == (0, [])
    worker.hears(frame(CALL), HERE, ProcAddress("tcp://w0", "p0"), EPOCH + 1)
    assert worker.told_elsewhere() == [(HERE, THERE)]
    assert pickle.loads(worker.sent[-1][1].payload) == ENDED


def test_a_client_that_is_asked_to_dial_says_something_and_a_worker_need_not() -> None:
    client = Noted("client")
    client.hears(frame(DIAL), THERE.agent, HERE.agent)
    ((hop, sent),) = client.sent
    assert (hop, sent.kind, read_route(sent)[0]) == (
        THERE.host,
        DIAL,
        Route(THERE.agent, HERE.agent),
    )
    worker = Noted("tcp://w0")
    worker.gateway.from_host(HERE.host, sent)
    assert worker.sent == []


def test_a_client_whose_own_link_is_lost_is_lost_once_and_nothing_waits_for_it() -> None:
    worker = Noted("tcp://w0")
    worker.hears(frame(CALL), HERE, THERE)
    worker.gateway.link_lost("client", "cut")
    worker.gateway.from_proc(with_route(frame(CALL), Route(HERE, THERE)))
    assert worker.ends_told() == [("p1", HERE.agent)] * 2
    worker.pass_time(PATIENCE)
    assert worker.gone_hosts == ["client"]


@pytest.mark.parametrize("found", [False, True])
def test_a_client_is_lost_when_no_way_to_it_is_found_in_time(found: bool) -> None:
    worker = Noted("tcp://w0")
    worker.gateway.found_way("client", "tcp://w5", straight=False)
    worker.gateway.link_lost("tcp://w5", "cut")
    worker.gateway.from_proc(with_route(frame(CREDIT), Route(HERE, THERE)))
    worker.pass_time(PATIENCE - 0.1)
    assert (worker.gone_hosts, worker.sent) == (["tcp://w5"], [])
    if found:
        worker.gateway.found_way("client", "tcp://w6", straight=False)
    worker.pass_time(PATIENCE)
    assert worker.gone_hosts == ["tcp://w5"] + ["client"] * (not found)


# the order of what comes


def numbered(worker: Noted) -> list[int]:
    return [sent.target for _, sent in worker.got]


def comes(worker: Noted, number: int, source: ProcAddress = HERE) -> None:
    call = frame(CALL)._replace(target=number)
    worker.hears(call, source, THERE, EPOCH + number)


def test_what_is_lost_before_a_message_is_waited_for_as_long_as_others_come() -> None:
    worker = Noted("tcp://w0")
    comes(worker, 2)
    comes(worker, 1)
    comes(worker, 4)
    worker.pass_time(PATIENCE)  # since the second had to wait: it has got on since
    assert (numbered(worker), worker.told_elsewhere()) == ([1, 2], [])
    worker.pass_time(PATIENCE)
    assert worker.told_elsewhere() == [(HERE, THERE.agent)]
    failure: Failure = pickle.loads(worker.sent[-1][1].payload)
    assert (failure.cause, failure.proc) == (LINK, HERE.host)
    assert "lost messages" in failure.reason
    comes(worker, 1)
    assert numbered(worker) == [1, 2, 1], "it may begin anew"
    comes(worker, 3)
    worker.pass_time(PATIENCE)
    assert len(worker.told_elsewhere()) == 2, "a second time, too"


def test_answers_do_not_wait_for_calls() -> None:
    worker = Noted("tcp://w0")
    comes(worker, 2)
    worker.hears(frame(REPLY, request=4), HERE, THERE)
    worker.hears(frame(CALL, URGENT), HERE, THERE)
    assert [(proc, sent.request) for proc, sent in worker.answers] == [("p1", 4)]
    assert len(worker.got) == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_the_order_of_a_process_that_has_ended_is_forgotten_a_minute_later(restarts: bool) -> None:
    worker = Noted("tcp://w0", "tcp://again")
    comes(worker, 1)
    end = ENDED._replace(restarts=restarts)
    worker.gateway.from_host(HERE.host, gone(THERE, HERE, end))
    assert worker.ends_told() == [("p1", HERE)]
    worker.pass_time(LATE - 1)
    comes(worker, 1)
    assert numbered(worker) == [1], "it has come twice"
    worker.pass_time(LATE)
    comes(worker, 1)
    assert numbered(worker) == ([1] if restarts else [1, 1])


@pytest.mark.parametrize("host", ["tcp://w5", "client"])
def test_a_host_that_is_back_numbers_anew_at_once_unless_it_can_only_be_the_same(host: str) -> None:
    worker, source = Noted("tcp://w0"), ProcAddress(host, "p0")
    comes(worker, 1, source)
    worker.gateway.link_lost(host, "cut")
    comes(worker, 1, source)
    assert numbered(worker) == ([1, 1] if "://" in host else [1])
    worker.pass_time(LATE)
    comes(worker, 1, source)
    assert numbered(worker) == [1, 1]


# ends


def test_who_has_talked_to_a_process_hears_of_its_end_under_the_name_that_it_used() -> None:
    worker = Noted("tcp://w0", "tcp://again")
    again, other = ProcAddress("tcp://again", "p1"), ProcAddress("client", "p2")
    worker.hears(frame(CALL), HERE, THERE)
    worker.hears(frame(CALL), other, again)
    worker.gateway.proc_ended(THERE, ENDED)
    assert worker.told_elsewhere() == [(HERE, THERE), (other, again)]


def test_a_process_that_has_ended_hears_of_no_host_any_more() -> None:
    client = Noted("client")
    other = ProcAddress("client", "p5")
    for source in (HERE, other):
        client.sends(frame(CALL), source, THERE)
    client.gateway.proc_ended(HERE, ENDED)
    client.gateway.link_lost(THERE.host, "cut")
    assert client.ends_told() == [("p5", THERE.agent)]
    (failure,) = [failure for *_, failure in client.told]
    assert failure == host_lost(THERE.host, "cut")
    assert failure.cause == HOST
