"""Pipes: a process beside each rank that makes values for it, such as a data loader.

Values can be sent to it as well.

Three parts: the program holds a `Pipe`; next to each worker sits a `PipeEnd`, an actor that hands
values over as any endpoint does that gets and gives distributed tensors; the process runs the
user's function, with a `PipeProcess` that speaks for it.

What ends the waits: of an end, for a value: the process sends one, its function ends, or the
process does. Of the function, for room or for a value: the other side, or the end of the pipe.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...actor import Actor, as_endpoint, concurrent_endpoint, context, endpoint
from ..planning.fakes import Meta
from ..tensors.activation import get_active_mesh
from ..tensors.device_mesh import DeviceMesh
from ..tensors.tensor import Tensor
from ..worker.functions import find
from .remote_functions import Remote, remote, resolve

_PLACE = "pipe_process"
_CLOSED = object()


class Pipe:
    """A process per rank of a mesh, seen from the program.

    Made by what `remote_generator` made, or by `create_pipe`.

    It ends with `drop`, or with the program. What a function raises is raised by fetches of its
    later results.
    """

    def __init__(
        self,
        mesh: DeviceMesh,
        function: Remote[..., Any],
        args: Any,
        kwargs: Any,
        max_messages: int,
    ) -> None:
        self._mesh = mesh
        # what the generator of fakes did not ask for yet; None when it has ended
        self._sent: deque[Any] | None = deque()
        self._fakes: Iterator[Any] | None = None
        self._make_fakes = functools.partial(
            function._propagate, _FakeEnd(mesh, self._sent), *args, **kwargs
        )
        procs = mesh.procs
        hosts = [address.host for address in mesh.group.procs]
        per_host = max(Counter(hosts).values())
        self._procs = procs.host_mesh.spawn_procs(per_host={_PLACE: per_host}, name="pipe")
        places = _places(hosts, per_host)
        positions = {place: position for position, place in enumerate(places)}
        found = resolve(function._function)
        processes: Any = self._procs.spawn(
            "pipe", PipeProcess, found, args, kwargs, max_messages, mesh.sizes, positions
        )
        processes.begin.broadcast()
        self._ends: Any = procs.spawn("pipe_ends", PipeEnd, processes, places)

    def recv(self) -> Any:
        """The next value that each process sends.

        They are distributed tensors, known by what the generator of fakes yields. Does not
        wait.

        Raises:
            RuntimeError: The generator of fakes has ended; or the pipe was dropped.
        """
        with self._mesh.activate():
            return as_endpoint(self._ends.recv, propagate=self._next).rref()

    def send(self, obj: Any) -> None:
        """Send to each process what its rank has. Does not wait.

        Args:
            obj: Anything, with distributed tensors of the pipe's mesh.
        """
        with self._mesh.activate():
            as_endpoint(self._ends.send, propagate="inspect").rref(obj)
        if self._sent is not None:
            self._sent.append(pytree.tree_map_only(Tensor, lambda each: each._value.meta, obj))

    def drop(self) -> None:
        """End the processes, even busy ones, and wait until they are gone.

        The second time does nothing.
        """
        self._ends.stop("the pipe was dropped").get()
        self._procs.stop("the pipe was dropped").get()

    def _next(self) -> Any:
        """Runs where operations make fakes."""
        if self._fakes is None:
            self._fakes = self._make_fakes()
        try:
            return next(self._fakes)
        except StopIteration:
            self._sent = None
            raise RuntimeError(
                "nothing more comes from this pipe: its generator of fakes has ended"
            ) from None


def remote_generator(
    function: Any, max_messages: int = 50
) -> Callable[[Callable[..., Any]], Callable[..., Pipe]]:
    """Decorate a generator with what a function will send, as fake tensors.

    For example::

        @remote_generator("my_data.batches")          # runs in each process as batches(pipe, 32): pipe.send(...)
        def batches(pipe, size):
            while True:
                yield torch.empty(size, 3)            # what arrives

        pipe = batches(32)                            # on the active mesh
        x = pipe.recv()

    The generator's own ``pipe.recv()`` gives fakes of what the program sent, in order.

    Args:
        function: The function, or its dotted name. Its first argument has ``send``, ``recv``,
            ``ranks`` and ``sizes``.
        max_messages: How many values a process may be ahead of its rank.

    Returns:
        The decorator of the generator of fakes.

    Raises:
        ValueError: `max_messages` is less than 1.
    """
    if max_messages < 1:
        raise ValueError(f"max_messages={max_messages}: expected 1 or more")

    def decorate(fakes: Callable[..., Any]) -> Callable[..., Pipe]:
        run: Remote[..., Any] = remote(function, propagate=fakes)
        return functools.wraps(fakes)(
            functools.partial(create_pipe, run, max_messages=max_messages)
        )

    return decorate


def create_pipe(function: Any, *args: Any, max_messages: int = 50, **kwargs: Any) -> Pipe:
    """Start a process beside each rank of the active mesh.

    It runs ``function(pipe, *args, **kwargs)``.

    Args:
        function: What ``remote(function, propagate=generator of fakes)`` gave. See
            `remote_generator`.
        *args: Ordinary values.
        max_messages: How many values a process may be ahead of its rank.
        **kwargs: As `args`.

    Returns:
        The program's end of the pipes.

    Raises:
        TypeError: `function` is no remote function with a rule.
        ValueError: No mesh is active, or a distributed tensor is among the arguments.
    """
    if not isinstance(function, Remote) or not callable(function._propagate):
        raise TypeError(
            f"create_pipe takes remote(function, propagate=generator of fakes), got {function!r}"
        )
    mesh = get_active_mesh()
    if any(isinstance(leaf, (Tensor, DeviceMesh)) for leaf in pytree.tree_leaves((args, kwargs))):
        raise ValueError(
            "arguments of a pipe are ordinary values, as its processes have no tensors of the mesh;"
            " use send"
        )
    return Pipe(mesh, function, args, kwargs, max_messages)


class _FakeEnd:
    """The fake end of a pipe, for the generator of fakes."""

    def __init__(self, mesh: DeviceMesh, sent: deque[Any]) -> None:
        self.sizes = mesh.sizes
        self.ranks = dict.fromkeys(mesh._labels, 0)
        self._sent = sent

    def recv(self) -> Any:
        if not self._sent:
            raise RuntimeError(
                "the process waits for something that was not sent; send before recv"
            )
        return pytree.tree_map_only(Meta, lambda each: each.fake(), self._sent.popleft())


def _places(hosts: list[str], per_host: int) -> list[int]:
    """The position of each rank's process among those of the pipe, by host."""
    order = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    taken: Counter[str] = Counter()
    places = []
    for host in hosts:
        places.append(order[host] * per_host + taken[host])
        taken[host] += 1
    return places


