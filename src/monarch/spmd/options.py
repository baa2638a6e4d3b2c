"""The command line of `torchrun`, as `monarch run` and `SPMDJob` read it.

Its options and their meaning: https://docs.pytorch.org/docs/stable/elastic/run.html. As there, the
environment variable ``PET_MAX_RESTARTS`` stands for ``--max-restarts``, and so on.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

STDOUT, STDERR = 1, 2  # bits of a choice of streams
_LAST_PORT = 65535
ENDING: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The signals of which a rank gets SIGTERM; any other one reaches it as it is."""

_WITHOUT_EFFECT = {
    "rdzv_backend": "ranks need no rendezvous: one program starts all of them",
    "rdzv_endpoint": "ranks need no rendezvous: one program starts all of them",
    "rdzv_conf": "ranks need no rendezvous: one program starts all of them",
    "node_rank": "hosts are numbered as the mesh of the job has them",
    "monitor_interval": "the end of a rank is known at once",
    "start_method": "ranks are programs of their own",
    "event_log_handler": "there are no such events",
    "logs_specs": "--log-dir, --redirects and --tee say where output goes",
    "duplicate_stdout_filters": "`monarch logs --grep` looks for lines",
    "duplicate_stderr_filters": "`monarch logs --grep` looks for lines",
    "numa_binding": "numactl before the script does it, with --no-python",
    "log_line_prefix_template": "lines begin with the rank, [rank 0]",
    "print_completion": "monarch --show-completion prints such a script, of all commands",
}
_VARIABLES = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": _WITHOUT_EFFECT["log_line_prefix_template"]}
"""Variables of torchrun that have no effect, and why."""

_KNOWN = {
    "rdzv_backend": ("c10d", "etcd", "etcd-v2", "static"),
    "start_method": ("spawn", "fork", "forkserver"),
    "logs_specs": ("default",),
    "numa_binding": ("node", "socket", "exclusive", "core-complex"),
}
"""The values to choose from: others are mistakes, as for `torchrun`."""

_LAUNCHERS = ("torchrun", "torch.distributed.run")


class Streams(NamedTuple):
    """Which streams of which local ranks.

    Attributes:
        of_all: Bits `STDOUT` and `STDERR`, for ranks that are not named.
        of_some: Local rank to bits.
    """

    of_all: int = 0
    of_some: Mapping[int, int] = {}

    def of(self, local_rank: int) -> int:
        """Return the bits of a local rank."""
        return self.of_all if not self.of_some else self.of_some.get(local_rank, 0)


class Options(NamedTuple):
    """The options of `torchrun` that have an effect here.

    Attributes:
        script: The script, the module or the program.
        args: Its arguments.
        nodes: Fewest and most hosts; None for all that there are.
        procs: Ranks per host, or ``"auto"``, ``"gpu"``, ``"cpu"``.
        max_restarts: How often a script that has failed is started again.
        run_id: Names this run, in ``TORCHELASTIC_RUN_ID`` and in the folder of the logs.
        role: ``ROLE_NAME`` of the ranks.
        module: `script` is a module, as ``python -m`` takes it.
        no_python: `script` is a program that is no Python script.
        log_dir: Folder for the files that `redirects` and `tee` ask for; None for a temporary one
            that no other user can enter.
        redirects: Streams that go to a file only.
        tee: Streams that go to a file as well.
        shown_local_ranks: Local ranks with shown output; None for all.
        master_addr: Where rank 0 is reached; None for the name of its host.
        master_port: TCP port of the store there; 0 for a free one.
        shutdown_timeout: Seconds from SIGTERM to SIGKILL.
        signals: Which signals to the launcher end the ranks.
        hang_timeout: Seconds in which no rank prints or ends, after which the stacks of all are
            shown; 0 for never.
        virtual_local_rank: Every rank sees one device, as ``LOCAL_RANK`` 0.
        without_effect: Options that were given and have none: name to reason.
    """

    script: str
    args: tuple[str, ...] = ()
    nodes: tuple[int, int] | None = None
    procs: int | str = 1
    max_restarts: int = 0
    run_id: str = "none"
    role: str = "default"
    module: bool = False
    no_python: bool = False
    log_dir: str | None = None
    redirects: Streams = Streams()
    tee: Streams = Streams()
    shown_local_ranks: frozenset[int] | None = None
    master_addr: str | None = None
    master_port: int = 0
    shutdown_timeout: float = 30.0
    signals: tuple[int, ...] = ENDING
    hang_timeout: float = 0.0
    virtual_local_rank: bool = False
    without_effect: Mapping[str, str] = {}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog}: {message}")


