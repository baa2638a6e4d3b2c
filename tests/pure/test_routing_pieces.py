"""Routes, the order across paths, and the tables and trees of casts."""

from __future__ import annotations

import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.routing import cast as cast_module
from monarch._core.routing.cast import (
    Branch,
    Cast,
    Entry,
    Header,
    attaches,
    below,
    pack_table,
    part,
    read_table,
    resent,
    split,
    split_header,
    with_header,
)
from monarch._core.routing.order import Lane, Numbering, Reordering
from monarch._core.routing.route import (
    RESENT,
    Route,
    gone,
    read_route,
    split_route,
    with_order,
    with_route,
)
from monarch._core.supervision.failure import EXITED, Failure
from monarch._core.wire.address import ProcAddress
from monarch._core.wire.frame import (
    AGAIN,
    CALL,
    CAST,
    GONE,
    REPLY,
    ROUTED,
    STANDING,
    URGENT,
    Decoder,
    Frame,
    FrameError,
    decode,
    encode,
)

A, B = ProcAddress("tcp://a:1", "p"), ProcAddress("client", "root")
LANE = Lane(B, "h")
FRAME = Frame(CALL, 2, 3, 4, 5, 6, b"meta", b"payload", (b"one", b"two"))
names = st.text(max_size=20)
numbers = st.integers(0, 2**64 - 1)


@given(names, names, names, names, numbers, numbers)
def test_a_route_comes_back_as_it_was(
    a: str, b: str, c: str, d: str, order: int, cast: int
) -> None:
    route = Route(ProcAddress(a, b), ProcAddress(c, d), order, cast)
    routed = with_route(FRAME, route)
    assert routed.flags == FRAME.flags | ROUTED
    assert split_route(routed) == (route, FRAME)


def test_a_number_is_put_into_a_route_that_is_there() -> None:
    frame = with_order(with_route(FRAME, Route(A, B, cast=9)), 7)
    assert split_route(frame) == (Route(A, B, 7, 9), FRAME)


@given(st.binary(max_size=60))
def test_what_is_no_route_is_a_frame_error(meta: bytes) -> None:
    try:
        read_route(FRAME._replace(meta=meta))
    except FrameError:
        pass


def test_a_route_cut_short_is_a_frame_error() -> None:
    frame = with_route(FRAME._replace(meta=b""), Route(A, B))
    with pytest.raises(FrameError):
        read_route(frame._replace(meta=frame.meta[:-1]))


def test_news_of_an_end_is_a_frame_with_nothing_but_the_failure() -> None:
    failure = Failure(EXITED, "it has ended")
    news = Frame(GONE, 0, 0, 0, 0, 0, b"", pickle.dumps(failure))
    assert split_route(gone(A, B, failure)) == (Route(A, B), news)


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="65,535"):
        with_route(FRAME, Route(ProcAddress("x" * 65_536, "p"), B))
    longest = Route(ProcAddress("x" * 65_535, "p"), B)
    assert read_route(with_route(FRAME, longest))[0] == longest


@pytest.mark.parametrize("epoch", [0, 5])
@given(st.permutations(range(8)), st.lists(st.integers(0, 7), max_size=5))
def test_messages_are_handed_on_once_and_in_order_however_they_come(
    epoch: int, order: list[int], twice: list[int]
) -> None:
    numbering, reordering = Numbering(epoch), Reordering(lambda message: pytest.fail("dropped"))
    sent = [numbering.next(B, "h") for _ in order]
    handed = [
        message
        for index in [*order, *twice]
        for message in reordering.arrived(LANE, sent[index], index)
    ]
    assert handed == sorted(order)
    assert reordering.held == 0
    assert reordering.waits_for(LANE) == 0
    assert reordering.has_passed(LANE, sent[-1])


def test_a_gap_is_named_and_what_waits_for_it_is_dropped_with_its_host() -> None:
    dropped: list[str] = []
    numbering, reordering = Numbering(5), Reordering(dropped.append)
    first, second = numbering.next(B, "h"), numbering.next(B, "h")
    assert reordering.arrived(LANE, second, "second") == []
    assert reordering.waits_for(LANE) == first
    reordering.leave(B.host)
    assert dropped == ["second"]


def test_a_new_epoch_begins_again_and_voids_the_one_before() -> None:
    dropped: list[str] = []
    numbering, reordering = Numbering(5), Reordering(dropped.append)
    old = [numbering.next(B, "h") for _ in range(3)]
    assert reordering.arrived(LANE, old[0], "a") == ["a"]
    assert reordering.arrived(LANE, old[2], "c") == []
    numbering.lost("h")
    new = numbering.next(B, "h")
    assert reordering.arrived(LANE, new, "d") == ["d"]
    assert dropped == ["c"]
    assert reordering.arrived(LANE, old[1], "b") == []


def test_who_was_heard_again_is_not_forgotten() -> None:
    numbering, reordering = Numbering(5), Reordering(lambda message: None)
    first, second = numbering.next(B, "h"), numbering.next(B, "h")
    reordering.arrived(LANE, first, 1)
    stood = reordering.leave(B.host)
    reordering.arrived(LANE, second, 2)
    reordering.forget_quiet(stood)
    assert reordering.has_passed(LANE, second)
    reordering.forget_quiet(reordering.leave(B.host))
    assert not reordering.has_passed(LANE, first)


