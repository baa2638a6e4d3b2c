"""One stopped activity of an actor.

It is a pdb on the actor's thread; its input and output go through the root client.

A session begins when a thread or task stops that has none, and ends with the message that it
handled: when the endpoint returns or raises. In between it stops and goes on, any number of times.

While it stops, its thread waits for a line. What ends that wait: a line; the end of the actor, also
by a stop, and of the process; for a post-mortem, `debug_on_error_timeout` seconds without an
attached terminal.
"""

from __future__ import annotations

import bdb
import code
import ctypes
import linecache
import pdb  # noqa: T100  # which is what this is
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from traceback import format_exception_only
from types import FrameType
from typing import Any, NamedTuple

from .._answering import answer_with
from .._core.plane import ControlRequest, Owner
from . import tracing
from .protocol import ENDED, OUTPUT, PROMPT, RUNNING, Event, StackLine, StopPlace, Who

_LOOK = 0.25  # seconds after which a session that waits looks whether its actor is about to end
_MOST_OUTPUT = 1 << 20  # characters that one command may print
_MOST_FRAMES = 100  # of a stack, as others are told of it


class Typed(NamedTuple):
    """A line for pdb."""

    line: str


class CompletionRequest(NamedTuple):
    """How may a line go on?"""

    request: ControlRequest
    line: str
    begin: int
    end: int


class Followed:
    """A stopped actor, as the root client follows it.

    Args:
        number: Its name, which no other process makes.
        closed: Called when it has ended.
    """

    def __init__(self, number: int, closed: Callable[[], object]) -> None:
        self.number = number
        self.ended = False
        self._closed = closed
        self._lock = threading.Lock()
        self._follower: ControlRequest | None = None
        self._unsaid: list[Event] = []

    def follow(self, request: ControlRequest) -> None:
        """Say there what it says, from the beginning. On the I/O thread."""
        with self._lock:
            self._follower = request
            unsaid, self._unsaid = self._unsaid, []
            for event in unsaid:
                request.answer(event)

    def handled(self, error: BaseException | None) -> None:
        """The message that it began with has been."""
        self.end("the endpoint has raised" if error is not None else "the endpoint has returned")

    def end(self, why: str) -> None:
        """End the session for good."""
        if not self.ended:
            self.ended = True
            self._say((ENDED, why, None))
            self._closed()

    def _say(self, event: Event) -> None:
        with self._lock:
            if self._follower is None:
                self._unsaid.append(event)
            else:
                self._follower.answer(event)


