"""One gateway's part in a cast of another host, event by event."""

from __future__ import annotations

import pickle

import pytest

from helpers.one_gateway import (
    CLIENT,
    CLOSING,
    ENDED,
    PATIENCE,
    SELF,
    WORKERS,
    Noted,
    cast,
    closed,
    frame,
    handed_down,
    replies,
    reply,
)
from monarch._core.routing.cast import (
    Entry,
    Header,
    close_frame,
    pack_table,
    with_header,
)
from monarch._core.routing.casting import COMBINED, DONE, LINGER, LOST, PROMPT
from monarch._core.routing.route import RESENT, Route, read_route, split_route
from monarch._core.supervision.failure import LINK, Failure, host_lost
from monarch._core.wire.address import AGENT, ProcAddress
from monarch._core.wire.frame import (
    AGAIN,
    CAST,
    ERROR,
    EXCEPTION,
    EXPLICIT,
    GONE,
    PRINTED,
    REPLIES,
    REPLY,
    ROUTED,
    STANDING,
    VALUE,
    Decoder,
    Frame,
    decode,
)


class Between(Noted):
    """tcp://w0, which has been handed a cast for itself and the hosts below."""

    def __init__(self, *below: str, parent: str = "client", flags: int = 0, **more: int) -> None:
        super().__init__(SELF)
        self.below = [SELF, *below]
        self.failures: list[Failure] = []  # of processes here, in what was sent up
        self.gateway.from_host(parent, cast(self.below, flags, **more))

    def says(self, rank: int, flags: int = VALUE, payload: bytes = b"") -> None:
        self.gateway.from_proc(reply(rank, flags, payload))

    def sent_up(self) -> list[tuple[str, int, list[int | str]]]:
        """To whom, flags, and what: ranks that have answered, processes that are gone."""
        found = []
        for to, sent in self.sent:
            if sent.kind == REPLIES:
                names = b"client\0p0\0tcp://w0"
                assert sent == Frame(REPLIES, sent.flags, 0, 0, 0, 9, names, sent.payload)
                said: list[int | str] = []
                if sent.flags & LOST:
                    said = [bytes(sent.payload).decode()]
                else:
                    for data in Decoder(1 << 30).feed(memoryview(sent.payload)):
                        one = decode(data)
                        who = read_route(one)[0].source.proc
                        said.append(one.rank if one.kind == REPLY else who)
                        if one.kind == GONE:
                            self.failures.append(pickle.loads(one.payload))
                found.append((to, sent.flags, said))
        self.sent = [each for each in self.sent if each[1].kind != REPLIES]
        return found


def test_a_call_goes_to_the_processes_and_to_the_first_of_each_run_of_hosts_below() -> None:
    worker = Between(*WORKERS[1:], flags=STANDING)
    assert handed_down(worker) == [
        (WORKERS[1], WORKERS[1:3], STANDING),
        (WORKERS[3], WORKERS[3:6], STANDING),
    ]
    assert [(to, sent.rank, sent.flags) for to, sent in worker.got] == [
        (ProcAddress(SELF, "p0"), 0, ROUTED),
        (ProcAddress(SELF, "p1"), 1, ROUTED),
    ]
    route, call = split_route(worker.got[1][1])
    assert (route, call.meta) == (Route(ProcAddress(SELF, "p1"), CLIENT, cast=9), b"meta")


@pytest.mark.parametrize(("flags", "handed_over"), [(AGAIN, 0), (EXPLICIT, EXPLICIT)])
def test_processes_need_not_know_how_a_call_has_come(flags: int, handed_over: int) -> None:
    worker = Between(flags=flags)
    assert [sent.flags for _, sent in worker.got] == [handed_over | ROUTED] * 2


def test_answers_wait_a_moment_for_others_and_the_last_ones_do_not() -> None:
    worker = Between(WORKERS[1])
    worker.says(0)
    worker.pass_time(LINGER / 2)
    assert worker.sent_up() == []
    worker.pass_time(LINGER)
    assert worker.sent_up() == [("client", 0, [0])]
    worker.says(1)
    worker.gateway.from_host(WORKERS[1], replies(WORKERS[1], reply(2)))
    assert worker.sent_up() == []
    worker.gateway.from_host(WORKERS[1], replies(WORKERS[1], reply(3), flags=DONE))
    assert worker.sent_up() == [("client", DONE, [1, 2, 3])]
    worker.pass_time(LINGER)
    assert worker.sent_up() == []


