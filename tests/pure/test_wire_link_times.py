"""When a link says what, and how long it waits: one link, whose peer is played by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from helpers.wires import LIMITS, Dialer, frame_of
from monarch._core.wire.link_records import ACK, DATA, PING, control, data_chunks, pack
from monarch._core.wire.link_table import LinkTable, Lost

UP = ("ready", "greet", "join")
ACK_DELAY = 0.02
PAUSES = [0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.5]


def test_all_times_of_a_link_are_parts_of_the_one_without_contact() -> None:
    limits = LIMITS._replace(reconnect=32.0)
    assert (limits.silence, limits.interval, limits.look) == (16, 8, 2)


def data(number: int, text: str = "x", buffers: int = 0) -> bytes:
    return b"".join(data_chunks(pack(frame_of(text, buffers)), number, 0))


def up(*more: str) -> Dialer:
    """A link that has just come up, and sent its first frame."""
    dialer = Dialer(*UP, *more)
    dialer.said.clear()
    return dialer


def test_what_has_come_is_acknowledged_a_moment_later_at_once_for_all() -> None:
    dialer = up()
    begin = dialer.now
    dialer.say(data(1))
    dialer.act(begin + ACK_DELAY / 2).say(data(2))
    dialer.act(begin + ACK_DELAY - 0.001)
    assert dialer.hears() == []
    assert dialer.table.due == pytest.approx(begin + ACK_DELAY)
    dialer.act(begin + ACK_DELAY + 0.001)
    assert dialer.hears() == [(ACK, 2)]
    dialer.act(begin + 3 * ACK_DELAY)
    assert dialer.hears() == []


def test_a_frame_takes_the_acknowledgement_of_what_has_come_along() -> None:
    dialer = up()
    dialer.say(data(1))
    dialer.table.send("b", pack(frame_of("y")), dialer.now)
    dialer.act()
    assert dialer.hears() == [(DATA, 1)]
    dialer.act(dialer.now + 2 * ACK_DELAY)
    assert dialer.hears() == []


@pytest.mark.parametrize("buffers", [0, 1])
def test_four_mebibytes_that_have_come_are_acknowledged_at_once(buffers: int) -> None:
    dialer = up()
    text = "x" * ((LIMITS.frame - 1000) // (8 if buffers else 1))  # a buffer is seven times that
    for number in range(1, 5):
        dialer.say(data(number, text, buffers))
        assert dialer.hears() == []
    for number in range(5, 10):
        dialer.say(data(number, text, buffers))
        assert dialer.hears() == ([(ACK, number)] if number in (5,) else [])


def test_a_side_that_has_said_nothing_for_a_while_pings() -> None:
    dialer = up()
    dialer.say(data(1))
    begin = dialer.now + ACK_DELAY
    dialer.act(begin)
    assert dialer.hears() == [(ACK, 1)]
    dialer.act(begin + LIMITS.interval - 0.01)
    assert dialer.hears() == []
    dialer.act(begin + LIMITS.interval + 0.01)
    assert dialer.hears() == [(PING, 1)]
    dialer.act(begin + LIMITS.interval + 0.1)
    assert dialer.hears() == []


def test_what_has_waited_under_another_name_of_the_peer_is_said_like_anything_else() -> None:
    dialer = up()
    dialer.table.send("b2", pack(frame_of("y")), dialer.now)
    dialer.act()
    dialer.ready()
    dialer.act().said.clear()
    dialer.greet()
    assert dialer.hears() == [(DATA, 0)]
    begin = dialer.now
    dialer.act(begin + LIMITS.interval - 0.01)
    assert dialer.hears() == []
    dialer.act(begin + LIMITS.interval + 0.01)
    assert dialer.hears() == [(PING, 0)]


@pytest.mark.parametrize(("after", "answered"), [(0.03, False), (0.05, True)])
def test_a_ping_is_answered_unless_something_was_said_just_now(
    after: float, answered: bool
) -> None:
    dialer = up()
    dialer.act(dialer.now + after).say(control(PING))
    dialer.act(dialer.now + ACK_DELAY + 0.001)
    assert dialer.hears() == [(ACK, 0)] * answered


def dials_of(dialer: Dialer, until: float, *, refused: bool = False) -> list[float]:
    """When it dials, where each dial fails at once."""
    found, stream = [], dialer.stream
    while dialer.now < until and not dialer.lost:
        dialer.act(dialer.now + 0.005)
        if dialer.stream > stream:
            stream = dialer.stream
            found.append(dialer.now)
            if refused:
                dialer.table.closed(stream, "no way", dialer.now, refused=True)
            else:
                dialer.table.closed(stream, "no way", dialer.now)
    return found


def test_the_first_dials_follow_each_other_after_ever_longer_pauses() -> None:
    dialer = Dialer().act()
    dialer.table.closed(dialer.stream, "no way", dialer.now)
    times = [0.0, *dials_of(dialer, 2.5)]
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == pytest.approx(PAUSES, abs=0.011)


@pytest.mark.parametrize("long", [False, True])
def test_a_link_that_was_up_for_a_while_is_dialed_again_at_once(long: bool) -> None:
    dialer = Dialer("attach", *UP)
    dialer.act(dialer.now + (1.01 if long else 0.5) * LIMITS.interval)
    dialer.cut()
    begin = dialer.now
    times = [begin, *dials_of(dialer, begin + 1.1)]
    pauses = [after - before for before, after in pairwise(times)]
    wanted = [0.0, *PAUSES] if long else PAUSES
    assert pauses[:4] == pytest.approx(wanted[:4], abs=0.011)


def test_a_link_that_is_up_again_waits_for_the_same_times_as_before() -> None:
    dialer = up()
    for _ in range(3):
        dialer.act(dialer.now + 1.01 * LIMITS.interval)
        dialer.say(control(PING))
        dialer.cut()
        begin = dialer.now
        dialer.act(begin + LIMITS.reconnect - 0.2)
        dialer.ready()
        dialer.greet()
        dialer.join()
        assert (dialer.state, dialer.lost) == ("up", [])


def test_a_stream_on_which_nothing_is_heard_is_let_go_of_at_once() -> None:
    dialer = up()
    silent = dialer.stream
    dialer.act(dialer.now + LIMITS.silence + 0.01)
    assert (dialer.state, dialer.let_go) == ("broken", [silent])


def test_a_handshake_in_which_nothing_is_heard_is_let_go_of_in_time() -> None:
    dialer = up("cut")
    dialer.act(dialer.now + 0.5)
    dialer.ready()
    silent, heard = dialer.stream, dialer.now
    dialer.act(heard + LIMITS.silence - 0.01)
    assert dialer.let_go == []
    dialer.act(heard + LIMITS.silence + 0.01)
    assert dialer.let_go == [silent]


def test_a_handshake_that_comes_to_nothing_does_not_prolong_the_time_without_contact() -> None:
    dialer = up("cut")
    end = dialer.now + LIMITS.reconnect
    dialer.act(dialer.now + LIMITS.reconnect / 2)
    dialer.ready()
    dialer.act().cut()
    dials_of(dialer, end - 0.02)
    assert dialer.lost == []
    dials_of(dialer, end + 0.02)
    assert len(dialer.lost) == 1


@pytest.mark.parametrize("starting", [False, True])
def test_a_first_dial_is_given_up_sooner_where_the_peer_must_be_there(starting: bool) -> None:
    table = LinkTable("1", lambda: "a", LIMITS, lambda: "u")
    table.send("b", table.pack(frame_of("x")), 0.0, starting)
    most, knob = (
        (LIMITS.attach, "mesh_attach_config_timeout")
        if starting
        else (LIMITS.reconnect, "channel_reconnect_timeout")
    )
    list(table.take())
    table.tick(most - 0.01)
    assert not [each for each in table.take() if isinstance(each, Lost)]
    table.tick(most + 0.01)
    (lost,) = [each for each in table.take() if isinstance(each, Lost)]
    assert lost.reason == (
        f"it could not be reached for {most:g}s ({knob}): it has not answered yet"
    )


def test_refusals_count_from_the_first_of_an_unbroken_row() -> None:
    dialer = up("cut")
    begin = dialer.now
    dials_of(dialer, begin + 0.7, refused=True)
    dials_of(dialer, begin + 1.4)
    again = dialer.now
    dials_of(dialer, begin + 4, refused=True)
    assert dialer.lost == ["no way"]
    assert 0.95 < dialer.now - again < 1.8


def test_a_link_says_what_state_it_is_in_and_what_waits() -> None:
    dialer = up()
    link = dialer.table.get("b")
    size = pack(frame_of("x")).size
    assert repr(link) == (
        f"<Link to b: up, dialed by us, 1 frames ({size} bytes) not acknowledged, 0 received>"
    )
    dialer.say(data(1))
    dialer.say(control(ACK, 1))
    assert repr(link).endswith("0 frames (0 bytes) not acknowledged, 1 received>")


@pytest.mark.parametrize("inside", [False, True])
def test_a_stream_that_ends_within_a_message_says_so(inside: bool) -> None:
    dialer = up()
    dialer.say(data(1)[: 40 if inside else None])
    dialer.cut()
    while not dialer.lost:
        dialer.act(dialer.now + 0.1)
    assert ("cut in a test, in the middle of a message" in dialer.lost[0]) == inside


def test_a_frame_may_be_as_large_as_the_limit() -> None:
    dialer, size = up(), pack(frame_of("")).size
    largest = dialer.table.pack(frame_of("x" * (LIMITS.frame - size)))
    assert largest.size == LIMITS.frame
    with pytest.raises(ValueError, match="codec_max_frame_length"):
        dialer.table.pack(frame_of("x" * (LIMITS.frame - size + 1)))
