"""The database of what people did on the pages: SQLite in the lake's folder, or PostgreSQL by its address.

What a transaction wrote is on the disk when it ends: SQLite writes ahead and flushes at each commit
(`journal_mode = WAL`, `synchronous = FULL`), PostgreSQL does so unless its administrator said otherwise. A SQLite file
belongs on a disk of this machine; pages on several machines take PostgreSQL.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError

from schemas.errors import NotFoundError, UsageError
from schemas.lake import Lake

_WAIT_S = 30  # for another process that writes to the same SQLite file
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}


def database_in(lake: str) -> str:
    """Return the address of the database in a local lake.

    Raises:
        UsageError: the lake is on an object store, which holds no database.
    """
    local = Lake.at(lake).root.local
    if local is None:
        raise UsageError("--store: name a database (postgresql://USER@HOST/NAME): the lake is on an object store")
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
        engine = sql.create_engine(url, connect_args={"timeout": _WAIT_S})
        sql.event.listen(engine, "connect", _keep_what_is_committed)
        return engine
    except (SQLAlchemyError, ValueError, KeyError) as problem:
        raise UsageError("--store: expected sqlite:///PATH or postgresql://USER@HOST/DATABASE") from problem
    except ModuleNotFoundError as problem:
        raise UsageError("--store: PostgreSQL needs psycopg: install multilink with the extra server") from problem


def add_columns(connection: sql.Connection, table: sql.Table, names: Collection[str]) -> set[str]:
    """Add columns of texts to a table that was made before they were; return which others are missing."""
    missing = {*table.columns.keys()} - {each["name"] for each in sql.inspect(connection).get_columns(table.name)}
    for name in sorted(missing.intersection(names)):
        connection.execute(sql.text(f"ALTER TABLE {table.name} ADD COLUMN {name} TEXT NOT NULL DEFAULT ''"))
    return missing.difference(names)


def _keep_what_is_committed(connection: Any, _: object) -> None:
    for setting in ("journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {setting}")