def test_answers_wait_for_one_moment_together() -> None:
    worker = Between(WORKERS[1])
    assert worker.timers == 0
    worker.says(0)
    worker.says(1)
    assert worker.timers == 1


@pytest.mark.parametrize(
    ("flags", "prompt"), [(VALUE, 0), (PRINTED, 0), (ERROR, PROMPT), (EXCEPTION, PROMPT)]
)
def test_an_error_waits_for_no_other_answer(flags: int, prompt: int) -> None:
    worker = Between()
    worker.says(1, flags)
    assert worker.sent_up() == [("client", PROMPT, [1])] * bool(prompt)
    worker.says(0)
    assert worker.sent_up() == [("client", DONE, [0] if prompt else [1, 0])]


def test_what_is_urgent_for_a_host_below_is_urgent_here() -> None:
    worker = Between(WORKERS[1])
    worker.says(0)
    worker.gateway.from_host(WORKERS[1], replies(WORKERS[1], reply(2), flags=PROMPT))
    assert worker.sent_up() == [("client", PROMPT, [0, 2])]


@pytest.mark.parametrize("more", [0, 1])
def test_an_answer_that_is_too_large_to_wait_goes_straight_to_the_caller(more: int) -> None:
    worker = Between()
    buffers = [bytes(COMBINED - 10)]
    large = reply(0, payload=bytes(10 + more))._replace(buffers=buffers)
    worker.gateway.from_proc(large)
    worker.says(1)
    assert worker.sent_up() == [("client", DONE, [1] if more else [0, 1])]
    assert worker.sent == [("client", large)] * more

    worker.gateway.from_host("client", cast(worker.below, AGAIN))
    assert worker.sent_up() == [("client", DONE | PROMPT, [1] if more else [0, 1])]
    marked = reply(0, payload=bytes(10 + more), order=RESENT)._replace(buffers=buffers)
    assert worker.sent[1:] == [("client", marked)] * more


def test_a_host_that_is_lost_below_is_reported_and_waited_for_no_longer() -> None:
    worker = Between(WORKERS[1], WORKERS[2])
    worker.says(0)
    worker.gateway.link_lost(WORKERS[1], "cut")
    assert worker.sent_up() == [("client", LOST, [WORKERS[1]]), ("client", PROMPT, [0])]
    worker.gateway.from_host(
        WORKERS[2], replies(WORKERS[2], flags=LOST)._replace(payload=b"tcp://w9")
    )
    assert worker.sent_up() == [("client", LOST, ["tcp://w9"])]
    worker.gateway.from_host(WORKERS[2], replies(WORKERS[2], flags=DONE))
    worker.says(1)
    assert worker.sent_up() == [("client", DONE, [1])]
    worker.gateway.from_host(WORKERS[1], replies(WORKERS[1], reply(2)))
    worker.pass_time(LINGER)
    assert worker.sent_up() == [], "it tells the root now"


def test_a_host_whose_parent_is_lost_holds_what_it_has_until_the_root_asks() -> None:
    worker = Between(WORKERS[1], parent="tcp://front")
    worker.says(0)
    worker.gateway.link_lost("tcp://front", "cut")
    assert closed(worker) == [(WORKERS[1], LOST, [("client", 9)])]
    worker.says(1)
    worker.pass_time(1)
    assert worker.sent_up() == []

    worker.gateway.from_host("client", cast([SELF], AGAIN))
    assert worker.sent_up() == [("client", DONE | PROMPT, [0, 1])], "those below have a new parent"
    worker.pass_time(PATIENCE)
    assert worker.gateway.casts == 1


def test_a_host_that_is_not_asked_again_forgets_the_cast() -> None:
    worker = Between(parent="tcp://front", flags=STANDING)
    worker.gateway.link_lost("tcp://front", "cut")
    assert worker.gateway.casts == 1
    worker.pass_time(PATIENCE)
    assert worker.gateway.casts == 0
    assert "client" in worker.gone_hosts


