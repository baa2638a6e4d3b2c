"""Which replica reads from whom."""

from __future__ import annotations

from random import Random
from typing import Any

from monarch._core.wire.address import ProcAddress
from monarch.rdma.states.directory import FANOUT, Copy, Directory, ReplicaReader, Wish


class Readers:
    """Replicas that do as a directory says, and what each was told."""

    def __init__(self) -> None:
        self.directory = Directory()
        self.routes: dict[ReplicaReader, Copy | None] = {}
        self.from_sources = 0
        self.serving: dict[Any, int] = {}

    def seek(
        self,
        reader: ReplicaReader,
        versions: tuple[int, ...] = (1,),
        layout: bytes = b"a",
        near: bool = False,
    ) -> None:
        self._give(
            self.directory.seek(
                reader,
                Wish(layout, versions, near),
                lambda copy: self.routes.update({reader: copy}),
            )
        )

    def arrive(self, reader: ReplicaReader, versions: tuple[int, ...] = (1,)) -> None:
        del self.routes[reader]
        self._give(self.directory.arrived(reader, Copy(repr(reader).encode(), 1, versions)))

    def fail(self, reader: ReplicaReader) -> None:
        del self.routes[reader]
        self._give(self.directory.failed(reader))

    def lose(self, reader: ReplicaReader) -> None:
        self._give(self.directory.lost(reader.process))

    def served_by(self, reader: ReplicaReader) -> ReplicaReader | None:
        """From whom it was told to read; None for the sources."""
        copy = self.routes[reader]
        return None if copy is None else eval(copy.handle)

    def _give(self, answers: list[Any]) -> None:
        for answer in answers:
            answer()


def reader(host: int, number: int = 0) -> ReplicaReader:
    return ReplicaReader(ProcAddress(f"tcp://10.0.0.{host}:1", f"p{number}"), number)


def test_the_sources_serve_few_and_copies_serve_the_others() -> None:
    readers = Readers()
    everybody = [reader(host) for host in range(20)]
    for one in everybody:
        readers.seek(one)
    assert list(readers.routes) == everybody[:FANOUT]
    from_sources = 0
    arrived = 0
    while readers.routes:
        assert len(readers.routes) <= FANOUT * (arrived + 1)
        for one in list(readers.routes):
            from_sources += readers.served_by(one) is None
            readers.arrive(one)
            arrived += 1
    assert arrived == len(everybody)
    assert from_sources == FANOUT


def test_one_per_host_fetches_and_its_neighbours_read_from_it() -> None:
    readers = Readers()
    for number in range(5):
        readers.seek(reader(1, number))
    assert list(readers.routes) == [reader(1, 0)]
    readers.arrive(reader(1, 0))
    assert [readers.served_by(reader(1, number)) for number in range(1, 5)] == [reader(1, 0)] * 4


def test_readers_on_the_host_of_the_sources_read_there_all_at_one_time() -> None:
    readers = Readers()
    for number in range(5):
        readers.seek(reader(1, number), near=True)
    assert [readers.served_by(reader(1, number)) for number in range(5)] == [None] * 5


def test_copies_of_another_layout_or_an_old_version_serve_no_reader() -> None:
    readers = Readers()
    readers.seek(reader(1), layout=b"b")
    readers.arrive(reader(1))
    readers.seek(reader(2))
    assert readers.served_by(reader(2)) is None
    readers.arrive(reader(2))
    readers.seek(reader(3), versions=(2,))
    assert readers.served_by(reader(3)) is None
    readers.arrive(reader(3), versions=(3,))
    readers.seek(reader(4), versions=(2,))
    assert readers.served_by(reader(4)) == reader(3)


def test_the_place_of_a_reader_that_ends_is_free_for_the_next() -> None:
    readers = Readers()
    for host in range(4):
        readers.seek(reader(host))
    assert len(readers.routes) == FANOUT
    readers.lose(reader(0))
    readers.fail(reader(1))
    assert [readers.served_by(reader(host)) for host in (2, 3)] == [None, None]


def test_a_copy_that_could_not_be_read_is_not_given_to_others() -> None:
    readers = Readers()
    readers.seek(reader(0))
    readers.arrive(reader(0))
    readers.seek(reader(1))
    assert readers.served_by(reader(1)) == reader(0)
    readers.fail(reader(1))
    readers.seek(reader(1))
    assert readers.served_by(reader(1)) is None
    readers.seek(reader(0))  # it is alive, and reads again
    readers.arrive(reader(0))
    readers.seek(reader(2))
    assert readers.served_by(reader(2)) == reader(0)


def test_all_but_those_that_ended_have_it_in_the_end() -> None:
    for seed in range(200):
        random = Random(seed)
        readers = Readers()
        alive = {reader(random.randrange(6), number) for number in range(12)}
        missing = sorted(alive)
        for one in missing:
            readers.seek(one, near=one.process.host.endswith(".0:1"))
        while readers.routes:
            one = random.choice(sorted(readers.routes))
            event = random.random()
            if event < 0.15:
                del readers.routes[one]
                readers.lose(one)
                missing.remove(one)
            elif event < 0.3:
                readers.fail(one)
                readers.seek(one)
            else:
                readers.arrive(one)
                missing.remove(one)
            far = [each for each in readers.routes if not each.process.host.endswith(".0:1")]
            assert sum(readers.served_by(each) is None for each in far) <= FANOUT, f"seed {seed}"
        assert not missing, f"seed {seed}"
        assert not readers.directory.waiting(), f"seed {seed}"
        assert not +readers.directory._load, f"seed {seed}"
