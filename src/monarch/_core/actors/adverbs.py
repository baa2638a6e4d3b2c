"""How endpoints are called: call, call_one, choose, broadcast, stream, rref, send.

All of them check the arguments, pickle them once and write the message before they return.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from ..._namedtuple import NamedTuple
from ..._unsendable import explain_arguments
from ..calls.exception_pickle import can_be_sent
from ..calls.future import Future
from ..calls.message import encode_meta
from ..calls.remote_error import supervision_error
from ..extension import lend, repeat, rref
from ..shape import ValueMesh
from ..wire import pickling
from ..wire.frame import EXPLICIT
from ..wire.reducers import Dumped, Loan
from .answers import Answers
from .context import context
from .endpoint import ADVERBS, ArgumentCheck, EndpointDefinition
from .request import Gather, StreamCall, UnaryCall

if TYPE_CHECKING:
    from .ports import Port
    from .target import Target

# where a call is made: a tenth of a microsecond, for the warning that its error was not read
_getframe = sys._getframe

P = ParamSpec("P")
R = TypeVar("R")


class CallOptions(NamedTuple):
    """The options of a call, as `Endpoint.options` sets them.

    Attributes:
        wait_for_all: `call` completes when every rank has answered or failed, rather than with the
            first failure.
        timeout: Seconds for each attempt; None for any time.
        retries: How many more attempts there may be.
    """

    wait_for_all: bool = False
    timeout: float | None = None
    retries: int = 0


_DEFAULT = CallOptions()
_OTHERS = ("name", "options", "send")  # of an endpoint, and no adverbs


class Endpoint(Generic[P, R]):
    """One endpoint of a spawned mesh, or of a slice of it. It can be sent to other actors.

    Args:
        target: The actors addressed.
        name: The method.
        definition: How the class declares it.
        options: How to call it.
    """

    __slots__ = ("_check", "_definition", "_flags", "_meta", "_name", "_options", "_target", "name")

    name: str
    """The call as messages show it, for example ``trainers.train()``."""

    def __init__(
        self,
        target: Target,
        name: str,
        definition: EndpointDefinition[P, R],
        options: CallOptions = _DEFAULT,
    ) -> None:
        self._target = target
        self._name = name
        self.name = f"{target.name}.{name}()"
        self._definition = definition
        self._options = options
        self._check: ArgumentCheck = definition.arguments
        self._meta = encode_meta(name, target.extent)
        self._flags = EXPLICIT if definition.explicit_response_port else 0

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[R]]:
        """Call every rank; a future of one value per rank, arranged as the mesh is.

        The future fails with the first rank that fails: `ActorError` if the endpoint raised,
        `SupervisionError` if the actor is gone. The error tells of all ranks that are known to have
        failed: `ActorError.by_rank`.

        Args:
            *args: Arguments of the endpoint, pickled once and sent now.
            **kwargs: As `args`.

        Raises:
            TypeError: The arguments do not fit the endpoint's signature. Nothing was sent.
            ValueError: The arguments are larger than ``codec_max_frame_length``. Nothing was sent.
            BackpressureError: The mailbox of an actor was full for `message_delivery_timeout`
                seconds. Nothing was sent.
            Exception: Raised by pickling the arguments. Nothing was sent.
        """
        self._check(args, kwargs)
        target = self._target
        frame = _getframe(1)
        site = frame.f_code, frame.f_lineno
        request = Gather(
            self.name, target.uid, target.procs, target.extent, site, self._options.wait_for_all
        )
        request.number = target.cast(
            self._meta, self._pickle(args, kwargs), request, flags=self._flags
        )
        return request.future

    def call_one(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call the only rank of a mesh; a future of its result.

        Args:
            *args: Arguments of the endpoint.
            **kwargs: As `args`.

        Raises:
            ValueError: The mesh has more than one rank.
            TypeError, ValueError, BackpressureError, Exception: As for `call`.
        """
        target = self._target
        procs = target.procs
        if len(procs) != 1:
            raise self._not_one()
        self._check(args, kwargs)
        frame = _getframe(1)
        cell = context()._cell
        request = UnaryCall(
            self.name, target.uid, procs[0], cell.hub, (frame.f_code, frame.f_lineno)
        )
        request.number = target.cast(
            self._meta, self._pickle(args, kwargs), request, flags=self._flags, sender=cell
        )
        return request.future

    def choose(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call one rank, picked at random among those not known to be dead; a future of its result.

        Args:
            *args: Arguments of the endpoint.
            **kwargs: As `args`.

        Raises:
            TypeError, ValueError, BackpressureError, Exception: As for `call`.
        """
        self._check(args, kwargs)
        rank = self._pick()
        frame = _getframe(1)
        site = frame.f_code, frame.f_lineno
        target, cell = self._target, context()._cell
        request = UnaryCall(
            self.name, target.uid, target.procs[rank], cell.hub, site, rank, target.extent
        )
        content = self._pickle(args, kwargs, [rank])
        request.number = target.cast(
            self._meta, content, request, [rank], flags=self._flags, sender=cell
        )
        return request.future

    def broadcast(self, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send to every rank, without an answer.

        An exception in the endpoint ends that actor, as it has no caller to go to.

        Args:
            *args: Arguments of the endpoint.
            **kwargs: As `args`.

        Raises:
            SupervisionError: A rank is known to be gone. The others got the message.
            TypeError, ValueError, BackpressureError, Exception: As for `call`.
        """
        self._check(args, kwargs)
        target, sender = self._target, context()._cell
        # before sending: this message may well be what ends the actor
        failure = target.known_failure(sender.hub)
        target.cast(self._meta, self._pickle(args, kwargs), None, flags=self._flags, sender=sender)
        if failure is not None:
            raise supervision_error(failure, self.name)

    def stream(self, /, *args: P.args, **kwargs: P.kwargs) -> Answers[R]:
        """Call every rank, and iterate over a future for each, in the order of the answers.

        ``async for`` works, too.

        Args:
            *args: Arguments of the endpoint.
            **kwargs: As `args`.

        Returns:
            One future per rank. Once done, it has the attribute `rank`: the `Point` of the rank
            that answered.

        Raises:
            TypeError, ValueError, BackpressureError, Exception: As for `call`.
        """
        self._check(args, kwargs)
        target = self._target
        frame = _getframe(1)
        request = StreamCall(
            self.name, target.uid, target.procs, target.extent, (frame.f_code, frame.f_lineno)
        )
        answers = Answers(request.futures)
        request.number = target.cast(
            self._meta, self._pickle(args, kwargs), request, flags=self._flags
        )
        return answers

    def rref(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call every rank; results stay with them, as distributed tensors.

        Returns at once.

        Takes an endpoint of which ``endpoint(propagate=...)`` says what its results look like: a
        function of the arguments without ``self``, or ``"inspect"`` for none.

        Args:
            *args: Arguments of the endpoint.
            **kwargs: As `args`.

        Raises:
            NotImplementedError: The endpoint has no such ``propagate``.
            ValueError: The procs of this mesh are not those of the tensors, or of the active mesh.
            TypeError: The arguments do not fit the endpoint's signature.
        """
        self._check(args, kwargs)
        return rref(self, args, kwargs)

    def options(self, **options: Any) -> Endpoint[P, R]:
        """Return the same endpoint, to be called in another way.

        For example ``mesh.train.options(wait_for_all=True).call()``.

        Args:
            **options: Any of the following.
            wait_for_all: `call` completes when every rank has answered or failed, and its error
                tells of all that have.
            timeout: Seconds that one attempt may take, for `call`, `call_one` and `choose`; each
                rank has attempts of its own. When it is over, invocations that have not begun are
                dropped. None, the default, for any time.
            retries: How many more attempts there are, 0 by default, where one took too long, or
                lost a rank that may start again (`choose`: where there is another rank). Errors of
                endpoints are raised at once.

        Raises:
            TypeError: There is no such option, or its value is of another type.
            ValueError: `timeout` is not positive and finite, or `retries` is negative.
        """
        for name in options:
            if name not in CallOptions._fields:
                known = ", ".join(CallOptions._fields)
                raise TypeError(f"{self.name} has no option {name!r}; there are: {known}")
        chosen = self._options._replace(**options)
        if not isinstance(chosen.wait_for_all, bool):
            raise TypeError(
                f"the option wait_for_all of {self.name} is a bool, got {chosen.wait_for_all!r}"
            )
        repeats = "timeout" in options or "retries" in options
        kind = repeat(self.name, chosen) if repeats else type(self)
        return kind(self._target, self._name, self._definition, chosen)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{self.name} is remote: write {self._target.name}.{self._name}.call(...), or another"
            " adverb"
        )

    if not TYPE_CHECKING:
        __getitem__ = __call__  # also where a program iterates over it

    def __getattr__(self, adverb: str) -> Any:
        raise AttributeError(
            f"{self.name} has no adverb {adverb!r}; they are call, call_one, choose, broadcast,"
            " stream and rref"
        )

    def send(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], port: Port[Any] | None, selection: str
    ) -> None:
        """Send a message to all ranks, or to one; see `send`.

        Args:
            args: Arguments of the endpoint.
            kwargs: The same by name.
            port: Where answers go; None wants none.
            selection: ``"all"``, or ``"choose"`` for one rank.
        """
        self._check(args, kwargs)
        ranks = range(len(self._target.procs)) if selection == "all" else [self._pick()]
        content = self._pickle(args, kwargs, ranks)
        with nullcontext() if isinstance(content, tuple) else content:  # one loan for all
            for rank in ranks:
                self._target.cast(self._meta, content, None, [rank], port, self._flags)

    def _pickle(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], ranks: Sequence[int] | None = None
    ) -> Dumped | Loan:
        """Pickle arguments for some ranks, or for all."""
        if lend.guest is None:
            return self._dump(args, kwargs)
        target = self._target
        procs = target.procs if ranks is None else [target.procs[rank] for rank in ranks]
        lent: Dumped | Loan = lend.guest(lambda: self._dump(args, kwargs), procs, target.uid)
        return lent

    def _dump(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Dumped:
        try:
            return pickling.dumps_call(args, kwargs)
        except Exception as error:
            explain_arguments(error, self.name, args, kwargs, can_be_sent)
            raise

    def _not_one(self) -> ValueError:
        target = self._target
        return ValueError(
            f"call_one requires exactly 1 actor, but mesh {target.name} has {len(target.procs)}:"
            f" {target.extent}. Pick one with slice(...), or use call or choose"
        )

    def _pick(self) -> int:
        import random  # here: few programs choose, and every one would pay for it

        living = self._target.living_ranks(context()._cell.hub)
        return random.choice(living) if living else 0  # all are gone: the call says so

    def __repr__(self) -> str:
        return f"<Endpoint {self.name} on {self._target.extent}>"

    def __reduce__(self) -> Any:
        return type(self), (self._target, self._name, self._definition, self._options)


ADVERBS.update(name for name in vars(Endpoint) if name[0] != "_" and name not in _OTHERS)
