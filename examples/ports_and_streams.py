"""Results as they come: ``stream``, channels and accumulators.

``call`` answers when the slowest rank has. Where that is too late, ``stream`` hands over each
result as it arrives, and a channel lets an actor report while it still works.

    python examples/ports_and_streams.py
"""

import time

from monarch.actor import Accumulator, Actor, Channel, Port, current_rank, endpoint, this_host


class Searcher(Actor):
    """Looks for primes in its own part of the numbers; higher ranks have more to do."""

    def __init__(self) -> None:
        self.rank = current_rank().rank

    def numbers(self) -> range:
        return range(1000 * self.rank, 1000 * (self.rank + 1))

    @endpoint
    def count(self) -> tuple[int, int]:
        time.sleep(0.05 * self.rank)
        return self.rank, sum(is_prime(n) for n in self.numbers())

    @endpoint
    def search(self, found: Port[tuple[int, int]], limit: int) -> int:
        """Report the first ``limit`` primes through ``found`` while searching; return how many
        there were.
        """
        sent = 0
        for n in self.numbers():
            if sent < limit and is_prime(n):
                found.send((self.rank, n))
                sent += 1
        return sent


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def add(total: int, result: tuple[int, int]) -> int:
    return total + result[1]


def main() -> None:
    procs = this_host().spawn_procs(per_host={"workers": 4})
    searchers = procs.spawn("searchers", Searcher)

    print("stream: one future per rank, in the order of arrival")
    for future in searchers.count.stream():
        rank, primes = future.get(timeout=30)
        print(f"  rank {rank} found {primes} primes")

    print("channel: a port is a sendable handle, here given to all four ranks at once")
    port, receiver = Channel[tuple[int, int]].open()
    done = searchers.search.call(port, limit=3)
    # Each rank's messages arrive in the order it sent them; messages of different ranks mix as they
    # come.
    found: dict[int, list[int]] = {}
    for _ in range(4 * 3):
        rank, prime = receiver.recv().get(timeout=30)
        found.setdefault(rank, []).append(prime)
    for rank, primes_of_rank in sorted(found.items()):
        print(f"  rank {rank} sent {primes_of_rank}")
    print(f"  and returned {done.get().values()}")

    print("accumulator: fold the stream into one value")
    total = Accumulator(searchers.count, 0, add).accumulate().get()
    print(f"  primes below 4000: {total}")

    procs.stop().get()


if __name__ == "__main__":
    main()
