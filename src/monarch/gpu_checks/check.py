"""A check, and how it is run: in a process of its own.

What ends the wait for a check: its answer, the end of its process, or its limit. Then the process
is stopped, and killed if it does not end; what it has spawned ends with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ..actor import Actor, MeshFailure, endpoint, this_host, this_proc
from ..config import configured
from ..errors import ActorError, MonarchError

OK, FAILED, SKIPPED = OUTCOMES = "ok", "failed", "skipped"
_LOOKS = 10.0  # seconds in which the processes of a check that hangs tell what they do
_PRELOAD = ("torch._dynamo",)  # which optimizers import: once here, in place of once for each rank


class Machine(NamedTuple):
    """The machine that is looked at.

    Attributes:
        device: ``"cuda"`` or ``"cpu"``: where tensors are made.
        ranks: Processes of a check: one for each GPU, or two on CPUs.
        about: Its devices, and the versions that it has.
        missing: Why not, by what a check may need: ``"gpu"``, ``"two ranks"``, a module, a program.
    """

    device: str
    ranks: int
    about: str
    missing: Mapping[str, str]


class Check(NamedTuple):
    """Something to try.

    Attributes:
        name: For people, and in JSON.
        run: Tries it; returns its findings in a few words, and raises an error if one is wrong.
        needs: Keys of `Machine.missing`; it is skipped where one of them is.
        limit: Seconds in which it must be done.
    """

    name: str
    run: Callable[[Machine], str]
    needs: tuple[str, ...] = ()
    limit: float = 60.0


class Result(NamedTuple):
    """The outcome of a check.

    Attributes:
        name: Of the check.
        outcome: ``"ok"``, ``"failed"`` or ``"skipped"``.
        words: Findings; the wanted and the found value; or the reason for skipping it.
        seconds: How long it took.
        details: Tracebacks; of one that hung, what all its processes did.
    """

    name: str
    outcome: str
    words: str
    seconds: float = 0.0
    details: str = ""


class CheckFailed(AssertionError):
    """Something is not as it should be; the text has the wanted and the found value."""


def expect(what: str, got: Any, wanted: Any, tolerance: float = 0.0) -> None:
    """Compare numbers, texts, or lists of them.

    Args:
        what: Name of the compared value, for people.
        got: The found value.
        wanted: What it should be.
        tolerance: By how much numbers may differ, relative to those above 1.

    Raises:
        CheckFailed: They differ.
    """
    if not _same(got, wanted, tolerance):
        raise CheckFailed(f"{what}: wanted {str(wanted)[:200]}, got {str(got)[:200]}")


def _same(got: Any, wanted: Any, tolerance: float) -> bool:
    if isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(_same, got, wanted, [tolerance] * len(got)))
    near = tolerance and abs(got - wanted) <= tolerance * max(1.0, abs(wanted))
    return bool(got == wanted or near)


class _Doctor(Actor):
    """One in the client owns the process of a check, in which the other one calls it."""

    def __supervise__(self, failure: MeshFailure) -> bool:
        return True  # who waits for an answer is told

    @endpoint
    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    @endpoint
    def apart(self, limit: float, function: Callable[..., Any], *args: Any) -> Any:
        with configured(preload=_PRELOAD, host_spawn_ready_timeout=limit):
            procs = this_host().spawn_procs(name="doctor")
        try:
            checker = procs.spawn("checker", _Doctor)
            return checker.call.call_one(function, *args).get(timeout=limit)
        except TimeoutError:
            stacks = ""
            with suppress(MonarchError, TimeoutError):
                stacks = str(this_host().stacks().get(timeout=_LOOKS))
            raise CheckFailed(f"wanted an end within {limit:g} s, got none\n\n{stacks}") from None
        finally:
            procs.stop().get()  # kills it where it does not end


def apart(limit: float, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a process of its own, which ends with the call.

    Args:
        limit: Seconds in which it must return.
        function: Importable, or sent by value.
        *args: Its arguments.

    Raises:
        ActorError: It has raised, or has not returned in time.
        SupervisionError: Its process has ended.
    """
    doctor = this_proc().spawn("doctor", _Doctor)
    try:
        return doctor.apart.call_one(limit, function, *args).get()
    finally:
        doctor.stop("the check is over")


def examine(check: Check, machine: Machine) -> Result:
    """Run a check, unless the machine lacks what it needs.

    Args:
        check: What to try.
        machine: What there is.
    """
    for why in filter(None, map(machine.missing.get, check.needs)):
        return Result(check.name, SKIPPED, why)
    began = time.monotonic()
    try:
        outcome, words, details = OK, apart(check.limit, check.run, machine), ""
    except Exception as error:  # of any kind: the others go on
        outcome, words, details = FAILED, reason(error), str(error)
    return Result(check.name, outcome, words, time.monotonic() - began, details)


def reason(error: BaseException) -> str:
    """Tell in one line what a check, or one of its ranks, has raised.

    Args:
        error: What its caller got.
    """
    while isinstance(error, ActorError):
        error = error.exception
    said = f"{type(error).__name__}: {error}".partition("\n\n")[0]
    # of a remote function: the traceback, which ends with what it has raised
    lines = getattr(error, "worker_error_string", "").strip().splitlines() or [said]
    return " ".join(lines[-1].rpartition("CheckFailed: ")[2].split())[:300]
