"""The command line of `torchrun`, as `monarch run` and `SPMDJob` read it.

Its options and their meaning: https://docs.pytorch.org/docs/stable/elastic/run.html. As there, the
environment variable ``PET_MAX_RESTARTS`` stands for ``--max-restarts``, and so on.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

STDOUT, STDERR = 1, 2  # bits of a choice of streams
ENDING: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The signals of which a rank gets SIGTERM; any other one reaches it as it is."""

_WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("rdzv-backend", "rdzv-endpoint", "rdzv-conf"),
        "ranks need no rendezvous: one program starts all of them",
    ),
    "node-rank": "hosts are numbered as the mesh of the job has them",
    "monitor-interval": "the end of a rank is known at once",
    "start-method": "ranks are programs of their own",
    "event-log-handler": "there are no such events",
    "logs-specs": "--log-dir, --redirects and --tee say where output goes",
}
_SWITCHES = {
    "module": "the script is a module, as python -m takes it",
    "no-python": "the script is a program, not a Python script",
    "run-path": "the script is run as it is named; the same as no option here",
    "virtual-local-rank": "each rank sees one device, as LOCAL_RANK 0",
    "standalone": "no effect: it is always so",
}
_VALUES = {  # the default, and what the help shows for the value, and says
    "nnodes": (None, "N | MIN:MAX", "number of hosts, or fewest and most; default: all there are"),
    "nproc-per-node": ("1", "N", "ranks per host: a number, gpu, cpu, or auto; default: 1"),
    "max-restarts": (0, "N", "how often to start again what has failed; default: 0"),
    "rdzv-id": (None, "ID", "name of the run; default: none"),
    "role": ("default", "NAME", "ROLE_NAME of the ranks; default: default"),
    "log-dir": (None, "DIR", "folder for files of output; default: a temporary one"),
    "redirects": ("0", "R", "streams to files only: 0 to 3, or RANK:R,...; 1 is stdout"),
    "tee": ("0", "R", "streams to files as well, in the same form"),
    "local-ranks-filter": ("", "R,...", "local ranks whose output is shown; default: all"),
    "duplicate-stdout-filters": ("", "TEXT,...", "lines with such a text to a file of each host"),
    "duplicate-stderr-filters": ("", "TEXT,...", "the same of stderr"),
    "log-line-prefix-template": ("", "TEMPLATE", "head of each line: ${rank}, ${hostname}, ..."),
    "numa-binding": (None, "MODE", "cores near its GPU for each rank: node, socket, exclusive, ..."),
    "master-addr": (None, "HOST", "where rank 0 is reached; default: the name of its host"),
    "master-port": (0, "PORT", "TCP port of the store there; default: a free one"),
    "local-addr": (None, "HOST", "the same as --master-addr, for runs on one host"),
    "signals-to-handle": (
        "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "S,...", "signals that end the ranks; default: these four"
    ),
    "shutdown-timeout": (30.0, "S", "seconds from SIGTERM to SIGKILL; default: 30"),
    "hang-timeout": (0.0, "S", "show all stacks when no rank prints or ends for S seconds"),
}  # fmt: skip
_BOUNDS = {
    "max-restarts": (0, math.inf, "at least 0"),
    "master-port": (0, 65535, "a TCP port, or 0 for a free one"),
    "shutdown-timeout": (0, math.inf, "a number of seconds"),
    "hang-timeout": (0, sys.float_info.max, "a number of seconds, 0 for never"),
}
_SHORT = {"module": ("-m",), "redirects": ("-r",), "tee": ("-t",)}
_KNOWN = {
    "rdzv-backend": ("c10d", "etcd", "etcd-v2", "static"),
    "start-method": ("spawn", "fork", "forkserver"),
    "logs-specs": ("default",),
    "numa-binding": ("node", "socket", "exclusive", "core-complex"),
}
"""The values to choose from: others are mistakes, as for `torchrun`."""

_VARIABLES = {
    "log-line-prefix-template": "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
    "shutdown-timeout": "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
}
"""Variables that stand for an option beside ``PET_...``, as for `torchrun`."""

