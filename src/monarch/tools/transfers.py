"""``monarch rdma``: the paths of one-sided transfers."""

from __future__ import annotations

import typer

from .. import actor, rdma
from .json_option import JSON, print_result

app = typer.Typer()


@app.command(name="rdma", epilog="Example: monarch rdma")
def transfers(as_json: JSON = False) -> None:
    """Show which paths transfers of memory take from here, and why."""
    buffer = rdma.RDMABuffer(bytearray(1))
    with actor.this_host().spawn_procs() as procs:
        explanation = buffer.explain(procs)
    if as_json:
        paths = [each._asdict() for each in explanation.paths]
        found = {"paths": paths, "between_hosts": rdma.describe_between_hosts()}
        print_result(found, 2)
        return
    _, _, lines = str(explanation).partition("\n")
    print(
        f"between two processes of this host\n{lines}\nbetween hosts\n->"
        f" {rdma.describe_between_hosts()}"
    )
