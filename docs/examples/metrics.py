"""Metrics, spans and steps of a program, and what it can read of itself."""

from __future__ import annotations

import time

# region training
from monarch.actor import Actor, endpoint, get_meter, span, this_host
from monarch.telemetry import Observation, read, step, traced

meter = get_meter()
samples = meter.create_counter("samples", unit="1", description="samples seen")
loss = meter.create_gauge("loss")
batch_time = meter.create_histogram("batch_time", unit="ms")


class Trainer(Actor):
    def __init__(self) -> None:
        self.queue: list[int] = []
        meter.create_observable_gauge("queue", [lambda options: [Observation(len(self.queue))]])

    @endpoint
    def train(self, steps: int) -> None:
        for number in range(steps):
            step(number)  # a step begins
            began = time.perf_counter()
            with span("forward", batch=number):
                time.sleep(0.001)
            self.backward()
            samples.add(32, {"split": "train"})
            loss.set(1 / (number + 1))
            batch_time.record(1000 * (time.perf_counter() - began))

    @traced
    def backward(self) -> None:
        time.sleep(0.002)
        # endregion


if __name__ == "__main__":
    trainers = this_host().spawn_procs({"gpus": 2}).spawn("trainers", Trainer)
    trainers.train.call(10).get()

    # region read
    found = read("metric_sums", "steps", "handled").get()
    assert not found.silent  # each host and process has answered

    total = sum(row["sum_i64"] for row in found.rows("metric_sums") if row["name"] == "samples")
    slowest = max(row["duration_us"] for row in found.rows("steps") if row["duration_us"])
    handled = {(row["rank"], row["endpoint"]): row["count"] for row in found.rows("handled")}
    # endregion
    assert total == 2 * 10 * 32 and slowest >= 3000 and set(handled) == {(0, "train"), (1, "train")}
