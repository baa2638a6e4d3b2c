"""The route ``/v1/trace``: a span of time that is over, as a file for ui.perfetto.dev.

The page Timeline links to it; `telemetry.window` makes the file.
"""

from __future__ import annotations

from functools import partial

from ..telemetry.window import trace
from .logs import moment
from .routes import ApiCall, Field, Page, route

_SECONDS = 60.0


@route(
    "GET",
    "/v1/trace",
    seconds=_SECONDS,
    sql=True,
    answers="application/octet-stream",
    fields={
        "since": Field(
            "string",
            "From then on: seconds since 1970, or RFC 3339; a minute before its end if nothing is"
            " said",
        ),
        "until": Field("string", "Until then; now if nothing is said"),
        "mesh": Field("string", "Name or id of a mesh of procs"),
        "rank": Field("string", "Ranks of it: 0,3-5 or ::2 or hosts=1,gpus=0:4"),
    },
)
def _trace(call: ApiCall) -> Page:
    """A timeline of a retained period, as a file for ui.perfetto.dev.

    It has messages, spans and steps. A period with more than 100,000 of one kind is refused:
    ask for a shorter one, or fewer ranks.
    """
    # refused before anything is asked
    given = moment(call.text("since", ""), -1), moment(call.text("until", ""), -1)
    until = given[1] if given[1] >= 0 else call.program.time()["now"]
    since = given[0] if given[0] >= 0 else until - 60
    query = partial(call.program.query, role=call.role, seconds=_SECONDS)
    mesh, rank = call.query.get("mesh"), call.query.get("rank")
    found = trace(query, int(since * 1e6), int(until * 1e6), mesh, rank)
    return Page(found.content, "application/octet-stream")
