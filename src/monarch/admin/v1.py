"""The routes that Monarch 0.7 has, with its answers: tree, schemas, settings, py-spy, SQL.

Front ends written for 0.7 call them. Routes that 0.7 lacks are in `more`, `logs` and `trace`.
"""

from __future__ import annotations

import socket
import uuid
from typing import Any

from .. import config
from ..control import GetSettings
from ..stacks.py_spy import RunPySpy
from . import openapi, schemas
from .keys import ACT
from .routes import TEXT, ApiCall, ApiError, Field, Page, route
from .tree import ROOT


@route("GET", "/SKILL.md", seconds=0, answers="text/markdown")
def _skill(call: ApiCall) -> Page:
    """A guide to these routes, for people and programs."""
    return Page(openapi.guide(call.base), "text/markdown; charset=utf-8")


@route("GET", "/openapi.json", seconds=0)
def _openapi(call: ApiCall) -> Any:
    """The OpenAPI document of these routes."""
    return openapi.document(call.base)


@route("GET", "/v1/openapi.json", seconds=0)
def _openapi_of_v1(call: ApiCall) -> Any:
    """The OpenAPI document, at the path of Monarch 0.7."""
    return openapi.document(call.base)


@route("GET", "/v1/admin", seconds=0)
def _admin(call: ApiCall) -> Any:
    """The user and the process that serve this."""
    root = call.program.connection.hub.address
    return {
        "actor_id": f"mesh_admin.{root}",
        "proc_id": str(root),
        "host": socket.gethostname(),
        "url": call.base,
    }


@route("GET", "/v1/root", seconds="mesh_admin_tree_timeout")
def _root(call: ApiCall) -> Any:
    """The root of the tree.

    Its children are hosts; theirs are procs; and theirs are actors.
    """
    return call.program.tree.get().find(ROOT)


@route("GET", "/v1/tree", seconds="mesh_admin_tree_timeout", answers=TEXT)
def _tree(call: ApiCall) -> Page:
    """The whole tree as text, each line with the URL of its node."""
    return Page(call.program.tree.get().drawn(call.base))


@route("GET", "/v1/schema", seconds=0)
def _schema(call: ApiCall) -> Any:
    """The JSON Schema of a node."""
    return schemas.NODE


@route("GET", "/v1/schema/admin", seconds=0)
def _schema_of_admin(call: ApiCall) -> Any:
    """The JSON Schema of `/v1/admin`."""
    return schemas.ADMIN


@route("GET", "/v1/schema/error", seconds=0)
def _schema_of_errors(call: ApiCall) -> Any:
    """The JSON Schema of an error."""
    return schemas.ERROR


@route("GET", "/v1/config/{proc}", seconds="mesh_admin_config_dump_bridge_timeout")
def _config(call: ApiCall) -> Any:
    """The configuration of a process, without secrets, and where each value comes from."""
    process = call.program.proc(call.path["proc"])
    limit: float = config.value("mesh_admin_config_dump_bridge_timeout")
    return {"entries": call.program.ask(process, GetSettings(), limit)}


@route("GET", "/v1/pyspy/{proc}", role=ACT, seconds=30.0)
def _py_spy(call: ApiCall) -> Any:
    """A dump by py-spy of a process: its threads and their stacks.

    C functions are among them where py-spy can see them.
    """
    return call.program.py_spy(call.path["proc"])


@route("POST", "/v1/pyspy_dump/{proc}", role=ACT, seconds=30.0)
def _py_spy_dump(call: ApiCall) -> Any:
    """A stored py-spy dump, kept under an id.

    `/v1/pyspy_dumps/{id}` gives it, as long as this server runs and 100 others have not
    followed.
    """
    found = call.program.py_spy(call.path["proc"])
    name = str(uuid.uuid4())
    call.program.keep_dump(name, {"proc_ref": call.path["proc"], "result": found})
    return {"dump_id": name}


@route("GET", "/v1/pyspy_dumps/{id}", role=ACT, seconds=0)
def _kept_dump(call: ApiCall) -> Any:
    """A dump that was kept."""
    found = call.program.dumps.get(call.path["id"])
    if found is None:
        raise ApiError("not_found", f"no dump {call.path['id'][:80]!r} is kept")
    return found


@route(
    "POST",
    "/v1/pyspy_profile_svg/{proc}",
    role=ACT,
    answers="image/svg+xml",
    seconds=345.0,
    fields={
        "duration_s": Field("integer", "Seconds, from 1 to 300", required=True),
        "rate_hz": Field("integer", "Looks in a second, from 1 to 1000; 100 if nothing is said"),
        "native": Field("boolean", "With the functions of C libraries"),
        "threads": Field("boolean", "Threads apart from each other"),
        "nonblocking": Field("boolean", "Do not stop the process for each look"),
    },
)
def _profile(call: ApiCall) -> Page:
    """A flame graph of what a process does for some seconds, by py-spy."""
    longest = min(300.0, config.value("mesh_admin_pyspy_max_profile_duration"))
    seconds, rate = call.integer("duration_s", 0, 1, longest), call.integer("rate_hz", 100, 1, 1000)
    process = call.program.proc(call.path["proc"])
    wanted = RunPySpy(
        process, 0, seconds, rate, call.flag("native"), call.flag("threads"), call.flag("nonblocking")
    )  # fmt: skip
    found = call.program.ask(process.agent, wanted, seconds + 40.0)
    if found is None:
        raise ApiError("not_found", f"{call.path['proc']!r} has ended")
    if "Ok" not in found:
        unusable = found.get("Failed", {}).get("exit_code") == 0
        why = found.get("Failed", {}).get("stderr") or "py-spy is not installed there"
        code = "profile_output_unusable" if unusable else "profile_failed"
        raise ApiError(code, f"there is no profile: {why.strip().splitlines()[-1]}", found)
    return Page(found["Ok"]["svg"], "image/svg+xml")


@route(
    "POST",
    "/v1/query",
    seconds=35.0,
    sql=True,
    fields={
        "sql": Field("string", "One statement that reads, in duckdb's dialect", required=True),
        "timeout": Field("number", "Seconds for all of it, from 0.1 to 30; 10 if nothing is said"),
    },
)
def _query(call: ApiCall) -> Any:
    """Rows that SQL finds in the tables of telemetry.

    The answer names the rows that were left out and the processes that did not answer. Tables of
    stacks are there for the role act.
    """
    seconds = call.number("timeout", 10, 0.1, 30)
    found = call.program.query(call.text("sql"), call.role, seconds)
    return {
        "rows": found.rows,
        "columns": found.columns,
        "silent": found.silent,
        "left_out": found.left_out,
    }


@route("GET", "/v1/{reference}", seconds="mesh_admin_tree_timeout")
def _node(call: ApiCall) -> Any:
    """A host, a proc, or an actor: its reference is one segment of the path, percent-encoded."""
    return call.program.tree.get().find(call.path["reference"])
