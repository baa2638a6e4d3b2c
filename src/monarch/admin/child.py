"""The child process in which the helper computes what needs duckdb.

duckdb, the rows of ten thousand ranks and an answer of a million rows would stay in the memory of
the helper, which serves for hours. So it has a function called in a child, which reaches the
program by itself: rows go from there to the answer, and the helper passes that on in pieces.

`ask` calls a function there, for `saved`, `runs` and `arrow`; `handle` the handler of a route, for
`app`. In any other process than a helper, the child among them, both call it where they are. A child
is started when one is needed, and ends when it is not asked for `IDLE` seconds; there are `MOST`, and
who asks meanwhile waits. Functions and answers are pickled, over a pair of sockets that only these two
processes have.

What ends a wait: the answer; the end of the child, which is an error; or that its asker leaves, at
the latest after `LIMIT` seconds. The child is killed then: duckdb can't be interrupted everywhere. The
kernel kills it when the helper ends, and gives it no more memory than `MEMORY`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cache
from typing import IO, Any, TypeVar, cast

from .. import config
from .._child_watch import PR_SET_PDEATHSIG
from .._new_python import MAIN
from .routes import JSON, ApiCall, Handler, Page, as_json

PROGRAM_ENDED = 3
"""The exit status of a helper that has found no program."""

T = TypeVar("T")

IDLE = 10.0
"""Seconds without a question after which a child ends."""

MOST = 2
"""Children at a time: each may take as much memory as a question does."""

MEMORY = 2 << 30
"""Bytes that a child may take, of which the database has its own share; see `Limits.memory`."""

LIMIT = 120.0
"""Seconds for a question, with its time in the queue; those with a waiting asker have less."""

MADE = 100_000
"""Values between searches for circles: answers of many ranks have none, and a search costs what they
do.
"""

_LOOK_AGAIN = 0.05  # seconds
# duckdb imports them wherever they are installed, which takes tens of megabytes; nothing here is
# given to them
_UNUSED: dict[str, Any] = dict.fromkeys(("pandas", "pyarrow"))

Reach = Callable[[Mapping[str, Any]], Any]
"""Finds the program that is served, as a helper is told."""

_children: _Children | None = None
_program: tuple[Reach, Mapping[str, Any]]


def begin(reach: Reach, told: Mapping[str, Any]) -> None:
    """From now on, have children compute what this process is asked.

    Args:
        reach: Finds the program, in a child.
        told: What it is called with.
    """
    global _children
    _children = _Children((config.exported(), reach, told))
    sys.modules["duckdb"] = cast(Any, None)  # an import is an error, and not 50 MB


def ask(function: Callable[..., T], *arguments: Any, abandoned: threading.Event | None = None) -> T:
    """Call a function of a module in a child, if this process is a helper.

    Args:
        function: Anything that can be pickled.
        *arguments: Anything that can be pickled. A `Page` that is the result has a file as its
            body.
        abandoned: Set when the result is not waited for any more.

    Raises:
        TimeoutError: The result is not waited for any more.
        ChildProcessError: The child has been killed.
    """
    if _children is None:
        return function(*arguments)
    found: T = _children.ask(function, arguments, abandoned)
    return found


def handle(handler: Handler, call: ApiCall) -> Any:
    """As `ask`, the handler of a route, which is given the child's own view of the program."""
    if _children is None:
        return handler(call)
    program, sent = call.program, call._replace(program=cast(Any, None), abandoned=None)
    return ask(_handled, program.place, program.snapshots, handler, sent, abandoned=call.abandoned)


def die_with(parent: int) -> None:
    """Have the kernel end this process with the thread that has started it.

    That works while a thread holds the interpreter and nothing can notice that standard input
    has ended.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(PROGRAM_ENDED)


@cache
def _served() -> Any:
    """The program that the helper serves, as a child reaches it."""
    reach, told = _program
    return reach(told)


class _Ended(Exception):
    """A child has ended, and has not answered."""


class _Child:
    """A child, as the helper sees it. Started when it is made."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        # one that stands still takes nothing, or gives half an answer
        self._channel.settimeout(LIMIT)
        started: Future[subprocess.Popen[bytes]] = Future()
        with theirs:
            threading.Thread(
                target=_live, args=(theirs, started), name="monarch-admin-child", daemon=True
            ).start()
            self._process = started.result()

    def ask(self, question: Any, is_over: Callable[[], bool]) -> tuple[bool, Any]:
        """Return whether it worked, and the result or the error.

        Raises:
            TimeoutError: Its time is over.
            _Ended: The child has ended.
        """
        try:
            with self._channel.makefile("wb") as to_child:
                pickle.dump(question, to_child, pickle.HIGHEST_PROTOCOL)
            poll = select.poll()
            poll.register(self._channel, select.POLLIN)
            while not poll.poll(1000 * _LOOK_AGAIN):
                if is_over():
                    raise TimeoutError("the answer took too long")
            _, files, *_ = socket.recv_fds(self._channel, 1, 1)
            with self._channel.makefile("rb") as from_child:
                worked, found = pickle.load(from_child)
        except (ConnectionError, EOFError, pickle.UnpicklingError):
            raise _Ended from None
        return worked, found._replace(body=open(files[0], "rb")) if files else found

    def status(self) -> int:
        """The status of one that has ended."""
        self._channel.close()
        return self._process.wait()

    def kill(self) -> None:
        """End it now."""
        self._process.kill()
        self.status()