class PipeEnd(Actor):
    """Next to a worker: hands over what its process sends."""

    def __init__(self, processes: Any, places: list[int]) -> None:
        flat = processes.flatten(_PLACE)
        self._process = flat.slice(**{_PLACE: places[context().actor_instance.rank.rank]})

    def recv(self) -> Any:
        return self._process.take.call_one().get()

    def send(self, obj: Any) -> None:
        self._process.put.call_one(obj).get()


class PipeProcess(Actor):
    """Runs the function on a thread of the pipe's process, and speaks for it."""

    def __init__(
        self,
        function: Any,
        args: Any,
        kwargs: Any,
        max_messages: int,
        sizes: dict[str, int],
        positions: dict[int, int],
    ) -> None:
        self._function = function
        self._args, self._kwargs = args, kwargs
        self._mesh_sizes = sizes
        self._position = positions.get(context().actor_instance.rank.rank)
        self._room = threading.Semaphore(max_messages)
        self._outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self._incoming: SimpleQueue[Any] = SimpleQueue()
        self._ended: str | None = None

    @endpoint
    async def begin(self) -> None:
        """Start the function."""
        self._loop = asyncio.get_running_loop()
        if self._position is not None:  # else a rank of this host is not in the mesh
            end = ProcessEnd(self, self._mesh_sizes, self._position)
            threading.Thread(
                target=self._run, args=(end,), name="monarch-pipe", daemon=True
            ).start()

    @concurrent_endpoint
    async def take(self) -> Any:
        """The next value that the function has sent."""
        value = await self._outgoing.get()
        if value is _CLOSED:
            self._outgoing.put_nowait(_CLOSED)  # for the next one
            raise RuntimeError(self._ended)
        self._room.release()
        return value

    @concurrent_endpoint
    async def put(self, obj: Any) -> None:
        """A value for the function."""
        self._incoming.put(obj)

    async def __cleanup__(self, error: Exception | None) -> None:
        self._end("the pipe was dropped")
        self._incoming.put(_CLOSED)
        self._room.release()

    # the function's thread

    def _run(self, end: ProcessEnd) -> None:
        why = "the function of the pipe has returned, and sends nothing more"
        try:
            function = find(self._function) if isinstance(self._function, str) else self._function
            function(end, *self._args, **self._kwargs)
        except Exception:
            why = f"the function of the pipe has failed:\n{traceback.format_exc()}"
        with suppress(RuntimeError):  # the actor has ended, and its loop
            self._loop.call_soon_threadsafe(self._end, why)

    def _end(self, why: str) -> None:
        if self._ended is None:
            self._ended = why
            self._outgoing.put_nowait(_CLOSED)

    def send_from_thread(self, obj: Any) -> None:
        self._room.acquire()
        if self._ended is not None:
            raise RuntimeError(self._ended)
        copied = pytree.tree_map_only(torch.Tensor, lambda each: each.detach().clone(), obj)
        self._loop.call_soon_threadsafe(self._outgoing.put_nowait, copied)

    def recv_on_thread(self) -> Any:
        obj = self._incoming.get()
        if obj is _CLOSED:
            raise RuntimeError("the pipe was dropped")
        return obj


class ProcessEnd:
    """The first argument of the function.

    Attributes:
        sizes: Of the mesh, by label.
        ranks: Coordinates of the rank that this process serves.
    """

    def __init__(self, process: PipeProcess, sizes: dict[str, int], position: int) -> None:
        self._process = process
        self.sizes = sizes
        self.ranks = dict.fromkeys(sizes, 0)
        for label, size in reversed(sizes.items()):
            position, self.ranks[label] = divmod(position, size)

    def send(self, obj: Any) -> None:
        """Send a value to the rank; tensors as they are now.

        Waits while the rank is `max_messages` behind.

        Raises:
            RuntimeError: The pipe was dropped.
        """
        self._process.send_from_thread(obj)

    def recv(self) -> Any:
        """Wait for the next value that the program sends.

        Raises:
            RuntimeError: The pipe was dropped.
        """
        return self._process.recv_on_thread()
