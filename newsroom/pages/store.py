"""The database of what people did on the pages: SQLite beside the lake, or PostgreSQL by its address.

    kept       random numbers of this installation
    articles   texts that were searched with, by the digest of what they say
    uploads    pictures that were searched by, by the digest of their bytes

Rows are added, never changed, and removed when they are old (`Store.expire`). What a request has written is on the disk
before it is answered (`newsroom.decisions.database`).

What is to be forgotten leaves a mark where it was (`forget_on_pages`): in a row of a decision, a label or a ranking,
the id of a document and the hash of an image become a random mark, the same in all rows, and titles and notes become
`forgotten`. What was decided, by whom and when stays. Articles that are such a document, and uploads that are such an
image, are removed.
"""

import hashlib
import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sql
from sqlalchemy.exc import IntegrityError as AlreadyThere
from sqlalchemy.exc import SQLAlchemyError

from newsroom.decisions.database import make_tables, open_database
from newsroom.decisions.log import DECISIONS, RANKINGS, DecisionLog, changing_rows
from newsroom.decisions.records import article_digest
from schemas.documents import UNDETERMINED
from schemas.errors import BuildError, NotFoundError, UsageError

FORGOTTEN = "forgotten"
_ZEROS = "0" * 16  # the mark of an image begins with them
KEY_DIGITS = 24
REMOVED_AT_ONCE = 500
_KINDS = {"articles": "article", "uploads": "uploaded picture"}
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
    sql.Column("first_seen", sql.String, nullable=False, index=True),  # ISO 8601, UTC
    sql.Column("images", sql.Text, nullable=False),  # JSON: content hashes of the document's own
)
UPLOADS = sql.Table(
    "uploads",
    METADATA,
    sql.Column("key", sql.String, primary_key=True),
    sql.Column("bytes", sql.LargeBinary, nullable=False),
    sql.Column("at", sql.String, nullable=False, index=True),  # ISO 8601, UTC
)


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
    store = Store(address)
    DecisionLog(store.engine)  # makes tables that are not there
    engine = store.engine
    try:
        with changing_rows(engine) as connection:
            count = sum(_forget(connection, marks, is_dry_run=is_dry_run))
        if count and not is_dry_run and engine.dialect.name == "sqlite":
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sql.text("VACUUM"))
                connection.execute(sql.text("PRAGMA wal_checkpoint(TRUNCATE)"))
    except SQLAlchemyError as problem:
        raise BuildError(f"--store: {str(problem).splitlines()[0]}") from problem
    finally:
        store.close()
    return count


def _forget(connection: sql.Connection, marks: Mapping[str, str], *, is_dry_run: bool) -> list[int]:
    """Change the rows of each table, unless it is a dry run, and return how many name something, by table."""
    counts, gone = [], {"title": FORGOTTEN, "note": FORGOTTEN}
    for table, key, names in (
        (DECISIONS, "number", ("document", "image")),
        (RANKINGS, "digest", ()),
        (ARTICLES, "key", ()),
        (UPLOADS, "key", ()),
    ):
        columns = [table.c[key], *(column for column in table.columns if column.name not in (key, "bytes"))]
        found = 0
        for row in connection.execute(sql.select(*columns)).mappings().all():
            changed: dict[str, Any] | None = None
            if names and any(row[name] in marks for name in names):
                changed = {name: marks.get(row[name], row[name]) for name in names}
                changed |= {name: value for name, value in gone.items() if row.get(name)}
            elif table is RANKINGS and any(each["image"] in marks for each in row["ranking"]["pictures"]):
                pictures = [_unnamed(each, marks) for each in row["ranking"]["pictures"]]
                changed = {"ranking": row["ranking"] | {"pictures": pictures}}
            elif (
                table is ARTICLES
                and (row["origin"].partition(" ")[2] in marks or not marks.keys().isdisjoint(json.loads(row["images"])))
            ) or (table is UPLOADS and any(row["key"] == each[:KEY_DIGITS] for each in marks)):
                changed = {}
            if changed is None:
                continue
            found += 1
            if not is_dry_run:
                change = sql.update(table).values(changed) if changed else sql.delete(table)
                connection.execute(change.where(table.c[key] == row[key]))
        counts.append(found)
    return counts


def _unnamed(picture: Mapping[str, Any], marks: Mapping[str, str]) -> dict[str, Any]:
    """Return a picture of a ranking, with a mark and without its title where it is to be forgotten."""
    image = picture["image"]
    return dict(picture) | ({"image": marks[image], "title": FORGOTTEN} if image in marks else {})


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
    """The database, opened; may be used by several threads and processes.

    Raises:
        UsageError: it cannot be opened.
    """

    def __init__(self, address: str) -> None:
        self.engine = open_database(address)
        try:
            with self.engine.begin() as connection:
                make_tables(connection, METADATA)
        except SQLAlchemyError as problem:
            line, name = str(problem).splitlines()[0], self.engine.url.render_as_string(hide_password=False)
            raise UsageError(f"--store {name}: cannot be opened: {line}") from problem

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
            first_seen=_now(),
            images=json.dumps(article.images),
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
        self._add(UPLOADS, key=key, bytes=data, at=_now())
        return key

    def upload(self, key: str) -> bytes:
        """Return a kept picture.

        Raises:
            NotFoundError: there is none of that key.
        """
        return bytes(self._row(UPLOADS, key).bytes)

    def expire(self, days: int, log: DecisionLog) -> int:
        """Remove uploads, and articles on whose pictures nobody decided, that are so many days old; return how many."""
        before = _now(-timedelta(days=days))
        old = sql.select(ARTICLES.c.key, ARTICLES.c.texts).where(ARTICLES.c.first_seen < before)
        with self.engine.connect() as connection:
            rows = connection.execute(old.execution_options(yield_per=REMOVED_AT_ONCE))
            digests = [(row.key, article_digest(json.loads(row.texts))) for row in rows]
        gone = 0
        for start in range(0, len(digests), REMOVED_AT_ONCE):
            some = digests[start : start + REMOVED_AT_ONCE]
            decided = log.decided(digest for _, digest in some)
            unused = [key for key, digest in some if digest not in decided]
            with self.engine.begin() as connection:
                gone += connection.execute(sql.delete(ARTICLES).where(ARTICLES.c.key.in_(unused))).rowcount
        with self.engine.begin() as connection:
            return gone + connection.execute(sql.delete(UPLOADS).where(UPLOADS.c.at < before)).rowcount

    def _row(self, table: sql.Table, key: str) -> Any:
        with self.engine.connect() as connection:
            found = connection.execute(sql.select(table).where(table.c.key == key)).one_or_none()
        if found is None:
            raise NotFoundError(f"no {_KINDS[table.name]} {key[:KEY_DIGITS]!r}; it was deleted or never saved")
        return found

    def _add(self, table: sql.Table, **values: Any) -> None:
        """Add a row, unless its key is there."""
        try:
            with self.engine.begin() as connection:
                connection.execute(sql.insert(table).values(**values))
        except AlreadyThere:
            return


def _article(row: Any) -> Article:
    images = tuple(json.loads(row.images))
    return Article(texts=json.loads(row.texts), language=row.language, origin=row.origin, images=images)


def _now(shift: timedelta = timedelta()) -> str:
    return (datetime.now(UTC) + shift).isoformat(timespec="seconds")
