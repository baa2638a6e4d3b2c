"""Screen 7: hosts, procs and actors as a tree, and all that is known of one of them.

The keys are those of Monarch's terminal interface.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from textual.app import ComposeResult
from textual.containers import Horizontal

from .health import report
from .listing import Listing
from .pane import Pane
from .sources import TreeLine, TreeSource
from .text import Row, duration, looking, size, wrapped

_STATUS = {"failed": "bold red", "processing": "yellow", "stopped": "dim", "idle": "green"}


class TreePane(Pane):
    """The screen of hosts, procs and actors."""

    TITLE = "Tree"
    HINTS = "Tab expand  Enter details  c s h p C d"
    HELP = (
        "Hosts, their procs, their actors; beside them what is known of the marked one, Enter shows"
        " all of it.\nTab expands a node or collapses it, c collapses all. s shows processes and"
        " actors of Monarch itself, h what was stopped;\nwhat has failed is always shown. p: what"
        " py-spy says of the process; C: its configuration; d: how all nodes answer."
    )
    BINDINGS = [
        ("tab", "expand", "Expand"), ("c", "collapse", "Collapse all"), ("s", "system", "System"), ("h", "stopped", "Stopped"),
        ("p", "py_spy", "py-spy"), ("C", "config", "Config"), ("d", "diagnose", "Diagnostics"),
    ]  # fmt: skip
    DEFAULT_CSS = """
    TreePane #topology { width: 2fr; }
    TreePane #details { width: 3fr; border-left: solid gray; padding-left: 1; }
    """

    def __init__(self, source: TreeSource) -> None:
        super().__init__(source)
        self._tree = source
        self._details = Listing()
        self._collapsed: dict[str, bool] = {}
        self._system = False
        self._stopped = False
        self._shown: list[TreeLine] = []
        self.listing.id, self._details.id = "topology", "details"
        self._details.can_focus = False

    def compose(self) -> ComposeResult:
        yield Horizontal(self.listing, self._details)

    def rows(self) -> tuple[Sequence[Row], Row]:
        self._shown = list(self._visible())
        self._details.show(
            list(self._about(self._tree.details, max(20, self._details.size.width - 2)))
        )
        return [self._row(node) for node in self._shown] or [looking()], ()

    def about(self) -> Any:
        node = self._node()
        return node.reference if node else None

    def place_of(self, about: Any) -> int | None:
        return next(
            (number for number, node in enumerate(self._shown) if node.reference == about), None
        )

    def note(self) -> str:
        on = {True: "on", False: "off"}
        root = self._tree.root.get("properties", {}).get("Root", {})
        since = root.get("started_at")
        up = ""
        if since:
            began = datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()
            up = f"up {duration(time.time() - began)} • "
        return (
            f"{up}@{root.get('started_by', '?')} • sys:{on[self._system]} •"
            f" stopped:{on[self._stopped]}"
        )

    def on_listing_moved(self) -> None:
        node = self._node()
        if node is not None and node.reference != self._tree.wanted:
            self._tree.wanted = node.reference
            self.dashboard.look_now()

    def choose(self) -> None:
        """Show all details of the marked node."""
        self.dashboard.overlay(
            "details", list(self._about(self._tree.details, self.app.size.width - 10))
        )

    def action_expand(self) -> None:
        """Expand the marked node, or collapse it."""
        if (node := self._node()) is not None and node.children:
            self._collapsed[node.reference] = not self._is_collapsed(node)
            self.rebuild()

    def action_collapse(self) -> None:
        """Collapse all nodes."""
        self._collapsed = {node.reference: True for node in self._tree.nodes}
        self.rebuild()

    def action_system(self) -> None:
        """Show what belongs to Monarch itself, or hide it."""
        self._system = not self._system
        self.rebuild()

    def action_stopped(self) -> None:
        """Show stopped actors, or hide them."""
        self._stopped = not self._stopped
        self.rebuild()

    def action_py_spy(self) -> None:
        """Show what py-spy says of the marked process, or of that of the marked actor."""
        if (proc := self._proc()) is not None:
            self.dashboard.overlay(
                f"py-spy of {proc}",
                lambda line: _stacks(line.get(_path("pyspy", proc))),
            )

    def action_config(self) -> None:
        """Show the configuration of the marked process."""
        if (proc := self._proc()) is not None:
            self.dashboard.overlay(
                f"configuration of {proc}",
                lambda line: _settings(line.get(_path("config", proc))["entries"]),
            )

    def action_diagnose(self) -> None:
        """Show how the server and all nodes answer."""
        self.dashboard.overlay("diagnostics", lambda line: _diagnostics(report(line)))

    def _node(self) -> TreeLine | None:
        return self._shown[self.listing.cursor] if self.listing.cursor < len(self._shown) else None

    def _proc(self) -> str | None:
        node = self._node()
        if node is None or node.depth == 0:
            return None
        return node.reference if node.depth == 1 else node.reference.partition(">.")[2]

    def _is_collapsed(self, node: TreeLine) -> bool:
        return self._collapsed.get(node.reference, node.depth > 0)

    def _visible(self) -> Iterator[TreeLine]:
        hidden_below = None
        for node in self._tree.nodes:
            if hidden_below is not None and node.depth > hidden_below:
                continue
            hidden_below = None
            # the client of a program is its own process, and the program's
            is_client = node.depth == 2 and node.label.startswith("client (")
            if (node.is_stopped and not self._stopped) or (is_client and not self._system):
                hidden_below = node.depth
                continue
            if self._is_collapsed(node):
                hidden_below = node.depth
            yield node

    def _row(self, node: TreeLine) -> Row:
        mark = "  " if not node.children else "▶ " if self._is_collapsed(node) else "▼ "
        actors = "1 actor" if node.children == 1 else f"{node.children} actors"
        count = f" ({actors})" if node.depth == 1 else ""
        _, _, status = node.label.partition(" (") if node.depth == 2 else ("", "", "")
        style = next((style for name, style in _STATUS.items() if status.startswith(name)), "")
        return [("  " * node.depth + mark, "dim"), (node.label + count, style)]

    def _about(self, node: Mapping[str, Any], width: int) -> Iterator[Row]:
        for kind, properties in node.get("properties", {}).items():
            yield [(f"{kind} details", "bold underline")]
            yield from wrapped(str(node.get("identity", "")), width, "dim")
            yield from _fields(properties, width)


def _path(what: str, proc: str) -> str:
    return f"/v1/{what}/{quote(proc, safe='')}"


def _fields(values: Mapping[str, Any], width: int, indent: str = "") -> Iterator[Row]:
    for name, value in values.items():
        parts = value if isinstance(value, list) else [value]
        if value and isinstance(parts[0], Mapping):
            for each in parts:
                yield [(f"{indent}{name}", "bold")]
                yield from _fields(each, width, indent + "  ")
        elif value not in (None, [], {}, ""):
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            text = size(value) if name.endswith("_bytes") else text
            if len(text) + len(name) + len(indent) + 2 <= width and "\n" not in text:
                yield [(f"{indent}{name}: ", "bold"), (text, "")]
            else:
                yield [(f"{indent}{name}:", "bold")]
                yield from wrapped(text, width, "", indent + "  ")


def _stacks(found: Mapping[str, Any]) -> Iterator[Row]:
    for kind, result in found.items():
        if kind != "Ok":
            yield [(kind, "bold red")]
            yield from _fields(result, 100)
            continue
        for thread in result["stack_traces"]:
            name = thread.get("thread_name") or thread["thread_id"]
            yield [
                (f"thread {name}", "bold"),
                ("  holds the GIL" if thread.get("owns_gil") else "", "yellow"),
            ]
            for frame in thread["frames"]:
                file = frame.get("short_filename") or frame["filename"]
                yield [(f"    {frame['name']}", ""), (f"  {file}:{frame['line']}", "dim")]


def _settings(entries: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    for entry in entries:
        changed = entry["changed_from_default"]
        text = f"{entry['name']} = {entry['value']}"
        yield [
            (text, "bold" if changed else ""),
            (f"   {entry['source']}, default {entry['default_value']}" if changed else "", "dim"),
        ]


def _diagnostics(found: Mapping[str, Any]) -> Iterator[Row]:
    styles = {"pass": "green", "slow": "yellow", "fail": "bold red"}
    yield [("healthy", "bold green") if found["healthy"] else ("not healthy", "bold red")]
    group = ""
    for check in found["checks"]:
        if check["group"] != group:
            group = check["group"]
            yield [(group, "bold underline")]
        yield [
            (f"{check['status']:5}", styles[check["status"]]), (f"{check['ms']:7.0f} ms  {check['name']}", ""),
            (f"  {check['message']}" if check["message"] else "", "dim"),
        ]  # fmt: skip