def test_who_is_called_by_two_names_counts_each_for_itself() -> None:
    numbering, reordering = Numbering(5), Reordering(lambda message: None)
    other = LANE._replace(host="other name")
    for name, lane in (("h", LANE), ("other name", other)):
        assert reordering.arrived(lane, numbering.next(B, name), name) == [name]


def entries(count: int) -> tuple[Entry, ...]:
    return tuple(Entry(f"tcp://h{i}", ("p0", "p1"), (2 * i, 2 * i + 1)) for i in range(count))


def subtree(
    hosts: tuple[Entry, ...], branch: Branch, fanout: int, depth: int = 1
) -> tuple[list[str], int]:
    """All hosts below and including the head of a branch, and the depth."""
    found, deepest = [branch.host], depth
    for inner in split(hosts, branch.start + 1, branch.end, fanout):
        more, level = subtree(hosts, inner, fanout, depth + 1)
        found += more
        deepest = max(deepest, level)
    return found, deepest


@given(st.integers(0, 300), st.integers(1, 40))
def test_a_tree_has_each_host_once_and_is_no_deeper_than_it_must(count: int, fanout: int) -> None:
    hosts = entries(count)
    branches = split(hosts, 0, count, fanout)
    assert len(branches) == min(fanout, count)
    assert [host for branch in branches for host in subtree(hosts, branch, fanout)[0]] == [
        entry.host for entry in hosts
    ]
    if fanout > 1 and count:
        room, levels = fanout, 1
        while room < count:
            levels, room = levels + 1, room + fanout ** (levels + 1)
        assert max(subtree(hosts, branch, fanout)[1] for branch in branches) <= levels + 1


@given(st.integers(1, 200), st.integers(1, 20), st.randoms())
def test_who_stands_below_whom_can_be_told_from_the_list_alone(
    count: int, fanout: int, chance: random.Random
) -> None:
    hosts = entries(count)
    host = chance.choice(hosts).host
    for branch in split(hosts, 0, count, fanout):
        found = below(hosts, branch, fanout, host)
        inside = host in subtree(hosts, branch, fanout)[0]
        assert (found is not None) == inside
        if found is not None:
            assert found.host == host
            assert found.end <= branch.end


@given(st.integers(1, 50), st.integers(1, 8), numbers)
def test_a_header_and_its_parts_come_back_as_they_were(
    count: int, fanout: int, number: int
) -> None:
    hosts = entries(count)
    orders = list(range(2**64 - count, 2**64))
    header = Header(number, B, orders, pack_table(hosts), fanout)
    got, meta = split_header(with_header(FRAME, header))
    assert (got.id, got.source, list(got.orders), got.fanout) == (
        number,
        B,
        orders,
        fanout,
    )
    assert read_table(got.table) == hosts
    assert meta == FRAME.meta
    inner = part(got, 1, count)
    assert read_table(inner.table) == hosts[1:]
    assert list(inner.orders) == orders[1:]


@given(st.binary(max_size=80))
def test_what_is_no_cast_is_a_frame_error(meta: bytes) -> None:
    try:
        split_header(FRAME._replace(meta=meta))
    except FrameError:
        pass


def test_a_header_cut_short_is_a_frame_error() -> None:
    header = Header(1, B, [7], pack_table(entries(1)))
    frame = with_header(FRAME._replace(meta=b""), header)
    assert split_header(frame)[0].table == header.table
    with pytest.raises(FrameError):
        split_header(frame._replace(meta=frame.meta[:-1]))


@pytest.mark.parametrize(
    ("kind", "flags", "starting"),
    [
        (CALL, STANDING, True),
        (CAST, STANDING | URGENT, True),
        (CAST, STANDING | AGAIN, False),
        (CALL, 0, False),
        (REPLY, STANDING, False),
    ],
)
def test_a_call_to_attach_hosts_may_find_one_that_has_yet_to_start(
    kind: int, flags: int, starting: bool
) -> None:
    assert attaches(FRAME._replace(kind=kind, flags=flags)) == starting


def test_answers_are_marked_as_resent_and_nothing_else_changes() -> None:
    sent = [
        with_route(
            Frame(REPLY, 0, rank, 0, 0, 5, b"m", b"p" * rank, (b"buffer",) * (rank % 2)),
            Route(B, A, cast=3),
        )
        for rank in range(4)
    ]
    sent.append(with_route(Frame(GONE, 0, 0, 0, 0, 0, b"", b"why"), Route(B, A)))
    data = b"".join(b"".join((encode(frame)[0], *frame.buffers)) for frame in sent)
    got = [decode(part) for part in Decoder(1 << 20).feed(memoryview(resent(data)))]
    assert [split_route(frame)[0].order for frame in got] == [RESENT] * 4 + [0]
    assert [bytes(frame.payload) for frame in got] == [bytes(frame.payload) for frame in sent]


@pytest.mark.parametrize("standing", [True, False])
def test_a_standing_cast_keeps_only_the_last_of_what_was_said(
    standing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cast_module, "_MOST_KEPT", 5)
    table = pack_table([Entry("tcp://a:1", ("p",), [0])])
    cast = Cast(Header(1, B, [1], table), FRAME, read_table(table)[0], "tcp://b:1", standing)
    for number in range(8):
        cast.answered(Frame(REPLY, 0, 0, 0, 0, number, b"", b""))
    cast.take()
    assert cast.start_again("tcp://c:1") == []
    again = [decode(data).request for data in Decoder(1 << 20).feed(memoryview(cast.take()))]
    assert again == list(range(3 if standing else 0, 8))
