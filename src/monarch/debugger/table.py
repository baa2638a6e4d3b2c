"""The table of the root client: ranks in the debugger, and the terminal of each.

All of it on the I/O thread.
"""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections.abc import Callable
from typing import Any

from .._core import plane
from . import protocol, sources
from .notices import Notices
from .patience import Patience

_KEPT = 1 << 18  # characters of output since the last line that was typed
_NO_TERMINAL = -1  # is attached, but an editor


class SessionEntry:
    """A session, as the root client knows it."""

    def __init__(
        self,
        number: int,
        proc: plane.ProcAddress,
        name: int,
        who: protocol.Who,
        place: protocol.StopPlace,
        editor: str,
    ) -> None:
        self.number = number  # here
        self.proc = proc
        self.name = name  # there
        self.who = who
        self.place = place
        self.stopped = False
        self.owed = 0  # lines that were typed and not done yet
        self.since = time.monotonic()
        self.prompt = ""
        self.output = ""  # since the last line that was typed
        self.editor = editor
        self.driver = editor
        self.terminal = _NO_TERMINAL if editor else 0
        self.attached: plane.ControlRequest | None = None

    def tell(self, event: protocol.Event) -> None:
        if self.attached is not None:
            self.attached.answer(event)

    def row(self, label: str) -> protocol.Row:
        since = time.monotonic() - self.since
        return protocol.Row(
            self.number, self.who, label, self.place, self.stopped, since, self.driver, bool(self.editor)
        )  # fmt: skip


class Table:
    """The table of sessions in the root client.

    Args:
        hub: That of the root client.
    """

    def __init__(self, hub: plane.Hub) -> None:
        self._hub = hub
        self._entries: dict[int, SessionEntry] = {}
        self._numbers = itertools.count(1)
        self._notices = Notices(self.rows, hub)
        self._patience = Patience(hub)
        hub.inbound_lost_hooks.append(self._terminal_lost)

    def rows(self) -> list[protocol.Row]:
        """The sessions, by name and rank; on any thread."""
        entries = sorted(
            self._entries.copy().values(), key=lambda entry: (entry.who[:2], entry.number)
        )
        seen: dict[tuple[str, int], int] = {}
        rows = []
        for entry in entries:
            key = entry.who.name, entry.who.rank
            seen[key] = seen.get(key, 0) + 1
            rows.append(
                entry.row(
                    str(entry.who.rank) if seen[key] == 1 else f"{entry.who.rank}/{seen[key]}"
                )
            )
        return rows

    # what ranks say

    def opened(self, request: plane.ControlRequest, record: protocol.Opened) -> None:
        opened = record.number, record.who, record.place, record.editor
        entry = SessionEntry(next(self._numbers), request.peer, *opened)
        self._entries[entry.number] = entry
        self._note_debugged()
        plane.send_record(
            self._hub,
            entry.proc,
            protocol.Follow(record.number),
            _Following(entry.proc, lambda e: self._said(entry, e)),
        )

    def _said(self, entry: SessionEntry, event: protocol.Event) -> None:
        kind, text, place = event
        if kind == protocol.OUTPUT:
            entry.output = (entry.output + text)[-_KEPT:]
        elif kind == protocol.PROMPT:
            if not entry.stopped:
                entry.since = time.monotonic()
            entry.stopped, entry.prompt, entry.place = True, text, place or entry.place
            entry.owed = max(0, entry.owed - 1)
            self._notices.stopped()
            if entry.owed:
                return
        elif kind == protocol.RUNNING:
            entry.stopped, entry.since = False, time.monotonic()
        elif kind == protocol.ENDED:
            self._entries.pop(entry.number, None)
            self._note_debugged()
        entry.tell(event)

    def _note_debugged(self) -> None:
        """Let calls to these actors take as long as they are in the debugger."""
        self._patience.set({(entry.proc, entry.who.uid) for entry in self._entries.values()})

    # what terminals ask

    def list(self, request: plane.ControlRequest, record: protocol.ListSessions) -> None:
        request.answer(self.rows())

    def drive(self, request: plane.ControlRequest, record: protocol.Drive) -> None:
        entry = self._entries.get(record.session)
        if entry is None:
            request.fail(LookupError("the session has ended"))
            return
        if entry.editor:
            request.fail(
                PermissionError(f"{entry.who} is in {entry.editor}: go on there, or disconnect it")
            )
            return
        if entry.attached is not None and not record.take:
            taking = f"`attach {entry.who} --take` takes it over"
            request.fail(PermissionError(f"{entry.driver} is attached to {entry.who}: {taking}"))
            return
        entry.tell((protocol.TAKEN, f"{record.driver} has taken over {entry.who}", None))
        entry.attached, entry.terminal, entry.driver = request, record.terminal, record.driver
        request.answer(True)
        if entry.output:
            request.answer((protocol.OUTPUT, entry.output, None))
        if entry.stopped and not entry.owed:
            request.answer((protocol.PROMPT, entry.prompt, entry.place))
        plane.send_record(self._hub, entry.proc, protocol.TerminalAttached(entry.name, True))

    def release(self, request: plane.ControlRequest, record: protocol.Release) -> None:
        entry = self._entries.get(record.session)
        if entry is not None and entry.terminal == record.terminal:
            self._detach(entry)
        request.answer()

    def _detach(self, entry: SessionEntry) -> None:
        entry.attached, entry.terminal, entry.driver = None, 0, ""
        plane.send_record(self._hub, entry.proc, protocol.TerminalAttached(entry.name, False))

    def _terminal_lost(self, address: plane.ProcAddress) -> None:
        for entry in list(self._entries.values()):
            if entry.attached is not None and entry.attached.peer == address:
                self._detach(entry)

    def send(self, request: plane.ControlRequest, record: protocol.Send) -> None:
        entry = self._entries.get(record.session)
        if entry is None:
            request.answer("the session has ended")
        elif entry.terminal not in (0, record.terminal):
            request.answer(f"{entry.driver} is attached")
        elif not entry.stopped:
            request.answer("it does not wait for a line: it runs")
        else:
            entry.output = ""
            entry.owed += 1
            plane.send_record(self._hub, entry.proc, protocol.Type(entry.name, record.line))
            request.answer("")

    def ask(self, request: plane.ControlRequest, record: protocol.Ask) -> None:
        entry = self._entries.get(record.session)
        if entry is None or not entry.stopped or entry.editor:
            request.answer([])
            return

        question = protocol.Complete(entry.name, record.line, record.begin, record.end)
        plane.ask_one(
            self._hub,
            entry.proc,
            question,
            lambda reply: request.answer(protocol.value_of(reply) or []),
        )

    def source(self, request: plane.ControlRequest, record: protocol.GetSource) -> None:
        sources.answer(request, record)