def _live(theirs: socket.socket, started: Future[subprocess.Popen[bytes]]) -> None:
    """Start a child and wait for its end, on a thread that must live as long; see `die_with`."""
    code = MAIN.format(__name__)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(os.getpid())],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
        )
    except OSError as error:
        started.set_exception(error)
    else:
        started.set_result(process)
        process.wait()


class _Children:
    """The children of a helper.

    Args:
        about: What each is told with a question: the settings, and see `begin`.
    """

    def __init__(self, about: tuple[Any, ...]) -> None:
        self._about = about
        self._places = threading.Semaphore(MOST)
        self._idle: list[_Child] = []

    def ask(
        self, function: Callable[..., Any], arguments: Any, abandoned: threading.Event | None
    ) -> Any:
        """See `ask`."""
        end = time.monotonic() + LIMIT

        def is_over() -> bool:
            return time.monotonic() > end or (abandoned is not None and abandoned.is_set())

        while not self._places.acquire(timeout=_LOOK_AGAIN):
            if is_over():
                raise TimeoutError("other questions were computed all the time")
        try:
            worked, found = self._answer((self._about, function, arguments), is_over)
        finally:
            self._places.release()
        if not worked:
            raise found
        return found

    def _answer(self, question: Any, is_over: Callable[[], bool]) -> tuple[bool, Any]:
        while True:
            try:
                child = self._idle.pop()
            except IndexError:
                child = _Child()
            try:
                worked, found = child.ask(question, is_over)
            except _Ended:
                status = child.status()
                if status == 0:  # it was about to, for lack of questions
                    continue
                how = f"by {signal.Signals(-status).name}" if status < 0 else f"with {status}"
                raise ChildProcessError(
                    f"the process that computed this has ended {how}; where memory is short, ask for"
                    " less"
                ) from None
            except BaseException:
                child.kill()
                raise
            # after a time-out the query may go on in there, and after a memory error its memory may
            # stay
            if isinstance(found, (TimeoutError, MemoryError)):
                child.kill()
            else:
                self._idle.append(child)
            return worked, found


def main() -> None:
    """Answer the questions of a helper; its process id is the argument."""
    global _program
    die_with(int(sys.argv[1]))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    gc.set_threshold(MADE)
    sys.modules.update(_UNUSED)
    channel = socket.socket(fileno=os.dup(0))  # 0 is closed when this process has ended, not before
    while True:
        channel.settimeout(IDLE)
        try:
            with channel.makefile("rb") as from_helper:
                (settings, *program), function, arguments = pickle.load(from_helper)
        except (TimeoutError, EOFError):
            return
        channel.settimeout(None)
        config.inherit(settings)
        _program = program[0], program[1]
        _send(channel, *_call(function, arguments))
        del function, arguments  # large ones


def _call(function: Callable[..., Any], arguments: Any) -> tuple[bool, Any]:
    try:
        return True, function(*arguments)
    except MemoryError:
        return False, MemoryError(
            f"this needs more than {MEMORY >> 30} GiB of memory: ask for less"
        )
    except Exception as error:
        return False, error


def _send(channel: socket.socket, worked: bool, found: Any) -> None:
    files = []
    if isinstance(found, Page):
        files.append(_file_of(found.body))
        found = found._replace(body=b"")
    try:
        content = pickle.dumps((worked, found), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # which is none of what a route raises
        content = pickle.dumps((False, RuntimeError(f"{found!r} can't be sent: {error}")))
    socket.send_fds(channel, [b"!"], [file.fileno() for file in files])
    channel.sendall(content)


def _file_of(body: str | bytes | IO[bytes]) -> IO[bytes]:
    """A file in memory, of which the helper reads a piece at a time."""
    if not isinstance(body, (str, bytes)):
        return body
    file = os.fdopen(os.memfd_create("answer"), "w+b")
    file.write(body.encode() if isinstance(body, str) else body)
    file.seek(0)  # for both, which share it
    return file


def _handled(
    place: tuple[Callable[..., Any], tuple[Any, ...]] | None,
    snapshots: Any,
    handler: Handler,
    call: ApiCall,
) -> Page:
    make, arguments = place or (_served, ())
    program = make(*arguments)
    program.snapshots = snapshots
    answer = handler(call._replace(program=program))
    return answer if isinstance(answer, Page) else Page(as_json(answer), JSON)
