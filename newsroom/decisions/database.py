"""The database of what people did on the pages: SQLite in the lake's folder, or PostgreSQL by its address.

    kept         random numbers of this installation
    articles     texts that were searched with, by the digest of what they say
    uploads      pictures that were searched by, by the digest of their bytes
    rankings     digest, article, ranking (JSON)        a list of pictures, stored once for all decisions on it
    decisions    number, at, who, action, image ...     a row a decision; of a blind one the two models, and whose the
                                                        picture is

Triggers end every UPDATE and DELETE of a ranking or a decision, except where something is forgotten
(`forget_on_pages`).
What a transaction wrote is on the disk when it ends: SQLite writes ahead and flushes at each commit
(`journal_mode = WAL`, `synchronous = FULL`), PostgreSQL does so unless its administrator said otherwise. A SQLite file
belongs on a disk of this machine; pages on several machines take PostgreSQL.

What is forgotten leaves a mark where it was: in a row of a decision, a label or a ranking, the id of a document and the
hash of an image become a random mark, the same in all rows, and titles and notes become `forgotten`. What was decided,
by whom and when stays. Articles that are such a document, and uploads that are such an image, are removed.
"""

import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy import Column, String, Table, Text
from sqlalchemy.exc import SQLAlchemyError

from schemas.lake import Lake
from schemas.messages import BuildError, NotFoundError, UsageError, without_passwords

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
    sql.Index("decisions_between_models", "champion", "challenger"),
    sqlite_autoincrement=True,
)
_GROWING = (RANKINGS.name, DECISIONS.name)
_REFUSAL = "a log of decisions only grows"
KEY_DIGITS = 24  # of articles and uploads
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
FORGOTTEN = "forgotten"
_ZEROS = "0" * 16  # the mark of an image begins with them
_Marks = Mapping[str, str]  # id of a document, or hash of an image -> its mark
_Row = Mapping[str, Any]
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


def forget_on_pages(address: str, documents: Collection[str], images: Collection[str], *, is_dry_run: bool) -> int:
    """Replace rows that name a document or an image by marks, and return how many rows name one.

    Args:
        address: of the database, which is there.
        documents: ids.
        images: content hashes.
        is_dry_run: whether the rows are only counted.

    Raises:
        BuildError: the database refused; nothing was changed.
    """
    marks = {each: f"{FORGOTTEN}-{secrets.token_hex(8)}" for each in documents}
    marks |= {each: _ZEROS + secrets.token_hex(24) for each in images}
    engine = open_database(address)
    with _forgetting(engine, is_dry_run=is_dry_run) as connection:
        count = sum(_forget(connection, table, without, marks) for table, without in _WITHOUT.items())
    if count and not is_dry_run and engine.dialect.name == "sqlite":
        with connected(engine.execution_options(isolation_level="AUTOCOMMIT")) as connection:
            connection.execute(sql.text("VACUUM"))
            connection.execute(sql.text("PRAGMA wal_checkpoint(TRUNCATE)"))
    engine.dispose()
    return count


@contextmanager
def _forgetting(engine: sql.Engine, *, is_dry_run: bool) -> Iterator[sql.Connection]:
    """Give a connection that may change rankings and decisions, in one transaction; a dry run changes nothing."""
    with connected(engine) as connection:
        connection.execute(KEPT.insert().values(name=FORGETTING, value=""))
        yield connection
        connection.execute(KEPT.delete().where(KEPT.c.name == FORGETTING))
        if not is_dry_run:
            connection.commit()


def _forget(connection: sql.Connection, table: sql.Table, without: Callable[..., _Row | None], marks: _Marks) -> int:
    """Change or delete the rows of a table that name something, and return how many do."""
    (key,) = table.primary_key
    columns = [column for column in table.columns if column.name != "bytes"]
    changes = [(row[key], without(row, marks)) for row in connection.execute(sql.select(*columns)).mappings()]
    changes = [(at, values) for at, values in changes if values is not None]
    for at, values in changes:
        connection.execute((sql.update(table).values(values) if values else sql.delete(table)).where(key == at))
    return len(changes)


def _decision_without(row: _Row, marks: _Marks) -> _Row | None:
    """Return the columns of a decision that change; None: it names nothing."""
    changed = {name: marks[row[name]] for name in ("document", "image") if row[name] in marks}
    return changed | {name: FORGOTTEN for name in ("title", "note") if row[name]} if changed else None


def _ranking_without(row: _Row, marks: _Marks) -> _Row | None:
    ranking = row["ranking"]
    gone = [each["image"] in marks for each in ranking["pictures"]]
    pictures = [
        each | {"image": marks[each["image"]], "title": FORGOTTEN} if is_gone else each
        for each, is_gone in zip(ranking["pictures"], gone, strict=True)
    ]
    return {"ranking": ranking | {"pictures": pictures}} if any(gone) else None


def _article_without(row: _Row, marks: _Marks) -> _Row | None:
    """Return no column, which is to delete it; None: it names nothing."""
    return {} if row["origin"].partition(" ")[2] in marks or not marks.keys().isdisjoint(row["images"]) else None


def _upload_without(row: _Row, marks: _Marks) -> _Row | None:
    return {} if any(row["key"] == each[:KEY_DIGITS] for each in marks) else None


_WITHOUT = {
    DECISIONS: _decision_without,
    RANKINGS: _ranking_without,
    ARTICLES: _article_without,
    UPLOADS: _upload_without,
}


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
