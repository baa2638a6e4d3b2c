"""Links over a simulated network: no socket, no clock, a printed seed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from struct import Struct

import pytest

from helpers.each import for_each
from helpers.wires import LIMITS, Dialer, Host, Wires, all_got, frame_of
from monarch._core.wire import link as wire_link
from monarch._core.wire import link_table as wire_table
from monarch._core.wire.frame import HEADER_SIZE, READ_SIZE
from monarch._core.wire.link import BROKEN, TABLE, UP
from monarch._core.wire.link_limits import RunClock
from monarch._core.wire.link_records import (
    ACK,
    DATA,
    FAREWELL,
    JOIN,
    JOINED,
    REFUSED,
    YIELD,
    Hello,
    Join,
    LinkError,
    Packed,
    RecordDecoder,
    control,
    data_chunks,
    greeting,
    pack,
    why_apart,
)
from monarch._public import RELEASE

RECORD_HEADER = Struct("<QQQQB")
T = LIMITS.reconnect
BOUND = 1.25 * T  # 5 s with default knobs: what hosts promise

visited: set[tuple[str, str]] = set()
ran: set[str] = set()  # names of tests


class Recorded(dict[tuple[str, str], tuple[str, tuple[str, ...]]]):
    def __getitem__(self, key: tuple[str, str]) -> tuple[str, tuple[str, ...]]:
        visited.add(key)
        return super().__getitem__(key)


@pytest.fixture(autouse=True)
def recorded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    ran.add(request.function.__name__)
    monkeypatch.setattr(wire_link, "TABLE", Recorded(TABLE))


@pytest.fixture(autouse=True, scope="module")
def _each_row_is_visited_by_one_of_these_tests() -> Iterator[None]:
    """Looked at after the last one, whichever that is; where only some are run, not at all."""
    yield
    mostly = {
        name
        for name, test in globals().items()
        if name.startswith("test_")
        and "slow" not in {mark.name for mark in getattr(test, "pytestmark", ())}
    }
    if mostly <= ran:
        assert visited == {*TABLE}


def texts(count: int, start: int = 0, tag: str = "") -> list[str]:
    return [f"{tag}{n}" for n in range(start, start + count)]


def random_traffic(
    wires: Wires, pairs: list[tuple[Host, str, str]], until: float, count: int
) -> None:
    """Each pair (sender, receiver's name, tag) sends `count` frames at random times."""
    for sender, name, tag in pairs:
        times = sorted(wires.random.uniform(wires.now, until) for _ in range(count))
        for n, when in enumerate(times):
            buffers = wires.random.choice([0, 0, 0, 2])
            # bound now
            wires.at(when, lambda s=sender, h=name, t=f"{tag}{n}", b=buffers: s.send(h, t, b))  # type: ignore[misc]


def random_trouble(wires: Wires, a: Host, b: Host, until: float, longest: float) -> None:
    """Cuts and outages between two hosts, each well before the next."""
    when = wires.now
    while (when := when + wires.random.uniform(0.01, 4)) < until:
        if wires.random.random() < 0.5:
            wires.at(when, lambda: wires.cut(a, b))
        else:
            length = wires.random.uniform(0, longest)
            pair = frozenset((a.name, b.name))
            wires.at(when, lambda p=pair: wires.down.add(p))  # type: ignore[misc]  # bound now
            # bound now
            wires.at(when + length, lambda p=pair: wires.down.discard(p))  # type: ignore[misc]
            when += length + T  # a sign of life before the next


@for_each("seed", range(60))
def test_what_is_sent_arrives_once_and_in_order_when_no_outage_is_too_long(seed: int) -> None:
    wires = Wires(seed)
    a, b = wires.host("a", "1"), wires.host("b", "2")
    random_traffic(wires, [(a, "b", "a"), (b, "a", "b")], until=20, count=80)
    random_trouble(wires, a, b, until=20, longest=T / 2)
    wires.run(30)
    assert all_got(b) == texts(80, tag="a")
    assert all_got(a) == texts(80, tag="b")
    assert a.lost == b.lost == []
    assert a.ups == ["b"] and b.ups == ["a"], "told once, however many streams there were"
    assert [link.queued for host in (a, b) for link in host.table] == [
        0,
        0,
    ], "all is acknowledged, nothing is kept"


@for_each("seed", range(30))
def test_both_sides_know_of_an_outage_that_is_too_long_within_the_bound(seed: int) -> None:
    wires = Wires(seed)
    a, b = wires.host("a", "1"), wires.host("b", "2")
    random_traffic(wires, [(a, "b", "a"), (b, "a", "b")], until=5, count=20)
    begin = 5 + wires.random.uniform(0, 3)
    wires.at(begin, lambda: wires.down.add(frozenset("ab")))
    wires.run(begin + BOUND)
    assert [name for _, name, _ in a.lost] == ["b"]
    assert [name for _, name, _ in b.lost] == ["a"]
    assert "out of contact for 4s" in a.lost[0][2]
    assert min(a.lost[0][0], b.lost[0][0]) > begin + T - LIMITS.interval - 0.1, (
        "not before its time"
    )
    assert all_got(b) == texts(20, tag="a")
    wires.down.clear()
    a.send("b", "again")
    wires.run(wires.now + 2)
    assert all_got(b)[-1] == "again"
    assert len(a.lost) == len(b.lost) == 1


@for_each("seed", range(60))
def test_two_hosts_that_dial_each_other_at_the_same_time_end_with_one_link(seed: int) -> None:
    wires = Wires(seed)
    a, b = wires.host("a", "12"[seed % 2]), wires.host("b", "21"[seed % 2])
    start = wires.random.uniform(0, 0.03)
    for text in texts(20):
        wires.at(0, partial(a.send, "b", f"a{text}"))
        wires.at(start, partial(b.send, "a", f"b{text}"))
    random_traffic(wires, [(a, "b", "A"), (b, "a", "B")], until=0.3, count=20)
    wires.at(wires.random.uniform(0, 0.1), lambda: wires.cut(a, b))
    wires.run(5)
    for got, tag in ((all_got(b), "a"), (all_got(a), "b")):
        assert [text for text in got if text[0] == tag] == texts(20, tag=tag)
        assert [text for text in got if text[0] == tag.upper()] == texts(20, tag=tag.upper())
    assert a.lost == b.lost == []
    assert len([*a.table]) == len([*b.table]) == 1
    assert len(a.pipes) == len(b.pipes) == 1, "no second stream stays open"


def test_the_host_that_can_be_dialed_is_reached_whichever_identity_is_lower() -> None:
    for low in "ab":
        wires = Wires(0)
        a, b = wires.host("a", "1" if low == "a" else "3"), wires.host("b", "2")
        wires.unreachable.add(("a", "b"))  # behind a firewall: only b can dial
        a.send("b", "from a")
        b.send("a", "from b")
        wires.run(3)
        assert (all_got(a), all_got(b)) == (["from b"], ["from a"])


@for_each("seed", range(30))
def test_several_names_of_one_process_share_one_link(seed: int) -> None:
    wires = Wires(seed)
    a, b = wires.host("a", "12"[seed % 2]), wires.host("b", "21"[seed % 2], "b2", "b3")
    random_traffic(
        wires, [(a, "b", "x"), (a, "b2", "y"), (a, "b3", "z"), (b, "a", "w")], until=0.1, count=10
    )
    wires.run(5)
    for tag in "xyz":
        assert [text for text in all_got(b) if text[0] == tag] == texts(10, tag=tag)
    assert all_got(a) == texts(10, tag="w")
    assert len([*a.table]) == len([*b.table]) == 1
    assert {*a.ups} >= {"b", "b2", "b3"} and len(a.ups) == len({*a.ups})
    assert a.lost == b.lost == []
    wires.kill(b)
    wires.run(10)
    assert sorted(name for _, name, _ in a.lost) == sorted(a.ups), "each name is told of the loss"


def test_a_peer_hears_under_which_name_it_was_dialed() -> None:
    wires = Wires(1)
    a, b = wires.host("a"), wires.host("", "2", "tcp://alias:1")
    a.send("tcp://alias:1", "hello")
    wires.run(1)
    assert b.called == ["tcp://alias:1"]
    b.send("a", "back, without a dial")
    wires.run(2)
    assert a.got == {"tcp://alias:1": ["back, without a dial"]}
    assert b.dials == 0


def test_a_host_that_dials_itself_is_told_so() -> None:
    wires = Wires(1)
    a = wires.host("a", "1", "alias")
    a.send("alias", "hello")
    wires.run(1)
    assert [(name, reason) for _, name, reason in a.lost] == [
        ("alias", "it leads back to this very host")
    ]
    assert a.called == ["alias"]


def test_a_restarted_worker_is_another_and_its_old_link_is_lost_at_once() -> None:
    wires = Wires(1)
    a, old = wires.host("a", "1"), wires.host("b", "2")
    a.send("b", "one")
    wires.run(1)
    wires.kill(old)
    new = wires.host("b", "3")
    wires.run_until(lambda: a.lost, within=0.5)
    assert "restarted" in a.lost[0][2]
    a.send("b", "two")
    wires.run(3)
    assert (all_got(old), all_got(new)) == (["one"], ["two"])


def test_a_restarted_dialer_replaces_its_old_link_when_it_comes_back() -> None:
    wires = Wires(1)
    old, b = wires.host("a", "1"), wires.host("b", "2")
    old.send("b", "one")
    wires.run(1)
    wires.down.add(frozenset("ab"))  # its machine loses power: nobody says goodbye
    wires.kill(old)
    wires.down.clear()
    new = wires.host("a", "3")
    new.send("b", "two")
    wires.run(1.5)
    assert ["restarted" in reason for _, _, reason in b.lost] == [True]
    assert b.got["a"] == ["one", "two"]
    assert b.ups == ["a", "a"]


def test_a_port_without_its_listener_is_lost_after_a_second() -> None:
    wires = Wires(1)
    a, b = wires.host("a"), wires.host("b")
    a.send("b", "one")
    wires.run(1)
    wires.kill(b)
    wires.run_until(lambda: a.lost, within=2)
    assert 1.9 < a.lost[0][0] < 3
    assert "nothing listens there" in a.lost[0][2]


def test_a_worker_that_is_not_up_yet_is_dialed_until_it_is() -> None:
    wires = Wires(1)
    a = wires.host("a")
    for text in texts(5):
        a.send("b", text)
    wires.run(LIMITS.attach - 1)
    b = wires.host("b")
    wires.run(LIMITS.attach)
    assert all_got(b) == texts(5)
    assert a.dials < 30, "ever longer pauses"


def test_a_worker_that_never_comes_up_is_lost_after_the_time_for_attaching() -> None:
    wires = Wires(1)
    a = wires.host("a")
    a.send("b", "one")
    wires.run(LIMITS.attach - 0.1)
    assert a.lost == []
    wires.run(LIMITS.attach + 0.1)
    assert "10s (mesh_attach_config_timeout): nothing listens there" in a.lost[0][2]
    assert a.table.get("b") is None


def test_a_worker_that_must_be_up_is_lost_without_a_listener() -> None:
    wires = Wires(1)
    a = wires.host("a")
    a.table.send("b", a.table.pack(frame_of("one")), 0.0, starting=False)
    a.act()
    wires.run_until(lambda: a.lost, within=2)
    assert a.lost[0][2] == "nothing listens there"


@pytest.mark.parametrize("patient", ["the dialer", "the dialed"])
def test_hosts_with_different_timeouts_hear_each_other_often_enough(patient: str) -> None:
    wires = Wires(1)
    a, b = wires.host("a"), wires.host("b")
    other = a if patient == "the dialer" else b
    other.table.limits = LIMITS._replace(reconnect=20 * T)
    a.send("b", "one")
    wires.run(3 * T)
    assert a.dials == 1 and a.lost == b.lost == []


def test_a_final_error_ends_the_first_dial_at_once() -> None:
    wires = Wires(1)
    a = wires.host("a")
    a.table.send("b", a.table.pack(frame_of("x")), 0.0)
    (dial,) = a.table.take()
    a.table.closed(dial.stream, "wrong secret", 0.0, final=True)  # type: ignore[union-attr]
    a.act()
    assert a.lost == [(0.0, "b", "wrong secret")]


def test_a_farewell_is_heard_at_once_with_its_reason_and_after_all_that_was_sent() -> None:
    wires = Wires(1)
    a, b = wires.host("a"), wires.host("b")
    for text in texts(30):
        a.send("b", text, 2)
    wires.run_until(lambda: a.ups and b.ups, within=1)
    a.table.close("the program has ended", wires.now)
    a.act()
    wires.run(wires.now + 0.1)
    assert all_got(b) == texts(30)
    assert [(name, reason) for _, name, reason in b.lost] == [("a", "the program has ended")]
    assert a.lost == [] and [*a.table] == []
    wires.run(wires.now + T)
    assert a.pipes == b.pipes == {}


@pytest.mark.parametrize(
    "until",
    [0.0, 0.001, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 1.0, 1.5, 1.51, 1.52, 1.53, 1.54, 1.56],
)
def test_closing_ends_a_link_in_any_state(until: float) -> None:
    for seed in range(5):
        wires = Wires(seed)
        a, b = wires.host("a"), wires.host("b")
        a.send("b", "x")
        wires.at(1.5, lambda w=wires, x=a, y=b: w.cut(x, y))  # type: ignore[misc]  # bound now
        wires.run(until)
        a.table.close("over", wires.now)
        a.act()
        wires.run(wires.now + 2 * T)
        assert a.lost == [] and a.pipes == b.pipes == {}
        assert all(reason for _, _, reason in b.lost) and [*b.table] == []


def test_a_pause_of_the_own_process_is_not_the_silence_of_its_peers() -> None:
    clock = RunClock(0.5, 100.0)
    assert clock.at(100.2) == pytest.approx(0.2)
    assert clock.at(3700.0) == pytest.approx(0.7), (
        "an hour in which it was stopped counts as one look at the clock"
    )
    assert clock.at(3700.1) == pytest.approx(0.8)
    assert clock.at(3600.0) == pytest.approx(0.8), "a clock that goes back is borne"


def test_an_idle_link_stays_up_and_costs_a_ping_and_its_answer_per_interval() -> None:
    wires = Wires(1)
    a, b = wires.host("a"), wires.host("b")
    a.send("b", "x")
    wires.run(1)
    before = next(wires._order)
    wires.run(61)
    assert a.lost == b.lost == [] and a.dials == 1
    assert next(wires._order) - before < 60 * 2 * 12 + 200


def test_a_link_whose_dialer_falls_silent_before_it_is_up_is_given_up() -> None:
    wires = Wires(1)
    a, b = wires.host("a"), wires.host("b")
    a.send("b", "x")
    wires.run_until(lambda: b.pipes, within=1)
    wires.down.add(frozenset("ab"))
    wires.run(T)
    assert b.pipes == {}, "who does not say what it wants has no stream for ever"
    wires.down.clear()
    wires.run(LIMITS.attach)
    assert all_got(b) == ["x"]


@for_each("seed", range(40))
def test_trouble_at_any_moment_of_the_first_dial_and_of_a_resumption_is_overcome(seed: int) -> None:
    """Outages that begin while the sides greet each other, in both of the ways: cut, or nothing
    passes.
    """
    wires = Wires(seed)
    a, b = wires.host("a", "1"), wires.host("b", "2")
    pair = frozenset("ab")
    a.send("b", "0")
    moment = 0.0
    for n in range(1, 4):
        moment += wires.random.uniform(0, 0.08)
        wires.at(moment, lambda: wires.cut(a, b))
        if seed % 2:
            wires.at(moment, lambda: wires.down.add(pair))
            wires.at(moment + 0.6, lambda: wires.down.discard(pair))
            moment += 0.6
        wires.at(moment, lambda n=n: a.send("b", str(n)))  # type: ignore[misc]  # bound now
    wires.run(15)
    assert all_got(b) == texts(4)
    assert a.lost == b.lost == []


@for_each("seed", range(40))
def test_a_resumption_that_comes_too_late_is_refused_with_the_reason(seed: int) -> None:
    wires = Wires(seed)
    # b gives up sooner
    a, b = wires.host("a", "1"), wires.host("b", "2", limits=LIMITS._replace(reconnect=1.0))
    a.send("b", "x")
    wires.run(1)
    wires.down.add(frozenset("ab"))
    wires.run(2.6)
    wires.down.clear()
    wires.run_until(lambda: a.lost, within=T)
    assert b.lost and "out of contact for 1s" in b.lost[0][2]
    assert a.lost[0][2] == "b no longer has this link: it was out of contact for too long"
    a.send("b", "y")
    wires.run(10)
    assert all_got(b) == ["x", "y"]


def test_a_new_link_of_a_peer_that_gave_up_the_old_one_ends_the_old_one_here() -> None:
    wires = Wires(3)
    a, b = wires.host("a", "1", limits=LIMITS._replace(reconnect=1.0)), wires.host("b", "2")
    a.send("b", "x")
    wires.run(1)
    wires.down.add(frozenset("ab"))
    wires.run(2.5)
    assert a.lost and not b.lost
    wires.down.clear()
    a.send("b", "y")
    wires.run(3)
    assert [reason for _, _, reason in b.lost] == ["it has given up the link, and begun another"]
    assert b.got["a"] == ["x", "y"]


REACHED = [
    ((), "dialing"),
    (("attach", "ready"), "greeting"),
    (("attach", "ready", "greet"), "joining"),
    (("ready", "greet", "join"), "up"),
    (("ready", "greet", "join", "cut"), "broken"),
    (("ready", "greet", "join", "cut", "wait", "ready"), "resuming"),
    (("ready", "greet", "join", "cut", "wait", "ready", "greet"), "resuming"),
]


@pytest.mark.parametrize(("steps", "state"), REACHED)
def test_in_each_state_a_link_ends_when_its_time_is_up(steps: tuple[str, ...], state: str) -> None:
    dialer = Dialer(*steps)
    assert dialer.state == state
    while not dialer.lost:
        assert dialer.now < LIMITS.attach + 1
        dialer.act(dialer.now + 0.1)
    assert ("out of contact for 4s" in dialer.lost[0]) == ("join" in steps)
    assert dialer.state == "none"


@pytest.mark.parametrize(("steps", "state"), REACHED)
def test_in_each_state_a_final_error_ends_a_link(steps: tuple[str, ...], state: str) -> None:
    dialer = Dialer(*steps).act()
    assert dialer.state == state
    dialer.table.closed(dialer.stream, "its certificate has expired", dialer.now, final=True)
    if state == "broken":  # between two streams: the next cannot be opened
        dialer.act(dialer.now + 0.1)
        dialer.table.closed(dialer.stream, "its certificate has expired", dialer.now, final=True)
    assert dialer.act().lost == ["its certificate has expired"]


@pytest.mark.parametrize(("steps", "state"), REACHED)
def test_in_each_state_a_stream_that_ends_is_followed_by_another(
    steps: tuple[str, ...], state: str
) -> None:
    dialer = Dialer(*steps).act()
    before = dialer.stream
    dialer.cut()
    assert dialer.act(dialer.now + 0.4).lost == []
    assert dialer.stream > before
    assert dialer.state == ("broken" if "join" in steps else "dialing")


def test_a_redial_without_an_answer_does_not_keep_the_next_from_being_tried() -> None:
    dialer = Dialer("ready", "greet", "join", "cut")
    dialer.act(0.2)
    first, before = dialer.stream, dialer.now
    dialer.act(before + T / 8 - 0.01)
    assert dialer.stream == first
    dialer.act(before + T / 8 + 0.01)
    assert dialer.stream > first
    dialer.table.ready(first, dialer.now)  # the first is answered after all
    assert dialer.act().state == "resuming"
    dialer.table.ready(dialer.stream, dialer.now)  # too late
    dialer.stream = first
    dialer.greet()
    dialer.join()
    assert dialer.state == "up"


def test_a_redial_whose_host_takes_the_connection_gets_the_time_of_a_silence() -> None:
    dialer = Dialer("ready", "greet", "join", "cut")
    dialer.act(0.2)
    first, before = dialer.stream, dialer.now
    dialer.table.answered(first, before)
    dialer.act(before + LIMITS.silence - 0.01)
    assert dialer.stream == first
    dialer.act(before + LIMITS.silence + 0.01)
    assert dialer.stream > first


def test_a_first_dial_whose_host_takes_the_connection_is_not_repeated() -> None:
    dialer = Dialer()
    dialer.act(0.1)
    first = dialer.stream
    dialer.table.answered(first, dialer.now)
    dialer.act(LIMITS.attach - 0.1)
    assert (dialer.stream, dialer.state) == (first, "dialing")


@pytest.mark.parametrize("steps", [(), ("ready", "greet", "join", "cut")])
def test_a_link_that_ends_lets_go_at_once_of_a_dial_without_an_answer(
    steps: tuple[str, ...],
) -> None:
    dialer = Dialer(*steps)
    dialer.act(0.2)
    dialer.table.give_up("b", "enough", dialer.now)
    assert dialer.act().lost == ["enough"]
    assert dialer.let_go == [dialer.stream]


def test_a_redial_that_reaches_something_else_says_so() -> None:
    dialer = Dialer("ready", "greet", "join", "cut", "ready")
    dialer.say(greeting(Hello("3", "b")))
    assert dialer.lost == ["another process answers there now: it was restarted"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (control(YIELD), "it dials this host itself"),
        (control(ACK), "it sent a record of kind 6 to a link that is joining"),
    ],
)
def test_a_proposal_that_is_not_agreed_to_is_made_again(said: bytes, why: str) -> None:
    dialer = Dialer("attach", "ready", "greet")
    dialer.say(said)
    assert dialer.state == "dialing"
    dialer.act(LIMITS.attach)
    assert [reason.partition("timeout): ")[2] for reason in dialer.lost] == [why]