def parser(prog: str) -> argparse.ArgumentParser:
    """Return a parser of `torchrun`'s options; `options_of` makes `Options` of what it returns.

    Args:
        prog: Name of the program, for help and errors.
    """
    made = _Parser(prog=prog, description="Run a script on every rank of some hosts.")

    def add(name: str, *more: str, **how: Any) -> None:
        spellings = {f"--{name}": None, f"--{name.replace('-', '_')}": None, **dict.fromkeys(more)}
        default = os.environ.get(f"PET_{name.upper().replace('-', '_')}", how.pop("default", None))
        help_text = how.pop("help", None) or f"no effect: {_WITHOUT_EFFECT[name.replace('-', '_')]}"
        made.add_argument(*spellings, default=default, help=help_text, **how)

    def switch(name: str, *more: str, text: str | None = None) -> None:
        add(name, *more, action="store_true", default="0", help=text)

    about = "number of hosts, or the fewest and the most; default: all there are"
    add("nnodes", metavar="N | MIN:MAX", help=about)
    about = "ranks per host: a number, gpu, cpu, or auto; default: 1"
    add("nproc-per-node", default="1", metavar="N", help=about)
    about = "how often to start again what has failed; default: 0"
    add("max-restarts", type=int, default=0, metavar="N", help=about)
    add("rdzv-id", metavar="ID", help="name of the run; default: none")
    add("role", default="default", metavar="NAME", help="ROLE_NAME of the ranks; default: default")
    switch("module", "-m", text="the script is a module, as python -m takes it")
    switch("no-python", text="the script is a program, not a Python script")
    switch("run-path", text="the script is run as it is named; the same as no option here")
    about = "folder for files of --redirects and --tee; default: a temporary one"
    add("log-dir", metavar="DIR", help=about)
    about = "streams to files only: 0 to 3, or RANK:R,...; 1 is stdout"
    add("redirects", "-r", default="0", metavar="R", help=about)
    add("tee", "-t", default="0", metavar="R", help="streams to files as well, in the same form")
    about = "local ranks whose output is shown; default: all"
    add("local-ranks-filter", default="", metavar="R,...", help=about)
    about = "where rank 0 is reached, and the store, by anybody; default: the name of its host"
    add("master-addr", metavar="HOST", help=about)
    about = "TCP port of the store there; default: a free one"
    add("master-port", type=int, default=0, metavar="PORT", help=about)
    add("local-addr", metavar="HOST", help="the same as --master-addr, for runs on one host")
    names = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    about = f"signals that end the ranks; default: {names}"
    add("signals-to-handle", default=names, metavar="S,...", help=about)
    limit = os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30")
    about = "seconds from SIGTERM to SIGKILL"
    add("shutdown-timeout", type=float, default=limit, metavar="S", help=about)
    about = "show all stacks when no rank prints or ends for S seconds"
    add("hang-timeout", type=float, default=0, metavar="S", help=about)
    switch("virtual-local-rank", text="each rank sees one device, as LOCAL_RANK 0")
    switch("standalone", text="no effect: it is always so")
    for name in _WITHOUT_EFFECT:
        add(name.replace("_", "-"), metavar="X", choices=_KNOWN.get(name))
    made.add_argument("script", help="the script, its module, or a program")
    made.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    return made


def options_of(parsed: argparse.Namespace) -> Options:
    """Make `Options` of what the parser has found.

    Raises:
        ValueError: An option has a value that makes no sense.
    """
    if parsed.max_restarts < 0:
        raise ValueError(f"--max-restarts is at least 0, got {parsed.max_restarts}")
    if not 0 <= parsed.master_port <= _LAST_PORT:
        raise ValueError(
            f"--master-port is a TCP port, or 0 for a free one, got {parsed.master_port}"
        )
    if not parsed.shutdown_timeout >= 0:
        raise ValueError(
            f"--shutdown-timeout is a number of seconds, got {parsed.shutdown_timeout}"
        )
    if not 0 <= parsed.hang_timeout < math.inf:
        raise ValueError(
            f"--hang-timeout is a number of seconds, 0 for never, got {parsed.hang_timeout}"
        )
    if _on(parsed.module) and _on(parsed.no_python):
        raise ValueError("--module and --no-python exclude each other")
    return Options(
        script=parsed.script,
        args=tuple(parsed.args),
        nodes=_nodes(parsed.nnodes),
        procs=_procs(parsed.nproc_per_node),
        max_restarts=parsed.max_restarts,
        run_id=uuid.uuid4().hex if _on(parsed.standalone) else parsed.rdzv_id or "none",
        role=parsed.role,
        module=_on(parsed.module),
        no_python=_on(parsed.no_python),
        log_dir=parsed.log_dir,
        redirects=_streams("--redirects", parsed.redirects),
        tee=_streams("--tee", parsed.tee),
        shown_local_ranks=_ranks(parsed.local_ranks_filter),
        master_addr=parsed.master_addr or parsed.local_addr,
        master_port=parsed.master_port,
        shutdown_timeout=parsed.shutdown_timeout,
        hang_timeout=parsed.hang_timeout,
        signals=_signals(parsed.signals_to_handle),
        virtual_local_rank=_on(parsed.virtual_local_rank),
        without_effect={
            f"--{name.replace('_', '-')}": why
            for name, why in _WITHOUT_EFFECT.items()
            if getattr(parsed, name)
        }
        | {name: why for name, why in _VARIABLES.items() if os.environ.get(name)},
    )


