"""How a call ended, as a plain value that can travel."""

from __future__ import annotations

from typing import Any, NamedTuple

from monarch.actor import ActorError, SupervisionError

VALUE = "value"
RAISED = "raised"  # the endpoint raised: ActorError
DEAD = "dead"  # the actor is gone: SupervisionError
HUNG = "hung"  # no answer within the bound
WRONG = "wrong"  # anything else


class Outcome(NamedTuple):
    kind: str
    value: Any = None
    """The result; for the other kinds what was raised, as text."""


def outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, ActorError):
        return Outcome(RAISED, f"{type(error.exception).__name__}: {error.exception}")
    if isinstance(error, SupervisionError):
        return Outcome(DEAD, str(error))
    if isinstance(error, TimeoutError):
        return Outcome(HUNG, str(error))
    return Outcome(WRONG, f"{type(error).__name__}: {error}")
