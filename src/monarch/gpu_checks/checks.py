"""The checks: programs of a few lines, each of which says what it has seen.

What ends their waits: the answer of a rank, its end, the limit of the check.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from operator import and_, or_, xor
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817  # as all call it

from .._public import RELEASE
from ..actor import Actor, endpoint, this_host
from ..config import configured
from ..rdma import RDMABuffer
from ..spmd import setup_torch_elastic_env
from ..telemetry import read
from ..tensor_engine import Stream, inspect, no_mesh, reduce, remote, to_mesh
from .check import Check, CheckFailed, Machine, expect, reason

_TYPES = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16, torch.int32,
    torch.int64, torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip
# each refuses the types for which there is no such reduction
_KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "stack": lambda x: x, "sum": lambda x: x.sum(0, dtype=x.dtype), "avg": lambda x: x.mean(0),
    "product": lambda x: x.prod(0, dtype=x.dtype), "min": lambda x: x.amin(0), "max": lambda x: x.amax(0),
    "band": lambda x: functools.reduce(and_, x, x[0]), "bor": lambda x: functools.reduce(or_, x, x[0]),
    "bxor": lambda x: functools.reduce(xor, x, x[0] ^ x[0]),
}  # fmt: skip
_COARSE = 0.01  # so far off is a mean in bfloat16
_NEAR = 1e-3  # sums in another order, and TF32 where a program allows it
_LIMIT = 10.0  # seconds of a group, in which its ranks must find each other as well
_TOLD = 30.0  # seconds in which those who wait are told why they wait no longer


# The machine, and who has which of its devices.


def survey(device: str = "") -> Machine:
    """Look at this machine; if there is a GPU, CUDA is started in this process.

    Args:
        device: ``"cuda"`` or ``"cpu"``; by default that which there is.

    Raises:
        ValueError: There is no such device.
    """
    count = torch.cuda.device_count()
    kind = device or ("cuda" if count else "cpu")
    if kind not in ("cpu", "cuda")[: 1 + bool(count)]:
        raise ValueError(f"--device is cuda or cpu, got {kind!r}; torch finds {count} GPUs here")
    needs = {
        "gpu": (kind == "cuda", f"--device {device}" if count else "no GPU"), "two ranks": (kind == "cpu" or count > 1, "one GPU"),
        "nixl": (find_spec("nixl"), "pip install 'pymonarch[rdma]'"), "pynvml": (find_spec("pynvml"), "pip install 'pymonarch[gpu]'"),
        "nvidia-smi": (shutil.which("nvidia-smi"), "there is no nvidia-smi"),
    }  # fmt: skip
    about = (
        f"{platform.node()}: GPUs {[torch.cuda.get_device_name(each) for each in range(count)]},"
        f" torch {torch.__version__}, pymonarch {RELEASE}, Python {platform.python_version()}"
    )
    missing = {need: why for need, (there, why) in needs.items() if not there}
    return Machine(kind, count if kind == "cuda" else 2, about, missing)


def placement(machine: Machine) -> str:
    """Each rank's current device is that of its LOCAL_RANK, and no two share one."""
    with this_host().spawn_procs({"gpus": machine.ranks}) as procs, procs.activate():
        found = remote(_place).call(machine.device).get().values()
    local, current, devices = map(list, zip(*found, strict=True))
    expect("LOCAL_RANK of each rank", local, list(range(machine.ranks)))
    expect("different devices", len(set(devices)), machine.ranks)
    if machine.device == "cpu":
        return f"LOCAL_RANK is {local}, each in a process of its own; CPUs have no numbers"
    expect("current device of each rank", current, local)
    return f"the current device is that of LOCAL_RANK, {local}, with distinct UUIDs"


def _place(kind: str) -> tuple[int, int, str]:
    """LOCAL_RANK, the number of the current device, and which one that is."""
    made = torch.ones(1, device=kind).device
    which = torch.cuda.get_device_properties(made).uuid if kind == "cuda" else os.getpid()
    return int(os.environ["LOCAL_RANK"]), made.index, str(which)


def streams(machine: Machine) -> str:
    """A stream has what another one has written, for which it waits by an event."""
    side = Stream("side")
    with this_host().spawn_procs({"gpus": machine.ranks}) as procs, procs.activate():
        x = torch.zeros(1 << 22, device=machine.device)
        lent, borrow = side.borrow(x, mutable=True)
        with side.activate():
            for _ in range(50):
                lent.add_(1)
        del lent
        borrow.drop()
        for rank in range(machine.ranks):
            expect("additions by the other stream", inspect(x[-1], gpus=rank).item(), 50)
    return f"a tensor lent to another stream and back, on each of {machine.ranks} ranks"


