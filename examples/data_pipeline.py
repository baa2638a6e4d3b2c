"""A data pipeline: read, map, shuffle by key, reduce.

It finds which words follow which in 60 files.

Four mappers read files and send each pair of words to the reducer that owns its first word. Three
reducers count. Every queue is bounded: where reducers are slow, mappers wait, so memory stays small
however much is read. The result must be that of one process.

    python examples/data_pipeline.py

What to look for:

* ``Queue`` of files        gives each file to one mapper; a fast one gets more of them
* ``Queue`` of a reducer    its part of the shuffle: all mappers put, one reducer takes
* ``close``                 ends the loop of each reducer, when all mappers are done
"""

import random
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from monarch.actor import Actor, current_rank, endpoint, this_host
from monarch.queues import Queue

MAPPERS, REDUCERS = 4, 3
FILES, LINES = 60, 200
CHUNK = 500  # pairs in one message
ROOM = 8  # chunks that may wait for a reducer

Pair = tuple[str, str]
Chunk = list[Pair]


def read(path: Path) -> Iterator[Pair]:
    """Each word of a file, with the word after it in its line."""
    with path.open() as lines:
        for line in lines:
            words = line.lower().split()
            yield from pairwise(words)


def owner(word: str) -> int:
    """The reducer of a word. Not `hash`, which differs from process to process."""
    return zlib.crc32(word.encode()) % REDUCERS


class Mapper(Actor):
    @endpoint
    def run(self, files: Queue[Path], shuffle: list[Queue[Chunk]]) -> int:
        """Read files until there are no more; how many these were."""
        chunks: defaultdict[int, Chunk] = defaultdict(list)
        count = 0
        for path in files:
            count += 1
            for pair in read(path):
                reducer = owner(pair[0])
                chunks[reducer].append(pair)
                if len(chunks[reducer]) == CHUNK:
                    shuffle[reducer].put(chunks.pop(reducer)).get()  # waits while there is no room
        for reducer, chunk in chunks.items():
            shuffle[reducer].put(chunk).get()
        return count


class Reducer(Actor):
    """Owns some words. All pairs that begin with them come here."""

    @endpoint
    def run(self, shuffle: list[Queue[Chunk]]) -> dict[str, tuple[str, int]]:
        """Each word, with the word that follows it most often, and how often that is."""
        followers: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for chunk in shuffle[current_rank().rank]:
            for first, second in chunk:
                followers[first][second] += 1
        return most_frequent(followers)


def most_frequent(followers: dict[str, Counter[str]]) -> dict[str, tuple[str, int]]:
    return {
        # of equal ones the first by letters
        word: min(counts.items(), key=lambda item: (-item[1], item[0]))
        for word, counts in followers.items()
    }


def make_files(folder: Path) -> list[Path]:
    """Text in which some words are frequent and most are rare, as in any language."""
    rng = random.Random(1)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 8))) for _ in range(2000)
    ]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    paths = []
    for number in range(FILES):
        lines = [" ".join(rng.choices(words, weights, k=rng.randint(5, 20))) for _ in range(LINES)]
        paths.append(folder / f"{number}.txt")
        paths[-1].write_text("\n".join(lines))
    return paths


def run(paths: list[Path]) -> tuple[dict[str, tuple[str, int]], list[int]]:
    """The result of all reducers, and how many files each mapper has read."""
    procs = this_host().spawn_procs({"procs": MAPPERS + REDUCERS})
    mappers = procs.slice(procs=slice(0, MAPPERS)).spawn("mappers", Mapper)
    reducers = procs.slice(procs=slice(MAPPERS, None))
    # The queue of a reducer lives in its process, so a chunk crosses to another process once.
    shuffle: list[Queue[Chunk]] = [
        Queue(reducers.slice(procs=rank), maxsize=ROOM, name=f"shuffle {rank}")
        for rank in range(REDUCERS)
    ]
    files: Queue[Path] = Queue(procs.slice(procs=0), maxsize=len(paths), name="files")
    for path in paths:
        files.put(path).get()
    files.close().get()

    reducing = reducers.spawn("reducers", Reducer).run.call(shuffle)
    read_by = mappers.run.call(files, shuffle).get()
    for queue in shuffle:
        queue.close().get()
    result: dict[str, tuple[str, int]] = {}
    for part in reducing.get().values():
        result |= part
    procs.stop().get()
    return result, list(read_by.values())


def run_here(paths: list[Path]) -> dict[str, tuple[str, int]]:
    followers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for path in paths:
        for first, second in read(path):
            followers[first][second] += 1
    return most_frequent(followers)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = make_files(Path(folder))
        begun = time.perf_counter()
        result, read_by = run(paths)
        seconds = time.perf_counter() - begun
        expected = run_here(paths)

    print(f"{len(paths)} files in {seconds:.1f} s; by mapper: {', '.join(map(str, read_by))}")
    print("\nword      followed by   times")
    for word, (second, times) in sorted(result.items(), key=lambda item: (-item[1][1], item[0]))[
        :5
    ]:
        print(f"{word:<10}{second:<10}{times:9}")
    assert result == expected, "one process finds something else"
    assert sum(read_by) == len(paths), "a file was read twice, or not at all"
    print(f"\nthe same as in one process, for all {len(result)} words")


if __name__ == "__main__":
    main()
