"""What people did on the pages, in their database (`database.py`): texts and pictures they searched with, decisions.

Rows are added, never changed. Old texts and pictures are removed (`Store.expire`); the log of decisions only grows.
What a method has written is on the disk when it returns.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import sqlalchemy as sql
from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from newsroom.decisions.database import (
    ARTICLES,
    DECISIONS,
    KEPT,
    KEY_DIGITS,
    RANKINGS,
    UPLOADS,
    connected,
    database_in,
    open_database,
)
from newsroom.decisions.records import Action, Decision, Ranking, article_digest
from schemas.configs import restore
from schemas.documents import UNDETERMINED, Role
from schemas.messages import NotFoundError, UsageError
from schemas.versions import plain

READ_AT_ONCE = 500
BEGINNING = 120  # characters of an article
_INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_READABLE = select(DECISIONS).where(DECISIONS.c.action.in_([*Action]))  # older logs have judgements of links, too
_KINDS = {"articles": "article", "uploads": "uploaded picture"}


class ConflictError(UsageError):
    """Somebody else decided on the picture meanwhile; nothing was written."""


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
    """The database, opened; a context manager. May be used by several threads, and by several processes at once.

    Every method raises a `BuildError` where the database does not answer, or refuses.
    """

    def __init__(self, engine: sql.Engine) -> None:
        self._engine = engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()

    def secret(self) -> bytes:
        """Return the random number that signatures of these pages are made with, the same for all their processes."""
        self._add(KEPT, name="secret", value=secrets.token_hex(32))
        with connected(self._engine) as connection:
            found: str = connection.execute(select(KEPT.c.value).where(KEPT.c.name == "secret")).scalar_one()
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
        newest = select(ARTICLES).order_by(ARTICLES.c.first_seen.desc(), ARTICLES.c.key).limit(count)
        with connected(self._engine) as connection:
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
        is_unused = article.digest.not_in(select(DECISIONS.c.article))
        with connected(self._engine, is_writing=True) as connection:
            gone = connection.execute(sql.delete(ARTICLES).where(article.first_seen < before, is_unused)).rowcount
            return gone + connection.execute(sql.delete(UPLOADS).where(UPLOADS.c.at < before)).rowcount

    def _row(self, table: sql.Table, key: str) -> Any:
        with connected(self._engine) as connection:
            found = connection.execute(select(table).where(table.c.key == key)).one_or_none()
        if found is None:
            raise NotFoundError(f"no {_KINDS[table.name]} {key[:KEY_DIGITS]!r}; it was deleted or never saved")
        return found

    def _add(self, table: sql.Table, **values: Any) -> None:
        with connected(self._engine, is_writing=True) as connection:
            _add(connection, table, values)

    def decide(self, decision: Decision, ranking: Ranking | None = None, *, after: int | None = None) -> Decision:
        """Write a decision, with the ranking in which the picture was shown, and return it as it is in the log.

        When this returns, both outlive a kill of the process.

        Args:
            decision: on a picture of the ranking, or a label.
            ranking: None for labels.
            after: number of the last decision on the picture that whoever decides has seen, 0: none; None: it does not
                matter. In a blind comparison, of those in that comparison.

        Raises:
            UsageError: a picture was decided on that the ranking does not have, or there is no ranking.
            ConflictError: another decision came between; nothing was written.
        """
        shown = None if ranking is None else next((p for p in ranking.pictures if p.image == decision.image), None)
        if not (ranking is None if decision.action.is_label else shown is not None):
            raise UsageError(f"{decision.action}: expected a picture of the ranking on the page, or a label")
        decision = replace(decision, at=datetime.now(UTC).isoformat(timespec="milliseconds"), ranking="")
        if ranking is not None and shown is not None:
            decision = replace(decision, ranking=ranking.digest, article=ranking.article, title=shown.title)
            decision = replace(decision, dataset=ranking.dataset)  # which both are of
        with connected(self._engine, is_writing=True) as connection:
            if ranking is not None:
                self._keep(connection, decision, ranking)
                if after is not None:
                    _check_after(connection, decision, ranking, after)
            values = {name: value for name, value in plain(decision).items() if name != "number"}
            if ranking is not None and ranking.is_blind and shown is not None:
                champion, challenger = ranking.models
                side = 1 if shown.model == challenger else -1
                values |= {"champion": champion, "challenger": challenger, "side": side}
            (number,) = connection.execute(DECISIONS.insert().values(values)).inserted_primary_key or (0,)
        return replace(decision, number=number)

    def _keep(self, connection: sql.Connection, decision: Decision, ranking: Ranking) -> None:
        """Write a ranking that is not there yet. From here on, nobody else decides on a picture of this article."""
        if connection.dialect.name == "postgresql":  # SQLite has one writer, from its first INSERT on
            connection.execute(select(sql.func.pg_advisory_xact_lock(sql.func.hashtext(decision.article))))
        values = {"digest": decision.ranking, "article": decision.article, "ranking": plain(ranking)}
        _add(connection, RANKINGS, values)

    def decisions(self, *, article: str = "") -> Iterator[Decision]:
        """Yield decisions in order, of one article by its digest, or of all; a few hundred are in memory at a time."""
        return self._decisions(DECISIONS.c.article == article if article else sql.true())

    def compared(self, article: str, models: tuple[str, ...]) -> Iterator[Decision]:
        """Yield the blind decisions on an article in comparisons of two models, in order."""
        return self._decisions(DECISIONS.c.article == article, *_between(models))

    def blind(self) -> Sequence[sql.Row[Any]]:
        """Return champion, challenger, dataset, article, image, action and side of all blind decisions, in order."""
        names = ("champion", "challenger", "dataset", "article", "image", "action", "side")
        wanted = select(*(DECISIONS.c[name] for name in names)).where(DECISIONS.c.champion > "")
        with connected(self._engine) as connection:
            return connection.execute(wanted.order_by(DECISIONS.c.number)).all()

    def latest(self, count: int, *, before: int | None = None, containing: str = "") -> list[Decision]:
        """Return the last `count` decisions, or the last before a number, the newest first.

        Args:
            count: at most so many.
            before: a number.
            containing: a text that the title, the note, the name of who decided or the document has.
        """
        wanted = _READABLE if before is None else _READABLE.where(DECISIONS.c.number < before)
        if containing:
            columns = (DECISIONS.c[name] for name in ("title", "note", "who", "document"))
            wanted = wanted.where(sql.or_(*(column.icontains(containing, autoescape=True) for column in columns)))
        with connected(self._engine) as connection:
            rows = connection.execute(wanted.order_by(DECISIONS.c.number.desc()).limit(count)).mappings().all()
        return [_decision(row) for row in rows]

    def _decisions(self, *conditions: sql.ColumnElement[bool]) -> Iterator[Decision]:
        ordered = _READABLE.where(*conditions).order_by(DECISIONS.c.number)
        with connected(self._engine) as connection:
            for row in connection.execute(ordered, execution_options={"yield_per": READ_AT_ONCE}).mappings():
                yield _decision(row)

    def rankings(self, digests: Iterable[str]) -> dict[str, Ranking]:
        """Return rankings by their digests; what is not in the log is left out."""
        wanted = sorted(set(digests))
        found: dict[str, Ranking] = {}
        for start in range(0, len(wanted), READ_AT_ONCE):
            some = RANKINGS.c.digest.in_(wanted[start : start + READ_AT_ONCE])
            with connected(self._engine) as connection:
                for row in connection.execute(select(RANKINGS).where(some)):
                    found[row.digest] = restore(Ranking, row.ranking)
        return found

    def subjects(self, digests: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the beginning of the article of each ranking, and the address of the page that showed it."""
        texts = RANKINGS.c.ranking["texts"]
        given = sql.func.coalesce(*(texts[str(role)].as_string() for role in Role), "")
        wanted = select(
            RANKINGS.c.digest, sql.func.substr(given, 1, BEGINNING), RANKINGS.c.ranking["query"].as_string()
        )
        with connected(self._engine) as connection:
            rows = connection.execute(wanted.where(RANKINGS.c.digest.in_(sorted({*digests})))).all()
        return {digest: (beginning, query or "") for digest, beginning, query in rows}


