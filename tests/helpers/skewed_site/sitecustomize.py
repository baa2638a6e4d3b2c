"""Gives every process whose PYTHONPATH has this folder another clock: an interpreter imports this
before anything else.
"""

from __future__ import annotations

import os
import time

_SECONDS = float(os.environ["MONARCH_TEST_SKEW"])
_time, _time_ns = time.time, time.time_ns

time.time = lambda: _time() + _SECONDS
time.time_ns = lambda: _time_ns() + int(_SECONDS * 1e9)
