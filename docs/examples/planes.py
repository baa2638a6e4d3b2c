from __future__ import annotations

import os
from typing import NamedTuple

from monarch._core.plane import (
    ControlRequest,
    ControlService,
    ProcAddress,
    Promise,
    ask_one,
    current_hub,
    extension,
    handles,
    read_answer,
)
from monarch.actor import Actor, Future, endpoint, this_host


# region plane
class Environment(NamedTuple):
    """What is this variable in your environment? Answer: its value, or None."""

    name: str


@handles(Environment)
def _environment(service: ControlService, request: ControlRequest, record: Environment) -> None:
    request.answer(os.environ.get(record.name))  # on the I/O thread: never block here


def ask(address: ProcAddress, name: str) -> Future[str | None]:
    # the text that a TimeoutError shows
    promise: Promise[str | None] = Promise(f"{name} of {address}")
    # read by who reads the future
    record = Environment(name)
    ask_one(current_hub(), address, record, lambda reply: promise.resolve(reply, read_answer))
    return promise.future


# endregion


class Observed(Actor):
    def __init__(self) -> None:
        extension.control.fill(Environment.__module__, [_environment])

    @endpoint
    def address(self) -> ProcAddress:
        return current_hub().address

    @endpoint
    def work(self) -> None:
        os.environ["STEP"] = "7"


if __name__ == "__main__":
    observed = this_host().spawn_procs({"procs": 2}).spawn("observed", Observed)
    observed.work.call().get()
    for address in observed.address.call().get().values():
        assert ask(address, "STEP").get(timeout=30) == "7"
        assert ask(address, "NO_SUCH_VARIABLE").get(timeout=30) is None
