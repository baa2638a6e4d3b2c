"""The admin interface of a program over HTTP.

It tells what runs and why it does not go on, and stops or kills what it is asked to.

`door` belongs to the program: it listens, and starts a process of its own for the rest when
a request comes. That one, `helper`, connects to the program from beside, as `monarch why` does, and
serves `app`, which looks at each request (`guard`, `keys`) and finds what answers it in the table
of `routes`: `v1` has the routes of Monarch 0.7, `api` those of its dashboard (`arrow` for those
that answer in Arrow), `more` and `logs` those that it has not, `front` the files of the dashboard.
`program` is what the routes ask; `feeds` are events that go on; `openapi` describes the table. What
asks in SQL is computed in a `child` of the helper.

Read `routes`, then `program` and `app`.

Imports `actor`, `control`, `dashboard`, `logs`, `programs`, `stacks`, `telemetry`, `trust`, `why`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .door import access

__getattr__, __dir__ = lazy_names(__name__, {"door": ("access",)})

__all__ = ["access"]
