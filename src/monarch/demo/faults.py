"""The faults of the simulated training.

Each says where the odd rank stands, and where all others do meanwhile. Plain data.
"""

from __future__ import annotations

from collections.abc import Mapping

from .._namedtuple import NamedTuple
from ..stacks.model import Frame

_SITE = "/opt/venv/lib/python3.12/site-packages"
_ENGINE = f"{_SITE}/monarch/_core"
_DISTRIBUTED = f"{_SITE}/torch/distributed/distributed_c10d.py"
_HOME = "/home/me/run"

Frames = tuple[Frame, ...]

BOTTOM: Frames = (
    Frame("_handle", f"{_ENGINE}/actors/sync_cell.py", 183),
    Frame("_serve", f"{_ENGINE}/actors/sync_cell.py", 144),
    Frame("run", "/usr/lib/python3.12/threading.py", 1012),
)
"""What runs an endpoint."""

GET: Frames = (
    Frame("wait", f"{_ENGINE}/calls/waiting.py", 61),
    Frame("get", f"{_ENGINE}/calls/future.py", 118),
)


def _in_step(line: int, *frames: Frame) -> Frames:
    return (*frames, Frame("step", f"{_HOME}/train.py", line), *BOTTOM)


LOADS = _in_step(54, Frame("next_batch", f"{_HOME}/data.py", 24))
FORWARD = _in_step(
    56,
    Frame("forward", f"{_HOME}/model.py", 88),
    Frame("_call_impl", f"{_SITE}/torch/nn/modules/module.py", 1776),
)
BACKWARD = _in_step(
    57,
    Frame("_engine_run_backward", f"{_SITE}/torch/autograd/graph.py", 841),
    Frame("backward", f"{_SITE}/torch/_tensor.py", 648),
)
ALL_REDUCE = _in_step(
    58,
    Frame("all_reduce", _DISTRIBUTED, 2810),
    Frame("wrapper", f"{_SITE}/torch/distributed/c10d_logger.py", 81),
    Frame("reduce_gradients", f"{_HOME}/train.py", 71),
)
OPTIMIZE = _in_step(59, Frame("step", f"{_SITE}/torch/optim/adamw.py", 243))
STAGES: tuple[tuple[float, Frames], ...] = (
    (0.10, LOADS), (0.40, FORWARD), (0.78, BACKWARD), (0.93, ALL_REDUCE), (1.0, OPTIMIZE),
)  # fmt: skip
"""What a rank does in a step, and until which part of it."""

PREFETCHES: Frames = (
    Frame("decode", f"{_HOME}/data.py", 77), Frame("prefetch", f"{_HOME}/data.py", 61), *BOTTOM,
)  # fmt: skip
PROGRAM: Frames = (
    *GET,
    Frame("main", f"{_HOME}/main.py", 31),
    Frame("<module>", f"{_HOME}/main.py", 40),
)

_READS = _in_step(
    54,
    Frame("recv_into", "/usr/lib/python3.12/socket.py", 719),
    Frame("read_shard", f"{_HOME}/data.py", 31),
    Frame("next_batch", f"{_HOME}/data.py", 25),
)
_SLEEPS = _in_step(
    54, Frame("wait_for_shard", f"{_HOME}/data.py", 44), Frame("next_batch", f"{_HOME}/data.py", 26)
)
_LOCKED = _in_step(
    62,
    Frame("acquire", "/usr/lib/python3.12/threading.py", 466),
    Frame("save_checkpoint", f"{_HOME}/train.py", 83),
)
_MATCHES = _in_step(
    54,
    Frame("sub", "/usr/lib/python3.12/re/__init__.py", 186),
    Frame("clean", f"{_HOME}/data.py", 93),
    Frame("next_batch", f"{_HOME}/data.py", 27),
)
_STOPPED = _in_step(
    57,
    Frame("ask", f"{_SITE}/monarch/debugger/debuggee.py", 212),
    Frame("check_loss", f"{_HOME}/train.py", 97),
)
ASKS_LOADER = _in_step(54, *GET, Frame("next_batch", f"{_HOME}/data.py", 29))
ASKS_TRAINER: Frames = (*GET, Frame("next", f"{_HOME}/data.py", 52), *BOTTOM)
REPORTS = _in_step(60, Frame("broadcast", f"{_ENGINE}/actors/adverbs.py", 148))
WRITES: Frames = (
    Frame("flush", f"{_HOME}/metrics.py", 40),
    Frame("log", f"{_HOME}/metrics.py", 28),
    *BOTTOM,
)

Line = tuple[float, str, str, str, str]
"""Seconds after the fault has begun; of `"odd"`, `"others"` or `"first"`; the level, or stdout, or
stderr; where; what.
"""