@pytest.mark.parametrize(
    ("reconnect", "orphans", "waits"),
    [(4.0, 5.0, 2.0), (20.0, 10.0, 10.0), (1.0, 30.0, 29.0), (0.2, 0.1, 1.0)],
)
def test_a_host_waits_for_its_root_until_orphans_end_and_others_know_of_the_loss(
    reconnect: float, orphans: float, waits: float
) -> None:
    worker = Between(parent="tcp://front")
    worker.gateway.reconnect, worker.gateway.orphans = reconnect, orphans
    worker.gateway.link_lost("tcp://front", "cut")
    worker.pass_time(waits - 0.1)
    assert worker.gateway.casts == 1
    worker.pass_time(waits)
    assert worker.gateway.casts == 0


def test_a_host_whose_parent_has_lost_the_root_forgets_the_cast_in_time() -> None:
    worker = Between(parent="tcp://front", flags=STANDING)
    worker.gateway.from_host("tcp://front", close_frame([("client", 9)], LOST))
    worker.pass_time(PATIENCE)
    assert (worker.gateway.casts, worker.gone_hosts) == (0, ["client"])
    assert worker.losses == [host_lost("client", "it is out of contact")]


def test_a_cast_that_is_over_while_a_host_waits_for_its_root_ends_once() -> None:
    worker = Between(WORKERS[1], parent="tcp://front", flags=STANDING)
    for flags in (LOST, 0):
        worker.gateway.from_host("tcp://front", close_frame([("client", 9)], flags))
    assert worker.losses == [Failure(LINK, "it has left", proc="client")]
    worker.sent.clear()
    worker.pass_time(PATIENCE)
    assert worker.gone_hosts == ["client"]
    assert closed(worker) == [(WORKERS[1], 0, [("client", 9)])]


def test_a_call_that_goes_on_does_not_watch_over_its_client() -> None:
    worker = Between(flags=STANDING)
    worker.gateway.from_host("client", cast([SELF], number=10, order=2))
    worker.gateway.from_host("client", close_frame([("client", 9)]))
    assert (worker.gateway.casts, worker.gone_hosts) == (1, ["client"])


def test_a_host_that_hears_that_its_parent_has_lost_the_root_hands_that_on() -> None:
    worker = Between(WORKERS[1], parent="tcp://front")
    lost = close_frame([("client", 7), ("client", 9)], LOST)
    worker.gateway.from_host("tcp://another", lost)
    assert closed(worker) == [], "it is no longer the parent"
    worker.gateway.from_host("tcp://front", lost)
    assert closed(worker) == [(WORKERS[1], LOST, [("client", 9)])]
    worker.says(0)
    worker.pass_time(LINGER)
    assert worker.sent_up() == []


def test_the_loss_of_the_root_itself_ends_its_casts() -> None:
    worker = Between(WORKERS[1])
    worker.gateway.link_lost("client", "cut")
    assert worker.gateway.casts == 0
    worker.pass_time(CLOSING)
    assert closed(worker) == [(WORKERS[1], LOST, [("client", 9)])]


def test_a_host_that_is_asked_again_says_at_once_that_it_is_there() -> None:
    worker = Between(WORKERS[1])
    worker.gateway.from_host("client", cast([SELF], AGAIN))
    assert worker.sent_up() == [("client", PROMPT, [])]
    assert closed(worker) == [(WORKERS[1], LOST, [("client", 9)])], "it is the root's concern now"
    worker.gateway.from_host("client", cast([SELF]))
    assert worker.sent_up() == [], "it has been handed the call twice"


def test_the_parent_alone_says_that_a_cast_is_over_which_is_handed_on_for_several() -> None:
    worker = Between(WORKERS[1])
    worker.gateway.from_host("client", cast(worker.below, number=10, order=2))
    over = close_frame([("client", 9), ("client", 10), ("client", 11)])
    worker.gateway.from_host("tcp://another", over)
    assert worker.gateway.casts == 2
    worker.gateway.from_host("client", over)
    assert worker.gateway.casts == 0
    worker.pass_time(CLOSING / 2)
    assert closed(worker) == []
    worker.pass_time(CLOSING)
    assert closed(worker) == [(WORKERS[1], 0, [("client", 9), ("client", 10)])]


@pytest.mark.parametrize(("flags", "request_"), [(0, 0), (EXPLICIT, 1)], ids=["none", "a port"])
def test_where_no_answers_are_counted_a_host_is_done_at_once(flags: int, request_: int) -> None:
    worker = Between(flags=flags, request=request_)
    assert worker.sent_up() == [("client", DONE, [])]


