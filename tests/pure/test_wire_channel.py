from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.wire.channel import Channel, parse_channel
from monarch.errors import AddressError

LONGEST_HOST = ".".join(["a" * 63] * 3 + ["a" * 61])


@pytest.mark.parametrize(
    ("text", "channel"),
    [
        ("tcp://example.org:26600", Channel("tcp", "example.org", 26600)),
        ("tcp://10.0.0.7:1", Channel("tcp", "10.0.0.7", 1)),
        ("tcp://[::1]:65535", Channel("tcp", "::1", 65535)),
        ("tcp://*:0", Channel("tcp", "*", 0)),
        ("tcp://example.org.:1", Channel("tcp", "example.org.", 1)),
        (f"tcp://{LONGEST_HOST}:1", Channel("tcp", LONGEST_HOST, 1)),
        ("tcp://host:fd7", Channel("tcp", "host", fd=7)),
        ("tcp://host:fd2147483647", Channel("tcp", "host", fd=2**31 - 1)),
        ("metatls://host:5", Channel("metatls", "host", 5)),
        ("ipc:///tmp/x/w0", Channel("ipc", path="/tmp/x/w0")),
        ("ipc:///tmp/a@b", Channel("ipc", path="/tmp/a@b")),
        ("ipc:///\udc80", Channel("ipc", path="/\udc80")),  # a byte that is no UTF-8
        (f"ipc:///{'x' * 106}", Channel("ipc", path=f"/{'x' * 106}")),
        ("ipc:///tmp/a://b", Channel("ipc", path="/tmp/a://b")),
        ("inproc://3", Channel("inproc", path="3")),
        (
            "tcp://pod.cluster.local:26600@tcp://0.0.0.0:26601",
            Channel("tcp", "pod.cluster.local", 26600, bind=Channel("tcp", "0.0.0.0", 26601)),
        ),
        (
            "tcp://outside:1@ipc:///tmp/w",
            Channel("tcp", "outside", 1, bind=Channel("ipc", path="/tmp/w")),
        ),
        ("worker<a1b2>@tcp://host:9", Channel("tcp", "host", 9)),
        (
            "worker<a1b2>@tcp://host:9@tcp://*:10",
            Channel("tcp", "host", 9, bind=Channel("tcp", "*", 10)),
        ),
    ],
)
def test_every_form_is_understood(text: str, channel: Channel) -> None:
    assert parse_channel(text) == channel


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tcp://Example.ORG:7", "tcp://example.org:007"),
        ("tcp://[0:0::1]:7", "tcp://[::1]:7"),
        ("inproc://007", "inproc://7"),
        (" tcp://a:1 ", "tcp://a:1"),
        ("service<x>@tcp://a:1", "tcp://a:1"),
    ],
)
def test_one_place_has_one_name_however_it_is_written(one: str, other: str) -> None:
    assert parse_channel(one) == parse_channel(other)
    assert parse_channel(one).name == parse_channel(other).name


@pytest.mark.parametrize("text", ["tcp://[::1]:7", "tcp://a:fd0", "metatls://a:1", "inproc://7"])
def test_a_name_is_written_as_it_is_read(text: str) -> None:
    assert parse_channel(text).name == str(parse_channel(text)) == text


def test_what_a_host_binds_is_no_part_of_its_name() -> None:
    channel = parse_channel("tcp://outside:1@tcp://*:2")
    assert channel.name == "tcp://outside:1"
    assert str(channel) == "tcp://outside:1@tcp://*:2"


def test_a_host_listens_where_it_binds_or_else_where_it_is_dialed() -> None:
    bound, plain = parse_channel("tcp://outside:1@tcp://*:2"), parse_channel("tcp://a:1")
    assert (bound.listening, plain.listening) == (Channel("tcp", "*", 2), plain)


@pytest.mark.parametrize(
    ("text", "dialable"),
    [
        ("tcp://a:1", True),
        ("tcp://a:0", False),
        ("tcp://*:1", False),
        ("tcp://a:fd3", False),
        ("ipc:///x", True),
        ("inproc://1", True),
        ("tcp://a:1@tcp://*:0", True),
    ],
)
def test_an_address_says_whether_it_can_be_dialed(text: str, dialable: bool) -> None:
    assert parse_channel(text).dialable is dialable


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("bogus", "is none of them"),
        ("", "is none of them"),
        ("http://a:1", "is none of them"),
        ("TCP://a:1", "is none of them"),
        ("tcp://a", "no port"),
        ("tcp://[::1]", "no port"),
        ("tcp://a:", "is no port"),
        ("tcp://a:65536", "is no port"),
        ("tcp://a:-1", "is no port"),
        ("tcp://a:٣", "is no port"),
        ("tcp://a:fd", "is no port"),
        ("tcp://a:fd2147483648", "is no port"),
        ("tcp://:1", "is no host"),
        ("tcp://a b:1", "is no host"),
        ("tcp://-a:1", "is no host"),
        ("tcp://" + "a" * 64 + ":1", "is no host"),
        (f"tcp://{LONGEST_HOST}a:1", "is no host"),
        ("tcp://1.2.3:4", "is no IPv4 address"),
        ("tcp://1.2.3.256:4", "is no IPv4 address"),
        ("tcp://[1.2.3.4]:4", "is no IPv6 address"),
        ("tcp://::1:4", "brackets"),
        ("tcp://[::1:4", "brackets"),
        ("ipc://x", "no absolute path"),
        ("ipc:///" + "x" * 107, "longer"),
        ("ipc:///a\0b", "no absolute path"),
        ("inproc://x", "is no number"),
        ("tcp://a:1@tcp://b:2@tcp://c:3", "more than two"),
        ("tcp://*:1@tcp://b:2", "what others dial"),
        ("tcp://a:fd0@tcp://b:2", "what others dial"),
        ("tcp://a:1@bogus://b:2", "is none of them"),
    ],
)
def test_what_has_no_known_form_is_refused_with_the_reason_and_the_forms(
    text: str, why: str
) -> None:
    with pytest.raises(AddressError, match=why) as caught:
        parse_channel(text)
    assert repr(text)[:100] in str(caught.value)
    assert "tcp://host:port" in str(caught.value)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(AddressError, match="26600 is no address"):
        parse_channel(26600)  # type: ignore[arg-type]


def test_programs_may_catch_it_as_a_wrong_argument_or_as_monarch_0_7_raised_it() -> None:
    for kind in (ValueError, RuntimeError):
        with pytest.raises(kind):
            parse_channel("bogus")


def test_a_huge_text_is_not_repeated_in_full() -> None:
    with pytest.raises(AddressError) as caught:
        parse_channel("x" * 1_000_000)
    assert len(str(caught.value)) < 1000


@given(st.text(max_size=60))
def test_no_text_does_anything_but_parse_or_raise(text: str) -> None:
    for candidate in (
        text,
        f"tcp://{text}",
        f"tcp://{text}:1",
        f"ipc://{text}",
        f"tcp://a:1@{text}",
        f"{text}@tcp://a:1",
    ):
        try:
            channel = parse_channel(candidate)
        except AddressError:
            continue
        assert parse_channel(str(channel)) == channel
        assert parse_channel(channel.name) == channel._replace(bind=None)
        assert pickle.loads(pickle.dumps(channel)) == channel
