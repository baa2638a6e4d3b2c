"""Imported first by the server that forks the processes of an actor (`multiprocessing`'s): each of
them draws random numbers of its own. They take no seed of the program; torch gives its workers one.
"""

from __future__ import annotations

import functools
import os

from . import _generators

_server = os.getpid()


def _reseed() -> None:
    if os.getppid() == _server:  # what these fork in turn goes as in any program
        _generators.reseed(None)


_generators.watch()
os.register_at_fork(before=functools.cache(_generators.find), after_in_child=_reseed)
