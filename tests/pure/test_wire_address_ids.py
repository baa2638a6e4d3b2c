from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.wire.address import (
    AGENT,
    CLIENT,
    ActorAddress,
    ProcAddress,
    has_address,
    host_labels,
    random_name,
    random_uid,
)
from monarch._patterns.transports import BindSpec, ChannelTransport
from monarch.actor import ProcId, Uid

VALUES = st.integers(0, 2**64 - 1)
LABELS = st.text(st.characters(codec="utf-8", exclude_characters="<>"), min_size=1, max_size=20)


# addresses


def test_addresses_compare_hash_and_pickle_by_value() -> None:
    proc = ProcAddress("host", "proc")
    actor = ActorAddress(proc, 77)
    assert {ActorAddress(ProcAddress("host", "proc"), 77): 1}[actor] == 1
    assert actor != ActorAddress(proc, 78)
    assert pickle.loads(pickle.dumps(actor)) == actor


def test_the_agent_of_a_process_is_on_its_host_and_is_its_own_agent() -> None:
    agent = ProcAddress("host", "proc").agent
    assert agent == ProcAddress("host", AGENT)
    assert agent.agent == agent


def test_a_process_prints_as_its_name_at_its_host() -> None:
    assert str(ProcAddress("host", "trainers-3")) == "trainers-3@host"


def test_the_name_of_a_proc_holds_its_mesh_and_its_rank() -> None:
    proc = ProcAddress("host", "train.ers.12")
    assert (proc.mesh, proc.rank, proc.is_client) == ("train.ers", 12, False)
    assert ProcAddress("host", f"{CLIENT}x7.3").is_client


@pytest.mark.parametrize("bits", [5, 32, 64, 128])
def test_random_names_are_lower_case_and_have_the_bits_asked_for(bits: int) -> None:
    names = {random_name(bits) for _ in range(40)}
    assert all(
        name.isalnum() and name == name.lower() and len(name) == -(-bits // 5) for name in names
    )
    assert len(names) > 1


def test_random_names_and_uids_do_not_repeat() -> None:
    assert len({random_name() for _ in range(2000)}) == 2000
    assert len({random_uid() for _ in range(2000)}) == 2000


def test_names_and_uids_hold_each_random_bit_that_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", lambda size: b"\xff" * size)
    assert random_name() == "z" * 12 + "f"
    assert random_uid() == 2**63 - 1
    monkeypatch.setattr("os.urandom", bytes)
    assert random_name() == "0" * 13
    assert random_uid() == 16


def test_uids_of_actors_fit_63_bits_and_leave_the_low_ones_to_the_system() -> None:
    assert all(16 <= random_uid() < 2**63 for _ in range(2000))


# Uid


@given(VALUES, st.none() | LABELS)
def test_an_instance_is_read_back_from_its_text(value: int, label: str | None) -> None:
    uid = Uid.instance_from_value(value, label)
    again = Uid.from_string(str(uid))
    assert again == uid
    assert (again.instance_value, again.label) == (value, label)


@given(LABELS)
def test_a_singleton_is_read_back_from_its_text(label: str) -> None:
    uid = Uid.from_string(label)
    assert (uid.label, uid.instance_value, str(uid)) == (label, None, label)
    assert uid.is_singleton
    assert not uid.is_instance


def test_an_instance_prints_as_its_label_and_digits_of_base_58() -> None:
    assert str(Uid.instance_from_value(0, "lab")) == "lab<1>"
    assert str(Uid.instance_from_value(57)) == "<z>"
    assert str(Uid.instance_from_value(58)) == "<21>"


def test_new_instances_differ() -> None:
    assert len({Uid.anonymous() for _ in range(1000)}) == 1000
    assert Uid.anonymous().label is None
    assert Uid.instance("x").label == "x"
    assert Uid.instance("x").is_instance


@given(VALUES, VALUES)
def test_instances_compare_by_value_and_not_by_label(left: int, right: int) -> None:
    a, b = Uid.instance_from_value(left, "one"), Uid.instance_from_value(right, "two")
    assert (a == b) == (left == right)
    assert (a < b) == (left < right)
    assert (a > b) == (left > right)
    if left == right:
        assert hash(a) == hash(b)


def test_an_instance_and_a_singleton_never_equal() -> None:
    assert Uid.from_string("lab") != Uid.instance_from_value(0, "lab")
    assert Uid.from_string("lab") != "lab"


@given(st.lists(VALUES.map(Uid.instance_from_value) | LABELS.map(Uid.from_string), max_size=12))
def test_uids_sort_the_same_from_any_order(uids: list[Uid]) -> None:
    backwards = list(reversed(uids))
    assert sorted(uids) == sorted(backwards)


@pytest.mark.parametrize("other", ["lab", 3, None])
def test_a_uid_and_something_else_have_no_order(other: object) -> None:
    with pytest.raises(TypeError):
        assert Uid.from_string("lab") < other  # type: ignore[operator]


@pytest.mark.parametrize("value", [-1, 2**64])
def test_a_value_beyond_64_bits_overflows(value: int) -> None:
    with pytest.raises(OverflowError):
        Uid.instance_from_value(value)


def test_a_uid_needs_a_label_or_a_value() -> None:
    with pytest.raises(ValueError):
        Uid(None, None)


@pytest.mark.parametrize(
    "text", ["", "<>", "lab<>", "lab<1", "lab<1>x", "lab<0>", "lab<O>", "lab<I1>", "lab<1 >"]
)
def test_a_text_that_no_uid_prints_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Uid.from_string(text)


def test_a_text_whose_digits_exceed_64_bits_is_refused_as_any_other_bad_text() -> None:
    assert Uid.from_string(str(Uid.instance_from_value(2**64 - 1))).instance_value == 2**64 - 1
    with pytest.raises(ValueError):
        Uid.from_string("lab<zzzzzzzzzzzz>")


def test_a_label_with_a_bracket_is_read_back_from_its_text() -> None:
    uid = Uid.instance_from_value(5, "a<b")
    assert Uid.from_string(str(uid)) == uid


def test_uids_keep_their_label_when_pickled() -> None:
    uid = pickle.loads(pickle.dumps(Uid.instance_from_value(9, "lab")))
    assert (uid, uid.label) == (Uid.instance_from_value(9), "lab")


# ProcId


def test_a_proc_id_is_its_uid() -> None:
    uid = Uid.instance("trainers")
    proc = ProcId(uid)
    assert proc == ProcId(uid) == ProcId.from_string(str(proc))
    assert (proc.uid, proc.label, str(proc)) == (uid, "trainers", str(uid))
    assert hash(proc) == hash(ProcId(uid))
    assert proc != ProcId(Uid.anonymous())
    assert proc != uid
    assert pickle.loads(pickle.dumps(proc)) == proc


def test_a_proc_id_takes_a_uid_only() -> None:
    with pytest.raises(TypeError, match="takes a Uid"):
        ProcId("trainers")  # type: ignore[arg-type]


# transports


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("ipc", ChannelTransport.Unix),
        ("tcp", ChannelTransport.TcpWithHostname),
        ("tls", ChannelTransport.Tls),
        ("metatls", ChannelTransport.MetaTlsWithIpV6),
        ("metatls-hostname", ChannelTransport.MetaTlsWithHostname),
        ("tcp://127.0.0.1:2600", ChannelTransport.TcpWithHostname),
        (ChannelTransport.Local, ChannelTransport.Local),
    ],
)
def test_a_transport_is_found_by_its_name(
    spec: str | ChannelTransport, expected: ChannelTransport
) -> None:
    assert ChannelTransport.parse(spec) is expected


