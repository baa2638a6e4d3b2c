"""Processes that differ: environment variables per rank, and code that runs before any actor."""

import os

from monarch.actor import Actor, default_bootstrap_cmd, endpoint, this_host


class Environment(Actor):
    @endpoint
    def get(self, name: str) -> str | None:
        return os.environ.get(name)


# region per_rank
procs = this_host().spawn_procs(
    per_host={"gpus": 2},
    bootstrap_command=lambda point: default_bootstrap_cmd().with_env(
        {"CUDA_VISIBLE_DEVICES": str(point["gpus"])}
    ),
)
environment = procs.spawn("environment", Environment)
assert environment.get.call("CUDA_VISIBLE_DEVICES").get().values() == ["0", "1"]
# endregion


# region bootstrap
def prepare() -> None:
    os.environ["PREPARED"] = "yes"


procs = this_host().spawn_procs(per_host={"gpus": 2}, bootstrap=prepare)
environment = procs.spawn("environment", Environment)
assert environment.get.call("PREPARED").get().values() == ["yes", "yes"]
# endregion
