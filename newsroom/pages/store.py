"""What people searched with on the pages, and the forgetting of it, in their database (`newsroom.decisions.database`).

Rows are added, never changed, and removed when they are old (`Store.expire`). What a request has written is on the disk
before it is answered.

What is to be forgotten leaves a mark where it was (`forget_on_pages`): in a row of a decision, a label or a ranking,
the id of a document and the hash of an image become a random mark, the same in all rows, and titles and notes become
`forgotten`. What was decided, by whom and when stays. Articles that are such a document, and uploads that are such an
image, are removed.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sql

from newsroom.decisions.database import (
    ARTICLES,
    DECISIONS,
    KEPT,
    RANKINGS,
    UPLOADS,
    connected,
    forgetting,
    open_database,
)
from newsroom.decisions.log import INSERT
from newsroom.decisions.records import article_digest
from schemas.documents import UNDETERMINED
from schemas.errors import NotFoundError
from schemas.versions import plain

FORGOTTEN = "forgotten"
KEY_DIGITS = 24
_ZEROS = "0" * 16  # the mark of an image begins with them
_KINDS = {"articles": "article", "uploads": "uploaded picture"}
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
    with forgetting(engine, is_dry_run=is_dry_run) as connection:
        count = sum(_forget(connection, table, without, marks) for table, without in _WITHOUT.items())
    if count and not is_dry_run and engine.dialect.name == "sqlite":
        with connected(engine.execution_options(isolation_level="AUTOCOMMIT")) as connection:
            connection.execute(sql.text("VACUUM"))
            connection.execute(sql.text("PRAGMA wal_checkpoint(TRUNCATE)"))
    engine.dispose()
    return count


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """Texts that pictures are searched for.

    Attributes:
        texts: by role (`schemas.documents.Role`), none blank.
        language: of the texts; `und`: it is to be found out.
        origin: `NAME@VERSION ID` of a document of a data set; "": somebody's own text.
        images: content hashes of that document's own.
    """

    texts: Mapping[str, str]
    language: str = UNDETERMINED
    origin: str = ""
    images: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the digest of what it says: equal articles have one key."""
        content = json.dumps([sorted(self.texts.items()), self.language, self.origin], ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()[:KEY_DIGITS]


class Store:
    """The database, opened; may be used by several threads and processes. Raises as `open_database` does."""

    def __init__(self, address: str) -> None:
        self.engine = open_database(address)

    def close(self) -> None:
        """Close its connections."""
        self.engine.dispose()

    def secret(self) -> bytes:
        """Return the random number that signatures of these pages are made with, the same for all their processes."""
        self._add(KEPT, name="secret", value=secrets.token_hex(32))
        with connected(self.engine) as connection:
            found: str = connection.execute(sql.select(KEPT.c.value).where(KEPT.c.name == "secret")).scalar_one()
        return bytes.fromhex(found)

    def keep_article(self, article: Article) -> str:
        """Keep an article and return its key."""
        given = {"key": article.key, "digest": article_digest(article.texts), "first_seen": _now()}
        self._add(ARTICLES, **given, **plain(article) | {"texts": dict(article.texts)})
        return article.key

    def article(self, key: str) -> Article:
        """Return a kept article.

        Raises:
            NotFoundError: there is none of that key.
        """
        return _article(self._row(ARTICLES, key))

    def recent(self, count: int) -> list[Article]:
        """Return the articles that were kept last, the newest first."""
        newest = sql.select(ARTICLES).order_by(ARTICLES.c.first_seen.desc(), ARTICLES.c.key).limit(count)
        with connected(self.engine) as connection:
            return [_article(row) for row in connection.execute(newest)]

    def keep_upload(self, data: bytes) -> str:
        """Keep a picture and return its key."""
        key = hashlib.sha256(data).hexdigest()[:KEY_DIGITS]
        self._add(UPLOADS, key=key, bytes=data, at=_now())
        return key

    def upload(self, key: str) -> bytes:
        """Return a kept picture.

        Raises:
            NotFoundError: there is none of that key.
        """
        return bytes(self._row(UPLOADS, key).bytes)

    def expire(self, days: int) -> int:
        """Remove uploads, and articles on whose pictures nobody decided, that are so many days old; return how many."""
        before, article = _now(-timedelta(days=days)), ARTICLES.c
        is_unused = article.digest.not_in(sql.select(DECISIONS.c.article))
        with connected(self.engine, is_writing=True) as connection:
            gone = connection.execute(sql.delete(ARTICLES).where(article.first_seen < before, is_unused)).rowcount
            return gone + connection.execute(sql.delete(UPLOADS).where(UPLOADS.c.at < before)).rowcount

    def _row(self, table: sql.Table, key: str) -> Any:
        with connected(self.engine) as connection:
            found = connection.execute(sql.select(table).where(table.c.key == key)).one_or_none()
        if found is None:
            raise NotFoundError(f"no {_KINDS[table.name]} {key[:KEY_DIGITS]!r}; it was deleted or never saved")
        return found

    def _add(self, table: sql.Table, **values: Any) -> None:
        """Add a row, unless its key is there."""
        insert = INSERT[self.engine.dialect.name](table).on_conflict_do_nothing()
        with connected(self.engine, is_writing=True) as connection:
            connection.execute(insert.values(**values))


def _article(row: Any) -> Article:
    return Article(texts=row.texts, language=row.language, origin=row.origin, images=tuple(row.images))


def _now(shift: timedelta = timedelta()) -> str:
    return (datetime.now(UTC) + shift).isoformat(timespec="seconds")
