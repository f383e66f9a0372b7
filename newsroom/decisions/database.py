"""The database of what people did on the pages: SQLite in the lake's folder, or PostgreSQL by its address.

What a transaction wrote is on the disk when it ends: SQLite writes ahead and flushes at each commit
(`journal_mode = WAL`, `synchronous = FULL`), PostgreSQL does so unless its administrator said otherwise. A SQLite file
belongs on a disk of this machine; pages on several machines take PostgreSQL.
"""

import sqlite3
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from schemas.errors import NotFoundError, UsageError
from schemas.lake import Lake

_WAIT_S = 30  # for another process that writes to the same SQLite file
_MAKING = 0x6D6C_6465  # PostgreSQL's advisory lock while tables are made
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}


def database_in(lake: str) -> str:
    """Return the address of the database in a local lake.

    Raises:
        UsageError: the lake is on an object store, which holds no database.
    """
    local = Lake.at(lake).root.local
    if local is None:
        raise UsageError("--store: name a database (postgresql://HOST/NAME): the lake is on an object store")
    return f"sqlite:///{local.absolute() / 'pages' / 'pages.sqlite'}"


def open_database(address: str, *, must_exist: bool = False) -> sql.Engine:
    """Return the engine of a database; may be used by several threads, the database by several processes.

    Args:
        address: sqlite:///PATH or postgresql://USER@HOST/DATABASE.
        must_exist: whether a SQLite file that is not there is a mistake; else it is made.

    Raises:
        UsageError: it is no such address, or the driver is not installed.
        NotFoundError: there is no such file.
    """
    try:
        url = sql.make_url(address)
        kind = url.get_backend_name()
        url = url.set(drivername=_DRIVERS[kind])
        if kind == "postgresql":
            return sql.create_engine(url, pool_pre_ping=True)
        path = Path(url.database or "")
        if must_exist and not path.is_file():
            raise NotFoundError(f"--store: {path}: no database is there; `multilink pages` makes it")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # it holds the secret of the pages' seals
        engine = sql.create_engine(url, connect_args={"timeout": _WAIT_S})
        sql.event.listen(engine, "connect", _keep_what_is_committed)
        return engine
    except (SQLAlchemyError, ValueError, KeyError) as problem:
        raise UsageError("--store: expected sqlite:///PATH or postgresql://HOST/DATABASE") from problem
    except ModuleNotFoundError as problem:
        raise UsageError("--store: PostgreSQL needs psycopg: install multilink with the extra server") from problem


def make_tables(connection: sql.Connection, metadata: sql.MetaData) -> list[sql.Table]:
    """Make the tables and indexes that are not there, and return the tables that were.

    One process at a time does so: another waits for the end of the transaction, and finds them. What is there is not
    locked, so that nobody who writes to it waits.

    Args:
        connection: in a transaction.
        metadata: the tables.

    Raises:
        UsageError: a table of that name lacks other columns.
    """
    if connection.dialect.name == "postgresql":  # SQLite has one writer
        connection.execute(sql.text(f"SELECT pg_advisory_xact_lock({_MAKING})"))
    there = sql.inspect(connection)
    found = [table for table in metadata.sorted_tables if there.has_table(table.name)]
    for table in found:
        missing = {*table.columns.keys()} - {each["name"] for each in there.get_columns(table.name)}
        if missing:
            raise UsageError(f"table {table.name} was made by another program; it lacks {', '.join(sorted(missing))}")
    for table in (table for table in metadata.sorted_tables if table not in found):
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            connection.execute(CreateIndex(index, if_not_exists=True))
    return found


def _keep_what_is_committed(connection: Any, _: object) -> None:
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as problem:  # SQLite does not wait for another that sets it, too
            if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.02)
    connection.execute("PRAGMA synchronous = FULL")
