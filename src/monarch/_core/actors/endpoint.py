"""The declaration of an actor class: its endpoints, checked once per class.

An endpoint is a method marked with `endpoint`. On the class it is an `EndpointDefinition`; on a
spawned mesh the same attribute is an `Endpoint` with the adverbs (`adverbs`).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Coroutine
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from ..._namedtuple import NamedTuple
from ..calls.function_kinds import is_async_function, is_generator_function

if TYPE_CHECKING:
    import inspect

    from .adverbs import Endpoint
    from .ports import Port

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Propagate = Any

ADVERBS: set[str] = set()
"""The names of the adverbs: public methods of `Endpoint`, which fills this."""


class EndpointDefinition(Generic[P, R_co]):
    """A method that can be called remotely.

    Attributes:
        method: The undecorated function.
        explicit_response_port: Whether it answers through a `Port` it is given.
        concurrent: Whether its invocations overlap.
        concurrency: How many of them at most; None for any number.
        propagate: How `rref` finds the shapes of its results.
        instrument: Whether each invocation is traced.
    """

    def __init__(
        self,
        method: Callable[..., Any],
        propagate: Propagate = None,
        explicit_response_port: bool = False,
        instrument: bool = True,
        concurrent: bool = False,
        concurrency: int | None = None,
    ) -> None:
        _check_method(method, concurrent, concurrency)
        self.method = method
        self.propagate = propagate
        self.explicit_response_port = explicit_response_port
        self.instrument = instrument
        self.concurrent = concurrent
        self.concurrency = concurrency
        self.is_async = is_async_function(method)
        self.name = getattr(method, "__name__", "endpoint")
        functools.update_wrapper(self, method)

    @property
    def _method(self) -> Callable[..., Any]:
        return self.method

    @functools.cached_property
    def arguments(self) -> ArgumentCheck:
        """Checks a call's arguments, without ``self`` and the response port."""
        return ArgumentCheck(self.method, 2 if self.explicit_response_port else 1, self.name)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    # on an actor object it is itself; on a mesh, which the type checker takes for one, an
    # `Endpoint`
    if TYPE_CHECKING:

        def __get__(self, instance: Any, owner: type | None = None) -> Endpoint[P, R_co]: ...

    else:

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the method here, as any method.

        In a test of the plain object, by way of ``super()``, or as ``self.name()``.
        """
        return self.method(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ADVERBS:
            raise TypeError(
                f"{name} is for a spawned mesh, `mesh.{self.name}.{name}(...)`; on the actor object"
                f" itself {self.name} is a plain method: `self.{self.name}(...)`"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        kind = "concurrent_endpoint" if self.concurrent else "endpoint"
        return f"<{kind} {getattr(self.method, '__qualname__', self.name)}>"


class ArgumentCheck:
    """A binding of arguments to a signature, as a local call would do it.

    Plain positional calls are checked by counting.

    Args:
        function: Who will take the arguments.
        skip: How many it gets before them: ``self``, a response port. Where it takes those as part
            of ``*args``, that stays.
        name: Its name, for errors.
    """

    __slots__ = ("_most", "_name", "_required", "signature")

    def __init__(self, function: Callable[..., Any], skip: int, name: str) -> None:
        self._name = name
        import inspect  # here: a program that only declares actors does without it

        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        while skip and parameters and _is_positional(parameters[0]):
            del parameters[0]
            skip -= 1
        self.signature = signature.replace(parameters=parameters)
        self._required, self._most = _positional_range(parameters)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise the TypeError that a local call would raise."""
        if not kwargs and self._required <= len(args) <= self._most:
            return
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name}{self.signature}: {error}") from None


def _is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _positional_range(parameters: list[inspect.Parameter]) -> tuple[int, float]:
    """Return how few and how many positional arguments alone make a valid call.

    An empty range where they cannot.
    """
    positional = [p for p in parameters if _is_positional(p)]
    required = sum(p.default is p.empty for p in positional)
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        return 1, 0
    most = float("inf") if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(positional)
    return required, most