def figures(machine: Machine) -> str:
    """The table ``gpus`` of telemetry has the memory that nvidia-smi says."""
    asked = ["--query-gpu=uuid,memory.total,memory.used", "--format=csv,noheader,nounits"]
    said = subprocess.check_output(["nvidia-smi", *asked], text=True, timeout=30).splitlines()
    theirs = {uuid: (int(total), int(used)) for uuid, total, used in (x.split(",") for x in said)}
    ours = {row["uuid"]: row for row in read("gpus").get().rows("gpus")}
    expect("UUIDs of GPUs", sorted(ours), sorted(theirs))
    for uuid, (total, used) in theirs.items():
        expect(f"MiB of {uuid}", ours[uuid]["memory_bytes"] >> 20, total, 0.01)
        # by its version the driver counts what it takes itself, or does not
        part = ours[uuid]["memory_used_bytes"] / 2**20 / total
        expect(f"part of the memory of {uuid} in use", part, used / total, 0.05)
    return f"MiB, and MiB in use, as nvidia-smi says: {list(theirs.values())}"


# Groups of ranks, and what ends the wait in one.


def reductions(machine: Machine) -> str:
    """`monarch.reduce` of each kind and type, with and without scatter."""
    tried, size = 0, machine.ranks
    with this_host().spawn_procs({"gpus": size}) as procs, procs.activate() as mesh:
        rank = mesh.rank("gpus").to(machine.device)
        for dtype, kind in ((dtype, kind) for dtype in _TYPES for kind in _KINDS):
            mine = _rows(size, rank, dtype, machine.device)
            for each, wanted in enumerate(_wanted(size, dtype, kind)):
                found = [reduce(mine, "gpus", kind, scatter) for scatter in (False, True)]
                got = [inspect(result, gpus=each).tolist() for result in found]
                expect(f"{kind} of {dtype} on rank {each}", got, wanted, _COARSE)
                tried += 1
    return f"{tried} results: each kind and type, with and without scatter, on each rank"


def _wanted(size: int, dtype: torch.dtype, kind: str) -> list[Any]:
    """Results of each rank, without and with scatter; none where torch has no such reduction."""
    with no_mesh.activate(), suppress(RuntimeError):
        every = torch.stack([_rows(size, rank, dtype, "cpu") for rank in range(size)])
        whole = _KINDS[kind](every)
        parts = whole.unbind(1 if kind == "stack" else 0)
        return [[whole.tolist(), part.tolist()] for part in parts]
    return []


def _rows(size: int, rank: Any, dtype: torch.dtype, device: str) -> Any:
    """The input of a rank: ones and twos, of which the product is exact in each type."""
    return ((torch.arange(3 * size, device=device).reshape(size, 3) + rank) % 2 + 1).to(dtype)


