"""The author of `logging` records and of printed lines.

Which actor wrote a record; and which actor, or record, a line that a proc prints is of.

`logging` is imported with the first actor of a process: before that there is nothing to say.
"""

from __future__ import annotations

import sys
import threading
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

from ..hub.prints import NO_AUTHOR, Note
from ..hub.spawn_requests import LogSettings
from .context import running

if TYPE_CHECKING:
    import logging

prefix_enabled = True
"""Whether log messages get the prefix ``[actor=...]``; programs set
`prefix_python_logs_with_actor`.
"""

outside = ""  # stands for the actor where none runs: `<root>` in the client
_make_record: Any = None  # what made records before
_handling = threading.local()  # `record`: that which a handler writes on this thread
_author = lru_cache(256)(Note)  # the same one for each line that an endpoint prints


def settings() -> LogSettings | None:
    """The settings of this process; None where nothing was configured."""
    if "logging" not in sys.modules:
        return None
    import logging

    root = logging.root
    for handler in root.handlers:
        stream: Any = getattr(handler, "stream", None)
        names = [name for name in ("stdout", "stderr") if stream is getattr(sys, name)]
        if names and stream is not None:
            made: Any = handler.formatter or logging.Formatter()
            known: Any = logging._STYLES
            styles = [style for style, (kind, _) in known.items() if type(made._style) is kind]
            template = made._fmt if styles else None
            style = styles[0] if styles else "%"
            return LogSettings(root.level, handler.level, names[0], template, made.datefmt, style)
    return None


def take_over(client: LogSettings | None) -> None:
    """Log as the client does, while the actors of this process configure nothing themselves.

    The handler is the one that `logging` falls back to where there is no other.
    """
    if client is not None:
        import logging

        logging.root.setLevel(client.root)
        logging.lastResort = _console(client)
        configure = logging.basicConfig

        @wraps(configure)
        def basic_config(**options: Any) -> None:
            # `logging.error(...)` and its like call this where the root logger has no handler, and
            # then ours is there
            if sys._getframe(1).f_globals is not vars(logging):
                configure(**options)

        logging.basicConfig = basic_config


def set_level(level: int) -> None:
    """Log from this level on, except for loggers and handlers that have a level of their own."""
    import logging

    logging.root.setLevel(level)
    # writes where nothing is configured, by itself from WARNING on
    if logging.lastResort is not None:
        logging.lastResort.setLevel(level)


def _console(client: LogSettings) -> logging.StreamHandler[Any]:
    import logging

    class Console(logging.StreamHandler):  # type: ignore[type-arg]  # generic since Python 3.11
        """Writes to the ``sys.stdout`` or ``sys.stderr`` of that moment."""

        def __init__(self) -> None:
            logging.Handler.__init__(self, client.level)
            style: Any = client.style
            self.setFormatter(logging.Formatter(client.template, client.date, style))

        @property
        def stream(self) -> Any:
            return getattr(sys, client.stream)

    return Console()


def install() -> None:
    """Give every record that is made inside an actor ``record.actor`` and the prefix; the records
    of the client outside of actors get the prefix alone.
    """
    global _make_record
    if _make_record is None:
        import logging

        _make_record = logging.getLogRecordFactory()
        logging.setLogRecordFactory(_record_with_actor)
        handle = logging.Handler.handle

        def handle_known(handler: logging.Handler, record: logging.LogRecord) -> Any:
            before, _handling.record = getattr(_handling, "record", None), record
            try:
                return handle(handler, record)
            finally:
                _handling.record = before

        # all that a handler prints meanwhile belongs to the record, so that no handler of ours has
        # to write it a second time
        logging.Handler.handle = handle_known  # type: ignore[method-assign, assignment]


def who_prints() -> Note:
    """Return the author of what this thread prints: an actor, or a record that a handler writes."""
    here, record = running(), getattr(_handling, "record", None)
    note = _author(here._cell.instance.name, here._endpoint) if here is not None else NO_AUTHOR
    if record is None:
        return note
    where = f"{record.filename}:{record.lineno}"
    return Note(*note[:2], record.levelno, record.name, where, record.created)


def _record_with_actor(*args: object, **kwargs: object) -> logging.LogRecord:
    record: logging.LogRecord = _make_record(*args, **kwargs)
    context = running()
    actor = outside if context is None else str(context.actor_instance)
    if context is not None:
        record.actor = actor
    # objects are for a handler that knows them; `extra` of the program may be called `actor`
    elif type(record.msg) is not str or f"{record.name}.".startswith("monarch."):
        return record
    if actor and prefix_enabled and record.msg:
        text = actor.replace("%", "%%") if record.args else actor
        record.msg = f"[actor={text}] {record.msg}"
    return record