def test_a_peer_that_agrees_to_another_link_is_not_believed() -> None:
    dialer = Dialer("ready", "greet")
    dialer.say(control(JOINED, 0, Join("v", False, 0, 1)))
    assert dialer.lost == ["it agrees to a link that was not proposed"]


def test_a_peer_that_has_forgotten_frames_is_not_believed() -> None:
    dialer = Dialer("ready", "greet", "join")
    dialer.say(control(ACK, 1))
    dialer.cut()
    dialer.ready()
    dialer.greet()
    dialer.join()
    assert dialer.lost == ["it has received 0 frames, and acknowledged 1"]


# what is senseless


class Raw:
    """A peer that speaks by hand."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.number = host.table.accepted(host.wires.now)
        self.said: list[bytes] = []
        self.open = True

    def say(self, data: bytes) -> None:
        self.host.table.data(self.number, memoryview(bytearray(data)), self.host.wires.now)
        for instruction in self.host.table.take():
            match instruction:
                case wire_table.Write(_, chunks):
                    self.said.append(b"".join(chunks))
                case wire_table.Cut(_):
                    self.open = False
                case wire_table.Lost(host, reason):
                    self.host.lost.append((0.0, host, reason))
                case wire_table.Deliver(host, frame):
                    self.host.got[host].append(str(frame.target))

    def join(self) -> None:
        self.say(greeting(Hello("9", "raw", "")))
        self.say(control(JOIN, 0, Join(f"u{id(self)}", False, 0, 1)))
        assert self.host.table.get("raw") is not None


HELLO = greeting(Hello("9", "raw", ""))
OLD = b'{"identity": "9", "name": "raw", "called": ""}'


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "another protocol"),
        (
            HELLO[:8] + b"\x02\x00" + HELLO[10:],
            "version 2 of the protocol between hosts, and a speaks version 1",
        ),
        (
            greeting(Hello("9", "raw", "", "0.0.99")),
            f"raw runs pymonarch 0.0.99, and a pymonarch {RELEASE}: upgrade pymonarch of raw",
        ),
        (
            greeting(Hello("9", "raw", "", "9.10.1")),
            f"9.10.1, and a pymonarch {RELEASE}: upgrade pymonarch of a",
        ),
        (
            HELLO[:12] + len(OLD).to_bytes(4, "little") + OLD,
            "raw runs pymonarch of an older release",
        ),
        (greeting(Hello("9", "raw", "", RELEASE, "2.7")), "raw runs Python 2.7, and a Python 3"),
        (HELLO[:12] + b"\xff\xff\xff\xff", "greeting of 4294967295 bytes"),
        (HELLO[:12] + (100_0).to_bytes(4, "little") + b"[" * 1000, "no JSON"),
        (HELLO[:12] + (2).to_bytes(4, "little") + b"[]", "no JSON object but list"),
        (HELLO[:12] + (2).to_bytes(4, "little") + b"{}", "'identity' should be str"),
        (HELLO + control(ACK), "a stream that is of no link"),
        (HELLO + control(99), "unknown kind 99"),
        (HELLO + control(JOIN, 0, "{}"), "'received' should be int"),
        (HELLO + control(JOIN, 0, Join("u", False, -1, 1)), "should be int, and is -1"),
        (
            HELLO + control(JOIN, 0, Join("u", False, 5, 1)),
            "acknowledges frame 5, and 0 is the last",
        ),
        (HELLO + control(JOIN, 0, Join("u", True, 0, 1)), "a no longer has this link"),
    ],
)
def test_a_stranger_that_makes_no_sense_is_refused_and_told_why(said: bytes, why: str) -> None:
    wires = Wires(1)
    a = wires.host("a")
    raw = Raw(a)
    raw.say(said)
    assert why in raw.said[-1].decode(errors="replace")
    a.table.tick(LIMITS.silence - 0.1)
    raw.say(said)  # whatever it still says is ignored
    assert raw.open, "it may need a while to read why"
    wires.now = T
    a.table.tick(T)
    raw.say(b"")
    assert not raw.open


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 400 Bad Request", "another protocol"),
        (HELLO[:8] + b"\x02\x00" + HELLO[10:], "speaks version 2"),
        (greeting(Hello("2", "b", "", "0.0.99")), "upgrade pymonarch of b"),
    ],
)
def test_a_dialed_host_that_can_never_do_is_lost_at_once(said: bytes, why: str) -> None:
    dialer = Dialer("ready")
    dialer.say(said)
    assert len(dialer.lost) == 1 and why in dialer.lost[0]


@pytest.mark.parametrize(
    ("ours", "theirs", "older"),
    [("0.9.1", "0.10.0", "us"), ("0.10.0", "0.9.1", "them"), ("1.0.dev3", "1.0.1", "us")],
)
def test_of_two_releases_the_older_one_is_to_be_upgraded(
    ours: str, theirs: str, older: str
) -> None:
    said = why_apart("us", Hello("1", "us", "", ours), Hello("2", "them", "", theirs))
    assert said == (
        f"them runs pymonarch {theirs}, and us pymonarch {ours}: upgrade pymonarch of {older}"
    )


def encoded(sequence: int, acknowledged: int = 0) -> bytes:
    return b"".join(data_chunks(pack(frame_of("x")), sequence, acknowledged))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (encoded(1) + encoded(3), "frame 3 after 1"),
        (encoded(1, 7), "acknowledges frame 7"),
        (control(JOIN, 0, Join("u", False, 0, 1)), "a record of kind 1 to a link that is up"),
        (control(JOINED, 0, Join("u", False, 0, 1)), "a record of kind 2 to a link that is up"),
        (control(YIELD), "a record of kind 3 to a link that is up"),
        (
            RECORD_HEADER.pack(LIMITS.frame, 1, 1, 0, DATA),
            "1048577 bytes where 1048576 are the most",
        ),
        (RECORD_HEADER.pack(HEADER_SIZE - 1, 0, 1, 0, DATA), "shorter than a frame's header"),
        (
            RECORD_HEADER.pack(HEADER_SIZE, 0, 1, 0, DATA) + b"\xff" * HEADER_SIZE,
            "a header that counts",
        ),
        (RECORD_HEADER.pack(1, 0, 0, 0, ACK), "1 bytes where 0 are the most"),
    ],
)
def test_a_peer_sending_nonsense_loses_its_stream_and_then_its_link(said: bytes, why: str) -> None:
    wires = Wires(1)
    a = wires.host("a")
    raw = Raw(a)
    raw.join()
    raw.say(said)
    link = a.table.get("raw")
    reason = a.lost[0][2] if link is None else repr(link)
    if link is not None:
        assert link.state == BROKEN
        again = Raw(a)
        again.say(HELLO)
        again.say(control(JOIN, 0, Join(link.uid, True, 0, 2)))
        assert link.state == UP
        again.say(said if "frame 3" not in why else encoded(3))
        reason = a.lost[0][2]
        assert FAREWELL == again.said[-1][32]
    assert why in reason


@pytest.mark.parametrize(
    ("said", "final"),
    [
        (encoded(1, 7), True),
        (RECORD_HEADER.pack(HEADER_SIZE, 0, 1, 0, DATA) + b"\xff" * HEADER_SIZE, True),
        (encoded(3), False),
    ],
    ids=["acknowledgement", "frame", "number"],
)
def test_only_what_would_come_again_on_a_new_stream_ends_a_link_at_once(
    said: bytes, final: bool
) -> None:
    a = Wires(1).host("a")
    raw = Raw(a)
    raw.join()
    raw.say(said)
    assert (a.table.get("raw") is None) == final


def test_a_reason_that_is_no_text_is_shown_as_far_as_it_is_one() -> None:
    dialer = Dialer("ready", "greet")
    dialer.say(RECORD_HEADER.pack(5, 0, 0, 0, REFUSED) + b"why \xff")
    assert dialer.lost == ["why \ufffd"]


def test_a_link_that_is_given_up_is_lost_here_and_the_peer_hears_why() -> None:
    a = Wires(1).host("a")
    raw = Raw(a)
    raw.join()
    a.table.give_up("raw", "enough", 1.0)
    a.table.give_up("unknown", "enough", 1.0)
    raw.say(b"")
    assert [(name, reason) for _, name, reason in a.lost] == [("raw", "enough")]
    assert b"enough" in raw.said[-1]
    assert raw.said[-1][32] == FAREWELL
    assert raw.open, "it may need a while to read why"


def test_a_host_that_closes_lets_go_of_streams_that_are_of_no_link_yet() -> None:
    a = Wires(1).host("a")
    stranger, refused = Raw(a), Raw(a)
    refused.say(b"GET / HTTP/1.1\r\n\r\n")
    a.table.close("over", 1.0)
    cut = [what.stream for what in a.table.take() if isinstance(what, wire_table.Cut)]
    assert cut == [stranger.number], "the other one may need a while to read why"


def test_a_proposal_that_is_older_than_the_last_one_is_dropped() -> None:
    a = Wires(1).host("a")
    Raw(a).join()  # with serial 1
    late = Raw(a)
    late.say(HELLO)
    late.say(control(JOIN, 0, Join("another", False, 0, 0)))
    assert not late.open
    link = a.table.get("raw")
    assert link is not None
    assert (link.state, link.uid != "another") == (UP, True)


def test_a_link_that_goes_on_with_a_new_stream_lets_go_of_the_old_one_at_once() -> None:
    a = Wires(1).host("a")
    old = Raw(a)
    old.join()
    link = a.table.get("raw")
    assert link is not None
    new = Raw(a)
    join = control(JOIN, 0, Join(link.uid, True, 0, 2))
    a.table.data(new.number, memoryview(HELLO + join), 0.0)
    cut = [what.stream for what in a.table.take() if isinstance(what, wire_table.Cut)]
    assert (cut, link.stream) == ([old.number], new.number)


def test_a_peer_that_dials_under_another_name_keeps_its_link() -> None:
    a = Wires(1).host("a")
    Raw(a).join()
    link = a.table.get("raw")
    assert link is not None
    hello = greeting(Hello("9", "new name", ""))
    number = a.table.accepted(0.0)
    a.table.data(number, memoryview(hello + control(JOIN, 0, Join(link.uid, True, 0, 2))), 0.0)
    assert a.table.get("new name") is link
    assert link.names == ["raw", "new name"]
    assert [what for what in a.table.take() if isinstance(what, wire_table.Up)] == [
        wire_table.Up("new name")
    ]


def test_what_waits_for_a_name_goes_to_the_known_peer_that_comes_under_it() -> None:
    a = Wires(1).host("a")
    Raw(a).join()
    link = a.table.get("raw")
    assert link is not None
    a.send("planned", "x")
    number = a.table.accepted(0.0)
    join = control(JOIN, 0, Join(link.uid, True, 0, 2))
    a.table.data(number, memoryview(greeting(Hello("9", "planned")) + join), 0.0)
    assert a.table.get("planned") is link
    written = [
        b"".join(what.chunks) for what in a.table.take() if isinstance(what, wire_table.Write)
    ]
    assert [said[32] for said in written[-2:]] == [JOINED, DATA]


def test_a_process_that_no_longer_answers_to_a_name_gets_a_link_of_its_own() -> None:
    dialer = Dialer("ready", "greet", "cut", "ready")
    dialer.say(greeting(Hello("3", "b")))
    number = dialer.table.accepted(dialer.now)
    join = control(JOIN, 0, Join("v", False, 0, 1))
    dialer.table.data(number, memoryview(greeting(Hello("2", "c")) + join), dialer.now)
    named, other = dialer.table.get("b"), dialer.table.get("c")
    assert named is not None and other is not None
    assert (named.state, other.state) == ("joining", "up")


def test_of_two_that_dial_each_other_the_lower_identity_has_the_other_give_way() -> None:
    dialer = Dialer("ready", "greet")
    number = dialer.table.accepted(dialer.now)
    join = control(JOIN, 0, Join("v", False, 0, 1))
    list(dialer.table.take())
    dialer.table.data(number, memoryview(greeting(Hello("2", "b")) + join), dialer.now)
    assert [*dialer.table.take()] == [wire_table.Write(number, [control(YIELD)])]
    dialer.act(dialer.now + LIMITS.silence - 0.01)
    assert number not in dialer.let_go, "it may need a while to read it"
    dialer.act(dialer.now + 0.02)
    assert number in dialer.let_go


def test_what_a_peer_has_sent_twice_is_delivered_once() -> None:
    a = Wires(1).host("a")
    raw = Raw(a)
    raw.join()
    raw.say(encoded(1) + encoded(1) + encoded(2) + encoded(1))
    assert len(all_got(a)) == 2


@for_each("seed", range(100))
def test_random_changes_of_what_a_peer_sends_never_do_more_than_end_its_link(seed: int) -> None:
    wires = Wires(seed)
    a = wires.host("a")
    raw = Raw(a)
    good = (
        HELLO
        + control(JOIN, 0, Join("u", False, 0, 1))
        + b"".join(encoded(n) for n in range(1, 20))
    )
    data = bytearray(good)
    for _ in range(wires.random.randint(1, 8)):
        at = wires.random.randrange(len(data))
        data[at : at + wires.random.choice([0, 1, 4])] = wires.random.randbytes(
            wires.random.choice([0, 1, 4])
        )
    while data:
        size = wires.random.randint(1, 300)
        raw.say(bytes(data[:size]))
        del data[:size]
    sane = [host for host in a.got if host == "raw" or a.got[host]]
    assert len(sane) <= 1


def test_a_peer_that_announces_much_and_sends_nothing_claims_no_memory() -> None:
    import resource

    decoder = RecordDecoder(1 << 40)
    assert [record.kind for record in decoder.feed(memoryview(HELLO))] == [0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [
        *decoder.feed(
            memoryview(RECORD_HEADER.pack(HEADER_SIZE, 1 << 30, 1, 0, DATA) + bytes(HEADER_SIZE))
        )
    ] == []
    assert (space := decoder.space()) is not None and len(space) == 1 << 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "KiB"
    huge = RecordDecoder(1 << 62)
    with pytest.raises(LinkError, match="no memory for"):
        list(huge.feed(memoryview(HELLO + RECORD_HEADER.pack(HEADER_SIZE, 1 << 60, 1, 0, DATA))))


def test_large_buffers_are_sent_from_and_received_into_their_own_aligned_memory() -> None:
    parts = [
        bytearray(b"a" * (READ_SIZE + 1)),
        bytearray(b"b" * 3),
        bytearray(b"c" * 2 * READ_SIZE),
    ]
    packed: Packed = pack(frame_of("x")._replace(buffers=parts))
    chunks = data_chunks(packed, 1, 0)
    assert [chunk for chunk in chunks if isinstance(chunk, bytearray)] == parts
    assert all(any(chunk is part for chunk in chunks) for part in parts), "no copy"
    stream = b"".join(chunks)
    assert len(stream) == packed.size
    assert int.from_bytes(packed.body[:8], "little") == len(packed.body) - 8
    decoder = RecordDecoder(1 << 30)
    assert len([*decoder.feed(memoryview(HELLO))]) == 1
    records = [*decoder.feed(memoryview(stream[:200]))]
    position, direct = 200, 0
    while position < len(stream):
        space = decoder.space()
        if space is None:
            records += decoder.feed(memoryview(stream[position : position + 1000]))
            position += 1000
        else:
            count = min(len(space), 300_000, len(stream) - position)
            space[:count] = stream[position : position + count]
            records += decoder.filled(count)
            position += count
            direct += count
    frame = records[0].frame()
    assert [bytes(buffer) for buffer in frame.buffers] == [bytes(part) for part in parts]
    assert all(not memoryview(buffer).readonly for buffer in frame.buffers)
    assert direct > len(stream) - READ_SIZE - 2000, "nearly all of it went straight to its place"
    assert decoder.idle


def test_large_buffers_fill_their_places_while_small_frames_come_between() -> None:
    wires = Wires(5, pieces=(40, 1000, READ_SIZE // 3))
    a, b = wires.host("a"), wires.host("b")
    large = [str(n) * (READ_SIZE // 7 * 3) for n in range(6)]  # the buffer is seven times that
    for text in large:
        a.send("b", "small", 2)
        a.send("b", text, 1)
    wires.run(2)
    assert b.got["a"] == [text for each in large for text in ("small", each)]
    assert b.in_place > READ_SIZE
    assert [link.queued for link in a.table] == [0]


def test_a_large_frame_with_a_wrong_number_breaks_the_stream_that_it_came_on() -> None:
    dialer = Dialer("ready", "greet", "join")
    packed = pack(frame_of("x")._replace(buffers=[bytes(READ_SIZE * 2)]))
    data = b"".join(data_chunks(packed, 5, 0))
    dialer.say(data[:1000])
    space = dialer.table.space(dialer.stream)
    assert space is not None and len(space) == len(data) - 1000
    space[:] = data[1000:]
    dialer.table.filled(dialer.stream, len(space), dialer.now)
    assert dialer.act().state == "broken"


def test_bytes_for_a_stream_that_has_ended_are_dropped() -> None:
    dialer = Dialer("ready", "greet", "join", "cut")
    for stream in (dialer.stream, 77):
        assert dialer.table.space(stream) is None
        dialer.table.filled(stream, 1, dialer.now)
        dialer.table.data(stream, memoryview(b"nonsense" * 10), dialer.now)
        dialer.table.answered(stream, dialer.now)
    assert (dialer.act().state, dialer.lost) == ("broken", [])


def test_a_frame_over_the_limit_is_refused_where_it_is_sent() -> None:
    a = Wires(1).host("a")
    with pytest.raises(ValueError, match="codec_max_frame_length"):
        a.table.pack(frame_of("x" * LIMITS.frame))


def test_the_docs_show_the_table() -> None:
    rows = [
        f"| {state} | {event} | {after} | {', '.join(do)} |"
        for (state, event), (after, do) in TABLE.items()
    ]
    assert "\n".join(rows) + "\n\n" in (Path(__file__).parents[2] / "docs" / "links.md").read_text()