def _check_method(method: Any, concurrent: bool, concurrency: int | None) -> None:
    if isinstance(method, EndpointDefinition):
        if concurrent:
            raise ValueError(
                "concurrent_endpoint does not wrap @endpoint; use concurrent_endpoint alone"
            )
        raise ValueError(f"{method!r} is an endpoint already; decorate it once")
    if concurrent and not is_async_function(method):
        option = "endpoint(concurrency=...) is for"
        what = "concurrent_endpoint can only wrap" if concurrency is None else option
        raise ValueError(f"{what} async endpoints; write `async def {method.__name__}`")
    if not callable(method):
        raise TypeError(f"endpoint decorates a method, got {method!r}")
    if is_generator_function(method):
        raise TypeError(
            f"{method.__qualname__} yields: an endpoint returns one value. Return a list, or take a"
            " Port as argument and send each value through it"
        )


class _Decorator(Protocol):
    """`endpoint(...)` with options, waiting for its method."""

    @overload
    def __call__(
        self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]
    ) -> EndpointDefinition[P, R]: ...
    @overload
    def __call__(self, method: Callable[Concatenate[Any, P], R]) -> EndpointDefinition[P, R]: ...


class _PortDecorator(Protocol):
    """An endpoint with `explicit_response_port=True`.

    Callers do not see the port, and get the value that is sent through it.
    """

    @overload
    def __call__(
        self, method: Callable[Concatenate[Any, Port[R], P], Coroutine[Any, Any, None]]
    ) -> EndpointDefinition[P, R]: ...
    @overload
    def __call__(
        self, method: Callable[Concatenate[Any, Port[R], P], None]
    ) -> EndpointDefinition[P, R]: ...