class _Following:
    """The request that gets a session's output as answers."""

    def __init__(self, proc: plane.ProcAddress, said: Callable[[protocol.Event], None]) -> None:
        self._proc = proc
        self._said = said

    def reply(self, frame: Any) -> bool:
        why = plane.refusal(frame)
        if frame.flags == plane.DEAD:
            event: protocol.Event = _ended(plane.pickling.loads(frame.payload))
        elif why is not None:
            event = (protocol.ENDED, why, None)
        else:
            event = plane.pickling.loads(frame.payload, frame.buffers)
        self._said(event)
        return event[0] == protocol.ENDED

    def peer_failed(self, address: plane.ProcAddress, failure: plane.Failure) -> bool:
        if address != self._proc:
            return False
        self._said(_ended(failure))
        return True


def _ended(failure: plane.Failure) -> protocol.Event:
    return protocol.ENDED, f"its process has ended: {failure.reason}", None


_tables: weakref.WeakKeyDictionary[Any, Table] = weakref.WeakKeyDictionary()

_TAKERS: dict[type, Callable[[Table, plane.ControlRequest, Any], None]] = {
    protocol.Opened: Table.opened,
    protocol.GetSource: Table.source,
    protocol.ListSessions: Table.list,
    protocol.Drive: Table.drive,
    protocol.Release: Table.release,
    protocol.Send: Table.send,
    protocol.Ask: Table.ask,
}


def take(hub: plane.Hub, request: plane.ControlRequest, record: Any) -> None:
    """Take a control record."""
    if hub.address != hub.root:
        request.fail(
            LookupError(
                f"process {os.getpid()} is not the client of a program: only that knows who is"
                " stopped"
            )
        )
        return
    table = _tables.get(hub)
    if table is None:
        table = _tables[hub] = Table(hub)
    _TAKERS[type(record)](table, request, record)