LINE_PREFIX = "[${role_name}${local_rank}]:"
"""Stands before a line of a file or a terminal that several ranks share, as with `torchrun`."""

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
        line_prefix: Stands before each shown line, as a `string.Template` of ``role_name``,
            ``local_rank``, ``rank`` and ``hostname``; empty for ``[rank N]``.
        stdout_filters: Lines of stdout with one of these texts go to a file of each host, too.
        stderr_filters: The same of stderr.
        numa_binding: Which cores near its GPU a rank is bound to, as `torch.numa.binding` names
            them; None for all.
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
    line_prefix: str = ""
    stdout_filters: tuple[str, ...] = ()
    stderr_filters: tuple[str, ...] = ()
    numa_binding: str | None = None
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

    def add(name: str, default: Any = None, **how: Any) -> None:
        spellings = f"--{name}", f"--{name.replace('-', '_')}", *_SHORT.get(name, ())
        names = f"PET_{name.upper().replace('-', '_')}", _VARIABLES.get(name, "")
        default = next((os.environ[each] for each in names if os.environ.get(each)), default)
        made.add_argument(*dict.fromkeys(spellings), default=default, **how)

    for name, (default, shown, about) in _VALUES.items():
        kind = type(default) if type(default) in (int, float) else None
        known = _KNOWN.get(name)
        add(name, default, metavar=shown, help=about, type=kind, choices=known)
    for name, about in _SWITCHES.items():
        add(name, "0", action="store_true", help=about)
    for name, why in _WITHOUT_EFFECT.items():
        add(name, metavar="X", help=f"no effect: {why}", choices=_KNOWN.get(name))
    add("print-completion", metavar="SHELL", type=_elsewhere, help="see monarch --show-completion")
    made.add_argument("script", help="the script, its module, or a program")
    made.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    return made


def options_of(parsed: argparse.Namespace) -> Options:
    """Make `Options` of what the parser has found.

    Raises:
        ValueError: An option has a value that makes no sense.
    """
    for name, (least, most, means) in _BOUNDS.items():
        if not least <= (got := _of(parsed, name)) <= most:
            raise ValueError(f"--{name} is {means}, got {got}")
    if _on(parsed.module) and _on(parsed.no_python):
        raise ValueError("--module and --no-python exclude each other")
    tee = _streams("--tee", parsed.tee)
    without_effect = {f"--{it}": why for it, why in _WITHOUT_EFFECT.items() if _of(parsed, it)}
    return Options(
        script=parsed.script, args=tuple(parsed.args), nodes=_nodes(parsed.nnodes),
        procs=_procs(parsed.nproc_per_node), max_restarts=parsed.max_restarts,
        run_id=uuid.uuid4().hex if _on(parsed.standalone) else parsed.rdzv_id or "none",
        role=parsed.role, module=_on(parsed.module), no_python=_on(parsed.no_python),
        log_dir=parsed.log_dir, redirects=_streams("--redirects", parsed.redirects), tee=tee,
        shown_local_ranks=_ranks(parsed.local_ranks_filter),
        master_addr=parsed.master_addr or parsed.local_addr, master_port=parsed.master_port,
        shutdown_timeout=parsed.shutdown_timeout, hang_timeout=parsed.hang_timeout,
        signals=_signals(parsed.signals_to_handle),
        virtual_local_rank=_on(parsed.virtual_local_rank),
        line_prefix=parsed.log_line_prefix_template or (LINE_PREFIX if any(tee) else ""),
        stdout_filters=_texts(parsed.duplicate_stdout_filters),
        stderr_filters=_texts(parsed.duplicate_stderr_filters), numa_binding=parsed.numa_binding,
        without_effect=without_effect,
    )  # fmt: skip


def parse(arguments: Sequence[str], prog: str = "torchrun") -> Options:
    """Parse the arguments of `torchrun`.

    Args:
        arguments: Without the name of the program.
        prog: Its name, for errors.

    Raises:
        ValueError: They make no sense; the message says which.
    """
    return options_of(parser(prog).parse_args(list(arguments)))


def _of(parsed: argparse.Namespace, name: str) -> Any:
    return getattr(parsed, name.replace("-", "_"))


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


def _texts(text: str) -> tuple[str, ...]:
    """The texts of a list with commas; two commas are one in a text."""
    parts = text.replace(",,", "\0").split(",")
    return tuple(part.replace("\0", ",") for part in parts if part)


def _elsewhere(shell: str) -> NoReturn:
    raise argparse.ArgumentTypeError(
        f"`monarch --show-completion` prints the script for {shell}, of all commands"
    )


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
