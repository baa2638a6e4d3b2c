"""Errors of calls: their type, their ranks, and unread ones."""

import os
import warnings

import monarch.actor
from monarch.actor import Actor, ActorError, SupervisionError, current_rank, endpoint, this_host
from monarch.errors import UnreadErrorWarning


class Loader(Actor):
    @endpoint
    def load(self, path: str) -> int:
        rank = current_rank().rank
        if rank % 2:
            raise FileNotFoundError(2, "no such shard", f"{path}/{rank}")
        return rank

    @endpoint
    def die(self) -> None:
        os._exit(1)


loaders = this_host().spawn_procs({"gpus": 4}).spawn("loaders", Loader)

# region typed
try:
    loaders.load.call("/data").get()
except FileNotFoundError as error:  # the type that the endpoint raised ...
    assert isinstance(error, ActorError)  # ... and an ActorError as well
    assert error.filename.startswith("/data/")  # attributes read as those of the original
    # the traceback over there, as text
    assert "raise FileNotFoundError" in error.exception_formatted
# endregion

# region by_rank
everything = loaders.load.options(wait_for_all=True)  # fails once every rank has answered or failed
try:
    everything.call("/data").get()
except ActorError as error:
    print("failed:", [point.rank for point in error.by_rank])
    for point, reason in error.by_rank.items():
        assert point["gpus"] % 2 == 1
        assert isinstance(reason, FileNotFoundError)
# endregion

# region unread
warnings.filterwarnings(
    "ignore", category=UnreadErrorWarning, message=r"loaders\.load\(\)"
)  # known, and of no interest
loaders.slice(gpus=1).load.call_one("/data")  # this future is never read
# endregion

monarch.actor.unhandled_fault_hook = lambda failure: None

# region both
loaders.slice(gpus=2).die.broadcast()
try:
    everything.call("/data").get()
except (ActorError, SupervisionError) as error:
    assert isinstance(error, FileNotFoundError | SupervisionError)
    kinds = {point.rank: type(reason).__name__ for point, reason in error.by_rank.items()}
    print(kinds)
# endregion
