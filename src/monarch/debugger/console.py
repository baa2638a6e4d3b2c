"""The prompt of the debugger: a loop that reads lines from some terminal and asks the root client.

It keeps nothing by itself.

What ends a wait of it: an answer; the end of the program, of which it says so; Ctrl-C, which
detaches from a session that runs; a terminal that hangs up.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TextIO

from .._core import plane
from .._ours import user_name
from .._rank_selector import RankSelector
from .._words import tame
from ..errors import SupervisionError
from ..programs import PATIENCE, agents_of, ask, procs_of
from . import protocol, views
from .commands import HELP, NAMES, DebuggerCommand, parse

# seconds after which one that waits for a session looks whether its terminal is still there
_LOOK = 0.5
_PROMPT = "monarch_dbg> "
_BANNER = "************************ MONARCH DEBUGGER ************************\n"
_HINTS = "Enter 'help' for a list of commands.\nEnter 'list' to show all active breakpoints.\n\n"

Completer = Callable[[str, int, int], "list[str]"]


class Terminal:
    """The terminal of a person, or of a script: two files, without line editing.

    Args:
        read_from: The file that is read; by default `sys.stdin`, looked up at each line.
        write_to: The file that text goes to; by default `sys.stdout`, looked up at each text.
        echo: Whether to echo the input: it was not typed at a terminal that shows it already.
    """

    def __init__(
        self, read_from: TextIO | None = None, write_to: TextIO | None = None, echo: bool = False
    ) -> None:
        self._in = read_from
        self._out = write_to
        self._echo = echo

    def read(self, prompt: str, complete: Completer) -> str:
        """Return the next line, without its end.

        Raises:
            EOFError: There is none.
            KeyboardInterrupt: It was given up.
        """
        self.write(prompt)
        line = (self._in or sys.stdin).readline()
        if not line:
            raise EOFError
        if self._echo:
            self.write(line)
        return line.rstrip("\r\n")

    def write(self, text: str) -> None:
        """Show text as it is; on any thread."""
        out = self._out or sys.stdout
        out.write(tame(text, True))
        out.flush()

    def write_code(self, text: str) -> None:
        """Show what pdb says, which may hold lines of source."""
        self.write(text)


class Console:
    """The console of the debugger in a terminal.

    Args:
        root: The root client of the program.
        terminal: Where lines come from.
        has_left: Tells whether the terminal has been closed.
    """

    def __init__(
        self,
        root: plane.ProcAddress,
        terminal: Terminal,
        has_left: Callable[[], bool] = lambda: False,
    ) -> None:
        self._root = root
        self._terminal = terminal
        self._has_left = has_left
        self._hub = plane.current_hub()
        self._number = plane.random_uid()
        self._driver = f"{user_name()}@{socket.gethostname()} (pid {os.getpid()})"

    def run(self, first: str = "") -> bool:
        """Read and do commands until `quit`, the end of the input, or that of the program.

        Args:
            first: A command to begin with.

        Returns:
            Whether the last command has worked; without any, whether an actor has stopped.

        Raises:
            OSError: The terminal has hung up.
        """
        self._terminal.write(_BANNER + _HINTS)
        try:
            self._worked = bool(first or self.rows())
            going = self._step(first) if first else True
            while going:
                going = self._step()
        except SupervisionError:
            self._failed("The program has ended.")
        return self._worked

    def _step(self, given: str = "") -> bool:
        try:
            command = parse(given or self._terminal.read(_PROMPT, self._complete))
        except EOFError:
            self._terminal.write("\n")
            return False
        except KeyboardInterrupt:
            self._terminal.write("\n")
            return True
        except ValueError as error:
            self._failed(f"Error parsing input: {error}")
            return True
        if command is None:
            return True
        if command.verb == "quit":
            self._terminal.write("Quitting debug session...\n")
            return False
        self._worked = True
        try:
            getattr(self, f"_do_{command.verb}")(command)
        except (LookupError, PermissionError, ValueError, TimeoutError) as error:
            self._failed(f"Error processing command: {error.args[0] if error.args else error}")
        return True

    def _failed(self, text: str) -> None:
        self._terminal.write(f"{text}\n")
        self._worked = False

    def _complete(self, line: str, begin: int, end: int) -> list[str]:
        if not line[:begin].strip():
            return [name for name in NAMES if name.startswith(line[begin:end])]
        before, start = line[:begin].split(), line[begin:end]
        rows = self.rows()
        words = {row.who.name for row in rows}
        if len(before) > 1:
            words = {row.label for row in rows if row.who.goes_by(before[1])}
        return sorted(word for word in words if word.startswith(start))

    # commands

    def _do_help(self, command: DebuggerCommand) -> None:
        self._terminal.write(HELP)

    def _do_list(self, command: DebuggerCommand) -> None:
        rows = self.rows()
        self._terminal.write(views.table(rows) + "\n")
        if not rows:
            self._terminal.write("No rank is in the debugger.\n")

    def _do_where(self, command: DebuggerCommand) -> None:
        self._terminal.write((views.stacks(self.rows()) or "No rank has stopped.") + "\n")

    def _do_attach(self, command: DebuggerCommand) -> None:
        self._attach(self._find(command), command.flag)

    def _do_cast(self, command: DebuggerCommand) -> None:
        for row in self._rows_of(command.name, command.ranks):
            self._send(row, command.text)

    def _do_continue(self, command: DebuggerCommand) -> None:
        for row in self.rows():
            if row.stopped and not row.in_editor:
                self._send(row, "clear ;; continue")

    def _send(self, row: protocol.Row, line: str) -> None:
        refused = self._ask(protocol.Send(row.number, self._number, line))
        if refused:
            self._terminal.write(f"{row.who.name} {row.label}: {refused}\n")

    def _find(self, command: DebuggerCommand) -> protocol.Row:
        if "/" in command.ranks:
            found = [row for row in self._rows_of(command.name) if row.label == command.ranks]
        else:
            found = self._rows_of(command.name, command.ranks)
        if not found:
            who = f"{command.name} {command.ranks}".rstrip()
            raise LookupError(
                f"No debug session for {who}: none of that name has stopped. `interrupt {who}` stops"
                " it at its next line, if it runs; `monarch stacks` shows where it is"
            )
        if len(found) > 1:
            labels = ", ".join(row.label for row in found)
            raise LookupError(
                f"{command.name} {command.ranks} means several debug sessions, say which: {labels}"
            )
        return found[0]

    def _do_break(self, command: DebuggerCommand) -> None:
        if not command.file:
            self._list_breakpoints()
            return
        record = protocol.SetBreakpoint(command.file, command.line, command.text, command.ranks)
        answers = [
            (proc, *answer) for proc, answer in self._ask_procs(record) if answer is not None
        ]
        done = Counter(file for _, problem, file in answers if not problem)
        for problem in sorted({problem for _, problem, _ in answers if problem}):
            ranks = ", ".join(
                f"{proc.mesh} {proc.rank}" for proc, found, _ in answers if found == problem
            )
            self._terminal.write(f"{ranks}: {problem}\n")
        for file, count in sorted(done.items()):
            self._terminal.write(
                f"Breakpoint at {file}:{command.line} in {count}"
                f" {'proc' if count == 1 else 'procs'}\n"
            )
        if not answers:
            self._terminal.write("No proc has such ranks.\n")

    def _list_breakpoints(self) -> None:
        answers = self._ask_procs(protocol.ListBreakpoints())
        found = Counter(place for _, places in answers for place in places)
        for place, count in sorted(found.items()):
            self._terminal.write(f"{place} in {count} {'proc' if count == 1 else 'procs'}\n")
        if not found:
            self._terminal.write("There are no breakpoints.\n")

    def _do_clear(self, command: DebuggerCommand) -> None:
        count = sum(
            answer
            for _, answer in self._ask_procs(protocol.ClearBreakpoint(command.file, command.line))
        )
        self._terminal.write(f"Cleared {count} {'breakpoint' if count == 1 else 'breakpoints'}\n")

    def _do_interrupt(self, command: DebuggerCommand) -> None:
        answers = self._ask_procs(protocol.Interrupt(command.name, command.ranks))
        found = sorted(each for _, several in answers for each in several)
        if not found:
            who = f"{command.name} {command.ranks}".rstrip()
            raise LookupError(f"No actor {who}, and no mesh of that name")
        for rank, place in found:
            self._terminal.write(f"{command.name} {rank}: {place}\n")
        self._terminal.write("They stop at their next line of Python.\n")

    # attached

    def _attach(self, row: protocol.Row, take: bool) -> None:
        link = _Attached(self._root, self._terminal)
        drive = protocol.Drive(row.number, self._number, self._driver, take)
        plane.send_record(self._hub, self._root, drive, link)
        name = f"{row.who.name} {row.label}"
        try:
            link.begin()
            self._terminal.write(f"Attached to debug session for {name} ({row.who.host})\n")
            if self._converse(row, link, name):
                self._terminal.write(f"Detaching from debug session for {name}\n")
                self._ask(protocol.Release(row.number, self._number))
                self._terminal.write(f"Detached from debug session for {name}\n")
        except KeyboardInterrupt:
            self._ask(protocol.Release(row.number, self._number))
            self._terminal.write(f"\nDetached from debug session for {name}\n")
        finally:  # the terminal may have hung up anywhere; once it is detached, this does nothing
            plane.send_record(self._hub, self._root, protocol.Release(row.number, self._number))

    def _converse(self, row: protocol.Row, link: _Attached, name: str) -> bool:
        """Pass lines on; whether it is to be detached, rather than over."""
        first = True
        while True:
            kind, text, _ = link.next(self._has_left)
            if kind == protocol.OUTPUT:
                if first:
                    self._terminal.write(f"<last pdb output for {name} follows>\n")
                self._terminal.write_code(text)
            elif kind == protocol.ENDED:
                self._terminal.write(f"Detached from debug session for {name}: {text}\n")
                return False
            elif kind == protocol.TAKEN:
                self._terminal.write(f"{text}\n")
                return False
            elif kind == protocol.PROMPT and not link.over:  # what ended it comes next
                try:
                    with link.typing():
                        line = self._terminal.read(
                            text, lambda *at: self._ask(protocol.Ask(row.number, *at))
                        )
                except EOFError:
                    self._terminal.write("\n")
                    return True
                if line.strip() == "detach":
                    return True
                if not link.over:
                    self._send(row, line)
            first = False

    # asking

    def _rows_of(self, name: str, ranks: str = "") -> list[protocol.Row]:
        """Return the sessions of a name, of these ranks or of all."""
        found = [row for row in self.rows() if row.who.goes_by(name)]
        if not ranks:
            return found
        wanted = RankSelector(ranks)
        return [row for row in found if wanted.matches(row.who.rank, row.who.coordinates)]

    def rows(self) -> list[protocol.Row]:
        """The sessions there are."""
        rows: list[protocol.Row] = self._ask(protocol.ListSessions())
        return rows

    def _ask(self, record: tuple[Any, ...]) -> Any:
        return ask(self._hub, self._root, record).get(timeout=PATIENCE)

    def _unreached(self, host: str, why: str) -> None:
        self._terminal.write(f"host {host} can't be reached: {why}\n")

    def _ask_procs(self, record: tuple[Any, ...]) -> list[tuple[Any, Any]]:
        """Ask each proc of the program, on all its hosts; unreachable ones are named.

        Procs may end meanwhile.
        """
        here: plane.HostDescription = ask(
            self._hub, self._hub.address.agent, plane.DescribeHost()
        ).get(timeout=PATIENCE)
        found = here.procs + procs_of(self._hub, agents_of(here.hosts), self._unreached)
        asked = [
            (proc, ask(self._hub, proc.address, record))
            for proc in found
            if proc.root == self._root
        ]
        answers = []
        for proc, answer in asked:
            try:
                answers.append((proc, answer.get(timeout=PATIENCE)))
            except SupervisionError:
                continue
            except TimeoutError:
                self._terminal.write(
                    f"{proc.mesh} {proc.rank} does not answer: is it stopped, or does C code hold"
                    " the GIL?\n"
                )
        return answers


class _Attached:
    """The request that gets a session's output as answers, while a terminal is attached to it."""

    def __init__(self, root: plane.ProcAddress, terminal: Terminal) -> None:
        self._root = root
        self._terminal = terminal
        self._said: SimpleQueue[Any] = SimpleQueue()
        self._types = False
        self._lock = threading.Lock()
        self.over = False

    def begin(self) -> None:
        """Wait until it is attached.

        Raises:
            PermissionError: Another terminal is.
            LookupError: It has ended.
        """
        plane.read_answer(self._said.get())

    def next(self, has_left: Callable[[], bool]) -> Any:
        """The next event.

        Raises:
            BrokenPipeError: The terminal has been closed.
        """
        while True:
            try:
                reply = self._said.get(timeout=_LOOK)
            except Empty:
                if has_left():
                    raise BrokenPipeError("the terminal has hung up") from None
            else:
                return plane.read_answer(reply)

    def typing(self) -> _Attached:
        """While a line is read, its end is told at once."""
        return self

    def __enter__(self) -> None:
        with self._lock:
            self._types = True

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._types = False

    # on the I/O thread

    def reply(self, frame: Any) -> bool:
        self._said.put(frame)
        if frame.flags in (plane.ERROR, plane.DEAD):
            return True
        event = plane.pickling.loads(frame.payload, frame.buffers)
        last = event is not True and event[0] in (protocol.ENDED, protocol.TAKEN)
        if last:
            self._tell()
        return last

    def peer_failed(self, address: plane.ProcAddress, failure: plane.Failure) -> bool:
        if address != self._root:
            return False
        self._said.put(failure)
        self._tell()
        return True

    def _tell(self) -> None:
        self.over = True
        with self._lock, suppress(OSError):  # it has hung up, which who reads there is told
            if self._types:
                self._terminal.write("\n[the session is over: press Enter]\n")


def debug() -> None:
    """Debug the stopped actors of this program, here at the terminal or in a notebook's cell.

    It returns after `quit`.
    """
    Console(plane.current_hub().root, _Input()).run()


class _Input(Terminal):
    """Reads by `input()`, which notebooks have as well."""

    def read(self, prompt: str, complete: Completer) -> str:
        try:
            return input(prompt)
        except NotImplementedError:
            # IPython's, where a notebook is run without anybody who could type
            there = (
                f"`monarch debug --program {os.getpid()}` in a terminal of {socket.gethostname()}"
            )
            self.write(f"This notebook takes no input: run {there}.\n")
            raise EOFError from None
