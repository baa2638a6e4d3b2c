"""The settings of a process: one table of knobs, four layers of values.

A knob's value comes from the highest layer that has one:

1. its default, in `_table.py`;
2. what the client handed to this process when it was spawned or attached (`inherit`);
3. its environment variable;
4. `configure(...)` and `configured(...)` in this process.

So an explicit call in the program wins. (In Monarch 0.7 the environment won.) One case needs care:
a child usually gets its parent's environment too, and a variable the parent's `configure` has
overruled must not come back to life there. Hence a variable counts in a child only if its text is
not the one that the parent saw.

Settings belong to the process and all its threads. Procs get those in force when they are spawned;
later changes stay here. The environment is read when a knob is first needed and kept;
`configure()`, also without keys, has it read again.

For programs: `configure`, `configured`, `get_global_config`, `get_runtime_config`,
`clear_runtime_config`, `Encoding`; for their tests: `parametrize_config`,
`parametrize_config_pointwise`. For the rest of the package:

`value(name)`
    The parsed value, from a cache, in well under a microsecond, from any thread. Durations are
    float seconds, sizes are int bytes, lists are tuples. An alias works as a name.
`exported()`
    A flat dict of plain picklable values: what differs from the defaults here, whichever layer it
    came from. It is to be handed to `inherit`; entries may be added or replaced on the way. The one
    key that is not a knob's name holds the environment's texts, for the rule above.
`inherit(mapping)`
    Called in a child, or in a host agent when a client attaches: replaces layer 2.

Lives here: names, types, defaults and layers. The effect of a value belongs to the code that reads
it. Layer L0: of `monarch`, only this layer is imported, and nothing that is slow to import. Read
next: `_table.py`, then `_store.py`. `python -m monarch.config` prints docs/config.md.

Imports no other package of `monarch`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .._lazy import lazy_names
from .._public import publish
from ._kinds import Encoding
from ._store import STORE, default_of
from ._table import KNOBS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import _GeneratorContextManager

    from ._parametrize import parametrize_config, parametrize_config_pointwise

__all__ = [
    "Encoding", "clear_runtime_config", "configure", "configured", "get_global_config", "get_runtime_config",
    "parametrize_config", "parametrize_config_pointwise",
]  # fmt: skip

_cached = STORE.cache

# A fork while another thread is inside the store would leave the child a lock that no thread will
# ever release.
os.register_at_fork(
    before=STORE.lock.acquire, after_in_child=STORE.lock.release, after_in_parent=STORE.lock.release
)


def configure(**keys: object) -> None:
    """Set knobs for this process and for what it spawns from now on.

    All are set, or none if one is wrong.

    Durations are texts such as "30s", "1h 30m", "250ms", or seconds as a number, or a
    `datetime.timedelta`. Sizes are bytes, or texts such as "10 GiB". docs/config.md lists the keys.
    Called without keys, it only has the environment read again.

    Inside a `configured` block the change lasts until the end of the block.

    Args:
        **keys: Names of knobs, and their new values.

    Raises:
        ValueError: a key does not exist; the message names the nearest that do.
        TypeError: a value has the wrong type, can't be read, or is out of range; then the error is
            a ValueError as well.
    """
    STORE.configure(keys)


def configured(**keys: object) -> _GeneratorContextManager[dict[str, Any]]:
    """Set knobs for the length of a `with` block, as `configure` does, then put everything back.

    Yields what `get_global_config` returns inside the block. Calls of `configure` and
    `clear_runtime_config` in the block are undone with it. Blocks nest; blocks of several threads
    may overlap, and each takes back only its own. Also works as a decorator of a sync function.

    Args:
        **keys: Knobs, as for `configure`.

    Returns:
        The context manager.

    Raises:
        ValueError, TypeError: as `configure`; nothing has changed then.
    """
    return STORE.configured(keys)


def get_global_config() -> dict[str, Any]:
    """Return every knob with the value in force, as a new dict.

    Durations come as normalised texts ("90s" was set, "1m 30s" comes), sizes as bytes.

    Raises:
        ValueError: an environment variable holds something that can't be read; the message names
            it.
    """
    return STORE.everything()


def get_runtime_config() -> dict[str, Any]:
    """Return only what `configure` and `configured` set here.

    It is a new dict, in the form of `get_global_config`.
    """
    return STORE.runtime()


def clear_runtime_config() -> None:
    """Forget what `configure` has set in this process.

    Inside a `configured` block, until the end of the block.
    """
    STORE.clear()


def value(name: str) -> Any:
    """Return the parsed value in force for the knob `name`.

    Durations are float seconds, sizes are int bytes.

    Internal to the package. Any thread; no lock is taken when the value is cached.

    Raises:
        ValueError: no such knob, or its environment variable can't be read.
    """
    try:
        return _cached[name]
    except KeyError:
        return STORE.load(name)


def read_defaults() -> None:
    """Read the texts of all defaults.

    A process that forks calls this; else each fork would read the same ones again.

    Internal to the package.
    """
    for knob in KNOBS:
        default_of(knob)


def exported() -> dict[str, Any]:
    """Return the values that a child gets through `inherit`.

    They are all that differ from the defaults, as plain picklable values.

    Internal to the package.

    Raises:
        ValueError: an environment variable can't be read.
    """
    return STORE.exported()


def settings() -> list[dict[str, Any]]:
    """Return all knobs by name with value, default and source, as texts, as Monarch 0.7 does.

    Internal to the package.
    """
    return STORE.settings()


def inherit(mapping: Mapping[str, Any], *, drop_configured: bool = False) -> None:
    """Replace the layer of inherited values by what the client exported.

    Internal to the package. Keys that this version does not know are ignored: the two ends may be
    different releases.

    Args:
        mapping: From `exported()`, or any dict of knob names to values that `configure` takes.
        drop_configured: Also forget this process's `configure` calls. A forked process sets it:
            its copies of calls are in the mapping already, and would hide later changes.

    Raises:
        TypeError: a value can't be read; nothing has changed then.
    """
    STORE.inherit(mapping, drop_configured)


__getattr__, __dir__ = lazy_names(
    __name__, {"_parametrize": ("parametrize_config", "parametrize_config_pointwise")}
)
publish(__name__, globals(), ("Encoding",))
