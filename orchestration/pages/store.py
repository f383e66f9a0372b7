"""The database of what people did on the pages: SQLite beside the lake, or PostgreSQL by its address.

    kept       random numbers of this installation
    articles   texts that were searched with, by the digest of what they say
    uploads    pictures that were searched by, by the digest of their bytes

Rows are added and never changed. What a request has written is on the disk before it is answered
(`orchestration.decisions.database`). Other modules define their tables on `METADATA` and write within `Store.begin()`.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sql
from sqlalchemy.exc import IntegrityError as AlreadyThere
from sqlalchemy.exc import SQLAlchemyError

from orchestration.decisions.database import open_database
from schemas.documents import UNDETERMINED
from schemas.errors import NotFoundError, UsageError

KEY_DIGITS = 24
METADATA = sql.MetaData()
KEPT = sql.Table(
    "kept", METADATA, sql.Column("name", sql.String, primary_key=True), sql.Column("value", sql.String, nullable=False)
)
ARTICLES = sql.Table(
    "articles",
    METADATA,
    sql.Column("key", sql.String, primary_key=True),
    sql.Column("texts", sql.Text, nullable=False),  # JSON: role -> text
    sql.Column("language", sql.String, nullable=False),
    sql.Column("origin", sql.String, nullable=False),  # NAME@VERSION and id of a data set's document; "": typed in
    sql.Column("first_seen", sql.String, nullable=False),  # ISO 8601, UTC
)
UPLOADS = sql.Table(
    "uploads",
    METADATA,
    sql.Column("key", sql.String, primary_key=True),
    sql.Column("bytes", sql.LargeBinary, nullable=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """Texts that pictures are searched for.

    Attributes:
        texts: by role (`schemas.documents.Role`), none blank.
        language: that they are said to be in; `und`: it is to be found out.
        origin: `NAME@VERSION ID` of a document of a data set; "": somebody's own text.
    """

    texts: Mapping[str, str]
    language: str = UNDETERMINED
    origin: str = ""

    @property
    def key(self) -> str:
        """Return the digest of what it says: equal articles have one key."""
        said = json.dumps([sorted(self.texts.items()), self.language, self.origin], ensure_ascii=False)
        return hashlib.sha256(said.encode()).hexdigest()[:KEY_DIGITS]


class Store:
    """The database, opened; may be used by several threads and processes.

    Raises:
        UsageError: it cannot be opened.
    """

    def __init__(self, address: str) -> None:
        self.engine = open_database(address)
        try:
            METADATA.create_all(self.engine)
        except SQLAlchemyError as problem:
            line, name = str(problem).splitlines()[0], self.engine.url.render_as_string(hide_password=True)
            raise UsageError(f"--store {name}: cannot be opened: {line}") from problem

    def begin(self) -> AbstractContextManager[sql.Connection]:
        """Return a transaction: committed, on the disk, when its block ends without an error."""
        return self.engine.begin()

    def close(self) -> None:
        """Close its connections."""
        self.engine.dispose()

    def secret(self) -> bytes:
        """Return the random number that signatures of these pages are made with, the same for all their processes."""
        self._add(KEPT, name="secret", value=secrets.token_hex(32))
        with self.engine.connect() as connection:
            found: str = connection.execute(sql.select(KEPT.c.value).where(KEPT.c.name == "secret")).scalar_one()
        return bytes.fromhex(found)

    def keep_article(self, article: Article) -> str:
        """Keep an article and return its key."""
        self._add(
            ARTICLES,
            key=article.key,
            texts=json.dumps(dict(article.texts), ensure_ascii=False),
            language=article.language,
            origin=article.origin,
            first_seen=datetime.now(UTC).isoformat(timespec="seconds"),
        )
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
        with self.engine.connect() as connection:
            return [_article(row) for row in connection.execute(newest)]

    def keep_upload(self, data: bytes) -> str:
        """Keep a picture and return its key."""
        key = hashlib.sha256(data).hexdigest()[:KEY_DIGITS]
        self._add(UPLOADS, key=key, bytes=data)
        return key

    def upload(self, key: str) -> bytes:
        """Return a kept picture.

        Raises:
            NotFoundError: there is none of that key.
        """
        return bytes(self._row(UPLOADS, key).bytes)

    def _row(self, table: sql.Table, key: str) -> Any:
        with self.engine.connect() as connection:
            found = connection.execute(sql.select(table).where(table.c.key == key)).one_or_none()
        if found is None:
            raise NotFoundError(f"{table.name}: none is kept under {key[:KEY_DIGITS]!r}")
        return found

    def _add(self, table: sql.Table, **values: Any) -> None:
        """Add a row, unless its key is there."""
        try:
            with self.begin() as connection:
                connection.execute(sql.insert(table).values(**values))
        except AlreadyThere:
            return


def _article(row: Any) -> Article:
    return Article(texts=json.loads(row.texts), language=row.language, origin=row.origin)
