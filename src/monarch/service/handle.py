"""The caller's side: `Service`, and its endpoints with their adverbs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar, cast

from .._arguments import seconds, whole
from .._core import plane
from ..actor import Actor, Extent, Future, HostMesh, SupervisionError, ValueMesh, context, this_proc
from .calls import CallToAll, Message, ReplicaCall, kept
from .keeper import Keeper
from .records import LEAST_LOADED, ROUND_ROBIN, ReplicaStatus, Spec, Way
from .router import Router, router_of

A = TypeVar("A", bound=Actor)
_getframe = sys._getframe
_RETRIES = 3
_IN_FLIGHT = 16


class Service(Generic[A]):
    """Replicas of an actor behind one handle.

    The replicas start at once, and calls wait for the first that is ready. The actor that makes the
    service owns it: it ends with its owner. The handle can be sent to other actors, which then call
    the replicas themselves.

    Args:
        hosts: Where replicas run, each on one host.
        actor: The class of the actor.
        args: Arguments of its constructor.
        kwargs: The same by name.
        replicas: How many.
        procs_per_replica: Labels and sizes of the procs of one replica; None for one proc. A call
            goes to all of them.
        name: For people. None: the name of the class, in lower case.
        route: ``"least loaded"``: to the replica at which this process has the fewest calls
            outstanding; or ``"round robin"``.
        idempotent: Which endpoints may be done twice: all, or these. A call that loses its replica
            is then repeated elsewhere.
        in_flight: How many calls of one process a replica is given at a time; others wait in the
            caller, for whichever replica is done first. None: 16; twice what a batch holds, or
            `concurrency` allows, if that is more; any number where endpoints are concurrent without
            a bound. Calls of sessions do not wait.
        patience: Seconds that a call waits while no replica is ready.
        max_restarts: How often in a row a replica may be replaced that was not ready for a minute.
            Then its place is given up.
        health: An endpoint without arguments. A replica at which it raises, returns False, or takes
            more than `health_timeout` is replaced.
        health_interval: Seconds between two checks.
        health_timeout: Seconds for one. A check waits for its turn, behind calls that have come
            before.
        bootstrap: As that of `HostMesh.spawn_procs`.

    Raises:
        ValueError: `actor` is no actor class, or one with an endpoint that has the name of a method
            here; a number is out of range; there is no such endpoint; or batched endpoints on
            several procs.
        TypeError: The arguments do not fit the constructor, or an argument is of another type.
    """

    def __init__(
        self,
        hosts: HostMesh,
        actor: Callable[..., A],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        replicas: int = 1,
        procs_per_replica: Mapping[str, int] | None = None,
        name: str | None = None,
        route: str = LEAST_LOADED,
        idempotent: bool | Collection[str] = False,
        in_flight: int | None = None,
        patience: float = 60.0,
        max_restarts: int = 5,
        health: str | None = None,
        health_interval: float = 10.0,
        health_timeout: float = 30.0,
        bootstrap: Callable[[], Any] | None = None,
    ) -> None:
        if not isinstance(hosts, HostMesh):
            raise TypeError(f"a service runs on hosts, such as this_host(); got {hosts!r}")
        if not isinstance(actor, type) or not issubclass(actor, Actor):
            raise ValueError(f"a service is made of a class that derives from Actor, got {actor!r}")
        cls: type[Any] = actor
        name = name or cls.__name__.lower()
        procs = dict(procs_per_replica or {})
        _check_class(cls, procs)
        endpoints = plane.describe_class(cls).endpoints
        plane.describe_class(cls).check_init(tuple(args), dict(kwargs or {}))
        if route not in (LEAST_LOADED, ROUND_ROBIN):
            raise ValueError(f"route is {LEAST_LOADED!r} or {ROUND_ROBIN!r}, got {route!r}")
        whole(replicas, "replicas")
        if in_flight is not None:
            whole(in_flight, "in_flight")
        whole(max_restarts, "max_restarts", 0)
        seconds(patience, "patience")
        seconds(health_interval, "health_interval")
        seconds(health_timeout, "health_timeout")
        safe = idempotent if isinstance(idempotent, bool) else frozenset(idempotent)
        for wanted in [
            *([] if isinstance(safe, bool) else safe),
            *([health] if health is not None else []),
        ]:
            if wanted not in endpoints:
                raise ValueError(f"{cls.__qualname__} has no endpoint {wanted!r}")
        uid = plane.random_uid()
        spec = Spec(
            uid, name, hosts, cls, tuple(args), dict(kwargs or {}), replicas, procs, bootstrap, max_restarts, health,
            health_interval, health_timeout,
        )  # fmt: skip
        self._keeper = this_proc().spawn(f"service {name}", Keeper, spec)
        self._set(
            cls,
            uid,
            name,
            Extent(list(procs), list(procs.values())),
            Way(route, _RETRIES, safe, patience, in_flight or _room(cls)),
        )
        self._owned = True
        self._router()

    def _set(self, cls: type[A], uid: int, name: str, extent: Extent, way: Way) -> None:
        self._class = cls
        self._uid = uid
        self._name = name
        self._extent = extent
        self._way = way
        self._owned = False
        self._known: Router | None = None
        self._stopping: Future[None] | None = None

    def _router(self) -> Router:
        known = self._known
        if known is None or known.hub is not plane.current_hub():
            known = self._known = router_of(self._uid, self._name, self._keeper, self._way)
        return known

    @property
    def name(self) -> str:
        """The name that it was made with. Replicas are called ``name-0``, ``name-1`` and so on."""
        return self._name

    @property
    def typed(self) -> A:
        """This handle, as type checkers see a mesh of the actor.

        In ``service.typed.generate.call_one(text)`` they know the endpoint, its arguments and its
        result. It is still a service, with `call_one`, `call`, `broadcast` and its own `options`.
        """
        return cast(A, self)

    def scale(self, replicas: int, *, drain: float = 60.0) -> Future[None]:
        """Have so many replicas from now on. Acts when called, on any handle.

        Those that go take no new calls, and get `drain` seconds for what they have. A place that
        was given up is filled again.

        Args:
            replicas: The wanted number, 0 or more.
            drain: Seconds for the outstanding calls of those that go.

        Returns:
            A future that is done when the new ones are ready, or given up, and the others have
            ended.
        """
        whole(replicas, "replicas")
        seconds(drain, "drain")
        return plane.map_future(self._keeper.scale.call_one(replicas, drain), self._router().update)

    def status(self) -> Future[list[ReplicaStatus]]:
        """Ask how each replica is."""
        return self._keeper.status.call_one()

    def outstanding(self) -> dict[str, int]:
        """How many calls of this process each replica has not answered, by its name."""
        return self._router().outstanding()

    def stop(self, *, drain: float = 60.0) -> Future[None]:
        """Stop all replicas. Acts when called.

        They take no new calls, and get `drain` seconds for what they have.

        Args:
            drain: Seconds for outstanding calls.

        Returns:
            A future that is done when they have ended.

        Raises:
            NotImplementedError: This handle was received in a message; only who has made a service
                stops it.
        """
        if not self._owned:
            raise NotImplementedError(
                f"{self!r} was received in a message; only who has made it stops it"
            )
        seconds(drain, "drain")
        if self._stopping is None:
            self._stopping = self._keeper.close.call_one(drain)
        return self._stopping

    def __enter__(self) -> Service[A]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop(drain=0.0 if exc[0] is not None else 60.0).get()

    def __getattr__(self, name: str) -> Any:
        endpoints = plane.describe_class(self._class).endpoints
        if name not in endpoints:
            if name.startswith("_"):
                raise AttributeError(name)
            known = ", ".join(sorted(endpoints)) or "none"
            raise AttributeError(
                f"{self._class.__qualname__} has no endpoint {name!r}; its endpoints are: {known}"
            )
        safe = self._way.idempotent
        retries = self._way.retries if safe is True or (safe and name in safe) else 0
        found: ServiceEndpoint[Any] = ServiceEndpoint(self, name, retries)
        self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *plane.describe_class(self._class).endpoints})

    def __repr__(self) -> str:
        return f"<Service {self._name!r} of {self._class.__qualname__}>"

    def __reduce__(self) -> Any:
        return _receive, (self._class, self._uid, self._name, self._extent, self._way, self._keeper)


def _receive(
    cls: type[A], uid: int, name: str, extent: Extent, way: Way, keeper: Any
) -> Service[A]:
    service: Service[A] = object.__new__(Service)
    service._keeper = keeper
    service._set(cls, uid, name, extent, way)
    return service


R = TypeVar("R")


class ServiceEndpoint(Generic[R]):
    """An endpoint of a service.

    The adverbs are those of a mesh, with replicas in place of ranks.
    """

    __slots__ = (
        "_check", "_flags", "_meta", "_method", "_name", "_retries", "_service", "_session", "_timeout",
    )  # fmt: skip

    def __init__(
        self,
        service: Service[Any],
        method: str,
        retries: int,
        timeout: float | None = None,
        session: str | None = None,
    ) -> None:
        definition = plane.describe_class(service._class).endpoints[method]
        self._service = service
        self._method = method
        self._name = f"{service._name}.{method}()"
        self._retries = retries
        self._timeout = timeout
        self._session = session
        self._check = definition.arguments
        self._meta = plane.encode_meta(method, service._extent)
        self._flags = plane.EXPLICIT if definition.explicit_response_port else 0

    def call_one(self, /, *args: Any, **kwargs: Any) -> Future[R]:
        """Call one replica; a future of its result.

        All ranks of the replica run it, and the value is that of the first one.

        Raises:
            TypeError, ValueError, BackpressureError, Exception: As for `call_one` of a mesh.
                Nothing was sent.

        The future raises SupervisionError where no replica was ready in time, or one was lost and
        the call may not be repeated.
        """
        message = self._message(args, kwargs, bool(self._retries))
        router = self._service._router()
        call = ReplicaCall(message, router, self._session, self._timeout, self._retries)
        router.begin(call)
        return call.future

    def call(self, /, *args: Any, **kwargs: Any) -> Future[ValueMesh[R]]:
        """Call every replica that is ready.

        The future has a value for each rank of each, with the dimension ``replica`` first.

        It is not repeated: it fails with the first rank that does.

        Raises:
            TypeError, ValueError, BackpressureError, Exception: As for `call` of a mesh.

        The future raises SupervisionError where no replica is ready.
        """
        message = self._message(args, kwargs, True)
        replicas = self._service._router().all()
        if not replicas:
            return self._no_replica()
        extent = self._service._extent
        whole = Extent(["replica", *extent.labels], [len(replicas), *extent.values()])
        call = CallToAll(message, replicas, whole)
        call.send()
        return call.future

    def broadcast(self, /, *args: Any, **kwargs: Any) -> None:
        """Send to every replica that is ready, without an answer.

        A replica at which it raises has failed, and is replaced.
        """
        _, _, sender, meta, flags, content = self._message(args, kwargs, True)
        replicas = self._service._router().all()
        try:
            for replica in replicas:
                replica.target.cast(meta, content, None, flags=flags, sender=sender)
        finally:
            for replica in replicas:
                replica.release()

    def options(
        self,
        *,
        session: str | None = None,
        timeout: float | None = None,
        retries: int | None = None,
    ) -> ServiceEndpoint[R]:
        """Return this endpoint with another way to call it.

        An example is ``service.chat.options(session=user).call_one(text)``.

        Args:
            session: Calls of one session go to one replica, from all processes, for as long as
                that is there.
            timeout: Seconds for an attempt of `call_one`, from the wait for a replica to the
                answer. When it is over, another replica is asked, if the call may be repeated.
            retries: How often `call_one` may be repeated elsewhere, where its replica is lost or
                takes too long. More than 0 says that it may be done twice. None: 3 for endpoints
                that the service declares idempotent, 0 for others.

        Raises:
            TypeError: An argument is of another type.
            ValueError: It is out of range.
        """
        if session is not None and not isinstance(session, str):
            raise TypeError(f"session is a text, got {session!r}")
        if timeout is not None:
            seconds(timeout, "timeout")
        if retries is not None:
            whole(retries, "retries", 0)
        return ServiceEndpoint(
            self._service,
            self._method,
            self._retries if retries is None else retries,
            timeout,
            session,
        )

    def _message(self, args: Any, kwargs: Any, again: bool) -> Message:
        self._check(args, kwargs)
        content = plane.pickling.dumps_call(args, kwargs)
        if again:
            content = kept(content)
        frame = _getframe(2)
        site = frame.f_code, frame.f_lineno
        return self._name, site, context()._cell, self._meta, self._flags, content

    def _no_replica(self) -> Future[Any]:
        failed: plane.Promise[Any] = plane.Promise(self._name)
        failed.reject(SupervisionError(f"{self._name} has no replica: none is ready", self._name))
        return failed.future

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{self._name} is remote: write .call_one(...) for one replica, .call(...) for all"
        )

    def __getattr__(self, adverb: str) -> Any:
        raise AttributeError(
            f"{self._name} is an endpoint of a service, which has no adverb {adverb!r}; they are"
            " call_one, for one replica, and call and broadcast, for all"
        )

    def __repr__(self) -> str:
        return f"<ServiceEndpoint {self._name}>"

    def __reduce__(self) -> Any:
        return ServiceEndpoint, (
            self._service,
            self._method,
            self._retries,
            self._timeout,
            self._session,
        )


def _room(cls: type) -> float:
    """How many calls of one process a replica of this class gets at a time without waiting."""
    room: float = _IN_FLIGHT
    for definition in plane.describe_class(cls).endpoints.values():
        overlap: int | None = getattr(definition.method, "batches", definition.concurrency)
        if definition.concurrent:
            room = max(room, math.inf if overlap is None else 2 * overlap)
    return room


def _check_class(cls: type, procs: Mapping[str, int]) -> None:
    plane.check_names(cls)
    endpoints = plane.describe_class(cls).endpoints
    taken = sorted(name for name in endpoints if hasattr(Service, name))
    if taken:
        raise ValueError(
            f"a service has attributes of these names; rename the endpoints: {', '.join(taken)}"
        )
    batches = [
        name for name, definition in endpoints.items() if hasattr(definition.method, "batches")
    ]
    if batches and math.prod(procs.values()) > 1:
        raise ValueError(
            f"{', '.join(batches)} of {cls.__qualname__} are batched, and each rank of a replica"
            " would make batches of its own: have one rank make them, and call the others"
        )
