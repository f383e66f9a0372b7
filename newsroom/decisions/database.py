"""The database of what people did on the pages: SQLite in the lake's folder, or PostgreSQL by its address.

    kept         random numbers of this installation
    articles     texts that were searched with, by the digest of what they say
    uploads      pictures that were searched by, by the digest of their bytes
    rankings     digest, article, ranking (JSON)        a list of pictures, stored once for all decisions on it
    decisions    number, at, who, action, image ...     a row a decision; of a blind one the two models, and whose the
                                                        picture is

Triggers end every UPDATE and DELETE of a ranking or a decision, except in a transaction that forgets (`forgetting.py`).
What a transaction wrote is on the disk when it ends: SQLite writes ahead and flushes at each commit
(`journal_mode = WAL`, `synchronous = FULL`), PostgreSQL does so unless its administrator said otherwise. A SQLite file
belongs on a disk of this machine; pages on several machines take PostgreSQL.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy import Column, String, Table, Text
from sqlalchemy.exc import SQLAlchemyError

from schemas.errors import BuildError, NotFoundError, UsageError, without_passwords
from schemas.lake import Lake

METADATA = sql.MetaData()
KEPT = Table("kept", METADATA, Column("name", String, primary_key=True), Column("value", String, nullable=False))
ARTICLES = Table(
    "articles",
    METADATA,
    Column("key", String, primary_key=True),
    Column("digest", String(64), nullable=False),  # that decisions on its pictures have
    Column("texts", sql.JSON, nullable=False),  # role -> text
    Column("language", String, nullable=False),
    Column("origin", String, nullable=False),  # NAME@VERSION and id of a data set's document; "": typed in
    Column("first_seen", String, nullable=False, index=True),  # ISO 8601, UTC
    Column("images", sql.JSON, nullable=False),  # content hashes of the document's own
)
UPLOADS = Table(
    "uploads",
    METADATA,
    Column("key", String, primary_key=True),
    Column("bytes", sql.LargeBinary, nullable=False),
    Column("at", String, nullable=False, index=True),  # ISO 8601, UTC
)
RANKINGS = Table(
    "rankings",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("article", String(64), nullable=False),
    Column("ranking", sql.JSON, nullable=False),
)
DECISIONS = Table(
    "decisions",
    METADATA,
    Column("number", sql.BigInteger().with_variant(sql.Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", String(32), nullable=False),
    Column("who", Text, nullable=False),
    Column("action", String(16), nullable=False),
    Column("image", String(64), nullable=False),
    Column("dataset", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("sentence", sql.Integer),
    Column("reason", String(32)),
    Column("note", Text, nullable=False),
    Column("ranking", String(64), nullable=False),
    Column("article", String(64), nullable=False),
    Column("title", Text, nullable=False),
    # Of a blind decision: the two models, and whose the picture is, -1 the champion's, 1 the challenger's.
    Column("champion", Text),
    Column("challenger", Text),
    Column("side", sql.Integer),
    sql.Index("decisions_on_pictures", "article", "image", "number"),
    sql.Index("decisions_on_links", "dataset", "document"),
    sql.Index("decisions_between_models", "champion", "challenger"),
    sqlite_autoincrement=True,
)
_GROWING = (RANKINGS.name, DECISIONS.name)
_REFUSAL = "a log of decisions only grows"
FORGETTING = "forgetting"  # name of the row of `kept` that lets rows be changed
_IS_OTHER = f"NOT EXISTS (SELECT 1 FROM kept WHERE name = '{FORGETTING}')"
_TRIGGERS = {
    "sqlite": [
        f"CREATE TRIGGER IF NOT EXISTS {table}_no_{change} BEFORE {change} ON {table} WHEN {_IS_OTHER} "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
        for table in _GROWING
        for change in ("update", "delete")
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION multilink_only_grows() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF {_IS_OTHER} THEN RAISE EXCEPTION '{_REFUSAL}'; END IF; RETURN NULL; END $$",
        *(
            f"CREATE OR REPLACE TRIGGER {table}_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION multilink_only_grows()"
            for table in _GROWING
        ),
    ],
}
for _dialect, _statements in _TRIGGERS.items():
    for _statement in _statements:
        sql.event.listen(METADATA, "after_create", sql.DDL(_statement).execute_if(dialect=_dialect))  # type: ignore[no-untyped-call]
_WAIT_S = 30  # for another process that writes to the same SQLite file
_ALONE = {"sqlite": "BEGIN IMMEDIATE", "postgresql": f"SELECT pg_advisory_xact_lock({0x6D6C_6465})"}  # who makes tables
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
    """Return the engine of a database with its tables; may be used by several threads, and by several processes.

    Args:
        address: sqlite:///PATH or postgresql://USER@HOST/DATABASE.
        must_exist: whether a SQLite file that is not there is a mistake; else it is made.

    Raises:
        UsageError: it is no such address, or the driver is not installed.
        NotFoundError: there is no such file.
        BuildError: it does not answer, or refuses.
    """
    try:
        url = sql.make_url(address)
        kind = url.get_backend_name()
        url = url.set(drivername=_DRIVERS[kind])
        if kind == "postgresql":
            engine = sql.create_engine(url, pool_pre_ping=True)
        else:
            path = Path(url.database or "")
            if must_exist and not path.is_file():
                raise NotFoundError(f"--store: {path}: no database is there; `multilink pages` makes it")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # it holds the secret of the pages' seals
            engine = sql.create_engine(url, connect_args={"timeout": _WAIT_S})
            sql.event.listen(engine, "connect", _keep_what_is_committed)
    except (SQLAlchemyError, ValueError, KeyError) as problem:
        raise UsageError("--store: expected sqlite:///PATH or postgresql://HOST/DATABASE") from problem
    except ModuleNotFoundError as problem:
        raise UsageError("--store: PostgreSQL needs psycopg: install multilink with the extra server") from problem
    with connected(engine) as connection:
        is_made = METADATA.tables.keys() <= {*sql.inspect(connection).get_table_names()}
    if not is_made:
        with connected(engine, is_writing=True) as connection:
            connection.exec_driver_sql(_ALONE[kind])
            METADATA.create_all(connection)
    return engine


@contextmanager
def connected(engine: sql.Engine, *, is_writing: bool = False) -> Iterator[sql.Connection]:
    """Give a connection, in a transaction that is committed where something is written.

    Raises:
        BuildError: the database does not answer, or refuses; nothing was written.
    """
    try:
        with engine.begin() if is_writing else engine.connect() as connection:
            yield connection
    except SQLAlchemyError as problem:
        name = without_passwords(engine.url.render_as_string(hide_password=False))
        cause = str(getattr(problem, "orig", None) or problem).splitlines()[0]
        raise BuildError(f"database {name}: {cause}") from problem


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
