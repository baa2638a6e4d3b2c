"""The values of configuration, in layers, with one cache over all of them.

The functions of `monarch.config` are methods of the one `Store` here. `_table` has the knobs and
`_kinds` reads their values.

The layer of `configure` is itself a stack: each open `configured` block is one entry. The end of a
block takes out its own entry, wherever that is by then. The obvious way, to save everything at the
start of a block and restore it at the end, fails when blocks in two threads overlap: the values of
one thread would stay.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from enum import Enum
from threading import RLock
from typing import TYPE_CHECKING, Any

from ._kinds import Kind, text_of
from ._table import BY_NAME, KNOBS, Knob
from ._units import OutOfRange, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# In an exported dict: the environment's texts that the exporter took into account. Can't collide
# with a keyword.
_SEEN_ENVIRONMENT = "@environment"


class OutOfRangeError(TypeError, ValueError):
    """A number is too small or too large, or a text names no transport.

    Monarch 0.7 raises TypeError for some of these, ValueError for others.
    """


class Layer:
    """The settings of one `configured` block, or of the program outside all.

    If `opaque`, it hides the layers below it.
    """

    __slots__ = ("opaque", "values")

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.opaque = False


class Store:
    """The settings of one process.

    Thread-safe; `cache` may be read without the lock, and only `load` adds to it.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        # Re-entrant, because a signal handler may ask for a value while its thread is in here.
        self.lock = RLock()
        self.cache: dict[str, Any] = {}
        self._environ = environ
        self._inherited: dict[str, Any] = {}
        self._inherited_environment: dict[str, str] = {}
        self._layers = [Layer({})]

    def configure(self, keys: Mapping[str, object]) -> None:
        kept = keep_all(keys)
        with self.lock:
            self.cache.clear()
            self._layers[-1].values.update(kept)

    @contextmanager
    def configured(self, keys: Mapping[str, object]) -> Iterator[dict[str, Any]]:
        layer = Layer(keep_all(keys))
        with self.lock:
            self.cache.clear()
            self._layers.append(layer)
        try:
            yield self.everything()
        finally:
            with self.lock:
                self.cache.clear()
                # Gone already if `inherit` dropped it in a process forked inside the block.
                self._layers = [kept for kept in self._layers if kept is not layer]

    def clear(self) -> None:
        with self.lock:
            self.cache.clear()
            self._layers[-1].values.clear()
            self._layers[-1].opaque = True

    def inherit(self, mapping: Mapping[str, Any], drop_configured: bool) -> None:
        seen = mapping.get(_SEEN_ENVIRONMENT, {})
        kept = keep_all({name: raw for name, raw in mapping.items() if name in BY_NAME})
        with self.lock:
            self.cache.clear()
            self._inherited = kept
            self._inherited_environment = dict(seen)
            if drop_configured:
                self._layers = [Layer({})]

    def load(self, name: str) -> Any:
        knob = find(name)
        with self.lock:
            native = self.cache[name] = knob.kind.native(self._effective(knob, self._configured()))
        return native

    def everything(self) -> dict[str, Any]:
        with self.lock:
            configured = self._configured()
            return {knob.name: knob.kind.show(self._effective(knob, configured)) for knob in KNOBS}

    def runtime(self) -> dict[str, Any]:
        with self.lock:
            return {
                name: BY_NAME[name].kind.show(stored) for name, stored in self._configured().items()
            }

    def exported(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        seen: dict[str, str] = {}
        with self.lock:
            configured = self._configured()
            for knob in KNOBS:
                chosen = self._chosen(knob, configured)
                if chosen is None:
                    continue
                values[knob.name] = _plain(knob.kind.show(chosen[0]))
                if knob.env in self._environ:
                    seen[knob.env] = self._environ[knob.env]
        if seen:
            values[_SEEN_ENVIRONMENT] = seen
        return values

    def settings(self) -> list[dict[str, Any]]:
        found = []
        with self.lock:
            configured = self._configured()
            for knob in sorted(KNOBS, key=lambda knob: knob.name):
                chosen = self._chosen(knob, configured)
                default = text_of(knob.kind.show(knob.kind.keep(knob.default)))
                value = default if chosen is None else text_of(knob.kind.show(chosen[0]))
                found.append(
                    {
                        "name": knob.name,
                        "value": value,
                        "default_value": default,
                        "source": (
                            self._source(knob, configured) if chosen is not None else "Default"
                        ),
                        "changed_from_default": value != default,
                        "env_var": knob.env,
                    }
                )
        return found

    def _source(self, knob: Knob, configured: dict[str, Any]) -> str:
        """The layer that the value comes from."""
        if knob.name in configured:
            return "Runtime"
        text = self._environ.get(knob.env, "")
        stale = knob.name in self._inherited and text == self._inherited_environment.get(knob.env)
        return "Env" if text and not stale else "ClientOverride"

    def _configured(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for layer in self._layers:
            if layer.opaque:
                merged.clear()
            merged.update(layer.values)
        return merged

    def _effective(self, knob: Knob, configured: dict[str, Any]) -> Any:
        """Return the stored form of the value in force."""
        chosen = self._chosen(knob, configured)
        return default_of(knob) if chosen is None else chosen[0]

    def _chosen(self, knob: Knob, configured: dict[str, Any]) -> tuple[Any] | None:
        """Return the stored form of a value that was set; None for the default.

        The default takes longer to read.
        """
        if knob.name in configured:
            return (configured[knob.name],)
        text = self._environ.get(knob.env, "")
        inherited = knob.name in self._inherited
        # The exporter's own text, passed down: it was weighed there, and perhaps overruled by
        # `configure`.
        stale = inherited and text == self._inherited_environment.get(knob.env)
        # An empty variable is how shells spell "unset".
        if text and not stale:
            return (_from_environment(knob, text),)
        return (self._inherited[knob.name],) if inherited else None


_defaults: dict[str, Any] = {}


def default_of(knob: Knob) -> Any:
    """Return the stored form of the default, which is read once.

    Forked processes inherit the values read before the fork.
    """
    try:
        return _defaults[knob.name]
    except KeyError:
        return _defaults.setdefault(knob.name, knob.kind.keep(knob.default))


STORE = Store(os.environ)
"""The settings of this process."""


def find(name: str) -> Knob:
    """Return the knob with this name or alias.

    The ValueError for an unknown one names the nearest ones.
    """
    try:
        return BY_NAME[name]
    except KeyError:
        raise ValueError(_unknown(name)) from None


def keep_all(keys: Mapping[str, object]) -> dict[str, Any]:
    """Return the stored forms by knob name.

    TypeError, or ValueError for an unknown or twice given key.
    """
    kept: dict[str, Any] = {}
    for key, raw in keys.items():
        knob = find(key)
        stored = _keep(knob, raw)
        if kept.setdefault(knob.name, stored) != stored:
            names = " and ".join((knob.name, *knob.aliases))
            raise ValueError(f"{names} are one knob, given two values: pass one of them")
    return kept


def _keep(knob: Knob, raw: object) -> Any:
    try:
        return knob.kind.keep(raw)
    except Unreadable as error:
        example = f"configure({knob.name}={knob.kind.example!r})"
        raised = OutOfRangeError if isinstance(error, OutOfRange) else TypeError
        raise raised(
            f"{knob.name}: {_complaint(knob.kind, raw, error)}, for example {example}"
        ) from None


def _from_environment(knob: Knob, text: str) -> Any:
    try:
        return knob.kind.keep(knob.kind.from_text(text))
    except Unreadable as error:
        # some names are those of other programs, too, which have their own idea of a value
        if not knob.applies:
            return knob.kind.keep(knob.default)
        example = f"{knob.env}={text_of(knob.kind.example)!r}"
        complaint = _complaint(knob.kind, text, error)
        raise ValueError(
            f"environment variable {knob.env} ({knob.name}): {complaint}, for example {example}"
        ) from None


def _complaint(kind: Kind, raw: object, error: Unreadable) -> str:
    got = repr(raw)
    shortened = got if len(got) <= 80 else got[:77] + "..."
    why = f" ({error})" if str(error) else ""
    return f"got {shortened} of type {type(raw).__name__}{why}, wanted {kind.wanted}"


def _unknown(name: str) -> str:
    # slow to import, and needed only on the way to a traceback
    from difflib import get_close_matches

    near = get_close_matches(name, BY_NAME, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else "nothing has a name like it."
    return f"no configuration key {name!r}: {hint} `python -m monarch.config` lists all keys"


def _plain(shown: Any) -> Any:
    return shown.name if isinstance(shown, Enum) else shown
