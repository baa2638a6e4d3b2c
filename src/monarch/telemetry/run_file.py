"""The file of a run: all tables at one moment, as a duckdb database; and as a source of queries.

Beside the tables of `TABLES` it has one, ``run``, which names the program, and the processes or
rows that are missing.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from .._namedtuple import NamedTuple
from .._ours import HERE, opened
from .._public import RELEASE
from ..errors import QueryError
from .answer import is_said_of
from .programs import SCHEMA, Processes, unfilled
from .query import FoundRows, Needs, Schema, as_columns, library, quoted
from .tables import ON_REQUEST

_ABOUT = "run"
_ABOUT_COLUMNS = {"kind": "VARCHAR", "name": "VARCHAR", "value": "VARCHAR"}
# behind the database, which does not mind; what writes to that takes its place
_MARK = b"pymonarch run\n"
_MOST_ROWS = 100_000  # of each table in a file
_NOT_KEPT = (
    "py-spy looks when a query of a running program asks for it, and nothing of that is in files"
)
# tables, as duckdb itself says it: the file may have macros of any name
_COLUMNS = """
    SELECT table_name, column_name, data_type FROM system.main.duckdb_columns() AS columns
    SEMI JOIN system.main.duckdb_tables() AS tables USING (database_name, schema_name, table_name)
    WHERE NOT internal AND schema_name = 'main' AND column_default IS NULL
