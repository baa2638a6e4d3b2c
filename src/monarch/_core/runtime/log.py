"""`logging` records of an actor say which actor wrote them."""

from __future__ import annotations

import logging

from .context import current

prefix_enabled = True
"""Whether log messages get the prefix ``[actor=...]``; programs set `monarch.actor.config.prefix_python_logs_with_actor`."""

_make_record = logging.getLogRecordFactory()


def install() -> None:
    """From now on every record made inside an actor carries ``record.actor`` and the prefix."""
    if logging.getLogRecordFactory() is not _record_with_actor:
        logging.setLogRecordFactory(_record_with_actor)


def _record_with_actor(*args: object, **kwargs: object) -> logging.LogRecord:
    record = _make_record(*args, **kwargs)
    context = current.get(None)
    if context is not None:
        actor = str(context.actor_instance)
        record.actor = actor
        if prefix_enabled and record.msg:
            text = actor.replace("%", "%%") if record.args else actor
            record.msg = f"[actor={text}] {record.msg}"
    return record
