"""Callers without a process: they keep what they are answered."""

from __future__ import annotations

from monarch._core.wire.address import ProcAddress
from monarch._core.wire.frame import Frame


class Origin:
    """Where a call or a control record came from.

    Args:
        peer: The process that asked.
    """

    called = None

    def __init__(self, peer: ProcAddress = ProcAddress("there", "caller.0")) -> None:  # noqa: B008
        self.peer = peer
        self.answers: list[Frame] = []

    def send(self, frame: Frame) -> bool:
        self.answers.append(frame)
        return True
