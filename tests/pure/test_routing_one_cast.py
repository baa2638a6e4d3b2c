"""One gateway's part in a cast, event by event: of a host in between, then of the root."""

from __future__ import annotations

import pickle

import pytest

from helpers.one_gateway import EPOCH, PATIENCE, Noted, frame
from monarch._core.routing.cast import (
    Entry,
    Header,
    close_frame,
    pack_table,
    read_table,
    split_header,
    with_header,
)
from monarch._core.routing.casting import COMBINED, DONE, LINGER, LOST, PROMPT
from monarch._core.routing.route import RESENT, Route, gone, read_route, split_route, with_route
from monarch._core.supervision.failure import EXITED, LINK, Failure
from monarch._core.wire.address import AGENT, ProcAddress
from monarch._core.wire.frame import (
    AGAIN,
    CAST,
    CLOSE,
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
    encode,
)

CLIENT = ProcAddress("client", "p0")
SELF = "tcp://w0"
WORKERS = [f"tcp://w{number}" for number in range(6)]
CLOSING = 0.05
AT_ONCE = 0.8 + 0.004  # for one host
AVOIDED = 60.0
ENDED = Failure(EXITED, "it has ended")


def cast(
    hosts: list[str],
    flags: int = 0,
    *,
    request: int = 1,
    number: int = 9,
    order: int = 1,
    fanout: int = 2,
) -> Frame:
    """A call to p0 and p1 of each host, whose ranks are 0, 1, 2, ..."""
    ranks = [(2 * index, 2 * index + 1) for index in range(len(hosts))]
    table = pack_table(
        [Entry(host, ("p0", "p1"), two) for host, two in zip(hosts, ranks, strict=True)]
    )
    header = Header(number, CLIENT, [EPOCH + order] * len(hosts), table, fanout)
    return with_header(frame(CAST, flags | ROUTED, request), header)


def handed_down(node: Noted) -> list[tuple[str, list[str], int]]:
    """To whom a cast was handed, with the hosts for which it is theirs, and the flags."""
    casts = [(to, sent) for to, sent in node.sent if sent.kind == CAST]
    return [
        (
            to,
            [entry.host for entry in read_table(split_header(sent)[0].table)],
            sent.flags & ~ROUTED,
        )
        for to, sent in casts
    ]


def closed(node: Noted) -> list[tuple[str, int, object]]:
    return [
        (to, sent.flags, pickle.loads(sent.payload)) for to, sent in node.sent if sent.kind == CLOSE
    ]


def reply(rank: int, flags: int = VALUE, payload: bytes = b"", order: int = 0) -> Frame:
    route = Route(CLIENT, ProcAddress(SELF, f"p{rank % 2}"), order, 9)
    return with_route(Frame(REPLY, flags, rank, 0, 0, 1, b"", payload), route)


def replies(host: str, *answers: Frame, flags: int = 0, number: int = 9) -> Frame:
    """What a host below says."""
    payload = b"".join(encode(answer)[0] for answer in answers)
    meta = "\0".join((*CLIENT, host)).encode()
    return Frame(REPLIES, flags, 0, 0, 0, number, meta, payload)


# a host in between


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
                assert (sent.meta, sent.request) == (b"client\0p0\0tcp://w0", 9)
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


def test_a_host_that_nobody_asks_again_forgets_the_cast() -> None:
    worker = Between(parent="tcp://front", flags=STANDING)
    worker.gateway.link_lost("tcp://front", "cut")
    assert worker.gateway.casts == 1
    worker.pass_time(PATIENCE)
    assert worker.gateway.casts == 0
    assert "client" in worker.gone_hosts