@pytest.mark.parametrize("spec", ["", "udp", "IPC", "tcp:", "ipc://x", 5, None])
def test_an_unknown_transport_is_refused_with_the_known_ones(spec: object) -> None:
    with pytest.raises(ValueError, match="use one of ipc, .*tcp"):
        ChannelTransport.parse(spec)  # type: ignore[arg-type]


def test_transports_pickle_as_themselves() -> None:
    for transport in ChannelTransport:
        assert pickle.loads(pickle.dumps(transport)) is transport


def test_a_checked_transport_shows_what_it_was_made_of() -> None:
    assert repr(BindSpec("tcp")) == "BindSpec('TcpWithHostname')"
    assert repr(BindSpec("tcp://node4:26600")) == "BindSpec('tcp://node4:26600')"


# hosts


@pytest.mark.parametrize(
    ("host", "dialed"),
    [("tcp://node4:26600", True), ("ipc:///tmp/w0", True), ("c1x2", False), ("", False)],
)
def test_a_host_with_a_url_for_a_name_can_be_dialed(host: str, dialed: bool) -> None:
    assert has_address(host) == dialed


@pytest.mark.parametrize(
    ("hosts", "labels"),
    [
        (["tcp://node4:26600", "metatls://node5:1"], ["node4", "node5"]),
        (["tcp://[::1]:26600"], ["[::1]"]),
        (["tcp://node4:26600", "tcp://node4:26601"], ["tcp://node4:26600", "tcp://node4:26601"]),
        (["ipc:///tmp/w0", "tcp://node4:26600"], ["ipc:///tmp/w0", "node4"]),
        (["c1x2"], ["c1x2"]),
        ([], []),
    ],
)
def test_hosts_are_labelled_by_their_machines_unless_two_are_on_one(
    hosts: list[str], labels: list[str]
) -> None:
    assert host_labels(hosts) == labels
