"""The activity of a program's processes as tables, collected from all hosts on demand.

A process counts and remembers little by itself. A reader sends the control record
`collect.Collect` to the host agents, which answer for the processes there; agents run no user code,
so they always answer, and name processes that did not. `tables` names the tables. What fills one is
a function marked ``@produces("actors")``, `registry`: it runs in the process that is asked, which
imports it then. A program that is not asked imports nothing of this.

`profile` makes a file for Perfetto of what a window of time has in these tables.

`client` asks in SQL: `query` runs a question by duckdb, over `programs` that run, or the file of a
run, `run_file`.

Read `tables` and `collect`, then `registry`.

Imports `_core.plane`, `_patterns`, `actor`, `logs`, `programs`, `stacks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .answer import Collected
    from .client import QueryEngineClient
    from .gather import read
    from .keep import finish_run as finish_run
    from .keep import keep_run as keep_run
    from .metrics import Meter, Observation, get_meter
    from .profile import Profile
    from .result import QueryResult
    from .spans import span, trace_context, traced
    from .steps import step
    from .tables import TABLES, Table

# what a process needs to answer is less than what it takes to ask
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "answer": ("Collected",),
        "client": ("QueryEngineClient",),
        "gather": ("read",),
        "keep": ("finish_run", "keep_run"),
        "metrics": ("Meter", "Observation", "get_meter"),
        "profile": ("Profile",),
        "result": ("QueryResult",),
        "spans": ("span", "trace_context", "traced"),
        "steps": ("step",),
        "tables": ("TABLES", "Table"),
    },
)

__all__ = [
    "TABLES", "Collected", "Meter", "Observation", "Profile", "QueryEngineClient", "QueryResult", "Table", "get_meter",
    "read", "span", "step", "trace_context", "traced",
]  # fmt: skip
