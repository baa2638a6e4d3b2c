"""A sentiment service: four replicas, batches, a replica that is killed in the middle, and one
replica more.

    python examples/service.py

What to look for:

* ``Service``        replicas behind one handle, which other actors may have as well
* ``@batched``       callers pass one text, the model gets up to sixteen
* ``idempotent``     what a dead replica has not answered is answered by another one: no text is lost
* ``scale``          one more replica, while calls go on
"""

import asyncio
import logging
import os
import signal

from monarch.actor import Actor, endpoint, this_host
from monarch.service import Service, batched

logging.getLogger("monarch.service").setLevel(logging.ERROR)  # each replacement is a warning there

WORDS = {"good": 1, "great": 2, "bad": -1, "awful": -2}
TEXTS = [f"{word} text {number}" for number in range(500) for word in WORDS]


class Sentiment(Actor):
    """A model that takes a while for a batch, however many texts are in it."""

    @batched(max_size=16, max_wait=0.005)
    async def judge(self, texts: list[str]) -> list[int]:
        await asyncio.sleep(0.01)
        return [sum(WORDS.get(word, 0) for word in text.split()) for text in texts]

    @endpoint
    async def pid(self) -> int:
        return os.getpid()


def main() -> None:
    with Service(this_host(), Sentiment, replicas=4, idempotent=True) as service:
        service.scale(4).get()  # all are ready
        victim = service.pid.call_one().get()
        answers = [service.judge.call_one(text) for text in TEXTS]
        answers[100].get()
        os.kill(victim, signal.SIGKILL)  # most texts are still to be judged
        scores = [answer.get() for answer in answers]
        expected = [WORDS[text.split()[0]] for text in TEXTS]
        assert scores == expected
        print(
            f"{len(scores)} texts judged, though a replica was killed; their sum is {sum(scores)}"
        )

        service.scale(5).get()
        replicas = service.status().get()
        print(f"{len(replicas)} replicas: {', '.join(replica.name for replica in replicas)}")


if __name__ == "__main__":
    main()