"""
_SETTINGS = {"enable_external_access": "false", "threads": "2"}


class Written(NamedTuple):
    """A file that was written.

    Attributes:
        path: Which.
        bytes: Its size.
        silent: Processes that did not answer, and why.
        left_out: By table how many rows are not in it, as there were too many.
    """

    path: Path
    bytes: int
    silent: Mapping[str, str]
    left_out: Mapping[str, int]


def write_run(
    path: str | os.PathLike[str], source: Processes, about: Mapping[str, str], seconds: float
) -> Written:
    """Collect all tables into a file, which takes the place of one that is there.

    Args:
        path: The file. Other users may not read it.
        source: The processes that are asked; see `snapshot_source`.
        about: What the table ``run`` is to say; the verdict is among it, as JSON.
        seconds: In which those that are asked have to answer.

    Raises:
        TimeoutError: They did not.
        OSError: The file can't be written.
        ImportError: duckdb or arro3 is not installed.
    """
    duckdb, target = library("duckdb"), Path(path)
    kept = {table: tuple(columns) for table, columns in SCHEMA.items() if table not in ON_REQUEST}
    found = source.collect(Needs(kept), seconds)
    always = unfilled(SCHEMA)  # which is said when one of these is read
    silent = {who: why for who, why in found.silent.items() if who not in always}
    described = {"made": time.strftime("%Y-%m-%d %H:%M:%S %z"), "pymonarch": RELEASE, **about}
    rows = [("about", name, value) for name, value in described.items()]
    rows += [("silent", name, why) for name, why in silent.items()]
    rows += [("left_out", name, str(count)) for name, count in found.left_out.items()]
    parent, name = target.absolute().parent, target.name
    root = "" if HERE in parent.parts else parent  # else the user has chosen it
    try:
        with opened(parent, root=root) as above, above.scratch(name, f"{name}.wal") as folder:
            fresh = f"{folder.way}/{name}"
            with duckdb.connect(fresh, config=_SETTINGS) as database:
                database.execute(f"CREATE TABLE {_ABOUT} ({as_columns(_ABOUT_COLUMNS)})")
                database.executemany(f"INSERT INTO {_ABOUT} VALUES (?, ?, ?)", rows)
                for table, found_rows in found.tables.items():
                    database.register("collected", found_rows)
                    database.execute(f"CREATE TABLE {quoted(table)} AS SELECT * FROM collected")
                    database.unregister("collected")
                for table in ON_REQUEST:
                    database.execute(f"CREATE TABLE {quoted(table)} ({as_columns(SCHEMA[table])})")
                database.execute("CHECKPOINT")  # what fails when the database is closed is not told
            os.chmod(fresh, 0o600)
            with open(folder.open(name, os.O_WRONLY | os.O_APPEND), "ab") as file:
                file.write(_MARK)
            os.replace(name, name, src_dir_fd=folder.fd, dst_dir_fd=above.fd)
    except duckdb.Error as error:  # a full disk, above all
        raise OSError(f"{target} can't be written: {str(error).splitlines()[0]}") from None
    # the rest, who reads that table
    of_processes = {who: why for who, why in silent.items() if is_said_of(who, ())}
    return Written(target, target.stat().st_size, of_processes, found.left_out)


def snapshot_source(connection: Any = None) -> Processes:
    """Return the content of a file; see `Processes`."""
    return Processes(connection, _MOST_ROWS)


def is_run(path: Path) -> bool:
    """Return whether a file of this user was written by `write_run`, by its end. A link is none.

    Opening it with duckdb would lock out its writer, and read what another user has made.
    """
    try:
        # a pipe is not waited for
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(opened, "rb") as file:
            status = os.fstat(opened)
            if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
                return False
            file.seek(-len(_MARK), os.SEEK_END)
            return file.read() == _MARK
    except OSError:  # it is shorter, has gone meanwhile, or is not for us
        return False


class RunFile:
    """A source: the file of a run.

    It may be of another user. Its tables are read, and what a database can compute, by views,
    macros, or columns that are generated, is none of them.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: There is none.
    """

    events: frozenset[str] = frozenset()

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        if not self._path.is_file():
            raise FileNotFoundError(f"no run is kept at {self._path}")

    @property
    def schema(self) -> Schema:
        """The columns of each table; those that the file of an older pymonarch lacks are NULL."""
        return {name: {**SCHEMA.get(name, {}), **there} for name, there in self._there.items()}

    @cached_property
    def _there(self) -> Schema:
        found: dict[str, dict[str, str]] = {}
        with self._open() as database:
            for table, column, kind in database.execute(_COLUMNS).fetchall():
                found.setdefault(table, {})[column] = kind
        if found.get(_ABOUT) != _ABOUT_COLUMNS:
            raise QueryError(f"{self._path} is a database, but not one of a run")
        return {
            name: columns for name, columns in found.items() if name in SCHEMA or name == _ABOUT
        }

    def collect(self, needs: Needs, seconds: float) -> FoundRows:
        arro3 = library("arro3.core")
        with self._open() as database:
            # no run has more rows; where all are equal, they take no place on a disk
            tables = {
                name: arro3.Table.from_arrow(
                    database.table(quoted(name))
                    .select(*(self._column(name, each) for each in columns))
                    .limit(_MOST_ROWS)
                )
                for name, columns in needs.columns.items()
            }
            told = database.execute(f"SELECT kind, name, value FROM {_ABOUT}").fetchall()
        silent = {
            name: why
            for kind, name, why in told
            if kind == "silent" and is_said_of(name, needs.columns)
        }
        silent |= {f"table {name}": _NOT_KEPT for name in ON_REQUEST & needs.columns.keys()}
        left_out = {
            name: int(count)
            for kind, name, count in told
            if kind == "left_out" and name in needs.columns
        }
        return FoundRows(tables, {**silent, **unfilled(needs.columns)}, left_out)

    def _column(self, table: str, name: str) -> Any:
        if name in self._there[table]:
            return quoted(name)
        return library("duckdb").SQLExpression(f"NULL::{SCHEMA[table][name]}").alias(name)

    def _open(self) -> Any:
        duckdb = library("duckdb")
        try:
            return duckdb.connect(str(self._path), read_only=True, config=_SETTINGS)
        except duckdb.Error as error:
            raise QueryError(
                f"{self._path} is no file of a run: {str(error).splitlines()[0]}"
            ) from None
