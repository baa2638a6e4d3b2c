"""Tells the user that a worker has ended, and what it said last.

The runtime tells the program that the host is lost. `WatchedWorkersJob` is the base of the jobs
that have such workers.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Iterable, Sequence

from ..errors import JobError
from .base import processes
from .base.contract import WorkersJob
from .base.launch import WorkerProcess, describe_status

logger = logging.getLogger("monarch.job")


class WorkerWatch:
    """A thread that waits for the end of workers.

    It ends with the last of them, by `stop`, or with the program.

    Args:
        workers: Some of a job; not necessarily children of this process.

    Attributes:
        workers: All of them.
        ended: The exit status of those that have ended, by pid; None: it is not known.
    """

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        self.workers = workers
        self.ended: dict[int, int | None] = {}
        self._wake: int | None = os.eventfd(0)
        self._lock = threading.Lock()
        self._watched: dict[int, WorkerProcess] = {}
        for worker in workers:
            try:
                self._watched[os.pidfd_open(worker.pid)] = worker
            except ProcessLookupError:  # its next connection will fail
                continue
        self._thread = threading.Thread(
            target=self._run, args=(self._wake,), name="monarch-job-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; returns when the thread has ended."""
        with self._lock:
            if self._wake is not None:
                os.eventfd_write(self._wake, 1)
        self._thread.join()

    def _run(self, wake: int) -> None:
        poll = select.poll()
        for fd in (wake, *self._watched):
            poll.register(fd, select.POLLIN)
        while self._watched:
            ready = {fd for fd, _ in poll.poll()}
            for fd in ready - {wake}:
                poll.unregister(fd)
                self._report(self._watched.pop(fd))
                os.close(fd)
            if wake in ready:
                break
        with self._lock:
            self._wake = None
        for fd in (wake, *self._watched):
            os.close(fd)

    def _report(self, worker: WorkerProcess) -> None:
        status = self.ended[worker.pid] = processes.reap(worker.pid)
        if status != 0 and not worker.ended_in_order:
            how = describe_status(status)
            text = "worker %s, process %d, ended%s; %s"
            logger.error(text, worker.name, worker.pid, how, worker.tail())


class WatchedWorkersJob(WorkersJob):
    """Base of the jobs with workers that are processes of one machine, or reached by such."""

    _LIVE = (*WorkersJob._LIVE, "_watches")
    _watches: tuple[WorkerWatch, ...] = ()
    _machine = ""  # where it was started; empty if it does not run

    def _watch(self, workers: Iterable[WorkerProcess]) -> None:
        """Watch those of these workers that are not watched yet."""
        watched = [worker for watch in self._watches for worker in watch.workers]
        if unwatched := [worker for worker in workers if worker not in watched]:
            self._watches += (WorkerWatch(unwatched),)

    def _stop_watching(self) -> None:
        for watch in self._watches:
            watch.stop()
        self._watches = ()

    def _is_elsewhere(self) -> bool:
        return self._machine not in ("", os.uname().nodename)

    def _check_here(self, otherwise: str) -> None:
        """Raise if the job was started on another machine, and say what follows from that."""
        if self._is_elsewhere():
            raise JobError(f"{self!r}: {otherwise}")
