"""The contract of every path: the same bytes arrive, whichever way they go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from helpers.rdma_actors import NIXL, Owner, User, pattern
from monarch.actor import this_host
from monarch.config import configured
from monarch.rdma import BufferAccessError, BufferDroppedError, RDMABuffer, TransferTimeoutError

SMALL = 1_000
CHUNKED = 9_000_001  # several parts, of which the last is small and odd


class Pair(NamedTuple):
    owner: Any
    user: Any
    path: str


@pytest.fixture(scope="module", params=["copy", "vm", NIXL, "messages"])
def pair(request: pytest.FixtureRequest, _booted: None) -> Iterator[Pair]:
    """An owner and a user of its memory, between whom only one path is allowed; the tests share
    them.
    """
    path: str = request.param
    # it takes seconds to import
    with configured(rdma_paths=path, preload=["nixl._api"] if path == "nixl" else []):
        procs = this_host().spawn_procs(per_host={"gpus": 2})
    owner = procs.slice(gpus=0).spawn("owner", Owner)
    user = procs.slice(gpus=0 if path == "copy" else 1).spawn("user", User)
    first = owner.make.call_one("first", 1).get()
    user.keep.call_one("first", first).get()
    user.read_kept.call_one("first").get()
    first.drop().get()  # with it, all have connections to each other
    yield Pair(owner, user, path)
    procs.stop().get()


def test_the_path_is_the_one_that_is_tested(pair: Pair) -> None:
    buffer = pair.owner.make.call_one("a", SMALL).get()
    assert pair.user.path_to.call_one(buffer).get() == pair.path


@pytest.mark.parametrize("nbytes", [1, SMALL, CHUNKED])
def test_what_is_read_is_what_the_owner_has(pair: Pair, nbytes: int) -> None:
    buffer = pair.owner.make.call_one("a", nbytes).get()
    assert pair.user.read.call_one(buffer).get() == pattern(nbytes)


@pytest.mark.parametrize("nbytes", [1, SMALL, CHUNKED])
def test_what_is_written_is_what_the_owner_finds(pair: Pair, nbytes: int) -> None:
    buffer = pair.owner.make.call_one("a", nbytes).get()
    pair.user.write.call_one(buffer, bytes(pattern(nbytes, seed=2))).get()
    assert pair.owner.content.call_one("a").get() == pattern(nbytes, seed=2)


def test_a_part_can_be_read(pair: Pair) -> None:
    buffer = pair.owner.make.call_one("a", CHUNKED).get()
    expected = pattern(CHUNKED)[12_345 : 12_345 + 4_500_000]
    assert pair.user.read.call_one(buffer, 12_345, 4_500_000).get() == expected


def test_a_part_can_be_written_and_the_rest_stays(pair: Pair) -> None:
    buffer = pair.owner.make.call_one("a", CHUNKED).get()
    expected = pattern(CHUNKED)
    expected[77 : 77 + 5_000_000] = pattern(5_000_000, seed=3)
    pair.user.write.call_one(buffer, bytes(pattern(5_000_000, seed=3)), 77).get()
    assert pair.owner.content.call_one("a").get() == expected


def test_a_thousand_buffers_in_one_action(pair: Pair) -> None:
    buffers = [pair.owner.make.call_one(str(i), 64, seed=i).get() for i in range(1000)]
    assert pair.user.read_many.call_one(buffers).get() == [pattern(64, seed=i) for i in range(1000)]


def test_a_dropped_buffer_is_gone_for_everybody(pair: Pair) -> None:
    buffer = pair.owner.make.call_one("a", SMALL).get()
    assert pair.user.read.call_one(buffer).get() == pattern(SMALL)
    buffer.drop().get()
    buffer.drop().get()
    error = pair.user.failure.call_one(buffer).get()
    assert type(error) is BufferDroppedError
    assert "dropped" in str(error)
    assert error.owner == buffer.owner
    pair.owner.drop.call_one("a").get()


def test_a_key_that_was_guessed_opens_nothing(pair: Pair) -> None:
    buffer = pair.owner.make.call_one("a", SMALL).get()
    assert pair.user.read.call_one(buffer).get() == pattern(SMALL)
    error = pair.user.failure.call_one(forged(buffer, key=bytes(16))).get()
    assert type(error) is BufferAccessError
    assert "key" in str(error)
    with pytest.raises(BufferAccessError):
        forged(buffer, key=bytes(16)).drop().get()
    with pytest.raises(BufferAccessError):
        forged(buffer, key=bytes(16)).fetch_add(1).get()
    assert pair.user.read.call_one(buffer).get() == pattern(SMALL)


def test_a_range_that_a_handle_claims_is_checked_by_the_owner(pair: Pair) -> None:
    buffer = pair.owner.make.call_one("a", SMALL).get()
    error = pair.user.failure.call_one(forged(buffer, nbytes=SMALL + 1)).get()
    assert type(error) is BufferAccessError


def test_read_only_memory_is_not_written_with_any_claim_of_a_handle(pair: Pair) -> None:
    buffer = pair.owner.make_readonly.call_one(b"constant").get()
    with pytest.raises(ValueError, match="read-only"):
        pair.user.write.call_one(buffer, b"changed!").get()
    with pytest.raises(BufferAccessError, match="read-only"):
        pair.user.write.call_one(forged(buffer, readonly=False), b"changed!").get()
    assert pair.user.read.call_one(buffer).get() == b"constant"
    # errors refer to the frames of the endpoint, and those to the handle
    pair.user.collect_garbage.call_one().get()


def test_no_time_at_all_is_a_time_out_before_anything_is_moved(pair: Pair) -> None:
    buffer = pair.owner.make.call_one("a", SMALL).get()
    error = pair.user.failure.call_one(buffer, 0).get()
    assert type(error) is TransferTimeoutError
    assert isinstance(error, TimeoutError)
    assert error.transferred == 0


def test_words_are_added_to_and_swapped(pair: Pair) -> None:
    words = pair.owner.make_words.call_one(2**64 - 1, 5).get()
    assert pair.user.add.call_one(words, 3, 2).get() == [2**64 - 1, 2]
    assert pair.user.swap.call_one(words, 5, 6, 8).get() == 5
    assert pair.user.swap.call_one(words, 5, 7, 8).get() == 6
    assert int.from_bytes(pair.owner.content.call_one("words").get()[8:], "little") == 6


def test_one_action_may_read_here_and_write_there(pair: Pair) -> None:
    first = pair.owner.make.call_one("first", SMALL).get()
    second = pair.owner.make.call_one("second", SMALL).get()
    into = pair.user.read_and_write.call_one(first, second, bytes(pattern(10, seed=9)), 5).get()
    assert into == pattern(SMALL)
    assert pair.owner.content.call_one("second").get()[5:15] == pattern(10, seed=9)


def forged(buffer: RDMABuffer, **changes: Any) -> RDMABuffer:
    """A handle that somebody has tampered with."""
    rebuild, (info,) = buffer.__reduce__()
    handle: RDMABuffer = rebuild(info._replace(**changes))
    return handle