def test_a_host_that_hears_that_its_parent_has_lost_the_root_hands_that_on() -> None:
    worker = Between(WORKERS[1], parent="tcp://front")
    lost = close_frame([("client", 9), ("client", 7)], LOST)
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
    assert below.sent_up() == [("client", PROMPT, ["p1"])]
    ((to, sent),) = worker.sent
    assert (to, sent.kind, sent.flags) == ("client", REPLIES, PROMPT)
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
    worker.gateway.proc_ended(other, ENDED)  # which nobody has asked
    ((to, sent),) = worker.sent
    assert (to, sent.kind, sent.flags) == ("client", REPLIES, DONE | PROMPT), "and not once more"


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


# the root


class Root(Noted):
    """A client that has called p0 and p1 of hosts."""

    def __init__(self, hosts: list[str], flags: int = 0, **more: int) -> None:
        super().__init__("client")
        self.gateway.from_proc(cast(hosts, flags, **more))

    def again(self, hosts: list[str], **more: int) -> list[tuple[str, list[str], int]]:
        """One more call; whom it is handed to."""
        self.sent.clear()
        self.gateway.from_proc(cast(hosts, **more))
        return handed_down(self)

    def hears_from(self, host: str, *answers: Frame, flags: int = 0, number: int = 1) -> None:
        self.gateway.from_host(host, replies(host, *answers, flags=flags, number=number))

    @property
    def answered(self) -> list[tuple[int, int]]:
        """Ranks that have answered, and the order that says whether that may come twice."""
        return [(sent.rank, read_route(sent)[0].order) for _, sent in self.answers]


def test_the_root_numbers_its_casts_and_hands_each_down_in_runs() -> None:
    root = Root(WORKERS[:5])
    assert handed_down(root) == [(WORKERS[0], WORKERS[:2], 0), (WORKERS[2], WORKERS[2:5], 0)]
    headers = [split_header(sent)[0] for _, sent in root.sent]
    assert [(header.id, header.source, header.fanout, [*header.orders]) for header in headers] == [
        (1, CLIENT, 2, [EPOCH + 1] * 2),
        (1, CLIENT, 2, [EPOCH + 1] * 3),
    ]
    root.again(WORKERS[:1])
    header = split_header(root.sent[0][1])[0]
    assert (header.id, [*header.orders]) == (2, [EPOCH + 2])


def test_the_caller_gets_answers_soon_and_those_below_forget_the_cast_then() -> None:
    root = Root(WORKERS[:4])
    root.hears_from(WORKERS[0], reply(1))
    assert root.answered == []
    root.pass_time(LINGER)
    assert root.answered == [(1, 0)]
    root.hears_from(WORKERS[2], reply(4), flags=PROMPT)
    assert root.answered[1:] == [(4, 0)]
    root.hears_from(WORKERS[0], reply(0), reply(2), reply(3), flags=DONE)
    root.hears_from(WORKERS[2], reply(5), reply(6), reply(7), flags=DONE)
    assert [rank for rank, _ in root.answered[2:]] == [0, 2, 3, 5, 6, 7]
    assert root.gateway.casts == 0
    root.pass_time(CLOSING)
    assert closed(root) == [(WORKERS[0], 0, [("client", 1)]), (WORKERS[2], 0, [("client", 1)])]


def test_a_standing_cast_lasts_until_its_caller_ends_or_wants_it_no_longer() -> None:
    for end in ("its caller", "withdrawn"):
        root = Root(WORKERS[:1], STANDING)
        root.hears_from(WORKERS[0], reply(0), reply(1), flags=DONE)
        other = ProcAddress("client", "p7")
        root.gateway.withdraw(other, WORKERS[:1])
        root.gateway.withdraw(CLIENT, WORKERS[1:])
        root.gateway.proc_ended(other, ENDED)
        assert root.gateway.casts == 1
        if end == "withdrawn":
            root.gateway.withdraw(CLIENT, WORKERS[:2])
        else:
            root.gateway.proc_ended(CLIENT, ENDED)
            root.pass_time(CLOSING)
        assert (root.gateway.casts, closed(root)) == (0, [(WORKERS[0], 0, [("client", 1)])])