def test_the_end_of_a_process_is_its_answer() -> None:
    worker = Noted(SELF)
    worker.ended[ProcAddress(SELF, "p1")] = ENDED
    below = Between()
    for node in (worker, below):
        if node is worker:
            node.gateway.from_host("client", cast([SELF]))
        else:
            node.gateway.proc_ended(ProcAddress(SELF, "p1"), ENDED)
    assert (below.sent_up(), below.failures) == ([("client", PROMPT, ["p1"])], [ENDED])
    ((to, sent),) = worker.sent
    assert (to, sent.kind, sent.flags) == ("client", REPLIES, PROMPT)
    (said,) = Decoder(1 << 30).feed(memoryview(sent.payload))
    assert pickle.loads(decode(said).payload) == ENDED
    below.says(0)
    assert below.sent_up() == [("client", DONE, [0])]


def test_the_end_of_a_process_is_told_by_way_of_the_standing_cast_that_has_asked_it() -> None:
    worker, other = Noted(SELF), ProcAddress(SELF, "p9")
    own = frame(CAST, STANDING | ROUTED, 1)
    table = pack_table([Entry(host, ("p0",), (0,)) for host in WORKERS[1:3]])
    worker.gateway.from_proc(with_header(own, Header(0, other, (), table)))  # of which it is root
    worker.gateway.from_host("client", cast([SELF], STANDING))
    for rank in (0, 1):
        worker.gateway.from_proc(reply(rank))
    worker.sent.clear()
    worker.gateway.proc_ended(ProcAddress(SELF, "p1"), ENDED)
    ((to, sent),) = worker.sent
    assert (to, sent.kind, sent.flags) == ("client", REPLIES, DONE | PROMPT), "and not once more"
    worker.gateway.proc_ended(other, ENDED)  # no process has asked it, and it has asked some
    assert worker.told_elsewhere() == [(ProcAddress(host, ""), other) for host in WORKERS[1:3]]


def test_a_cast_whose_turn_never_comes_is_answered_for_each_process() -> None:
    worker = Between(order=2)
    assert worker.got == []
    worker.pass_time(PATIENCE)
    assert worker.sent_up() == [("client", PROMPT, ["p0"]), ("client", DONE | PROMPT, ["p1"])]
    assert [(each.cause, each.proc) for each in worker.failures] == [(LINK, "client")] * 2
    assert "lost messages" in worker.failures[0].reason
    assert worker.got == []


@pytest.mark.parametrize("parent", ["client", "tcp://front"])
def test_a_host_that_has_forgotten_a_cast_gives_it_up_where_the_root_asks(parent: str) -> None:
    worker = Between()
    worker.gateway.from_host("client", close_frame([("client", 9)]))
    worker.sent.clear()
    worker.gateway.from_host(parent, cast([SELF], AGAIN))
    said = [AGENT] if parent == "client" else []
    assert worker.sent_up() == [(parent, DONE | PROMPT, said)]
    for failure in worker.failures:
        assert (failure.cause, failure.proc) == (LINK, SELF)
        assert "has given up the call" in failure.reason
    assert len(worker.got) == 2, "once for each process"


def test_a_host_that_is_listed_twice_is_lost_by_its_second_name_but_none_below_is() -> None:
    worker = Between()
    worker.sent.clear()
    worker.gateway.from_host(WORKERS[1], cast(["tcp://again", WORKERS[2]]))
    assert handed_down(worker) == [(WORKERS[2], [WORKERS[2]], 0)]
    (said,) = [each for each in worker.sent if each[1].kind == REPLIES]
    names = b"client\0p0\0tcp://again"
    assert said == (WORKERS[1], Frame(REPLIES, DONE | PROMPT, 0, 0, 0, 9, names, b""))
    again = ProcAddress("tcp://again", AGENT)
    (end,) = [sent for _, sent in worker.sent if sent.kind == GONE]
    assert (read_route(end)[0].to, read_route(end)[0].source) == (CLIENT, again)
    failure: Failure = pickle.loads(end.payload)
    assert (failure.cause, failure.proc) == (LINK, "tcp://again")
    assert len(worker.got) == 2, "once for each process"
