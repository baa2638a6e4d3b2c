"""Objects from elsewhere are rebuilt by code of their classes.

An exception of their code must not end the process that reads them.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ..._interrupts import HeldInterrupts
from ..wire import pickling
from ..wire.frame import Frame

T = TypeVar("T")


def rebuild(load: Callable[..., T], *args: Any) -> T:
    """``load(*args)``, which unpickles; it may be called twice.

    Raises:
        RuntimeError: The error is no `Exception`: a `SystemExit`, for example.
        BaseException: A signal handler of the program raised that meanwhile. It can be read again.
    """
    try:
        return load(*args)
    except Exception:
        raise
    except BaseException as error:
        return _load_again(error, load, *args)


def read_value(frame: Frame) -> Any:
    """Decode the value in a frame: `rebuild` of `pickle.loads`, without the cost of the calls."""
    try:
        return pickle.loads(frame.payload, buffers=frame.buffers)
    except Exception:
        raise
    except BaseException as error:
        return _load_again(error, pickling.loads, frame.payload, frame.buffers)


def _load_again(error: BaseException, load: Callable[..., T], *args: Any) -> T:
    """Continue `rebuild` after `load` has raised `error`, which is no `Exception`."""
    # the only one in which signal handlers run
    if threading.current_thread() is not threading.main_thread():
        raise _explained(error)
    with HeldInterrupts():
        try:
            load(*args)
        except Exception:
            raise
        except BaseException as again:
            raise _explained(again) from again
    raise error


def _explained(error: BaseException) -> RuntimeError:
    return RuntimeError(f"the code that rebuilds it raised {error!r}")