def test_only_standing_casts_are_withdrawn() -> None:
    root = Root(WORKERS[:1])
    root.again(WORKERS[:1])
    root.gateway.from_proc(cast(WORKERS[:1], STANDING))
    root.gateway.withdraw(CLIENT, WORKERS[:1])
    assert root.gateway.casts == 2
    assert closed(root) == [(WORKERS[0], 0, [("client", 3)])]


def test_hosts_below_one_that_is_lost_are_asked_by_the_root_itself() -> None:
    root = Root(WORKERS, fanout=2)
    assert [to for to, *_ in handed_down(root)] == [WORKERS[0], WORKERS[3]]
    root.hears_from(WORKERS[3], reply(6))
    root.sent.clear()
    root.gateway.link_lost(WORKERS[0], "cut")
    assert handed_down(root) == [
        (WORKERS[1], [WORKERS[1]], AGAIN),
        (WORKERS[2], [WORKERS[2]], AGAIN),
    ]
    assert [(proc, who) for proc, who, _ in root.told] == [("p0", ProcAddress(WORKERS[0], AGENT))]
    assert root.answered == [(6, RESENT)], "what is there waits no longer"
    root.hears_from(WORKERS[1], reply(2), flags=PROMPT)
    assert root.answered[1:] == [(2, RESENT)], "it may have come by way of the lost one"
    root.hears_from(WORKERS[0], reply(0), flags=PROMPT)
    assert root.answered[2:] == [], "it is lost"

    root.pass_time(AT_ONCE)
    assert root.given_up == []
    root.pass_time(AT_ONCE + 0.004)
    assert root.given_up == [WORKERS[2]], "it has not said that it is there"
    root.sent.clear()
    root.gateway.link_lost(WORKERS[2], "given up")
    assert handed_down(root) == []
    root.hears_from(WORKERS[1], flags=DONE)
    root.hears_from(WORKERS[3], flags=DONE)
    assert root.gateway.casts == 0


def test_a_host_that_only_another_has_lost_gets_calls_from_the_root_for_a_while() -> None:
    root = Root(WORKERS)
    root.sent.clear()
    lost = replies(WORKERS[0], flags=LOST, number=1)._replace(payload=WORKERS[1].encode())
    root.gateway.from_host(WORKERS[0], lost)
    # what stands below it
    assert handed_down(root) == [(WORKERS[1], [WORKERS[1]], AGAIN)]
    root.hears_from(WORKERS[1], flags=PROMPT)
    assert root.again(WORKERS[:3]) == [
        (WORKERS[1], [WORKERS[1]], 0),
        (WORKERS[0], [WORKERS[0]], 0),
        (WORKERS[2], [WORKERS[2]], 0),
    ]
    ranks = [read_table(split_header(sent)[0].table)[0].ranks for _, sent in root.sent]
    assert ranks == [(2, 3), (0, 1), (4, 5)]
    assert root.again(WORKERS[2:])[0][1] == WORKERS[2:4]
    root.pass_time(AVOIDED - 1)
    assert [to for to, *_ in root.again(WORKERS[:4])] == [WORKERS[1], WORKERS[0], WORKERS[2]]
    root.pass_time(AVOIDED)
    assert [to for to, *_ in root.again(WORKERS[:4])] == [WORKERS[0], WORKERS[2]]


def test_what_is_said_by_way_of_a_cast_that_is_over_is_marked_as_said_before() -> None:
    root = Root(WORKERS[:1])
    root.hears_from(WORKERS[0], reply(0), reply(1), flags=DONE)
    end = gone(CLIENT, ProcAddress(WORKERS[0], "p0"), ENDED)
    root.hears_from(WORKERS[0], reply(1), end)
    assert root.answered[2:] == [(1, RESENT)]
    assert [(proc, who) for proc, who, _ in root.told] == [("p0", ProcAddress(WORKERS[0], "p0"))]
    root.hears_from(WORKERS[0], reply(1), flags=LOST)
    root.hears_from(WORKERS[0])
    assert len(root.answers) == 3
