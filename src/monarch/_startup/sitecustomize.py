"""Imported by the interpreter of a script before the script.

It has the interpreter write its stacks on request, and then removes itself.

The folder of this file is the first of PYTHONPATH; nothing of Monarch is imported. Where ranks meet
at another address than that of the loopback interface it stays there, for programs that the script
starts: they meet as it does.
"""

from __future__ import annotations

import os
import sys

import monarch_startup  # type: ignore[import-not-found, unused-ignore]  # beside this file

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes 10 ms
    from typing import Any

_PLACE = "MONARCH_STORE_AT"


def _take_stack_signal() -> None:
    import faulthandler

    told = os.environ.pop("MONARCH_STACKS", None)
    if told is not None:  # it is the script itself
        number, _, name = told.partition(":")
        faulthandler.register(int(number), os.memfd_create(name, os.MFD_CLOEXEC), all_threads=True)


def _take_place() -> None:
    told = os.environ.get(_PLACE)
    if told is not None:
        port, number, address = told.split(":", 2)

        def store(distributed: Any, timeout: Any) -> Any:
            return distributed.TCPStore(
                "localhost", int(port), is_master=False, timeout=timeout, wait_for_workers=False
            )

        monarch_startup.meet((address, number), store)


def _step_aside() -> None:
    """Leave the environment, the path and the name to whom they belong."""
    folder = os.path.dirname(__file__)
    sys.path.remove(folder)
    if _PLACE not in os.environ:
        rest = os.environ["PYTHONPATH"].partition(os.pathsep)[2]
        if rest:
            os.environ["PYTHONPATH"] = rest
        else:
            del os.environ["PYTHONPATH"]
    own = sys.modules.pop("sitecustomize")
    try:
        # the machine's own, if it has one
        import sitecustomize  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)  # who imports this looks there again


try:
    _take_stack_signal()
    _take_place()
finally:
    _step_aside()