def parse(arguments: Sequence[str], prog: str = "torchrun") -> Options:
    """Parse the arguments of `torchrun`.

    Args:
        arguments: Without the name of the program.
        prog: Its name, for errors.

    Raises:
        ValueError: They make no sense; the message says which.
    """
    return options_of(parser(prog).parse_args(list(arguments)))


def _on(switch: bool | str) -> bool:
    """Return whether a switch is given, or set in the environment."""
    return switch is True or switch not in ("0", "", False)


def parse_command(command: Sequence[str]) -> Options:
    """Parse a whole command.

    It is ``torchrun ...``, ``python -m torch.distributed.run ...``, or ``python script.py
    ...``.

    Raises:
        ValueError: It is empty, or none of these; or its arguments make no sense.
    """
    if not command:
        raise ValueError("command cannot be empty")
    first, *rest = command
    name = os.path.basename(first)
    if name in _LAUNCHERS:
        return parse(rest, name)
    if not name.startswith("python"):
        raise ValueError(f"the command is torchrun ..., or python ..., got {list(command)}")
    while rest and rest[0] == "-u":
        rest = rest[1:]
    if rest[:1] == ["-m"] and rest[1:2] and rest[1] in _LAUNCHERS:
        return parse(rest[2:], rest[1])
    return parse(rest, name)


def _nodes(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    fewest, _, most = text.partition(":")
    try:
        found = int(fewest), int(most or fewest)
    except ValueError:
        raise ValueError(f"--nnodes is a number, or MIN:MAX, got {text!r}") from None
    if not 1 <= found[0] <= found[1]:
        raise ValueError(f"--nnodes is at least 1, and MIN is at most MAX, got {text!r}")
    return found


def _procs(text: str) -> int | str:
    if text in ("auto", "gpu", "cpu"):
        return text
    try:
        found = int(text)
    except ValueError:
        raise ValueError(f"--nproc-per-node is a number, gpu, cpu or auto, got {text!r}") from None
    if found < 1:
        raise ValueError(f"--nproc-per-node is at least 1, got {found}")
    return found


def _streams(option: str, text: str) -> Streams:
    try:
        if ":" not in text:
            found = Streams(int(text))
        else:
            pairs = [part.split(":") for part in text.split(",")]
            found = Streams(0, {int(rank): int(bits) for rank, bits in pairs})
    except ValueError:
        raise ValueError(
            f"{option} is 0, 1 (stdout), 2 (stderr) or 3 (both), or RANK:N,...; got {text!r}"
        ) from None
    if any(not 0 <= bits <= STDOUT | STDERR for bits in (found.of_all, *found.of_some.values())):
        raise ValueError(f"{option}: 0 is none, 1 stdout, 2 stderr, 3 both; got {text!r}")
    return found


def _ranks(text: str) -> frozenset[int] | None:
    try:
        return frozenset(map(int, text.split(","))) if text else None
    except ValueError:
        raise ValueError(f"--local-ranks-filter is a list of numbers, got {text!r}") from None


def _signals(text: str) -> tuple[int, ...]:
    try:
        found = tuple(signal.Signals[name.strip()] for name in text.split(",") if name.strip())
    except KeyError as error:
        raise ValueError(f"--signals-to-handle: there is no signal {error}") from None
    for number in (signal.SIGKILL, signal.SIGSTOP):
        if number in found:
            raise ValueError(f"--signals-to-handle: no program can handle {number.name}")
    return found
