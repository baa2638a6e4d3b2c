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
from monarch._core.routing.cast import (
    read_table,
    split_header,
)
from monarch._core.routing.casting import DONE, LINGER, LOST, PROMPT
from monarch._core.routing.route import RESENT, gone, read_route
from monarch._core.wire.address import AGENT, ProcAddress
from monarch._core.wire.frame import (
    AGAIN,
    STANDING,
    Frame,
)


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
