"""Tutorial 1: four processes throw darts, and the script works out pi."""

# region actor
import random

from monarch.actor import Actor, ActorError, current_rank, endpoint, this_host


class Thrower(Actor):
    """Throws darts at a square, and counts those that land in the circle within it."""

    def __init__(self) -> None:
        self.random = random.Random(current_rank().rank)  # ranks throw differently
        self.thrown = self.inside = 0

    @endpoint
    def throw(self, count: int) -> int:
        if count <= 0:
            raise ValueError(f"{count} darts: throw at least one")
        hits = sum(self.random.random() ** 2 + self.random.random() ** 2 < 1 for _ in range(count))
        self.thrown += count
        self.inside += hits
        return hits

    @endpoint
    def estimate(self) -> float:
        return 4 * self.inside / self.thrown


# endregion


# region main
def main() -> None:
    procs = this_host().spawn_procs({"procs": 4})
    throwers = procs.spawn("throwers", Thrower)
    # endregion

    # region call
    hits = throwers.throw.call(10_000).get()
    print(hits)
    print(f"pi is about {4 * sum(hits.values()) / 40_000:.2f}")
    # endregion

    # region slice
    first_two = throwers.slice(procs=slice(0, 2))
    first_two.throw.broadcast(90_000)
    for point, estimate in throwers.estimate.call().get().items():
        print(f"thrower {point['procs']} says {estimate:.2f}")
    # endregion

    # region error
    try:
        throwers.slice(procs=3).throw.call_one(-5).get()
    except ActorError as error:
        print(f"thrower 3 refused: {error.exception}")
    print(f"and still throws: {throwers.slice(procs=3).throw.call_one(100).get()} of 100 inside")
    # endregion

    # region stop
    procs.stop().get()
    # endregion


if __name__ == "__main__":
    main()
