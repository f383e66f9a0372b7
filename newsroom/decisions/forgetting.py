"""The forgetting of documents and images in the pages' database (`database.py`).

What is to be forgotten leaves a mark where it was: in a row of a decision, a label or a ranking, the id of a document
and the hash of an image become a random mark, the same in all rows, and titles and notes become `forgotten`. What was
decided, by whom and when stays. Articles that are such a document, and uploads that are such an image, are removed.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sql

from newsroom.decisions.database import (
    ARTICLES,
    DECISIONS,
    FORGETTING,
    KEPT,
    RANKINGS,
    UPLOADS,
    connected,
    open_database,
)
from newsroom.decisions.store import KEY_DIGITS

FORGOTTEN = "forgotten"
_ZEROS = "0" * 16  # the mark of an image begins with them
_Marks = Mapping[str, str]  # id of a document, or hash of an image -> its mark
_Row = Mapping[str, Any]


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
        change = sql.update(table).values(values) if values else sql.delete(table)
        connection.execute(change.where(key == at))
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
