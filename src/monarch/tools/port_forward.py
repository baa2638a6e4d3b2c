"""``monarch port-forward``: a port of a host of the running job, as one of this machine."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

import typer

from ..actor import HostMesh
from ..errors import JobError, SupervisionError
from ..job.base import telemetry
from ..job.forward import ForwardedPort
from .exec import check_mesh
from .found import CONTEXT, running
from .json_option import JSON, print_result
from .utils import Misuse

_PLACE = re.compile(r"(?P<mesh>[^][:]+)(\[(?P<rank>\d+)\])?:(?P<port>\d+)")
_LAST_PORT = 65535

app = typer.Typer()


@app.command("port-forward", epilog="Example: monarch port-forward trainers[0]:6006")
def port_forward(
    place: Annotated[
        str, typer.Argument(metavar="MESH[RANK]:PORT", help="Which port of which host.")
    ],
    local: Annotated[
        int | None,
        typer.Argument(
            min=0, max=_LAST_PORT, help="The port here; 0 for any free one. Default: the same."
        ),
    ] = None,
    context: CONTEXT = None,
    as_json: JSON = False,
) -> None:
    """Reach a TCP port of a host of the job, until Ctrl-C.

    An example is TensorBoard, in the browser here.

    Nothing listens there for it: each connection goes over the links of the job, to 127.0.0.1 of
    the host.
    """
    found = _PLACE.fullmatch(place)
    if found is None or not 0 < int(found["port"]) <= _LAST_PORT:
        raise Misuse(f"port-forward takes MESH[RANK]:PORT, such as trainers[0]:6006, got {place!r}")
    port = int(found["port"])
    saved = running(context)
    telemetry.look_on()
    host = _host(saved.state(None)._hosts, found["mesh"], found["rank"])
    wanted = port if local is None else local
    try:
        forwarded = ForwardedPort(host, port, wanted)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise JobError(
            f"port {wanted} can't be had here; give another behind {place}, or 0 for any free one"
        ) from error
    try:
        _say(forwarded.local, place, as_json)
        with suppress(KeyboardInterrupt):  # the way to end it
            forwarded.wait()
    except SupervisionError as error:
        why = str(error) if error.failure is None else error.failure.event.reason
        raise JobError(f"{place.rpartition(':')[0]} is gone: {why}") from error
    finally:
        forwarded.close()


def _host(meshes: Mapping[str, HostMesh], name: str, rank: str | None) -> HostMesh:
    check_mesh(name, meshes)
    hosts = meshes[name]
    if rank is None and len(hosts) > 1:
        raise ValueError(f"{name} has {len(hosts)} hosts: say which, such as {name}[0]")
    if int(rank or 0) >= len(hosts):
        raise ValueError(f"there is no {name}[{rank}]: it has {len(hosts)} hosts, from 0 on")
    return hosts.flatten("rank").slice(rank=int(rank or 0)) if hosts.sizes else hosts


def _say(local: int, place: str, as_json: bool) -> None:
    if as_json:
        print_result({"local": local, "place": place})
    else:
        print(f"127.0.0.1:{local} is {place}; Ctrl-C ends it", file=sys.stderr, flush=True)
