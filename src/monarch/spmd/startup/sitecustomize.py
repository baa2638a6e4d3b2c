"""Imported by the interpreter of a script before that: has it write its stacks when it is asked to, and is not there any more then.

The folder of this file is the first of PYTHONPATH; nothing of Monarch is imported.
"""

import os
import sys


def _take_stack_signal() -> None:
    import faulthandler

    number, _, name = os.environ.pop("MONARCH_STACKS").partition(":")
    faulthandler.register(int(number), os.memfd_create(name, os.MFD_CLOEXEC), all_threads=True)


def _step_aside() -> None:
    """Leave the environment, the path and the name to whom they belong."""
    folder, _, rest = os.environ["PYTHONPATH"].partition(os.pathsep)
    sys.path.remove(folder)
    if rest:
        os.environ["PYTHONPATH"] = rest
    else:
        del os.environ["PYTHONPATH"]
    own = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found, unused-ignore]  # noqa: F401  # the machine's own, if it has one
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)  # who imports this looks there again


try:
    _take_stack_signal()
finally:
    _step_aside()
