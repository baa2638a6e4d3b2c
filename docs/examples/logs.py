"""What of the output of ranks the client shows, and how."""

import logging

from monarch.actor import Actor, current_rank, endpoint, this_host


class Trainer(Actor):
    def __init__(self) -> None:
        self.rank = current_rank().rank

    @endpoint
    def load(self) -> None:
        print(f"loaded shard {self.rank} in {0.3 + self.rank / 100:.2f} s")

    @endpoint
    def train(self, step: int) -> None:
        logging.getLogger("trainer").debug("step %d begins", step)
        print(f"step {step} loss {1 / (step + 1) + self.rank / 1000:.3f}")


# region collect
procs = this_host().spawn_procs({"gpus": 8}, name="trainers")
trainers = procs.spawn("trainers", Trainer)

procs.logging_option(aggregate_window_sec=60).get()
for rank in range(8):
    trainers.slice(gpus=rank).load.call_one().get()
procs.logging_option().get()  # no window any more: what was collected is shown
# endregion

# region options
procs.logging_option(ranks=0).get()  # only this rank
procs.logging_option(ranks={"gpus": slice(0, 4)}).get()  # as in procs.slice(...)
procs.logging_option(ranks="0,4-7").get()  # as for `--rank` of the commands
procs.logging_option(match=r"loss (nan|inf)").get()  # only lines in which this is found
# one rank talks, the others stay as they are
procs.slice(gpus=7).logging_option(level=logging.DEBUG).get()
procs.logging_option(stream_to_client=False).get()  # nothing at all
# endregion

trainers.train.call(1).get()
