"""Functions, data, an actor and a lost worker, on Dask.

Its counterpart is docs/examples/from_dask.py.
"""

import os

from distributed import Client, as_completed


def square(number):
    return number * number


def total(weights, factor):
    return sum(weights) * factor


class Counter:
    def __init__(self):
        self.value = 0

    def add(self, by):
        self.value += by
        return self.value


def main():
    # region functions
    client = Client(n_workers=4, threads_per_worker=1)
    squares = client.map(square, range(100))
    assert sum(client.gather(squares)) == 328350
    # endregion

    # region arrive
    arrived = [future.result() for future in as_completed(client.map(square, range(4)))]
    assert sorted(arrived) == [0, 1, 4, 9]
    # endregion

    # region data
    weights = client.scatter([1.0] * 1000, broadcast=True, hash=False)
    totals = client.gather([client.submit(total, weights, factor) for factor in range(4)])
    assert totals == [0.0, 1000.0, 2000.0, 3000.0]
    # endregion

    # region actor
    counter = client.submit(Counter, actor=True).result()
    assert counter.add(2).result() == 2
    assert counter.add(3).result() == 5
    # endregion

    # region everywhere
    assert len(set(client.run(os.getpid).values())) == 4
    # endregion
    client.shutdown()


if __name__ == "__main__":
    main()
