"""Futures: wait by blocking, by awaiting, or for so many seconds."""

import asyncio
import concurrent.futures
import time
from typing import Any

from monarch.actor import Actor, endpoint, this_host


class Sleeper(Actor):
    @endpoint
    def sleep(self, seconds: float) -> str:
        time.sleep(seconds)
        return "done"


sleeper = this_host().spawn_procs().spawn("sleeper", Sleeper)
sleeper.sleep.call_one(0).get()

# region get
future = sleeper.sleep.call_one(0.3)  # sent now, whether anybody looks at the future or not
try:
    future.get(timeout=0.05)
except TimeoutError:
    pass  # only this wait is over; the call goes on
assert future.get() == "done"
assert future.get() == "done"  # kept: ask as often as you like, from any thread
# endregion


# region await
async def main() -> None:
    first, second = await asyncio.gather(sleeper.sleep.call_one(0.1), sleeper.sleep.call_one(0.1))
    assert first == second == "done"

    slow = sleeper.sleep.call_one(0.3)
    try:
        await asyncio.wait_for(slow.as_asyncio(), timeout=0.05)
    except asyncio.TimeoutError:
        pass
    assert await slow == "done"


asyncio.run(main())
# endregion


# region asyncio
async def many() -> None:
    shorter, longer = (sleeper.sleep.call_one(seconds) for seconds in (0.1, 0.2))
    background = asyncio.create_task(shorter)  # a future is a coroutine, too
    done, rest = await asyncio.wait([longer.as_asyncio()], timeout=5)  # which takes no coroutines
    assert await background == "done"
    assert len(done) == 1
    assert not rest


asyncio.run(many())
assert asyncio.run(sleeper.sleep.call_one(0.1)) == "done"
# endregion

# region done
future = sleeper.sleep.call_one(0.1)
assert not future.done()
future.add_done_callback(lambda finished: print("the sleeper is", finished.get()))
future.get()
assert future.done()
# endregion

# region elsewhere
futures: Any = [
    sleeper.sleep.call_one(seconds) for seconds in (0.1, 0.2)
]  # Any, as they are not of the class that mypy wants
for finished in concurrent.futures.as_completed(futures):
    assert finished.result() == "done"
assert concurrent.futures.wait(futures, timeout=1).not_done == set()
# endregion