@overload
def endpoint(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> EndpointDefinition[P, R]: ...
@overload
def endpoint(method: Callable[Concatenate[Any, P], R]) -> EndpointDefinition[P, R]: ...
@overload
def endpoint(
    *,
    propagate: Propagate = ...,
    explicit_response_port: Literal[False] = ...,
    instrument: bool = ...,
    concurrency: int | None = ...,
) -> _Decorator: ...
@overload
def endpoint(
    *,
    propagate: Propagate = ...,
    explicit_response_port: Literal[True],
    instrument: bool = ...,
    concurrency: int | None = ...,
) -> _PortDecorator: ...
def endpoint(
    method: Callable[..., Any] | None = None,
    *,
    propagate: Propagate = None,
    explicit_response_port: bool = False,
    instrument: bool = True,
    concurrency: int | None = None,
) -> Any:
    """Mark a method of an `Actor` as callable from elsewhere.

    Args:
        method: A ``def`` or ``async def`` method; all endpoints of one class must be of one kind.
        propagate: For `rref`: a function from argument shapes to result shapes.
        explicit_response_port: The method gets, after ``self``, a `Port` and answers through it,
            now or later; its result is dropped. An exception it raises ends the actor. If it
            lets go of the port without an answer, its caller gets an `ActorError` of a
            `RuntimeError`; a port that it has sent elsewhere may be answered there.
        instrument: Trace each invocation.
        concurrency: How many invocations of an ``async def`` method may overlap in one actor.
            Further calls of it wait, in order; the actor goes on to other messages. By default it
            handles one message at a time.

    Returns:
        The endpoint, in the place of the method; a decorator where no method is given.

    Raises:
        TypeError: The method is a generator, or `concurrency` is no int.
        ValueError: `concurrency` is less than 1, or the method is not ``async def``.
    """
    if concurrency is not None:
        from ..._arguments import whole  # few programs give any

        whole(concurrency, "concurrency")
    options = propagate, explicit_response_port, instrument, concurrency is not None, concurrency
    return _define(method, options)


@overload
def concurrent_endpoint(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> EndpointDefinition[P, R]: ...
@overload
def concurrent_endpoint(
    *,
    propagate: Propagate = ...,
    explicit_response_port: Literal[False] = ...,
    instrument: bool = ...,
) -> _Decorator: ...
@overload
def concurrent_endpoint(
    *, propagate: Propagate = ..., explicit_response_port: Literal[True], instrument: bool = ...
) -> _PortDecorator: ...
def concurrent_endpoint(
    method: Callable[..., Any] | None = None,
    *,
    propagate: Propagate = None,
    explicit_response_port: bool = False,
    instrument: bool = True,
) -> Any:
    """Mark an ``async def`` method as one with invocations that may overlap.

    Each message starts a task, and then the next message is taken. Bodies start in the order in
    which one sender sent them.

    Args:
        method: As for `endpoint`.
        propagate: As for `endpoint`.
        explicit_response_port: As for `endpoint`.
        instrument: As for `endpoint`.

    Returns:
        As for `endpoint`.

    Raises:
        ValueError: The method is not ``async def``, or is an endpoint already.
    """
    return _define(method, (propagate, explicit_response_port, instrument, True, None))


def _define(method: Callable[..., Any] | None, options: tuple[Any, ...]) -> Any:
    if method is None:
        return lambda method: EndpointDefinition(method, *options)
    return EndpointDefinition(method, *options)


class ActorClass(NamedTuple):
    """The runtime's view of an actor class."""

    endpoints: dict[str, EndpointDefinition[Any, Any]]
    is_async: bool
    check_init: ArgumentCheck


_HOOKS = ("__supervise__", "_handle_undeliverable_message")
_known: weakref.WeakKeyDictionary[type, ActorClass] = weakref.WeakKeyDictionary()


def describe_class(cls: type) -> ActorClass:
    """Read a class once.

    Raises:
        ValueError: It mixes sync and async endpoints, or a hook is of the wrong kind.
    """
    known = _known.get(cls)
    if known is None:
        known = _known[cls] = _describe(cls)
    return known


def _describe(cls: type) -> ActorClass:
    import inspect

    endpoints: dict[str, EndpointDefinition[Any, Any]] = {}
    for name in dir(cls):
        attribute = inspect.getattr_static(cls, name, None)
        if isinstance(attribute, EndpointDefinition):
            endpoints[name] = attribute
        else:
            _check_not_hidden(cls, name, attribute)
    colours = {definition.is_async for definition in endpoints.values()}
    if len(colours) == 2:
        sync = sorted(name for name, definition in endpoints.items() if not definition.is_async)
        others = sorted(set(endpoints) - set(sync))
        raise ValueError(
            f"{cls.__qualname__} mixes both async and sync endpoints. Sync: {', '.join(sync)};"
            f" async: {', '.join(others)}. Make them all `def` or all `async def`"
        )
    is_async = colours != {False}
    _check_hooks(cls, is_async)
    return ActorClass(endpoints, is_async, ArgumentCheck(_constructor(cls), 1, cls.__qualname__))


def _check_not_hidden(cls: type, name: str, attribute: Any) -> None:
    """Refuse an endpoint wrapped by `functools.wraps`.

    The wrapper is a plain function, which no message reaches.
    """
    wrapped = getattr(attribute, "__wrapped__", None) if callable(attribute) else None
    if isinstance(wrapped, EndpointDefinition):
        raise ValueError(
            f"a decorator above @endpoint hides the endpoint {cls.__qualname__}.{name}. Put"
            f" @endpoint on top:\n    @endpoint\n    @the_other_decorator\n    def {name}(self,"
            " ...)"
        )


def _constructor(cls: Any) -> Callable[..., Any]:
    """Return the function that takes the arguments of ``cls(...)``.

    The signatures of `object` accept anything.
    """
    own: Callable[..., Any] = cls.__init__
    if own is object.__init__:
        own = cls.__new__
    return _no_constructor if own is object.__new__ else own


def _no_constructor(self: object) -> None: ...


def _check_hooks(cls: type, is_async: bool) -> None:
    cleanup = getattr(cls, "__cleanup__", None)
    if cleanup is not None and is_async_function(cleanup) != is_async:
        wanted = "async def" if is_async else "def"
        raise ValueError(f"{cls.__qualname__}.__cleanup__ must be `{wanted}`, as its endpoints are")
    for name in _HOOKS:
        hook = getattr(cls, name, None)
        if not is_async and is_async_function(hook):
            raise ValueError(
                f"{cls.__qualname__}.{name} must be `def`, as the endpoints of this sync actor are"
            )
