"""One named actor that everybody finds: a controller as a parameter server.

``get_or_spawn_controller`` returns the same actor for the same name, wherever in the program it is
asked for: the first caller creates it, all others get a reference. It lives in the process of the
script, and is the natural home of state that belongs to the program as a whole.

    python examples/controllers.py
"""

import random

from monarch.actor import Actor, current_rank, endpoint, get_or_spawn_controller, this_host


class ParameterServer(Actor):
    """Holds the parameters of a line y = a x + b, and moves them by the gradients that workers
    push.
    """

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.a = self.b = 0.0
        self.updates = 0

    @endpoint
    def pull(self) -> tuple[float, float]:
        return self.a, self.b

    @endpoint
    def push(self, gradient_a: float, gradient_b: float) -> None:
        # Endpoints of one actor never run at the same time, so this needs no lock.
        self.a -= self.learning_rate * gradient_a
        self.b -= self.learning_rate * gradient_b
        self.updates += 1

    @endpoint
    def count(self) -> int:
        return self.updates


class Worker(Actor):
    """Fits its own noisy samples of y = 3 x - 1, at its own speed, with no barrier between
    workers.
    """

    def __init__(self) -> None:
        rng = random.Random(current_rank().rank)
        xs = [rng.uniform(-1.0, 1.0) for _ in range(50)]
        self.samples = [(x, 3.0 * x - 1.0 + rng.gauss(0.0, 0.05)) for x in xs]

    @endpoint
    def fit(self, steps: int) -> None:
        # The arguments are those for the first caller; this one gets the server that the script has
        # made.
        server = get_or_spawn_controller("parameters", ParameterServer, learning_rate=0.05).get()
        n = len(self.samples)
        for _ in range(steps):
            a, b = server.pull.call_one().get()
            errors = [(x, a * x + b - y) for x, y in self.samples]
            server.push.call_one(
                2 * sum(e * x for x, e in errors) / n,
                2 * sum(e for _, e in errors) / n,
            ).get()


def main() -> None:
    server = get_or_spawn_controller("parameters", ParameterServer, learning_rate=0.05).get()
    workers = this_host().spawn_procs(per_host={"workers": 4}).spawn("workers", Worker)

    print(f"before: y = {0.0:.2f} x + {0.0:.2f}")
    workers.fit.call(steps=100).get(timeout=60)
    updates = server.count.call_one().get()
    a, b = server.pull.call_one().get()
    print(
        f"after:  y = {a:.2f} x + {b:.2f}   ({updates} pushes by 4 workers; the truth is y = 3 x"
        " - 1)"
    )
    assert abs(a - 3) < 0.1, f"the fit did not converge: a = {a}"
    assert abs(b + 1) < 0.1, f"the fit did not converge: b = {b}"


if __name__ == "__main__":
    main()