class DebugSession(Followed, pdb.Pdb):
    """A session of the debugger, in the process that it debugs.

    Args:
        number: Its name, which no other process makes.
        who: The actor.
        owner: The same, to see when it ends.
        aside: Whether this is another thread than the actor's: the end of its work is not known,
            so `continue` ends the session.
        closed: Called when it has ended.
    """

    def __init__(
        self, number: int, who: Who, owner: Owner, aside: bool, closed: Callable[[], object]
    ) -> None:
        Followed.__init__(self, number, closed)
        self._output = _Output(self)
        stream: Any = self._output
        pdb.Pdb.__init__(
            self, stdin=stream, stdout=stream, skip=tracing.SKIPPED, nosigint=True, readrc=False
        )
        self.reset()
        self.who = who
        self.steps = False  # whether it goes on only as far as the next line, or function
        self._owner = owner
        self._aside = aside
        self._thread = threading.get_ident()
        self._inbox: SimpleQueue[Typed | CompletionRequest] = SimpleQueue()
        self._why = ""
        self._place = StopPlace("", ())
        self._limit: float | None = None  # seconds for which it waits without anybody attached
        self._alone_since = 0.0
        self._watched = False

    # what it is told, on the I/O thread

    def put(self, item: Typed | CompletionRequest) -> None:
        self._inbox.put(item)

    def watch(self, watched: bool) -> None:
        self._alone_since = time.monotonic()
        self._watched = watched

    # its life, on the actor's thread

    def stop(self, frame: FrameType, why: str) -> None:
        """Stop here, until a command lets it go on."""
        self._why = why
        self.reset()
        self.botframe = tracing.attend(frame)
        self.set_step()
        self.interaction(frame, None)
        if sys.version_info < (3, 13):  # which a trace function has done for it, and this is none
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        if self.quitting:
            raise self.quit_error()

    def post_mortem(self, error: BaseException, limit: float | None) -> bool:
        """Keep an endpoint at the frame where it has raised, and return whether that was possible.

        The error goes on afterwards.

        Args:
            error: The exception that the endpoint raised.
            limit: Seconds for which it waits without anybody attached; None for ever.
        """
        trace = tracing.own_traceback(error)
        if trace is None or self._owner.ending is not None:
            return False
        self._why = f"raised {type(error).__name__}: {error}".rstrip(": ")[:200]
        self._limit = limit
        self.reset()
        self.botframe = None
        self.message("".join(format_exception_only(type(error), error)).rstrip())
        self.interaction(None, trace)
        return True

    def quit_error(self) -> bdb.BdbQuit:
        """Return the error that the caller gets after `quit`."""
        line = self._place.line
        return bdb.BdbQuit(
            f"{self.who} was quit in the debugger, in {line.function}() at"
            f" {line.file}:{line.number}"
        )

    def handled(self, error: BaseException | None) -> None:
        if (
            error is not None
            and not self.ended
            and not self.quitting
            and self.post_mortem(error, None)
        ):
            error._monarch_looked_at = True  # type: ignore[attr-defined]  # for `debuggee.keep`
        super().handled(error)

    def end(self, why: str) -> None:
        self.steps = False
        super().end(why)

    def stop_here(self, frame: FrameType) -> bool:
        """Step as `bdb` does, but only in what the program has called.

        A step never enters what the engine calls.
        """
        each: FrameType | None = frame
        while each is not None and not tracing.of_engine(each):
            if each is self.botframe:
                return bool(super().stop_here(frame))
            each = each.f_back
        return False

    def interaction(self, frame: FrameType | None, traceback: Any) -> None:
        stack, index = self.get_stack(frame, traceback)
        self._place = place_of(self._why or "a step", stack[: index + 1])
        self._alone_since = time.monotonic()
        super().interaction(frame, traceback)
        self._why = ""
        self.steps = not self.quitting and self.stoplineno != -1 and traceback is None
        self._output.say_all()
        self._say((RUNNING, "", None))
        if self._aside and not self.steps:
            self.end("its thread goes on")
        if self.steps or tracing.needed(self._thread):
            sys.settrace(tracing.trace)

    def reached_end(self) -> None:
        """The first of the program's frames returns; that of a coroutine may only wait."""
        if self._aside:
            self.end("its thread is done")

    # its input and output

    def say_output(self, text: str) -> None:
        self._say((OUTPUT, text, None))

    def next_line(self) -> str:
        """Return the next line for pdb, after telling that it waits."""
        self._say((PROMPT, self._output.prompt, self._place))
        while True:
            try:
                item = self._inbox.get(timeout=_LOOK)
            except Empty:
                if self._given_up():
                    return ""
                continue
            if isinstance(item, Typed):
                self._output.begin()
                return item.line + "\n"
            # what it looks at may run code of the program, which raises
            answer_with(item.request, self._completions, item.line, item.begin, item.end)

    def _given_up(self) -> bool:
        if self._owner.ending is not None:
            return True
        limit = self._limit
        return (
            limit is not None and not self._watched and time.monotonic() > self._alone_since + limit
        )

    def _completions(self, line: str, begin: int, end: int) -> list[str]:
        text = line[begin:end]
        complete: Any = self.completenames
        if begin > 0:
            command = self.parseline(line)[0]
            complete = getattr(self, f"complete_{command}", None) or self.completedefault
        found = list(complete(text, line, begin, end) or ())
        if begin == 0:
            found += self.completedefault(text, line, begin, end) or ()
        return sorted(dict.fromkeys(found))[:200]

    # commands of pdb that would not fit

    def default(self, line: str) -> None:
        """Run a line of Python."""
        with _streams.of(self._output):
            # which it puts in their places, and so changes nothing
            self.stdin, self.stdout = sys.stdin, sys.stdout
            try:
                super().default(line)
            finally:
                own: Any = self._output
                self.stdin = self.stdout = own

    def do_clear(self, arg: str) -> Any:
        """cl(ear) [filename:lineno | bpnumber ...]: clear breakpoints.

        All of them are cleared, without asking, if none is named.
        """
        if arg:
            return super().do_clear(arg)
        self.clear_all_breaks()
        self.message("Cleared all breakpoints")
        return None

    do_cl = do_clear

    def do_run(self, arg: str) -> Any:
        """run: not here, as an actor can't be started again from inside of it."""
        self.error("an actor is not restarted from here: change what its owner does")

    do_restart = do_run

    def do_debug(self, arg: str) -> Any:
        """Debug code: step through the code, in a debugger inside of this one."""
        result = super().do_debug(arg)
        # or the debugger, which has not been called by a trace function, would be traced
        sys.settrace(None)
        return result

    def do_interact(self, arg: str) -> Any:
        """interact: start an interpreter with the names of the scope; `exit()` ends it."""
        assert self.curframe is not None
        console = _Console(self, {**self.curframe.f_globals, **self.curframe.f_locals})
        with _streams.of(self._output):
            with suppress(SystemExit):
                console.interact(banner="*interactive*", exitmsg="")


