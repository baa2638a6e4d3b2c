"""One gateway as the root of casts, event by event: a client that has called processes of hosts."""

from __future__ import annotations

from helpers.one_gateway import (
    AT_ONCE,
    AVOIDED,
    CLIENT,
    CLOSING,
    ENDED,
    EPOCH,
    WORKERS,
    Noted,
    cast,
    closed,
    handed_down,
    replies,
    reply,
)
from monarch._core.routing.cast import read_table, split_header
from monarch._core.routing.casting import DONE, LINGER, LOST, PROMPT
from monarch._core.routing.route import RESENT, gone, read_route
from monarch._core.wire.address import AGENT, ProcAddress
from monarch._core.wire.frame import AGAIN, STANDING, Frame


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
    root = Root(WORKERS[:5], fanout=7)
    assert handed_down(root) == [(WORKERS[0], WORKERS[:2], 0), (WORKERS[2], WORKERS[2:5], 0)]
    headers = [split_header(sent)[0] for _, sent in root.sent]
    assert [(header.id, header.source, header.fanout, [*header.orders]) for header in headers] == [
        (1, CLIENT, 2, [EPOCH + 1] * 2),
        (1, CLIENT, 2, [EPOCH + 1] * 3),
    ]
    assert {(sent.flags, split_header(sent)[1]) for _, sent in root.sent} == {(0, b"meta")}
    root.again(WORKERS[:1])
    header = split_header(root.sent[0][1])[0]
    assert (header.id, [*header.orders]) == (2, [EPOCH + 2])


def test_the_casts_of_each_life_of_a_host_have_numbers_of_their_own() -> None:
    lives = [Noted("client", first_cast=None) for _ in range(2)]
    for life in lives:
        life.gateway.from_proc(cast(WORKERS[:1]))
    first, second = (split_header(life.sent[0][1])[0].id for life in lives)
    assert first >> 24 != second >> 24
    assert first % 2**24 == 1, "there is room for millions; 0 stands for no cast"
    assert first.bit_length() <= 56, "and the number of none grows too large"


def test_the_orders_of_a_cast_in_the_last_epoch_fit_into_its_header() -> None:
    epoch = 2**24 - 1
    root = Noted("client", epoch=epoch)
    root.gateway.from_proc(cast(WORKERS[:1]))
    assert [*split_header(root.sent[0][1])[0].orders] == [(epoch << 40) + 1]


def test_the_host_of_the_caller_is_called_directly_and_the_others_down_the_tree() -> None:
    node = Noted("client", WORKERS[0])
    node.gateway.from_proc(cast(WORKERS[:3]))
    assert [(to, sent.rank) for to, sent in node.got] == [
        (ProcAddress(WORKERS[0], "p0"), 0),
        (ProcAddress(WORKERS[0], "p1"), 1),
    ]
    assert handed_down(node) == [(host, [host], 0) for host in WORKERS[1:3]]


def test_the_caller_gets_answers_soon_and_those_below_forget_the_cast_then() -> None:
    root = Root(WORKERS[:4])
    root.hears_from(WORKERS[0], reply(1))
    assert root.answered == []
    root.pass_time(LINGER)
    assert root.answered == [(1, 0)]
    root.hears_from(WORKERS[0], reply(0))
    root.pass_time(LINGER)
    assert root.answered[1:] == [(0, 0)], "soon each time"
    root.hears_from(WORKERS[2], reply(4), flags=PROMPT)
    assert root.answered[2:] == [(4, 0)]
    root.hears_from(WORKERS[0], reply(2), reply(3), flags=DONE)
    root.hears_from(WORKERS[2], reply(5), reply(6), reply(7), flags=DONE)
    assert [rank for rank, _ in root.answered[3:]] == [2, 3, 5, 6, 7]
    assert {proc for proc, _ in root.answers} == {CLIENT.proc}
    assert root.gateway.casts == 0
    root.pass_time(CLOSING)
    assert closed(root) == [(WORKERS[0], 0, [("client", 1)]), (WORKERS[2], 0, [("client", 1)])]


def test_a_host_that_is_lost_does_not_hear_that_a_cast_is_over() -> None:
    root = Root(WORKERS[:4])
    for host in (WORKERS[0], WORKERS[2]):
        root.hears_from(host, flags=DONE)
    root.gateway.link_lost(WORKERS[0], "cut")
    root.pass_time(CLOSING)
    assert closed(root) == [(WORKERS[2], 0, [("client", 1)])]


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


def test_a_host_that_is_asked_again_has_longer_where_links_may_be_away_for_longer() -> None:
    root = Root(WORKERS[:4])
    root.gateway.reconnect = 20.0
    root.gateway.link_lost(WORKERS[0], "cut")
    root.pass_time(3.9)
    assert root.given_up == []
    root.pass_time(4.1)
    assert WORKERS[1] in root.given_up


def test_hosts_before_one_that_is_lost_are_not_asked_again() -> None:
    root = Root(WORKERS)
    root.sent.clear()
    root.gateway.link_lost(WORKERS[3], "cut")
    assert [to for to, *_ in handed_down(root)] == WORKERS[4:]


def test_a_host_that_is_lost_while_it_is_asked_is_not_given_up_once_more() -> None:
    root = Root(WORKERS[:4])
    root.gateway.link_lost(WORKERS[0], "cut")
    assert handed_down(root)[-1] == (WORKERS[1], [WORKERS[1]], AGAIN)
    root.gateway.link_lost(WORKERS[1], "cut")
    root.pass_time(AT_ONCE)
    assert root.given_up == []


def has_lost(host: str, lost: str) -> Frame:
    """A host of the first cast says that it has lost another."""
    return replies(host, flags=LOST, number=1)._replace(payload=lost.encode())


def test_hosts_that_others_have_lost_get_calls_from_the_root_each_by_itself() -> None:
    root = Root(WORKERS)
    for lost in WORKERS[1:3]:
        root.gateway.from_host(WORKERS[0], has_lost(WORKERS[0], lost))
    expected = [(WORKERS[index], [WORKERS[index]], 0) for index in (1, 2, 0, 3)]
    assert root.again(WORKERS[:4]) == expected


def test_a_host_that_the_root_has_lost_too_has_its_place_in_the_tree_when_it_is_back() -> None:
    root = Root(WORKERS)
    root.gateway.from_host(WORKERS[0], has_lost(WORKERS[0], WORKERS[1]))
    root.gateway.link_lost(WORKERS[1], "cut")
    assert [to for to, *_ in root.again(WORKERS[:4])] == [WORKERS[0], WORKERS[2]]
    root.pass_time(AVOIDED)
    assert [to for to, *_ in root.again(WORKERS[:4])] == [WORKERS[0], WORKERS[2]]


def test_a_host_that_only_another_has_lost_gets_calls_from_the_root_for_a_while() -> None:
    root = Root(WORKERS)
    root.sent.clear()
    root.gateway.from_host(WORKERS[0], has_lost(WORKERS[0], WORKERS[1]))
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
