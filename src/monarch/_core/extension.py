"""Everything that may be added to the engine: its points, each a function with a name and a type.

The engine calls a point. A *guest*, a function of a package above the engine, fills it; the engine
does not know which. While a point is empty, its own body is called: that does without, or, where
the point is `needed`, raises an error that names the missing module.

The function that fills a point is found at its first use, in this order: the function that `fill`
was given; the table that `announce` was given as the package was imported, the same in every
process; the entry points ``monarch.guests`` of installed packages, each named after a point.
docs/planes.md shows one.

Engine objects are `Any` in the signatures, as this module is below all of them: what a guest gets
is named in the docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import accumulate
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
Place = str
"""Where a guest is: ``"package.module:name"``. It is imported at first use."""

in_every_proc: list[str] = []
"""Modules that each proc imports before its actors are made: the public face adds itself."""

_table: dict[str, Place | Mapping[str, Place]] = {}
_GROUP = "monarch.guests"


def announce(table: Mapping[str, Place | Mapping[str, Place]]) -> None:
    """Announce the functions that fill points: a place each, or for a point with keys one for each
    key.
    """
    _table.update(table)


class Point(Generic[P, R]):
    """A function that a guest may fill; as a decorator, it makes one of a function.

    The body of the function says what happens while the point is empty.

    Attributes:
        name: Its name here.
        guest: What fills it; None before its first use, and while it is empty.
    """

    def __init__(self, empty: Callable[P, R], needed_for: str = "") -> None:
        self.name = empty.__name__
        self.guest: Callable[P, R] | None = None
        self._empty = empty
        self._needed_for = needed_for
        self.__doc__ = empty.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return (self.guest or self._find())(*args, **kwargs)

    def fill(self, guest: Callable[P, R] | None) -> None:
        """Have this function called from now on; None empties the point."""
        self.guest = guest

    def _find(self) -> Callable[P, R]:
        place = cast("Place | None", _table.get(self.name)) or _entry_points().get(self.name)
        self.guest = guest = cast("Callable[P, R] | None", _load(place))
        if guest is None and self._needed_for:
            raise NotImplementedError(
                f"{self._needed_for} is no part of the engine alone: a guest adds it at the point"
                f" {self.name!r}, and {f'{place} is not installed' if place else 'none does'}."
                " Install all of the package, or fill the point, as docs/planes.md shows"
            )
        return guest or self._empty


class KeyedPoint(Generic[R]):
    """Values of guests by a key, such as the module of a record."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._filled: dict[str, R] = {}

    def fill(self, key: str, guest: R) -> None:
        """Have this value found for the key.

        Raises:
            ValueError: Another function fills it: earlier users go on with that.
        """
        if self._filled.setdefault(key, guest) != guest:
            raise ValueError(
                f"{self.name} of {key} is {self._filled[key]!r}, can't be {guest!r}, too"
            )

    def get(self, key: str, installed: bool = False) -> R | None:
        """Return the guest for a key, or None; `installed` looks among the entry points, too."""
        if key in self._filled:
            return self._filled[key]
        place = cast("Mapping[str, Place]", _table.get(self.name, {})).get(key)
        if place is None and installed:
            place = _entry_points().get(f"{self.name}.{key}")
        found = cast("R | None", _load(place))
        if found is not None:
            self._filled[key] = found
        return found


def _load(place: Place | None) -> Any:
    """Import the object at a place; None where its module does not exist."""
    if place is None:
        return None
    module, _, name = place.partition(":")
    try:
        # packages first, outermost first: waits where another thread is about to import one
        *_, found = map(import_module, accumulate(module.split("."), "{}.{}".format))
        return getattr(found, name)
    except ModuleNotFoundError as error:
        # else it is there, and lacks what it needs itself
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        return None


_installed: dict[str, Place] | None = None


def _entry_points() -> dict[str, Place]:
    """Return what installed packages fill, by the names of points; looks only once."""
    global _installed
    if _installed is None:
        from importlib.metadata import entry_points  # rare, and slow to import

        _installed = {each.name: each.value for each in entry_points(group=_GROUP)}
    return _installed


def needed(for_what: str) -> Callable[[Callable[P, R]], Point[P, R]]:
    """Make a function a point without which something can't be done."""
    return lambda empty: Point(empty, for_what)


# -- messages and calls


control: KeyedPoint[Sequence[Callable[[Any, Any, Any], None]]] = KeyedPoint("control")
"""Handlers of control records, by the module of the records; each is marked with `handles`."""

reducers: KeyedPoint[Mapping[type, Callable[[Any], Any]]] = KeyedPoint("reducers")
"""How types are pickled, by the top-level package that they are of."""


@Point
def lend(dump: Callable[[], Any], procs: Sequence[Any], actor: int) -> Any:
    """Pickle a message that may hold what stays where it is; a plane fills it when it is used.

    Args:
        dump: Pickles the message, a `Dumped`.
        procs: Their addresses.
        actor: The id of the actor there.

    Returns:
        A `Dumped`, or a `Loan`.
    """
    return dump()


@needed("Endpoint.options(timeout=..., retries=...)")
def repeat(name: str, options: Any) -> Any:
    """Give the class of an `Endpoint` with calls that are bounded, or repeated.

    Args:
        name: Of the endpoint.
        options: The `CallOptions`.
    """


