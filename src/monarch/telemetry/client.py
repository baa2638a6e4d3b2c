"""The way to ask a program, or the file of a run, in SQL."""

from __future__ import annotations

import os
import re

from ..programs import Connection
from .programs import Processes
from .query import Limits, TableSource, run
from .result import QueryResult
from .run_file import RunFile
from .stack_rows import keep

_URL = re.compile(r"[a-z]+://", re.IGNORECASE)


class QueryEngineClient:
    """Answers questions in SQL about a program.

    The program is this one, another that runs, or one that has left a file.

    Args:
        source: None: the program that this process belongs to. A `monarch.programs.Connection`: the
            running program there. A path: the file of a run.

    Raises:
        ValueError: It is a URL, as in Monarch 0.7: no server is needed here, and there is none.
        TypeError: It is something else.
    """

    def __init__(self, source: Connection | str | os.PathLike[str] | None = None) -> None:
        self._source: TableSource
        self._is_ours = source is None
        if isinstance(source, str) and _URL.match(source):
            raise ValueError(
                f"QueryEngineClient({source!r}): queries take no URL here;"
                " job.state().query_engine_client and job.telemetry_query_client() are clients,"
                " and QueryEngineClient() is one for this program"
            )
        if source is None or isinstance(source, Connection):
            self._source = Processes(source)
        elif isinstance(source, (str, os.PathLike)):
            self._source = RunFile(source)
        else:
            raise TypeError(
                f"a source of queries is a Connection, the path of a file, or None, not {source!r}"
            )

    def query(self, sql: str, timeout: float = 10) -> QueryResult:
        """Answer a question.

        Args:
            sql: One statement that reads, in duckdb's dialect; ``SHOW TABLES`` and
                ``DESCRIBE actors`` say what there is.
            timeout: Seconds for all of it.

        Returns:
            A dict with the rows under ``"rows"``, as in Monarch 0.7, and more; see `QueryResult`.

        Raises:
            QueryError: It is no such statement, or its answer is over a limit.
            TimeoutError: It took too long.
            ImportError: duckdb or arro3 is not installed.
        """
        return run(sql, self._source, Limits(seconds=timeout))

    def store_pyspy_dump(
        self, dump_id: str, proc_ref: str, pyspy_result_json: str
    ) -> dict[str, str]:
        """Keep a dump of py-spy in this process, for the `pyspy_` tables of its program.

        Args:
            dump_id: Its name.
            proc_ref: The reference of its process.
            pyspy_result_json: What ``/api/pyspy/capture`` has answered.

        Returns:
            ``{"status": "ok"}``, as in Monarch 0.7.

        Raises:
            ValueError: It is no such answer; or this client asks another program, or a file.
        """
        if not self._is_ours:
            raise ValueError(
                "this client asks another program, or a file, and a dump is kept in the program that"
                " stores it: use QueryEngineClient()"
            )
        keep(dump_id, proc_ref, pyspy_result_json)
        return {"status": "ok"}
