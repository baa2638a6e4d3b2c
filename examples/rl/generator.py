"""Generators: continuous batching.

Requests join a batch that runs, at the next byte, and leave it when they are done. Each has its own
keys and values in the cache, and its own random numbers, so what else runs does not change what it
says. New weights come between two bytes: answers that have begun go on with them, and know for each
byte which weights chose it.
"""

import asyncio
import os
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor

from monarch.actor import Actor, concurrent_endpoint, get_meter
from monarch.elastic import StateBoard, StateFollower

from .model import learned, make_cache, make_policy, rows
from .plan import Plan
from .tasks import END, LONGEST_ANSWER

SLOTS = 64  # requests at a time


@dataclass(frozen=True)
class Answer:
    text: bytes
    logprobs: list[float]  # of each byte, as the weights that chose it had it
    versions: list[int]  # of these weights


@dataclass(eq=False)
class _Request:
    text: bytes
    draws: Random  # for each byte to come
    least: int  # version of the weights that it may begin with
    done: "asyncio.Future[Answer]"
    slot: int = -1
    cached: int = 0  # bytes of which the cache has keys and values
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


class Generator(Actor):
    def __init__(self, plan: Plan, base: dict[str, Tensor], board: StateBoard) -> None:
        self.plan, self.policy = plan, make_policy(plan, base)
        self.cache, self.free = make_cache(plan, SLOTS), list(range(SLOTS))
        self.follower = StateFollower(board, learned(self.policy))
        self.waiting: list[_Request] = []
        self.running: list[_Request] = []
        self.slowness = 1.0
        self.work: asyncio.Task[None] | None = None
        self.tokens = get_meter().create_counter("rl.tokens", description="bytes generated")

    @concurrent_endpoint
    async def generate(self, prompt: bytes, seeds: list[int], least: int) -> list[Answer]:
        """An answer for each seed; it begins with weights of version `least` or newer."""
        self.work = self.work or asyncio.create_task(self._run())
        made = [_Request(prompt, Random(seed), least, asyncio.Future()) for seed in seeds]
        self.waiting += made
        self.follower.changed.set()
        answers = asyncio.gather(*(each.done for each in made))
        either: list[asyncio.Future[Any]] = [answers, self.work]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self.work.done():
            self.work.result()  # raises what has ended it
        return list(answers.result())

    @concurrent_endpoint
    async def slow_down(self, factor: float) -> None:
        self.slowness = factor

    @concurrent_endpoint
    async def pid(self) -> int:
        return os.getpid()

    # region follow
    async def _run(self) -> None:
        while True:
            if self.follower.changed.is_set() and await self.follower.pull():
                for each in self.running:
                    each.cached = 0  # keys and values of the old weights
            self._admit()
            if not self.running:
                await self.follower.changed.wait()
                continue
            began = time.perf_counter()
            self._next_byte()
            pause = (time.perf_counter() - began) * (self.slowness - 1)
            await asyncio.sleep(pause)  # others of this process: new requests, news

    # endregion

    # region batching
    def _admit(self) -> None:
        ready = [each for each in self.waiting if each.least <= self.follower.version]
        for request in ready[: len(self.free)]:
            self.waiting.remove(request)
            request.slot = self.free.pop()
            self.running.append(request)

    @torch.no_grad()
    def _next_byte(self) -> None:
        """One more byte for each request that runs."""
        fresh = [each for each in self.running if not each.cached]
        for batch in (fresh, [each for each in self.running if each.cached]):
            if batch:
                self._choose(batch, self._logits(batch))
        self.tokens.add(len(self.running))
        for each in list(self.running):
            if each.text.endswith(END) or len(each.versions) == LONGEST_ANSWER:
                self.running.remove(each)
                self.free.append(each.slot)
                text = each.text[-len(each.versions) :]
                if not each.done.done():  # its caller may have gone
                    each.done.set_result(Answer(text, each.logprobs, each.versions))

    def _logits(self, batch: list[_Request]) -> Tensor:
        """[request, byte]: of what comes next. All have something in the cache, or none has."""
        cached = torch.tensor([each.cached for each in batch])
        ends = torch.tensor([len(each.text) for each in batch])
        width = int((ends - cached).max())
        tokens = rows([each.text[each.cached :] for each in batch])[:, :width]
        if self.plan.hf:  # no cache: all of the text again, for each byte
            logits: Tensor = self.policy(tokens)
        else:
            slots = torch.tensor([each.slot for each in batch])
            logits = self.policy(tokens, (cached, slots, self.cache))
            for each in batch:
                each.cached = len(each.text)
        return logits[torch.arange(len(batch)), ends - cached - 1]

    def _choose(self, batch: list[_Request], logits: Tensor) -> None:
        logprobs = torch.log_softmax(logits, dim=-1)
        draws = torch.tensor([each.draws.random() for each in batch])
        chosen = (logprobs.exp().cumsum(dim=-1) < draws[:, None]).sum(dim=-1)
        chosen = chosen.clamp(max=logits.shape[-1] - 1)
        of_chosen = logprobs.gather(1, chosen[:, None]).squeeze(1)
        for each, byte, logprob in zip(batch, chosen.tolist(), of_chosen.tolist(), strict=True):
            each.text += bytes([byte])
            each.logprobs.append(logprob)
            each.versions.append(self.follower.version)

    # endregion
