"""``breakpoint()`` in actors.

It opens a pdb session on the rank that stops, which terminals reach through the client.

::

    rank that has stopped ──▶ root client ◀── terminal: `monarch debug`, Enter at the client, a notebook, a TCP connection
       debuggee, session        table             console

The rank's thread runs pdb, and waits for lines. The table of sessions is in the root client; its
I/O thread serves it, so it answers while the program waits. A terminal knows the root client only.
All three talk in the control records of `protocol`; nothing of this package is imported in a
process before the first of them, or the first breakpoint.

Read `protocol`, then `session`.

Imports `_core.plane`, `_patterns`, `actor`, `programs`.
"""

from __future__ import annotations

from .._lazy import lazy_names

__all__ = ["debug"]

__getattr__, __dir__ = lazy_names(__name__, {"console": ["debug"]})