class Fault(NamedTuple):
    """Something that is wrong.

    Attributes:
        about: For people.
        odd: Where the odd rank stands; empty if it is nowhere, or as the others are.
        inside: In which system call.
        others: Where the other ranks stand.
        speed: Of the training while it lasts; 0 if it hangs.
        odd_speed: Of the odd rank, where it does not wait for the others.
        kernel: The state of the odd process, as the kernel names it.
        age: Seconds for which it lasts already when the simulation begins.
        wants: Ranks that it takes.
        lines: What is in the logs for it.
    """

    about: str
    odd: Frames = ()
    inside: str = ""
    others: Frames = ALL_REDUCE
    speed: float = 0.0
    odd_speed: float | None = None
    kernel: str = "S"
    age: float = 43.0
    wants: int = 2
    lines: tuple[Line, ...] = ()


_LATE: Line = (
    30.0,
    "first",
    "WARNING",
    "train.py:74",
    "all_reduce of step {step} has taken 30 s so far",
)

FAULTS: Mapping[str, Fault] = {
    "none": Fault("nothing: the training goes on", speed=1.0, age=0.0, wants=1),
    "missing-collective": Fault(
        "one rank never comes to the all_reduce of the others: it reads from a socket",
        _READS,
        "receive of socket:[48213]",
        lines=(
            (-21.0, "odd", "WARNING", "data.py:33", "shard-{rank:05d}-12: no bytes for 5 s, connecting again (1 of 5)"),
            (-1.4, "odd", "INFO", "data.py:29", "opening s3://corpus/shard-{rank:05d}-13 at 10.9.0.7:9000"),
            (-0.9, "odd", "WARNING", "data.py:33", "10.9.0.7:9000 accepted, and has sent no bytes yet"),
            _LATE,
        ),
    ),
    "deadlock": Fault(
        "a rank waits for its loader, which waits for that rank", lines=(
            (-0.3, "odd", "INFO", "data.py:50", "asks the trainer for its state"), _LATE,
        ),
    ),
    "slow-loader": Fault(
        "the data of one rank comes slowly: it sleeps, and looks again",
        _SLEEPS,
        "a sleep",
        speed=1 / 600,
        lines=(
            (-2.0, "odd", "WARNING", "data.py:45", "shard-{rank:05d}-13 is not there yet, looking again every 0.1 s"),
            (20.0, "odd", "WARNING", "data.py:45", "shard-{rank:05d}-13 is not there yet: 20 s"),
            _LATE,
        ),
    ),
    "straggler": Fault(
        "the steps of one rank take longer by 40 %", speed=1.0, odd_speed=1 / 1.4, age=180.0, wants=3,
        lines=((0.0, "odd", "stderr", "", "nvidia-smi: GPU 00000000:3B:00.0: SW Thermal Slowdown: Active"),),
    ),
    "lock": Fault(
        "one rank waits for a lock that nobody lets go",
        _LOCKED,
        "a wait for another thread, or a lock",
        lines=((-0.2, "odd", "INFO", "train.py:80", "checkpoint of step {step}: waiting for the writer"), _LATE),
    ),
    "full-mailbox": Fault(
        "one actor takes messages more slowly than all others send them: its mailbox is full",
        WRITES,
        "write of /mnt/share/metrics.csv",
        REPORTS,
        wants=1,
        lines=((-4.0, "odd", "WARNING", "metrics.py:38", "/mnt/share/metrics.csv: a write took 3.8 s"),),
    ),
    "dead-rank": Fault(
        "one process was killed, and the others wait for it",
        lines=(
            (-3.0, "odd", "stderr", "", "cache of shards: 212 GiB of host memory are in use, 3 GiB are left"),
            _LATE,
        ),
    ),
    "silent-host": Fault("one host does not answer any more", wants=2, lines=(_LATE,)),
    "gil": Fault(
        "C code of one rank holds the interpreter's lock",
        _MATCHES,
        lines=((-0.5, "odd", "INFO", "data.py:92", "cleaning a document of 48 MB"), _LATE),
    ),
    "stopped": Fault("one process was stopped by a signal", kernel="T", lines=(_LATE,)),
    "breakpoint": Fault(
        "one rank has stopped in the debugger",
        _STOPPED,
        lines=((-0.1, "odd", "ERROR", "train.py:96", "loss is nan at step {step}; breakpoint()"),),
    ),
    "hostile-logs": Fault("nothing but what one rank prints: markup, escape sequences, lines of 1 MB", speed=1.0, wants=1),
}  # fmt: skip
"""By name."""