def swap(machine: Machine) -> str:
    """Ranks send and receive at the same time, in one batch."""
    size = machine.ranks
    with this_host().spawn_procs({"gpus": size}) as procs, procs.activate() as mesh:
        got = remote(_pass_on).call(mesh.process_group("gpus"), machine.device).get().values()
        expect("what came from the rank before", got, [(rank - 1) % size for rank in range(size)])
        if size % 4:
            return f"a ring of {size} ranks in one batch"
        grid = mesh.split(gpus=("a", "b", "rest"), a=2, b=2)
        number = grid.rank(("a", "b", "rest")).to(machine.device)
        turned = to_mesh(number, grid.rename(a="b", b="a"))  # half of the ranks swap theirs
        expect("what came in a swap", inspect(turned, a=0, b=1, rest=0).item(), size // 4)
    return f"a ring of {size} ranks in one batch, and to_mesh between pairs"


def _pass_on(group: Any, device: str) -> float:
    """Send this rank's number to the next, and return that of the one before."""
    rank, size = group.rank(), group.size()
    mine, theirs = (torch.full((1,), float(rank), device=device) for _ in range(2))
    sent = dist.P2POp(dist.isend, mine, (rank + 1) % size, group)
    received = dist.P2POp(dist.irecv, theirs, (rank - 1) % size, group)
    for work in dist.batch_isend_irecv([sent, received]):
        work.wait()
    return theirs.item()


def killed_rank(machine: Machine) -> str:
    """Ranks that wait for one that is killed are told, and go on."""
    with this_host().spawn_procs({"gpus": machine.ranks}) as procs, procs.activate() as mesh:
        pids, group = remote("os.getpid").call().get().values(), mesh.process_group("gpus")
        remote(_total).call(machine.device, group).get()
        with mesh.slice(gpus=slice(machine.ranks - 1)).activate():
            waiting = remote(_total).call(machine.device, group)
            os.kill(pids[-1], signal.SIGKILL)
            told = _told(waiting.get)
            there = remote("os.getpid").call().get(timeout=_TOLD).values()
            expect("processes that go on", there, pids[:-1])
        all_told = _told(lambda timeout: remote("os.getpid").call().get(timeout))
    expect(f"the rank is named in: {all_told}", f"[{machine.ranks - 1}]" in all_told, True)
    return f"{told}; all are {all_told}"


def timeout(machine: Machine) -> str:
    """A rank that waits for those who do not come is told at the time limit of their group."""
    start = remote("torch.distributed.init_process_group")
    backend = "nccl" if machine.device == "cuda" else "gloo"
    with this_host().spawn_procs({"gpus": machine.ranks}) as procs, procs.activate() as mesh:
        setup_torch_elastic_env(procs)
        start.call(backend, timeout=timedelta(seconds=_LIMIT)).get()
        remote(_total).call(machine.device).get()
        with mesh.slice(gpus=0).activate():
            told = _told(remote(_total).call_one(machine.device).get)
    # the watchdog of NCCL may end the process, which its caller is told instead
    expect(f"it is told of the limit, {told}", "out" in told or "SIGABRT" in told, True)
    return f"at a limit of {_LIMIT:g} s {told}"


def _total(device: str, group: Any = None) -> float:
    """Add up a one of each rank, by an all-reduce."""
    dist.all_reduce(x := torch.ones(1, device=device), group=group)
    return x.item()


def _told(get: Callable[..., Any]) -> str:
    """After how long, and what, a call is told that waits for a rank which does not come.

    Raises:
        CheckFailed: Nothing, or not in time.
    """
    began, found = time.monotonic(), f"none within {_TOLD:g} s"
    try:
        found = get(timeout=_TOLD)
    except Exception as error:
        if not isinstance(error, TimeoutError):
            return f"told after {time.monotonic() - began:.1f} s: {reason(error)}"
    raise CheckFailed(f"wanted an error of those who wait, got {found}")


# One-sided transfers, between two processes.


class Holder(Actor):
    """Has memory on a device.

    Args:
        device: ``"cpu"`` or ``"cuda:0"``.
    """

    def __init__(self, device: str) -> None:
        nbytes = 16 << 20 if device == "cpu" else 256 << 20
        self.memory = torch.zeros(nbytes, dtype=torch.uint8, device=device)
        self.buffer = RDMABuffer(self.memory)

    @endpoint
    def fill(self, seed: int) -> RDMABuffer:
        """Have random bytes there; returns a handle."""
        random = torch.Generator().manual_seed(seed)
        made = torch.randint(0, 256, self.memory.shape, dtype=torch.uint8, generator=random)
        self.memory.copy_(made)[-1].item()  # which waits for the stream
        return self.buffer

    @endpoint
    def checksum(self) -> int:
        """The sum of words, each times its place."""
        words = self.memory.view(torch.int64)
        return int((words * torch.arange(1, len(words) + 1, device=words.device)).sum())

    @endpoint
    def move(self, way: str, buffer: RDMABuffer, device: str) -> float:
        """Fill this memory by ``"read_into"`` or ``"copy_"``, or that by ``"write_from"``; GB/s."""
        source, seconds = torch.empty_like(self.memory, device=device), []
        for _ in range(4):  # the first one also opens, or registers, the memory
            began = time.perf_counter()
            if way == "copy_":
                self.memory.copy_(source)[-1].item()
            else:
                getattr(buffer, way)(self.memory).get()
            seconds.append(time.perf_counter() - began)
        return self.memory.nbytes / min(seconds) / 1e9


def transfer(path: str, machine: Machine) -> str:
    """Bytes arrive that were read and written by this path.

    Args:
        path: One of those of the knob ``rdma_paths``.
        machine: Where.
    """
    on_gpus = machine.device == "cuda" and path != "vm"  # by which the kernel copies, on the host
    theirs, ours = ("cuda:0", f"cuda:{min(1, machine.ranks - 1)}") if on_gpus else ("cpu", "cpu")
    with configured(rdma_paths=path, preload=("nixl._api",) if path == "nixl" else ()):
        procs = this_host().spawn_procs({"gpus": 2})
    with procs:
        owner = procs.slice(gpus=0).spawn("owner", Holder, theirs)
        user = procs.slice(gpus=1).spawn("user", Holder, ours)
        buffer = owner.fill.call_one(0).get()
        rates = [user.move.call_one("copy_", buffer, theirs).get()]
        expect("the path", buffer.explain(user).taken, path)
        for seed, (way, source) in enumerate((("read_into", owner), ("write_from", user))):
            owner.fill.call_one(10 + seed).get()
            user.fill.call_one(20 + seed).get()
            wanted = source.checksum.call_one().get()
            rates.append(user.move.call_one(way, buffer, theirs).get())
            sums = [each.checksum.call_one().get() for each in (owner, user)]
            expect(f"checksums of both sides after {way}", sums, [wanted, wanted])
    copied, read, written = (f"{rate:.3g}" for rate in rates)
    return f"{theirs} from {ours}: read {read} GB/s, written {written}, torch copies {copied}"


# Networks, against one process.


def tensors(machine: Machine) -> str:
    """A program on distributed tensors has the results of it on local ones."""
    wanted = _program(machine.device)
    with this_host().spawn_procs({"gpus": machine.ranks}) as procs, procs.activate():
        for name, tensor in _program(machine.device).items():
            for rank in range(machine.ranks):
                got = inspect(tensor, gpus=rank).tolist()
                expect(f"{name} on rank {rank}", got, wanted[name].tolist(), _NEAR)
    return f"{len(wanted)} results as of local torch, on each of {machine.ranks} ranks"


def _program(device: str) -> dict[str, torch.Tensor]:
    """Operations of several kinds, gradients, an optimizer."""
    x = torch.linspace(-1, 1, 32 * 16, device=device).reshape(32, 16)
    network = _network(16).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for _ in range(3):
        _step(network, optimizer, x)
    return {
        "matmul": x @ x.t(), "in bfloat16": (x.bfloat16() @ x.bfloat16().t()).float(), "cumsum": x.cumsum(1),
        "sort": x.sin().sort(1).values, "softmax": x.softmax(1), "gather": x.gather(1, (x * 7).long().abs()),
        "conv2d": torch.nn.functional.conv2d(x.reshape(2, 1, 16, 16), x[:1, :9].reshape(1, 1, 3, 3)), "std": x.std(0),
        **{name: weight.detach() for name, weight in network.named_parameters()},
    }  # fmt: skip


def training(how: str, machine: Machine) -> str:
    """Ten steps of all ranks have the losses of ten steps in one process.

    Args:
        how: ``"ddp"`` or ``"fsdp"``.
        machine: Where.
    """
    device, size = machine.device, machine.ranks
    wanted, whole, most = _train(_network(256).to(device), device, slice(size), size)
    with this_host().spawn_procs({"gpus": size}) as procs, procs.activate() as mesh:
        groups = mesh.process_group("gpus"), mesh.torch_mesh(device)
        found = remote(_trained).call(how, device, *groups).get().values()
    losses, held, peaks = zip(*found, strict=True)
    means = [sum(step) / size for step in zip(*losses, strict=True)]
    expect("losses of ten steps", means, wanted, _NEAR)
    expect("bytes of parameters", sum(held), whole * (size if how == "ddp" else 1))
    words = f"losses as in one process; rank 0 has {held[0] >> 10} of {whole >> 10} KiB"
    return words + (f", and {max(peaks) >> 20} MiB of GPU, one {most >> 20}" if most else "")


def _trained(how: str, device: str, group: Any, mesh: Any) -> tuple[list[float], int, int]:
    """Ten steps of a rank with its copy of the network, or with its shard; see `_train`."""
    whole: Any = _network(256).to(device)
    network = DDP(whole, process_group=group) if how == "ddp" else fully_shard(whole, mesh=mesh)
    return _train(network, device, slice(group.rank(), group.rank() + 1), group.size())


def _network(width: int) -> torch.nn.Module:
    """Make a network with equal weights in each process."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width)
    )


def _train(network: Any, device: str, part: slice, parts: int) -> tuple[list[float], int, int]:
    """Losses of ten steps on a part of each batch, bytes of parameters, most of the GPU's memory."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    batches = torch.randn(10, parts, 16, 256, generator=torch.Generator().manual_seed(1)).to(device)
    losses = [_step(network, optimizer, batch[part].flatten(0, 1)).item() for batch in batches]
    here = [p.to_local() if hasattr(p, "to_local") else p for p in network.parameters()]
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return losses, sum(each.nbytes for each in here), peak


def _step(network: Any, optimizer: Any, batch: torch.Tensor) -> Any:
    """Learn to turn rows around; returns the loss."""
    optimizer.zero_grad()
    loss = (network(batch) - batch.flip(-1)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


CHECKS = (
    Check("placement", placement), Check("streams", streams), Check("collectives", reductions),
    Check("swap", swap, ("two ranks",)), Check("killed rank", killed_rank, ("two ranks",)),
    Check("timeout", timeout, ("two ranks",)),
    Check("transfer: ipc", functools.partial(transfer, "cuda"), ("gpu",)),
    Check("transfer: vm", functools.partial(transfer, "vm")),
    Check("transfer: nixl", functools.partial(transfer, "nixl"), ("nixl",)),
    Check("transfer: messages", functools.partial(transfer, "messages")),
    Check("tensors", tensors), Check("ddp", functools.partial(training, "ddp")), Check("fsdp", functools.partial(training, "fsdp")),
    Check("telemetry", figures, ("gpu", "nvidia-smi", "pynvml")),
)  # fmt: skip
"""Those of `monarch doctor --gpu`, in their order: what others build on comes first."""
