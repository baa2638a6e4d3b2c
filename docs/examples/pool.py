"""A function on many procs, with a bound on what is in flight."""

from monarch.actor import pool, this_host


def square(number: int) -> int:
    return number * number


procs = this_host().spawn_procs({"gpus": 2})

# region pool
# two items per rank at a time: one runs, one waits
with pool(procs, square, in_flight=2) as squares:
    total = sum(squares.map(range(1000)))  # in order; items are asked for as there is room
assert total == 332833500
# endregion
