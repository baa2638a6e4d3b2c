"""A service: replicas of an actor behind one handle."""

import asyncio
import logging
import os
import signal

from monarch.actor import Actor, SupervisionError, endpoint, this_host
from monarch.service import Service, batched

logging.getLogger("monarch.service").setLevel(logging.ERROR)  # each replacement is a warning there


class Generator(Actor):
    def __init__(self, model: str) -> None:
        self.model = model

    @endpoint
    async def version(self) -> str:
        return self.model

    @batched(max_size=8, max_wait=0.01)
    async def generate(self, prompts: list[str]) -> list[str]:
        await asyncio.sleep(0.01)  # the model, which takes no longer for eight than for one
        return [f"{prompt} ..." for prompt in prompts]

    @endpoint
    async def pid(self) -> int:
        return os.getpid()

    @endpoint
    async def charge(self, account: str) -> None:
        # the out-of-memory killer, say, in the midst of the call
        os.kill(os.getpid(), signal.SIGKILL)


# region make
service = Service(
    this_host(), Generator, ("tiny",), replicas=3, idempotent=["generate", "version", "pid"]
)

# one replica: that with the least to do
assert service.generate.call_one("Once").get() == "Once ..."
assert set(service.version.call().get().values()) == {"tiny"}  # every one that is ready
# endregion

# region scale
service.scale(4).get()  # while it runs; done when the new one is ready
assert service.version.call().get().sizes == {"replica": 4}
service.scale(2, drain=30).get()  # those that go finish what they have
# endregion

# region session
chat = service.pid.options(session="user 7", timeout=10)
assert chat.call_one().get() == chat.call_one().get()  # the same replica, from any process
# endregion

# region batches
# each caller passes one item
answers = [service.generate.call_one(f"prompt {number}") for number in range(100)]
assert [answer.get() for answer in answers][99] == "prompt 99 ..."
# endregion

# region lost
try:
    service.charge.call_one("an account").get()  # not declared idempotent
except SupervisionError as error:
    print(str(error).splitlines()[-1])
# by the other one, or by who has taken the place
assert service.generate.call_one("Again").get() == "Again ..."
# endregion

# region stop
service.stop().get()
# endregion