def _add(connection: sql.Connection, table: sql.Table, values: Mapping[str, Any]) -> None:
    """Add a row, unless its key is there."""
    connection.execute(_INSERT[connection.dialect.name](table).on_conflict_do_nothing(), values)


def _article(row: Any) -> Article:
    return Article(texts=row.texts, language=row.language, origin=row.origin, images=tuple(row.images))


def _now(shift: timedelta = timedelta()) -> str:
    return (datetime.now(UTC) + shift).isoformat(timespec="seconds")


def _check_after(connection: sql.Connection, decision: Decision, ranking: Ranking, after: int) -> None:
    """Raise a `ConflictError` where the last decision on the picture is another than the one that was seen."""
    last = select(DECISIONS.c.number).where(
        DECISIONS.c.article == decision.article, DECISIONS.c.image == decision.image
    )
    if ranking.is_blind:
        last = last.where(*_between(ranking.models))
    if (connection.execute(last.order_by(DECISIONS.c.number.desc()).limit(1)).scalar() or 0) != after:
        raise ConflictError(f"{decision.image}: somebody else decided on the picture meanwhile; nothing was written")


def _between(models: Sequence[str]) -> tuple[sql.ColumnElement[bool], ...]:
    return DECISIONS.c.champion == models[0], DECISIONS.c.challenger == models[1]


def _decision(row: Any) -> Decision:
    return restore(Decision, {each.name: row[each.name] for each in fields(Decision)})


def open_store(lake: str, store: str) -> Store:
    """Return what people did on the pages of a lake.

    Args:
        lake: path or URI of the lake.
        store: address of the database; empty: the one in the lake.

    Raises:
        NotFoundError: the pages have not been started yet.
    """
    return Store(open_database(store or database_in(lake), must_exist=True))
