"""Stacks as rows, under the names of Monarch 0.7.

They are what the processes of a host run, as `monarch stacks` has it and as py-spy sees it.

Both are taken for the question, by the host agent. py-spy stops a process for as long as it looks,
some hundredths of a second. What ends the waits: those of `stacks`; `_LOOK` seconds for each
process that py-spy looks at, and `_ALL` for all.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .._namedtuple import NamedTuple
from ..stacks.dump import py_spy, run_py_spy, state_of
from ..stacks.host import GetHostStacks, HostStacks
from .registry import AGENT, Asked, Incomplete, produces
from .rows import Row, stack_rows

_LOOK = 5.0  # seconds for one process
_ALL = 8.0  # seconds after which none is looked at any more


@produces("stacks", AGENT)
def _stacks(asked: Asked) -> Iterator[Row]:
    wanted = GetHostStacks(asked.root, py_spy=False, ended=True)
    return stack_rows(HostStacks(asked.service.hub, wanted, asked.description).collect())


class _Dump(NamedTuple):
    """The output of py-spy for a process, or its error."""

    id: str
    pid: int
    process: str
    threads: list[dict[str, Any]]
    error: str = ""


@produces("pyspy_dumps", AGENT)
def _dumps(asked: Asked) -> Iterator[Row]:
    for dump in _looked(asked):
        yield dump.id, asked.now_us, dump.pid, "py-spy", dump.process, "python_only", "[]"
    failed = [dump for dump in _dumped(asked) if dump.error]
    if failed:
        more = f"; {len(failed) - 1} more could not be looked at" if len(failed) > 1 else ""
        raise Incomplete(f"py-spy of process {failed[0].pid}: {failed[0].error}{more}")


@produces("pyspy_stack_traces", AGENT)
def _traces(asked: Asked) -> Iterator[Row]:
    for dump in _looked(asked):
        for thread in dump.threads:
            yield (
                dump.id, dump.pid, thread["thread_id"], thread["thread_name"], thread["os_thread_id"], thread["active"],
                thread["owns_gil"],
            )  # fmt: skip


@produces("pyspy_frames", AGENT)
def _frames(asked: Asked) -> Iterator[Row]:
    for dump in _looked(asked):
        for thread in dump.threads:
            for depth, frame in enumerate(thread["frames"]):
                yield (
                    dump.id, thread["thread_id"], depth, frame["name"], frame["filename"], frame["module"], frame["short_filename"],
                    frame["line"], frame.get("is_entry", False),
                )  # fmt: skip


def _looked(asked: Asked) -> Iterator[_Dump]:
    return (dump for dump in _dumped(asked) if not dump.error)


def _dumped(asked: Asked) -> list[_Dump]:
    """Return the dumps, taken once for all tables of a question."""
    if "py-spy" not in asked.scratch:
        asked.scratch["py-spy"] = _look_at_all(asked)
    found: list[_Dump] = asked.scratch["py-spy"]
    return found


def _look_at_all(asked: Asked) -> list[_Dump]:
    program = py_spy()
    if program is None:
        raise Incomplete("py-spy is not there: pip install 'pymonarch[stacks]'")
    end = time.monotonic() + _ALL

    def look(process: tuple[Any, int]) -> _Dump:
        address, pid = process
        made = _Dump(f"{address} {asked.now_us}", pid, str(address), [])
        seconds = min(_LOOK, end - time.monotonic())
        if seconds <= 0:
            return made._replace(error=f"there was no time for it within {_ALL:g} s")
        try:
            text = run_py_spy(
                program, pid, native=False, stopped="stopped" in state_of(pid), seconds=seconds
            )
            return made._replace(threads=json.loads(text))
        except ValueError as error:
            return made._replace(error=str(error))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(look, asked.description.pids.items()))