class _Output:
    """The file that pdb writes to and reads from."""

    def __init__(self, session: DebugSession) -> None:
        self._session = session
        self._parts: list[str] = []
        self._left = _MOST_OUTPUT
        self.prompt = ""
        self.encoding = "utf-8"

    def begin(self) -> None:
        """A new command: it may print as much as any."""
        self._left = _MOST_OUTPUT

    def write(self, text: str) -> int:
        if self._left > 0:
            if len(text) > self._left:
                text = (
                    text[: self._left]
                    + f"\n... more than {_MOST_OUTPUT} characters: the rest is left out\n"
                )
                self._left = 0
            else:
                self._left -= len(text)
            self._parts.append(text)
        return len(text)

    def flush(self) -> None:
        """Send the output so far. A last line without a newline may be a prompt, and waits."""
        if self._parts and not self._parts[-1].endswith("\n"):
            self._say(self._parts[:-1])
            del self._parts[:-1]
        else:
            self.say_all()

    def say_all(self) -> None:
        """Say all of it."""
        self._say(self._parts)
        self._parts.clear()

    def _say(self, parts: list[str]) -> None:
        text = "".join(parts)
        if text:
            self._session.say_output(text)

    def readline(self, limit: int = -1) -> str:
        self.flush()
        self.prompt = self._parts.pop() if self._parts else ""
        return self._session.next_line()

    def isatty(self) -> bool:
        return False


class _Streams:
    """Streams of `sys` that tell threads apart, while lines of sessions run.

    Each session's output goes to the terminal that is attached to it, and that of all other
    threads where it went before. They come with the first line, and go after the last.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outputs: dict[int, _Output] = {}  # by thread
        self._before: Any = None

    @contextmanager
    def of(self, output: _Output) -> Iterator[None]:
        """Send the output of this thread there meanwhile."""
        thread = threading.get_ident()
        with self._lock:
            if not self._outputs:
                self._before = sys.stdin, sys.stdout, sys.stderr, sys.displayhook
                streams: Any = (_Stream(each, self._outputs) for each in self._before[:3])
                sys.stdin, sys.stdout, sys.stderr = streams
            outer = self._outputs.get(thread)
            self._outputs[thread] = output
        try:
            yield
        finally:
            with self._lock:
                if outer is not None:
                    self._outputs[thread] = outer
                else:
                    del self._outputs[thread]
                if not self._outputs:
                    sys.stdin, sys.stdout, sys.stderr, sys.displayhook = self._before


class _Stream:
    """The stream of the running thread, or else the one that was there before."""

    def __init__(self, before: Any, outputs: dict[int, _Output]) -> None:
        self._before = before
        self._outputs = outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outputs.get(threading.get_ident(), self._before), name)


_streams = _Streams()


class _Console(code.InteractiveConsole):
    def __init__(self, session: DebugSession, names: dict[str, Any]) -> None:
        super().__init__(names)
        self._session = session

    def raw_input(self, prompt: str = "") -> str:
        print(prompt, end="")
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")


def place_of(why: str, stack: Sequence[tuple[FrameType, int]]) -> StopPlace:
    """The place at which it has stopped, by frames and their lines, the innermost last."""
    return StopPlace(why, tuple(map(_line_of, stack[-_MOST_FRAMES:])))


def _line_of(entry: tuple[FrameType, int]) -> StackLine:
    frame, number = entry
    made_of = frame.f_code
    source = linecache.getline(made_of.co_filename, number, frame.f_globals).strip()
    return StackLine(made_of.co_filename, number, made_of.co_name, source)
