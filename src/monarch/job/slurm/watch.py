"""Telling the program that Slurm is about to end its job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from ..._ours import names
from ..base.worker_spec import KILLED
from .script import WARNED

_LOOK = 1.0  # seconds

logger = logging.getLogger("monarch.job")


class WarningWatch:
    """A thread that waits for the warning before a job ends.

    A batch script or a worker leaves it as a file in a folder of the job. The thread ends with
    the warning, by `stop`, with the folder, or with the program.

    Args:
        job: The id of the job.
        folder: Its folder.
        function: To be called then; None if the program wants to know by its log alone.
    """

    def __init__(self, job: str, folder: Path, function: Callable[[], object] | None) -> None:
        self._job = job
        self._folder = folder
        self._function = function
        self._stopped = threading.Event()
        self._old = self._warnings()
        threading.Thread(target=self._run, name="monarch-slurm-warning", daemon=True).start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()

    def _warnings(self) -> set[Path]:
        """The warnings of the job, and of hosts that were added to it and not given back."""
        more = [self._folder / name for name in names(self._folder, r"more\..*")]
        return {
            folder / name
            for folder in (self._folder, *more)
            for name in names(folder, rf"{WARNED}\..*")
            if not names(folder, KILLED)
        }

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK) and self._folder.exists():
            if self._warnings() - self._old:
                logger.warning("Slurm will end job %s soon", self._job)
                if self._function is not None:
                    self._function()
                return