@needed("Endpoint.rref()")
def rref(endpoint: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an endpoint, and give tensors that stand for its results."""


class Sampler(Protocol):
    """Looks at some of the messages of an actor.

    Attributes:
        gap: Messages until the next that it looks at, that one included. The cell counts down: to
            ask for each message costs more than to handle some. Set anew by `begin`.
    """

    gap: int

    def begin(self, origin: Any, frame: Any) -> None:
        """Note that a message, a `Frame`, is about to be handled."""

    def raised(self, frame: Any) -> None:
        """Note that its endpoint has raised."""

    def done(self, frame: Any) -> None:
        """Note that it has been handled."""


@Point
def sampler(hub: Any, mode: str) -> Sampler | None:
    """Make one for an actor; asked where the setting `telemetry` is not off.

    Args:
        hub: The `Hub` of the process.
        mode: The setting.
    """
    return None


@Point
def exporter(hub: Any, mesh: Callable[[], str], rank: int) -> None:
    """Tell a collector of OpenTelemetry what this process does; asked where one is configured."""


@needed("span()")
def span(name: str, **fields: Any) -> Any:
    """Give a context manager for a part of the program that takes time."""


@needed("traced()")
def traced(function: Any, *, name: str | None) -> Any:
    """Trace each call of a function, as a decorator."""


@needed("get_meter()")
def get_meter(name: str) -> Any:
    """Give a meter for counters, gauges and histograms."""


# -- the debugger


@Point
def keep_raised(error: BaseException) -> None:
    """Keep an endpoint that raised where it is; asked where ``debug_on_error`` is set."""


@needed("breakpoint() in an actor")
def stop_here(frame: Any) -> None:
    """Stop the actor of this thread for a debugger."""


@Point
def source_lines(file: str) -> list[str]:
    """Give lines of a file that only the client has."""
    return []


@Point
def debug_offer() -> tuple[Any, ...] | None:
    """Make the record that tells the client of a process to which editors can attach."""
    return None


# -- output and terminals


class View(Protocol):
    """Shows outputs where they are not simply written, on the printer's thread.

    Attributes:
        due: When `expire` has something to show, as `time.monotonic` counts.
    """

    @property
    def due(self) -> float | None: ...
    def show(self, output: Any, /) -> None: ...
    def expire(self) -> None: ...
    def flush(self) -> None: ...


@Point
def output_view(write: Callable[[str, str], None]) -> View | None:
    """Make what shows `Output` of procs, by `write(stream, text)`; without, it is plain lines."""
    return None


@needed("ProcMesh.logging_option()")
def log_options(procs: Any, *options: Any) -> Any:
    """Choose what the client shows of these procs; gives a future."""


@Point
def kept_logs() -> tuple[Any, ...] | None:
    """Make the record that has agents write output to files, where ``enable_file_capture`` asks."""
    return None


@needed("A mesh drawn as a table")
def draw(title: str, extent: Any, cell: Callable[[int], str], html: bool) -> str:
    """Draw a mesh of an `Extent`; `cell` describes its elements."""
    raise NotImplementedError


@Point
def html(kind: str, thing: object) -> str | None:
    """Give the HTML by which notebooks show an object."""
    return None


@Point
def progress(poller: Any, missing: Any, total: int, limit: float, attached: Any) -> object:
    """Tell a terminal of hosts that are waited for: `missing` ones, while `attached` is not done."""
    return None


# -- methods of meshes that are planes


@needed("A tensor on a ProcMesh")
def device_mesh(procs: Any) -> Any:
    """Make a mesh of tensors of a `ProcMesh`."""


@needed("stacks() of a mesh")
def stacks(
    hosts: Sequence[str], mesh: str | None, ranks: Sequence[int] | None, native: bool
) -> Any:
    """Ask processes for their stacks; gives a future."""


@needed("HostMesh.sync_workspace()")
def sync(hosts: Sequence[str], workspace: object, conda: bool, auto_reload: bool) -> Any:
    """Bring a workspace to hosts; gives an awaitable."""


@needed("sync_workspace(..., conda=True)")
def mirror(hosts: Sequence[str], workspace: object) -> Any:
    """Bring a conda environment to hosts; gives an awaitable."""


@needed("ActorMesh.update_class()")
def update_class(mesh: Any, cls: Any) -> Any:
    """Have the actors of an `ActorMesh` take another class; gives a future."""


@needed("ActorMesh.update_class()")
def take_class(actor: Any, *args: Any) -> Any:
    """Do that, in the actor."""


# -- the client


@Point
def fault_hook() -> Callable[[Any], object] | None:
    """Give the function of the program for failures that nothing handled, a `MeshFailure` each."""
    return None


@Point
def keep_report(text: str) -> None:
    """Keep the report of such a failure."""


@Point
def engine_log(process: str, program: str) -> None:
    """Write the engine's notes to a file, from now on; asked where ``file_log_level`` is set."""


@needed("A context outside of actors")
def client_context() -> Any:
    """Make this process a client; gives its `Context`."""


@Point
def client_mesh(address: Any) -> Any:
    """Make the mesh of one proc that the client itself is; the mesh layer of the engine fills it."""


@needed("ProcMesh.host_mesh")
def host_mesh(procs: Any) -> Any:
    """Make the mesh of the hosts of a `ProcMesh`; the mesh layer of the engine fills it."""


@Point
def bootstrap_module() -> str | None:
    """Name the module by which programs know that a new interpreter becomes a proc; an alias."""
    return None
