"""Deaths at points of a trainer's own code, so that each is where it is meant to be; a folder
remembers which there were.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path


class Deaths:
    """Kills the ranks that come to certain moments.

    Args:
        folder: Remembers how often somebody came to each.
        at: For each moment, which of those who come to it die: 0 is the first, of all ranks and
            times.
        signal: By which signal.
    """

    def __init__(
        self, folder: Path, at: Mapping[str, Collection[int]], signal: int = signal.SIGKILL
    ) -> None:
        self.folder = folder
        self.at = at
        self.signal = signal

    def __call__(self, moment: str) -> None:
        for number in itertools.count() if moment in self.at else ():
            with suppress(FileExistsError):
                (self.folder / f"{moment}.{number}").touch(exist_ok=False)
                break
        else:
            return
        if number in self.at[moment]:
            os.kill(os.getpid(), self.signal)

    def all_died(self) -> bool:
        return all(
            (self.folder / f"{moment}.{number}").exists()
            for moment in self.at
            for number in self.at[moment]
        )
