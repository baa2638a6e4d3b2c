"""The error of a call that was dropped before it began: made by requests, recognized by futures."""

from __future__ import annotations

from ..._lazy import whole


def cancelled_error(what: str) -> Exception:
    """Make the error that the reader of a cancelled future gets."""
    # here: few programs cancel, and every one would pay for it; `Future.cancel` has imported it
    from concurrent.futures import CancelledError

    return CancelledError(f"{what} was cancelled before it had begun")


def is_cancelled(error: BaseException | None) -> bool:
    """Return whether `cancelled_error` made this error."""
    module = whole("concurrent.futures")
    return error is not None and module is not None and isinstance(error, module.CancelledError)
