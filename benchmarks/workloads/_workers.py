"""Actors that processes are measured with: a module of its own, as each process imports it, and
what it imports.
"""

from __future__ import annotations

import os

from monarch.actor import Actor, endpoint


class Worker(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()


class TorchWorker(Actor):
    """Needs torch for its first answer."""

    @endpoint
    def pid(self) -> int:
        import torch

        return os.getpid() if int(torch.ones(2).sum()) == 2 else -1
