"""The commands ``monarch status`` and ``monarch doctor``.

The first shows what runs of the current job; the second checks its hosts for what would make a
program fail.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from .. import doctor_gpu, job, trust
from ..actor import HostMesh, attach_to_workers
from ..errors import MonarchError
from ..gpu_checks.check import FAILED, SKIPPED
from ..job import checkup, current
from ..job.base import telemetry
from ..job.overview import Overview, TimeIsUp, addresses_of, look_at, within
from .completion import context_names
from .json_option import JSON, print_lines, print_result, print_table
from .redact import secret_files

CONTEXT = Annotated[
    str | None,
    typer.Argument(
        help="The job, as its context or module.attribute. Default: that of the active context.",
        autocompletion=context_names,
    ),
]

_HOSTS_WITHIN = 30.0  # seconds

app = typer.Typer()


@app.command(epilog="Example: monarch status")
def status(
    context: CONTEXT = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for its hosts.")] = 10.0,
    as_json: JSON = False,
) -> None:
    """Show the job of a context, its hosts, and what runs there.

    Starts nothing.

    The exit status is 1 if it does not run, waits for its hosts, or one of them does not answer.
    """
    path = current.state_path(context)
    name = current.context_of(context)
    found = look_at(path, timeout) if path.exists() else Overview("", "", False, [], "")
    if as_json:
        rows = [row._asdict() for row in found.hosts]
        print_result({"context": name, **found._asdict(), "hosts": rows}, 2)
    else:
        _show(name, found)
    troubled = found.error or found.pending or any(row.error for row in found.hosts)
    sys.exit(0 if found.runs and not troubled else 1)


def _show(context: str, found: Overview) -> None:
    if not found.job:
        print(f"no job runs in context {context!r}: `monarch apply` starts one")
        return
    state = "waits for its hosts" if found.pending else "runs" if found.runs else "has ended"
    print_lines([("plain", f"{found.job} {state}; context {context!r}, id {found.id or 'none'}")])
    print_lines(
        (kind, text) for kind, text in (("bad", found.error), ("late", found.pending)) if text
    )
    rows = []
    for row in found.hosts:
        procs = ", ".join(f"{name} ({count})" for name, count in row.procs.items()) or "-"
        cells = f"{row.mesh}[{row.host}]", row.machine or "?", row.address, row.error or procs
        rows.append(("bad" if row.error else "plain", cells))
    if rows:
        print_table("host machine address procs", rows)


@app.command(epilog="Example: monarch doctor tcp://node1:26600 tcp://node2:26600")
def doctor(
    workers: Annotated[
        list[str] | None,
        typer.Argument(
            help="Addresses of workers. Default: the hosts of the current job, if it runs."
        ),
    ] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Try what runs on GPUs, here.")] = False,
    device: Annotated[str, typer.Option(help="For --gpu: cuda, or cpu.")] = "",
    as_json: JSON = False,
) -> None:
    """Check this machine and the hosts of a job.

    It looks at versions, secret, ports, clocks, GPUs, RDMA and limits. With --gpu it runs small
    programs on each GPU of this machine instead, or on its CPUs: docs/gpu.md.

    The exit status is 1 if something is found that would make a program fail, or slow; it is named.
    """
    if gpu or device:
        if workers or not gpu:
            raise typer.BadParameter("--gpu is of this machine alone, and --device of --gpu")
        doctor_gpu.main([f"--device={device}", *["--json"] * as_json], _show_checks)
    here = checkup.look()
    findings, problems = [checkup.Finding("here", here, 0.0)], _secret_problems()
    for name, hosts in _meshes(workers or [], problems):
        try:
            hosts.initialized.get(timeout=checkup.PATIENCE)
            findings += checkup.examine(name, hosts, addresses_of(hosts))
        except (MonarchError, RuntimeError, OSError) as error:
            problems.append(f"{name}: {str(error).strip() or 'no answer'}")
    problems += checkup.problems(here, findings[1:])
    if as_json:
        rows = [{"name": each.name, "skew": each.skew, **each.host._asdict()} for each in findings]
        print_result({"hosts": rows, "problems": problems}, 2)
    else:
        _show_findings(findings, problems)
    sys.exit(1 if problems else 0)


def _show_checks(rows: doctor_gpu.Rows) -> None:
    kinds = {FAILED: "bad", SKIPPED: "late"}
    print_table("check outcome seconds seen", [(kinds.get(row[1], "plain"), row) for row in rows])


def _meshes(workers: list[str], problems: list[str]) -> list[tuple[str, HostMesh]]:
    """List the meshes to look at.

    Each worker is one by itself, so that a missing one does not affect the others.
    """
    if workers:
        return [(address, attach_to_workers(workers=[address])) for address in workers]
    path = Path(job.DEFAULT_JOB_PATH)
    saved = job.job_load(path) if path.exists() else None
    telemetry.look_on()
    try:
        with within(_HOSTS_WITHIN):
            if saved is not None and saved.active and saved._is_running():
                return list(saved.state(path)._hosts.items())
        typer.echo("no job runs here: looking at this machine alone", err=True)
    except TimeIsUp:
        problems.append(f"{saved!r}: its hosts have not come up within {_HOSTS_WITHIN:g} s")
    except MonarchError as error:
        problems.append(str(error))
    return []


def _secret_problems() -> list[str]:
    found = []
    for path in secret_files(os.environ):
        try:
            if path.exists():  # else there are certificates, or hosts of this machine alone
                trust.read_secret_file(path)
        except (OSError, ValueError) as error:
            found.append(f"the secret: {error}")
    return found


def _show_findings(findings: list[checkup.Finding], problems: list[str]) -> None:
    rows = [
        ("plain", (
            name, host.machine, host.python, host.monarch, host.torch or "-", host.nixl or "-", str(host.cpus),
            str(host.gpus), ", ".join(host.rdma) or "-", str(host.files), f"{skew * 1000:+.0f} ms",
        ))
        for name, host, skew in findings
    ]  # fmt: skip
    print_table("host machine Python pymonarch torch nixl CPUs GPUs RDMA files clock", rows)
    print_lines(("bad", f"! {problem}") for problem in problems)
    if not problems:
        print("nothing is wrong, as far as one can see")
