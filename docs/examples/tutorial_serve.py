"""Tutorial 4: a model behind one handle, in three replicas that are batched, scaled and replaced."""

# region model
import asyncio
import logging
import os
import signal

from monarch.actor import Actor, endpoint, this_host
from monarch.service import Service, batched


class Model(Actor):
    """Adds up numbers. A call of it takes 10 ms, however many callers it answers."""

    def __init__(self, name: str) -> None:
        self.name = name

    @batched(max_size=32, max_wait=0.005)
    async def add(self, requests: list[list[int]]) -> list[int]:
        await asyncio.sleep(0.01)
        return [sum(request) for request in requests]

    @endpoint
    async def pid(self) -> int:
        return os.getpid()


# endregion


def main() -> None:
    logging.getLogger("monarch.service").setLevel(logging.ERROR)  # replacements are warnings

    # region serve
    service = Service(this_host(), Model, ("adder",), replicas=3, idempotent=True)
    print("1 + 2 + 3 =", service.add.call_one([1, 2, 3]).get())
    # endregion

    # region many
    answers = [service.add.call_one([number, number]) for number in range(1000)]
    assert [answer.get() for answer in answers] == [2 * number for number in range(1000)]
    # endregion

    # region kill
    victim = service.pid.call_one().get()
    answers = [service.add.call_one([number]) for number in range(1000)]
    os.kill(victim, signal.SIGKILL)
    assert [answer.get() for answer in answers] == list(range(1000))
    print("1000 answers, though a replica was killed")
    # endregion

    # region scale
    service.scale(4).get()
    print("replicas:", service.pid.call().get().sizes["replica"])
    service.stop().get()
    # endregion


if __name__ == "__main__":
    main()
